/* Finished stages: what an unfinished cell has measured so far, kept beside its journal so that a kill loses
 * only the stage it came in.
 *
 * One file a result, <out>/<run id>.<stage>.<what>.partial: HDF5 in the run file's own schema, so that what
 * is read back is bit for bit what was measured; each appears whole or not at all, and all go when the run
 * file is there. A result is read back only under the key it was written with: the same program (its bytes),
 * number of threads, cell and parameters. Like the journal it is a comfort: what cannot be written or read is
 * computed again. */
#ifndef FL_RUN_FINISHED_STAGE_H
#define FL_RUN_FINISHED_STAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/hash.h"
#include "harness/base/status.h"
#include "harness/run/cell_list.h"
#include "harness/eval/task.h"
#include "harness/measure/text_evaluation.h"

/* cell: equipped, and trained where it trains. */
fl_status fl_finished_key(const fl_cell_work *cell, size_t threads, fl_hash *out, fl_error *error);

/* what: "own", "linear_off", "exact_off" ... */
void fl_finished_text_save(const fl_cell_list *list, const fl_cell_work *cell, const fl_hash *key,
                           const char *what, const fl_text_result *result, double frozen_seconds);
/* False: there is none. *out is then empty. */
bool fl_finished_text_load(const fl_cell_list *list, const fl_cell_work *cell, const fl_hash *key,
                           const char *what, fl_text_result *out, double *frozen_seconds);

/* what: "own", "full", "linear_off"; task: its place in the cell's list. */
void fl_finished_task_save(const fl_cell_list *list, const fl_cell_work *cell, const fl_hash *key,
                           size_t task, const char *what, const fl_task_result *result);
bool fl_finished_task_load(const fl_cell_list *list, const fl_cell_work *cell, const fl_hash *key,
                           size_t task, const char *what, fl_task_result *out);

#endif
