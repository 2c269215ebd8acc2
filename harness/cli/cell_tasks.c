#include "harness/cli/cell_tasks.h"

#include <string.h>

#include "harness/base/memory.h"

const fl_task_result *fl_task_table_at(const fl_task_table *table, size_t task, size_t row) {
    const fl_task_result *result = &table->results[task * table->rows + row];
    return result->name != NULL ? result : NULL;
}

static fl_status run_task(const fl_network *network, const fl_tokenizer *tokenizer,
                          const fl_task_config *config, const fl_mechanism *const *mechanisms, size_t count,
                          const fl_progress *progress, fl_task_result *results, fl_error *error) {
    fl_task *task = NULL;
    FL_TRY(fl_task_open(config, network, tokenizer, &task, error));
    fl_status status = fl_task_evaluate(task, NULL, progress, &results[0], error);
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        if (mechanisms[i] == NULL) continue;
        status = fl_task_evaluate(task, mechanisms[i], progress, &results[1 + i], error);
    }
    fl_task_close(task);
    return status;
}

fl_status fl_task_table_run(const fl_network *network, const fl_tokenizer *tokenizer,
                            const fl_task_config_list *tasks, const fl_mechanism *const *mechanisms,
                            size_t count, const fl_progress *progress, fl_task_table *out, fl_error *error) {
    *out = (fl_task_table){.tasks = tasks->count, .rows = 1 + count};
    FL_TRY(FL_ALLOCATE(&out->results, out->tasks * out->rows, error));
    for (size_t t = 0; t < tasks->count; t++) {
        fl_status status = run_task(network, tokenizer, &tasks->items[t], mechanisms, count, progress,
                                    out->results + t * out->rows, error);
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
