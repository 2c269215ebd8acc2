/* Item pairs: the items of a task that two run files share, and how surely one run does better on them.
 *
 * Items are the same when the hashes of their documents are; a hash that occurs several times is matched in order. Results are
 * differences second - first, over the items in common (`sequences` counts them); not known, with the reason, when there are
 * none. */
#ifndef FL_ANALYSIS_ITEM_PAIRS_H
#define FL_ANALYSIS_ITEM_PAIRS_H

#include "analysis/intervals.h"
#include "harness/base/status.h"
#include "harness/store/run_file.h"

/* column: of /tasks/<task>/items, of zeros and ones: "correct", "correct_norm". The difference of the shares of right items, its
 * interval (normal, from the standard error of the paired differences) and McNemar's exact p (eval/metrics.h). */
fl_status fl_item_pairs_accuracy(fl_run_reader *first, fl_run_reader *second, const char *task, const char *column,
                                 fl_interval *out, fl_error *error);

/* weights: the column that perplexity = exp(-sum of log-likelihoods / sum of weights) is taken over ("words",
 * "choice_tokens"); NULL: items weigh the same. Bootstrap over the items (bootstrap.h). */
fl_status fl_item_pairs_perplexity(fl_run_reader *first, fl_run_reader *second, const char *task, const char *weights,
                                   fl_interval *out, fl_error *error);

/* The interval of an accuracy from what a run file says of the comparison. */
fl_interval fl_item_pairs_interval(double difference, double difference_stderr, double exact_p, double items);

#endif
