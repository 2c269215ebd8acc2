/* Task columns: the per-item arrays of a task result, as one table for whoever treats all of them alike
 * (writing, reading, pooling). `subject`, `answer` and `document_hash` are not numbers and not among them. */
#ifndef FL_EVAL_TASK_COLUMNS_H
#define FL_EVAL_TASK_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/eval/task.h"

typedef struct fl_task_column {
    const char *name;
    size_t offset;   /* of a pointer in fl_task_result */
    bool is_integer; /* int64_t, else double */
    bool per_choice; /* [n][C], else [n] */
    const char *units, *description;
} fl_task_column;

const fl_task_column *fl_task_columns(size_t *count);
/* NULL when there is none of this name. */
const fl_task_column *fl_task_column_find(const char *name);

/* The array, NULL where the task has no such column. */
void *fl_task_column_data(const fl_task_column *column, const fl_task_result *result);
void fl_task_column_set(const fl_task_column *column, fl_task_result *result, void *data);

#endif
