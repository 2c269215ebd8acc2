/* Run groups: runs that differ in nothing but seeds are one row.
 *
 * Two runs are of one group when their configurations are equal in every key but `variant.seed`, `train.seed` and `name`.
 * A figure of a group of n runs is
 *   mean = sum x_i / n,   sd = sqrt(sum (x_i - mean)^2 / (n - 1)),
 * the sample standard deviation: the spread over seeds of one run, not the error of the mean (sd / sqrt(n)), and not the
 * error over sequences or items of one run (intervals.h, `_stderr`). A run that has diverged makes both NaN or infinite. */
#ifndef FL_ANALYSIS_RUN_GROUPS_H
#define FL_ANALYSIS_RUN_GROUPS_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"

typedef struct fl_run_group {
    char *label;  /* as of a run, seeds left out; unique among the groups */
    size_t count; /* n, at least 1 */
    size_t *runs; /* [count] indices into set->runs, in the set's order; the first stands for the group */
    bool older;   /* a run of it is (fl_run_entry.older) */
    bool diverged;
} fl_run_group;

typedef struct fl_run_groups {
    const fl_run_set *set; /* borrowed */
    size_t count;
    fl_run_group *items; /* in the order of their first runs */
} fl_run_groups;

/* each: every run is a group of its own, with its own label. */
fl_status fl_run_groups_make(const fl_run_set *set, bool each, fl_run_groups **out, fl_error *error);
/* NULL is fine. */
void fl_run_groups_destroy(fl_run_groups *groups);

/* The run that stands for group `index`: its configuration but for seeds is that of all. */
const fl_run_entry *fl_run_group_first(const fl_run_groups *groups, size_t index);
/* Some group has more than one run. */
bool fl_run_groups_any_seeds(const fl_run_groups *groups);

typedef struct fl_run_spread {
    size_t n;    /* runs that have the figure; 0: none, and the others are NaN */
    double mean;
    double sd;   /* NaN for n < 2 */
} fl_run_spread;

/* A metric (fl_run_metric_value) of group `index`. */
fl_run_spread fl_run_group_metric(const fl_run_groups *groups, size_t index, const char *metric);
/* The same of values got elsewhere (a position's error in each run). */
fl_run_spread fl_run_spread_of(const double *values, size_t count);

#endif
