/* The smollm2 pack's items beside our requests: what the two sides are compared by. */
#ifndef FL_TESTS_SUPPORT_TASK_REFERENCE_H
#define FL_TESTS_SUPPORT_TASK_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "harness/model/json_rows.h"
#include "harness/eval/task_config.h"
#include "harness/model/tokenizer.h"

/* One file of reference items and how the task has to be set to reproduce it. */
typedef struct fl_reference_task {
    const char *task, *items, *data; /* task name; item file and data under the packs */
    size_t shots, max_length;
    double limit; /* documents of each subject in the item file */
} fl_reference_task;

extern const fl_reference_task fl_reference_tasks[];
extern const size_t fl_reference_task_count;

/* Config for it; skips the test when pack or data are absent. */
fl_task_config fl_reference_config(const fl_reference_task *reference, const char *test);

/* The item rows. */
fl_json_rows *fl_reference_rows(const fl_reference_task *reference);

/* Member "requests" or "windows" of a row. */
const cJSON *fl_reference_requests(const fl_json_rows *rows, size_t row);

/* sha256 of ids as int32 little-endian. */
void fl_ids_sha256(const int32_t *ids, size_t count, char text[65]);

#endif
