/* Run tables: datasets of many runs as one table in long form. */
#ifndef FL_ANALYSIS_RUN_TABLES_H
#define FL_ANALYSIS_RUN_TABLES_H

#include <stddef.h>

#include "analysis/run_set.h"
#include "analysis/table.h"
#include "harness/base/status.h"

/* Long form: one row a run and index along each axis ("layer", "position", ...), one column a dataset named
 * by its path without the leading slash.
 *
 * Beside them stand the run's id, label, name, tier and status, and of its configuration variant.rule, variant.window,
 * variant.sinks (as rule, window, sinks) and the axes of the set.
 *
 * `wanted` names datasets, or groups, of which the datasets with the fewest axes count; all must have the same axes. A run that lacks
 * one has empty values; a dataset that no run has is FL_ERROR_ARGUMENT. */
fl_status fl_run_tables_long(const fl_run_set *set, const char *const *wanted, size_t wanted_count,
                             fl_table *out, fl_error *error);

/* The same for every dataset whose axes are exactly `axes` ("layer,position"). */
fl_status fl_run_tables_by_axes(const fl_run_set *set, const char *axes, fl_table *out, fl_error *error);

#endif
