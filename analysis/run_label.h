/* Run label: sorts the runs of a set and names each as `run` and `plan` do (cell_label.h). */
#ifndef FL_ANALYSIS_RUN_LABEL_H
#define FL_ANALYSIS_RUN_LABEL_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"

/* Sorts set->runs as run_set.h says and fills every label. The axes are known (run_axes.h). */
fl_status fl_run_label_all(fl_run_set *set, fl_error *error);

/* Labels of the runs with the indices `runs`, unique among them; labels[i] = an fl_memory block, or all NULL on failure. */
fl_status fl_run_label_some(const fl_run_set *set, const size_t *runs, size_t count, bool without_seeds, char **labels,
                            fl_error *error);

#endif
