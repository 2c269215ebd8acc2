#include "harness/store/merge_tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/store/task_pool.h"
#include "harness/store/task_record.h"

enum { PATH_BYTES = 384 };

static fl_status read_results(fl_run_reader *reader, fl_merge_tasks *out, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&out->results, out->configs.count, error));
    for (size_t t = 0; t < out->configs.count; t++) {
        const fl_task_config *config = &out->configs.items[t];
        FL_TRY(fl_task_record_read(reader, config, &out->results[t], error));
        FL_TRY(fl_task_result_summarise(config, &out->results[t], error));
    }
    return FL_OK;
}

fl_status fl_merge_tasks_read(fl_run_reader *reader, const fl_node *config, fl_merge_tasks *out,
                              fl_error *error) {
    *out = (fl_merge_tasks){0};
    FL_TRY(fl_task_config_bind(fl_node_get(config, "tasks"), NULL, &out->configs, error));
    fl_status status = FL_OK;
    if (out->configs.count > 0) {
        status = read_results(reader, out, error);
    } else if (fl_run_reader_has(reader, "/tasks")) {
        status = fl_run_reader_refuse(reader, "/tasks", "holds results of tasks that /config does not list",
                                      error);
    }
    if (status != FL_OK) fl_merge_tasks_release(out);
    return status;
}

void fl_merge_tasks_release(fl_merge_tasks *tasks) {
    for (size_t t = 0; tasks->results != NULL && t < tasks->configs.count; t++)
        fl_task_result_release(&tasks->results[t]);
    fl_memory_free(tasks->results);
    fl_task_config_release(&tasks->configs);
    *tasks = (fl_merge_tasks){0};
}

bool fl_merge_tasks_may_differ(const fl_merge_tasks *tasks, const char *key) {
    static const char prefix[] = "tasks.";
    static const char *const selecting[] = {"offset", "limit", "path", "subject"};
    char *rest = NULL;
    if (strncmp(key, prefix, sizeof prefix - 1) != 0) return false;
    const unsigned long index = strtoul(key + sizeof prefix - 1, &rest, 10);
    if (*rest != '.' || index >= tasks->configs.count) return false;
    for (size_t i = 0; i < sizeof selecting / sizeof selecting[0]; i++) {
        if (strcmp(rest + 1, selecting[i]) == 0) return true;
    }
    const bool made = tasks->configs.items[index].kind->reader == NULL;
    return made && strcmp(rest + 1, "seed") == 0;
}

/* Each run's value of every metric the pooled result has; NaN where a run has none. */
static fl_status write_metrics(const fl_merge_tasks *runs, size_t count, size_t task,
                               const fl_task_result *pooled, fl_run_file *file, fl_error *error) {
    double *values = NULL;
    FL_TRY(FL_ALLOCATE(&values, count, error));
    fl_status status = FL_OK;
    for (size_t m = 0; m < pooled->metric_count && status == FL_OK; m++) {
        char path[PATH_BYTES];
        const char *name = pooled->metrics[m].name;
        for (size_t r = 0; r < count; r++) values[r] = fl_task_result_metric(&runs[r].results[task], name);
        snprintf(path, sizeof path, "/merged/tasks/%s/%s", pooled->label, name);
        status = fl_run_file_write_doubles(file, path, 1, &count, values, "1", "of each run", error);
    }
    fl_memory_free(values);
    return status;
}

static fl_status write_task(const fl_merge_tasks *runs, const char *const *names, size_t count, size_t task,
                            fl_run_file *file, fl_error *error) {
    fl_task_result *results = NULL, pooled = {0};
    int64_t *run = NULL;
    char path[PATH_BYTES];
    FL_TRY(FL_ALLOCATE(&results, count, error));
    fl_status status = FL_OK;
    for (size_t r = 0; r < count; r++) results[r] = runs[r].results[task]; /* borrowed */
    FL_TRY_DONE(status,
                fl_task_pool(&runs[0].configs.items[task], results, names, count, &pooled, &run, error));
    FL_TRY_DONE(status, fl_task_record_write(file, &pooled, error));
    snprintf(path, sizeof path, "/tasks/%s/items/run", pooled.label);
    FL_TRY_DONE(status, fl_run_file_write_integers(file, path, 1, &pooled.count, run, "1",
                                                   "row of /merged/run_id the item came from", error));
    status = write_metrics(runs, count, task, &pooled, file, error);
done:
    fl_task_result_release(&pooled);
    fl_memory_free(run);
    fl_memory_free(results);
    return status;
}

fl_status fl_merge_tasks_write(const fl_merge_tasks *runs, const char *const *names, size_t count,
                               fl_run_file *file, fl_error *error) {
    for (size_t t = 0; t < runs[0].configs.count; t++) FL_TRY(write_task(runs, names, count, t, file, error));
    return FL_OK;
}
