/* Merge tasks: the task results of the run files that are merged (run_merge.h). */
#ifndef FL_STORE_MERGE_TASKS_H
#define FL_STORE_MERGE_TASKS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"
#include "harness/config/node.h"
#include "harness/eval/task.h"
#include "harness/eval/task_config.h"
#include "harness/store/run_file.h"

/* Of one run. */
typedef struct fl_merge_tasks {
    fl_task_config_list configs;
    fl_task_result *results; /* [configs.count] */
} fl_merge_tasks;

/* config: the root of the run's own configuration. FL_ERROR_ARGUMENT when the file lacks a task that it
 * names. On failure *out is empty. */
fl_status fl_merge_tasks_read(fl_run_reader *reader, const fl_node *config, fl_merge_tasks *out,
                              fl_error *error);
void fl_merge_tasks_release(fl_merge_tasks *tasks);

/* Whether runs of one cell may differ in this key of their configuration: "tasks.0.offset", limit, path and
 * subject say which items a run has, and so does the seed of a task that makes its items. */
bool fl_merge_tasks_may_differ(const fl_merge_tasks *tasks, const char *key);

/* runs [count] whose configurations agree; names [count] for messages. Writes /tasks/<label>, pooled, with
 * the run of every item, and under /merged/tasks/<label> each run's metrics. */
fl_status fl_merge_tasks_write(const fl_merge_tasks *runs, const char *const *names, size_t count,
                               fl_run_file *file, fl_error *error);

#endif
