/* Task record: task results and training curves in a run file (results/README.md has the schema). */
#ifndef FL_STORE_TASK_RECORD_H
#define FL_STORE_TASK_RECORD_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/eval/task.h"
#include "harness/store/run_file.h"

/* /tasks/<label>: metrics as attributes, /items with one row an item, /subjects with one row a subject.
 * Columns the task does not have are not there. */
fl_status fl_task_record_write(fl_run_file *file, const fl_task_result *result, fl_error *error);

/* Reads items, subjects and counts of /tasks/<label> back; the metrics are left to fl_task_result_summarise.
 * FL_ERROR_FORMAT when columns do not fit together, FL_ERROR_ARGUMENT when the group or a column that
 * `config`'s kind of task needs for its metrics is not there (older files lack some). On failure *out is
 * empty. */
fl_status fl_task_record_read(fl_run_reader *reader, const fl_task_config *config, fl_task_result *out,
                              fl_error *error);

/* /training: one value a step [steps]; an array may be NULL. */
fl_status fl_task_record_write_training(fl_run_file *file, size_t steps, const double *loss,
                                        const double *gradient_norm, const double *learning_rate,
                                        fl_error *error);

#endif
