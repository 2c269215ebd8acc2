/* Run tables: a whole sweep as one tidy table. */
#ifndef FL_ANALYSIS_RUN_TABLES_H
#define FL_ANALYSIS_RUN_TABLES_H

#include <stddef.h>

#include "analysis/run_set.h"
#include "analysis/table.h"
#include "harness/base/status.h"

/* One row a run: identity, configuration columns, every metric. */
fl_status fl_run_tables_summary(const fl_run_set *set, fl_table *out, fl_error *error);

/* The same for a page: no identities and no configuration, what a reader compares, scores with their standard
 * errors
 * ("0.589 ± 0.012") between the full model's and that with the linear part off. Columns no run has are left
 * out. */
fl_status fl_run_tables_compact(const fl_run_set *set, fl_table *out, fl_error *error);

/* Long form: one row a run and index along each axis ("layer", "position", ...), one column a dataset named
 * by its path without the leading slash.
 *
 * Configuration columns of both tables: variant.rule, variant.window, variant.sinks (as rule, window, sinks)
 * and those that differ between the runs.
 *
 * `wanted` names datasets, or groups whose datasets all count; all must have the same axes. A run that lacks
 * one has empty values; a dataset that no run has is FL_ERROR_ARGUMENT. */
fl_status fl_run_tables_long(const fl_run_set *set, const char *const *wanted, size_t wanted_count,
                             fl_table *out, fl_error *error);

/* The same for every dataset whose axes are exactly `axes` ("layer,position"). */
fl_status fl_run_tables_by_axes(const fl_run_set *set, const char *axes, fl_table *out, fl_error *error);

#endif
