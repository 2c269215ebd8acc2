/* Report certainty: how surely the runs of a set (or groups of runs that differ in seeds only) differ in the figures that a page compares them by.
 *
 * Texts: paired bootstrap over sequences (intervals.h). Accuracies of tasks: paired items, McNemar's exact test (item_pairs.h).
 * Of groups every run of the one is compared with every run of the other, and the interval reaches from the lowest to the
 * highest of all: it leaves zero out only where each pair does. Where nothing can be said, the interval says why (`why_not`). */
#ifndef FL_ANALYSIS_REPORT_CERTAINTY_H
#define FL_ANALYSIS_REPORT_CERTAINTY_H

#include "analysis/intervals.h"
#include "analysis/run_groups.h"
#include "analysis/run_scores.h"
#include "analysis/run_set.h"
#include "harness/base/status.h"

typedef struct fl_report_certainty {
    const fl_run_set *set;       /* borrowed */
    const fl_run_groups *groups; /* borrowed */
    fl_run_sums **sums;          /* [set->count] */
    fl_interval *perplexity, *gain; /* [groups->count]: perplexity, and it minus the same with the linear part off */
} fl_report_certainty;

fl_status fl_report_certainty_create(const fl_run_groups *groups, fl_report_certainty **out, fl_error *error);
/* NULL is fine. */
void fl_report_certainty_destroy(fl_report_certainty *certainty);

/* Group a minus group b in a score. */
fl_status fl_report_between(const fl_report_certainty *certainty, const fl_run_score *score, size_t a, size_t b,
                            fl_interval *out, fl_error *error);
/* A group minus itself with its linear part off. */
fl_status fl_report_against_off(const fl_report_certainty *certainty, const fl_run_score *score, size_t group,
                                fl_interval *out, fl_error *error);

/* What an interval of a difference says: on which side of 0 it lies, when its p (an exact test's, of items) agrees. */
typedef enum fl_verdict { FL_CANNOT_BE_TOLD, FL_BELOW_ZERO, FL_ABOVE_ZERO } fl_verdict;
fl_verdict fl_interval_verdict(const fl_interval *difference);

#endif
