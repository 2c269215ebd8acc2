#include "tests/support/task_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/base/sha256.h"
#include "tests/support/fixture.h"

const fl_reference_task fl_reference_tasks[] = {
    {"mmlu", "smollm2/items_mmlu.jsonl", "mmlu", 5, 8192, 2},
    {"mmlu_continuation", "smollm2/items_mmlu_continuation.jsonl", "mmlu", 0, 8192, 3},
    {"arc_easy", "smollm2/items_arc_easy.jsonl", "arc", 0, 8192, 100},
    {"arc_challenge", "smollm2/items_arc_challenge.jsonl", "arc", 0, 8192, 100},
    {"piqa", "smollm2/items_piqa.jsonl", "piqa", 0, 8192, 100},
    {"winogrande", "smollm2/items_winogrande.jsonl", "winogrande", 0, 8192, 100},
    {"lambada_openai", "smollm2/items_lambada_openai.jsonl", "lambada", 0, 8192, 100},
    {"wikitext", "smollm2/items_wikitext.jsonl", "text", 0, 8192, 8},
    {"wikitext", "smollm2/items_wikitext_len1024.jsonl", "text", 0, 1024, 8},
};
const size_t fl_reference_task_count = sizeof fl_reference_tasks / sizeof fl_reference_tasks[0];

fl_task_config fl_reference_config(const fl_reference_task *reference, const char *test) {
    const char *path = fl_pack_path(reference->data);
    if (path == NULL) fl_fixture_skip(test, reference->data);
    if (fl_pack_path(reference->items) == NULL) fl_fixture_skip(test, reference->items);
    fl_task_config config;
    fl_error error = {0};
    if (fl_task_config_default(reference->task, path, &config, &error) != FL_OK)
        fail_msg("%s", error.message);
    config.shots = reference->shots;
    config.max_length = reference->max_length;
    config.limit = reference->limit;
    return config;
}

fl_json_rows *fl_reference_rows(const fl_reference_task *reference) {
    fl_json_rows *rows = NULL;
    fl_error error = {0};
    if (fl_json_rows_read(fl_pack_path(reference->items), &rows, &error) != FL_OK)
        fail_msg("%s", error.message);
    return rows;
}

const cJSON *fl_reference_requests(const fl_json_rows *rows, size_t row) {
    const cJSON *requests = fl_json_rows_member(rows, row, "requests");
    return requests != NULL ? requests : fl_json_rows_member(rows, row, "windows");
}

void fl_ids_sha256(const int32_t *ids, size_t count, char text[65]) {
    fl_sha256 sha;
    fl_sha256_start(&sha);
    for (size_t i = 0; i < count; i++) {
        const uint32_t id = (uint32_t)ids[i];
        const unsigned char bytes[4] = {(unsigned char)id, (unsigned char)(id >> 8),
                                        (unsigned char)(id >> 16), (unsigned char)(id >> 24)};
        fl_sha256_add(&sha, bytes, sizeof bytes);
    }
    fl_sha256_finish(&sha, text);
}
