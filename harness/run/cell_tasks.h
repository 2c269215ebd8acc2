/* Cell tasks: benchmark scores of a batch of cells, their baselines and the full model, each task's data
 * opened once. */
#ifndef FL_RUN_CELL_TASKS_H
#define FL_RUN_CELL_TASKS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/progress.h"
#include "harness/base/status.h"
#include "harness/eval/task.h"
#include "harness/eval/task_config.h"
#include "harness/model/tokenizer.h"

/* One task: rows [1 + count] of results, row 0 the full model's, row 1 + i that of mechanism i. */
typedef struct fl_task_table {
    size_t tasks, rows;
    fl_task_result *results; /* [tasks][rows] */
} fl_task_table;

/* Where rows of an earlier, interrupted run are found and finished ones are kept. */
typedef struct fl_task_shelf {
    bool (*load)(void *context, size_t task, size_t row, fl_task_result *out);
    void (*save)(void *context, size_t task, size_t row, const fl_task_result *result);
    void (*finished)(void *context, size_t task,
                     double seconds); /* all rows of a task, if any was computed */
    void *context;
} fl_task_shelf;

/* Evaluates every task of the list for the frozen model and for mechanisms [count]; NULL entries are left
 * empty. A task whose rows are all on the shelf is not opened. */
fl_status fl_task_table_run(const fl_network *network, const fl_tokenizer *tokenizer,
                            const fl_task_config_list *tasks, const fl_mechanism *const *mechanisms,
                            size_t count, const fl_task_shelf *shelf, const fl_progress *progress,
                            fl_task_table *out, fl_error *error);
void fl_task_table_release(fl_task_table *table);

/* row: 0 = the full model. NULL when that row was not evaluated. */
const fl_task_result *fl_task_table_at(const fl_task_table *table, size_t task, size_t row);

#endif
