/* Run label: sorts the runs of a set and names each shortly by what tells it from the others. */
#ifndef FL_ANALYSIS_RUN_LABEL_H
#define FL_ANALYSIS_RUN_LABEL_H

#include "analysis/run_set.h"
#include "harness/base/status.h"

/* Sorts set->runs as run_set.h says and fills every label: the rule, sinks + window, then other values that
 * were axes of the sweep or, without a sweep, differ; a convolution and a cache in a few words ("conv 4", "cache 32 recency"). Labels that would be equal get the run id. */
fl_status fl_run_label_all(fl_run_set *set, fl_error *error);

#endif
