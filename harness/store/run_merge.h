/* Merge: several run files of one cell (other texts, other seeds) pooled into one, with every run still to be
 * seen in it.
 *
 * Refused, with all faults named: a file that is missing, unreadable, unfinished or of another schema
 * version; the same run twice; runs that differ in anything but name, text, seeds, mechanism file and which
 * items of a task they hold (path, subject, offset, limit; the seed of made items); runs of other weights;
 * runs that did not measure the same; two runs that hold the same item of a task. Task items are put together
 * and their metrics made anew (task_pool.h). The same cell without a part (/baseline, /ablation) is pooled
 * likewise (merge_baselines.h). */
#ifndef FL_STORE_RUN_MERGE_H
#define FL_STORE_RUN_MERGE_H

#include <stddef.h>

#include "harness/base/status.h"

/* Writes `output` (a path) as a run file of status "merged": the pooled datasets (text_pool.h), /config with
 * the keys all runs agree on, /tasks, and /merged with one row a run: run_id, cell, config, tokens, the
 * single figures and the tasks' metrics. */
fl_status fl_merge_runs(const char *const *paths, size_t count, const char *output, fl_error *error);

#endif
