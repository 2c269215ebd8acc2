/* Run filter: the runs of a set that a user asked for. */
#ifndef FL_ANALYSIS_RUN_FILTER_H
#define FL_ANALYSIS_RUN_FILTER_H

#include "analysis/run_set.h"
#include "harness/base/status.h"

/* Takes all other runs out of the set. `filter` is one condition or several with " and " between them:
 * key=value or key=value|value compares a value of the configuration as text (the key with or without
 * "variant."); anything else is a shell pattern for the label ("kda*"). Labels and axes stay those of the
 * whole set. FL_ERROR_ARGUMENT for a key that no run has, and when no run is left. */
fl_status fl_run_filter_apply(fl_run_set *set, const char *filter, fl_error *error);

#endif
