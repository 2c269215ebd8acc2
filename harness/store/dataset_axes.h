/* Dataset axes: what the axes of a run file's datasets are called (results/README.md). */
#ifndef FL_STORE_DATASET_AXES_H
#define FL_STORE_DATASET_AXES_H

#include <stddef.h>

enum { FL_AXES_MOST = 4 };

/* names[i] = "layer", "head", "position", "item", "step", ... or "axis_<i>" for a dataset the schema does not
 * know. Static strings. Baselines and ablations are named like what they repeat. */
void fl_dataset_axes(const char *path, size_t rank, const char *names[FL_AXES_MOST]);

#endif
