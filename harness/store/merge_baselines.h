/* Merge baselines: what the merged run files say of the same cell without a part (/baseline, /ablation), pooled (run_merge.h).
 *
 * Texts are pooled like the runs themselves (text_pool.h). Of tasks the run files hold a baseline's metrics and how many items
 * only one of the two had right, not its items: accuracies, the paired difference with its standard error and McNemar's exact p
 * follow from those; other metrics of a baseline are not in the merged file. */
#ifndef FL_STORE_MERGE_BASELINES_H
#define FL_STORE_MERGE_BASELINES_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/store/run_file.h"

/* paths [count]: run files of one cell. */
fl_status fl_merge_baseline_texts(const char *const *paths, size_t count, fl_run_file *file, fl_error *error);
/* task: a label. Nothing is written for a baseline that not all runs have. */
fl_status fl_merge_baseline_task(const char *const *paths, size_t count, const char *task, fl_run_file *file,
                                 fl_error *error);

#endif
