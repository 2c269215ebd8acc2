#include "harness/run/cell_tasks.h"

#include <string.h>

#include "harness/base/clock.h"
#include "harness/base/memory.h"

const fl_task_result *fl_task_table_at(const fl_task_table *table, size_t task, size_t row) {
    const fl_task_result *result = &table->results[task * table->rows + row];
    return result->name != NULL ? result : NULL;
}

/* One task's rows. */
typedef struct task_run {
    const fl_network *network;
    const fl_tokenizer *tokenizer;
    const fl_mechanism *const *mechanisms; /* [count] */
    size_t count;
    const fl_task_shelf *shelf;
    const fl_progress *progress;
} task_run;

static bool is_wanted(const task_run *run, size_t row) {
    return row == 0 || run->mechanisms[row - 1] != NULL;
}

static fl_status compute_rows(const task_run *run, const fl_task_config *config, size_t index,
                              fl_task_result *results, fl_error *error) {
    fl_task *task = NULL;
    FL_TRY(fl_task_open(config, run->network, run->tokenizer, &task, error));
    fl_status status = FL_OK;
    for (size_t row = 0; row <= run->count && status == FL_OK; row++) {
        if (!is_wanted(run, row) || results[row].name != NULL) continue;
        status = fl_task_evaluate(task, row == 0 ? NULL : run->mechanisms[row - 1], run->progress,
                                  &results[row], error);
        if (status == FL_OK) run->shelf->save(run->shelf->context, index, row, &results[row]);
    }
    fl_task_close(task);
    return status;
}

static fl_status run_task(const task_run *run, const fl_task_config *config, size_t index,
                          fl_task_result *results, fl_error *error) {
    bool missing = false;
    for (size_t row = 0; row <= run->count; row++) {
        if (is_wanted(run, row) && !run->shelf->load(run->shelf->context, index, row, &results[row]))
            missing = true;
    }
    if (!missing) return FL_OK;
    double began = fl_clock_seconds();
    FL_TRY(compute_rows(run, config, index, results, error));
    run->shelf->finished(run->shelf->context, index, fl_clock_seconds() - began);
    return FL_OK;
}

fl_status fl_task_table_run(const fl_network *network, const fl_tokenizer *tokenizer,
                            const fl_task_config_list *tasks, const fl_mechanism *const *mechanisms,
                            size_t count, const fl_task_shelf *shelf, const fl_progress *progress,
                            fl_task_table *out, fl_error *error) {
    const task_run run = {network, tokenizer, mechanisms, count, shelf, progress};
    *out = (fl_task_table){.tasks = tasks->count, .rows = 1 + count};
    FL_TRY(FL_ALLOCATE(&out->results, out->tasks * out->rows, error));
    for (size_t t = 0; t < tasks->count; t++) {
        fl_status status = run_task(&run, &tasks->items[t], t, out->results + t * out->rows, error);
        if (status == FL_OK) continue;
        fl_task_table_release(out);
        return fl_error_prepend(error, status, "task %s", tasks->items[t].label);
    }
    return FL_OK;
}

void fl_task_table_release(fl_task_table *table) {
    for (size_t i = 0; table->results != NULL && i < table->tasks * table->rows; i++) {
        fl_task_result_release(&table->results[i]);
    }
    fl_memory_free(table->results);
    *table = (fl_task_table){0};
}
