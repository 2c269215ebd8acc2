/* Requests: every context and continuation of lm-evaluation-harness's items, token by token, from the public
 * data. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/eval/task_requests.h"
#include "tests/support/fixture.h"
#include "tests/support/task_reference.h"

static fl_tokenizer *opened(const char *test) {
    const char *path = fl_default_model_path();
    if (path == NULL) fl_fixture_skip(test, "the default model");
    fl_tokenizer *tokenizer = NULL;
    fl_error error = {0};
    if (fl_tokenizer_open(path, &tokenizer, &error) != FL_OK) fail_msg("%s", error.message);
    return tokenizer;
}

static size_t number_of(const cJSON *object, const char *name) {
    return (size_t)cJSON_GetObjectItem(object, name)->valuedouble;
}

/* One request against the reference: count and hash of the context, ids (or their hash) of the continuation.
 */
static void assert_same_request(const fl_score_request *request, const cJSON *reference, const char *where) {
    char hash[65];
    if (request->context_count != number_of(reference, "ctx_n")) {
        fail_msg("%s: %zu context tokens instead of %zu", where, request->context_count,
                 number_of(reference, "ctx_n"));
    }
    fl_ids_sha256(request->context, request->context_count, hash);
    if (strcmp(hash, cJSON_GetObjectItem(reference, "ctx_sha256")->valuestring) != 0)
        fail_msg("%s: context ids", where);
    const cJSON *ids = cJSON_GetObjectItem(reference, "cont");
    if (ids == NULL) {
        assert_int_equal(request->continuation_count, number_of(reference, "cont_n"));
        fl_ids_sha256(request->continuation, request->continuation_count, hash);
        assert_string_equal(hash, cJSON_GetObjectItem(reference, "cont_sha256")->valuestring);
        return;
    }
    assert_int_equal(request->continuation_count, cJSON_GetArraySize(ids));
    size_t i = 0;
    for (const cJSON *id = ids->child; id != NULL; id = id->next, i++) {
        if (request->continuation[i] != id->valueint) fail_msg("%s: continuation id %zu", where, i);
    }
}

/* What the item itself says: gold, characters of the choices, words and bytes of a page. */
static void assert_same_item(const fl_task_requests *task, const fl_task_item *item, const cJSON *row) {
    assert_int_equal(item->document, number_of(row, "doc"));
    const cJSON *gold = cJSON_GetObjectItem(row, "gold"),
                *characters = cJSON_GetObjectItem(row, "choice_chars");
    if (gold != NULL) assert_int_equal(item->gold, gold->valueint);
    for (size_t i = 0; characters != NULL && i < item->request_count; i++) {
        assert_int_equal(task->choice_characters[item->first_request + i],
                         cJSON_GetArrayItem(characters, (int)i)->valueint);
    }
    if (cJSON_GetObjectItem(row, "words") == NULL) return;
    assert_int_equal(item->words, number_of(row, "words"));
    assert_int_equal(item->bytes, number_of(row, "bytes"));
}

static size_t compare_task(const fl_reference_task *reference, const fl_tokenizer *tokenizer,
                           const char *test) {
    fl_task_config config = fl_reference_config(reference, test);
    fl_json_rows *rows = fl_reference_rows(reference);
    fl_task_requests *task = NULL;
    fl_error error = {0};
    if (fl_task_requests_build(&config, tokenizer, 8192, &task, &error) != FL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(task->item_count, rows->count);
    size_t compared = 0;
    for (size_t i = 0; i < rows->count; i++) {
        const fl_task_item *item = &task->items[i];
        const cJSON *requests = fl_reference_requests(rows, i);
        assert_int_equal(item->request_count, cJSON_GetArraySize(requests));
        assert_same_item(task, item, rows->rows[i].object);
        for (size_t r = 0; r < item->request_count; r++, compared++) {
            char where[128];
            snprintf(where, sizeof where, "%s row %zu request %zu", reference->items, i, r);
            assert_same_request(&task->requests[item->first_request + r],
                                cJSON_GetArrayItem(requests, (int)r), where);
        }
    }
    assert_int_equal(task->truncated, 0);
    fl_task_requests_destroy(task);
    fl_json_rows_destroy(rows);
    fl_task_config_clear(&config);
    return compared;
}

static void test_every_request_has_the_ids_of_lm_evaluation_harness(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = opened(__func__);
    size_t compared = 0;
    for (size_t i = 0; i < fl_reference_task_count; i++) {
        compared += compare_task(&fl_reference_tasks[i], tokenizer, __func__);
    }
    print_message("requests compared: %zu\n", compared);
    fl_tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_request_has_the_ids_of_lm_evaluation_harness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
