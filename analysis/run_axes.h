/* Run axes: along which keys the runs of a set differ, and what their values are called. */
#ifndef FL_ANALYSIS_RUN_AXES_H
#define FL_ANALYSIS_RUN_AXES_H

#include "analysis/run_set.h"
#include "harness/base/status.h"

/* Gives every run a setting for every axis of any run (one that its own sweep did not have comes from its configuration),
 * and fills set->axes. A set without any /sweep gets axes from the keys that differ: train, variant.short_conv, cache, gate,
 * beta and softmax_layers as mappings, others leaf by leaf. */
fl_status fl_run_axes_find(fl_run_set *set, fl_error *error);

#endif
