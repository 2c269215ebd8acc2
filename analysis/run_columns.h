/* Run columns: tables with one row a run, or one row a group of runs that differ in seeds only (run_groups.h).
 *
 * Columns are called by what they hold: `label`, `run_id`, `name`, `model`, `text`, `tier`, `status`, `n`, `older`,
 * `warnings`; a key of the configuration (`variant.rule`, or `rule`; `train` where a mapping was swept as a whole); or a metric (`nmse`,
 * `linear_off/perplexity`, `tasks/mmlu/acc`; fl_run_metric).
 *
 * Texts of a table are the run set's, which must outlive it; the groups need not. */
#ifndef FL_ANALYSIS_RUN_COLUMNS_H
#define FL_ANALYSIS_RUN_COLUMNS_H

#include <stddef.h>

#include "analysis/run_groups.h"
#include "analysis/table.h"
#include "harness/base/status.h"

/* For programs: identity, rule, window, sinks and the axes, then every metric of any run; of groups with seeds the mean, and
 * `<metric>_sd` and `n` beside it. `wanted` [wanted_count] chooses columns and their order; none: all. A column that no run has
 * is FL_ERROR_ARGUMENT. */
fl_status fl_run_columns_tidy(const fl_run_groups *groups, const char *const *wanted, size_t wanted_count,
                              fl_table *out, fl_error *error);

/* All of it, a row a run. */
fl_status fl_run_columns_every_run(const fl_run_set *set, fl_table *out, fl_error *error);

/* For readers: label, tier, the figures that are compared and the scores of tasks between the full model's and those with the
 * linear part off, in the units of a reader (KiB, %). The error beside a number is the standard deviation over seeds in a group
 * of several runs, and the standard error over items of a task's score in a single run. */
fl_status fl_run_columns_page(const fl_run_groups *groups, const char *const *wanted, size_t wanted_count,
                              fl_table *out, fl_error *error);

/* What the errors of a page's table are, in one sentence; "" for a table without any. Static. */
const char *fl_run_columns_note(const fl_table *table);

#endif
