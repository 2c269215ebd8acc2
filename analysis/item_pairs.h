/* Item pairs: the items of a task that two run files share, and whether one run is right more often.
 *
 * Items are the same when the hashes of their documents are; a hash that occurs several times is matched in order. */
#ifndef FL_ANALYSIS_ITEM_PAIRS_H
#define FL_ANALYSIS_ITEM_PAIRS_H

#include "analysis/intervals.h"
#include "harness/base/status.h"
#include "harness/store/run_file.h"

/* column: of /tasks/<task>/items, of zeros and ones: "correct", "correct_norm". *out: the difference second - first of the
 * shares of right items, its interval (normal, from the standard error of the paired differences) and McNemar's exact p
 * (eval/metrics.h); `sequences` counts the items in common. Not known, with the reason, when there are none. */
fl_status fl_item_pairs_compare(fl_run_reader *first, fl_run_reader *second, const char *task, const char *column,
                                fl_interval *out, fl_error *error);

/* The same from what a run file says of the comparison. */
fl_interval fl_item_pairs_interval(double difference, double difference_stderr, double exact_p, double items);

#endif
