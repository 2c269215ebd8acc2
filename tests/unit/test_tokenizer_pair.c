/* Context and continuation: lm-evaluation-harness's rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_pair.h"
#include "tests/support/fixture.h"
#include "tests/support/tokenizer_cases.h"

static void assert_ids(const int32_t *found, size_t found_count, const int32_t *ids, size_t count,
                       const char *what) {
    if (found_count != count || (count > 0 && memcmp(found, ids, count * sizeof *ids) != 0))
        fail_msg("%s: %zu ids beginning with %d, expected %zu", what, found_count,
                 found_count > 0 ? (int)found[0] : -1, count);
}

static void assert_pair(const fl_tokenizer *tokenizer, const char *context, const char *continuation,
                        const int32_t *context_ids, size_t context_count, const int32_t *ids, size_t count) {
    fl_token_pair pair;
    fl_error error;
    if (fl_tokenizer_encode_pair(tokenizer, context, strlen(context), continuation, strlen(continuation), -1,
                                 FL_PAIR_LM_EVAL, &pair, &error) != FL_OK)
        fail_msg("\"%s\" + \"%s\": %s", context, continuation, error.message);
    assert_ids(pair.context, pair.context_count, context_ids, context_count, context);
    assert_ids(pair.continuation, pair.continuation_count, ids, count, continuation);
    fl_token_pair_release(&pair);
}

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void check_golden(const fl_tokenizer *tokenizer, const cJSON *item) {
    size_t context_bytes, bytes, context_count, count;
    char *context = fl_member_bytes(item, "context_utf8_hex", &context_bytes);
    char *continuation = fl_member_bytes(item, "continuation_utf8_hex", &bytes);
    int32_t *context_ids = fl_member_ids(item, "ctx", &context_count),
            *ids = fl_member_ids(item, "cont", &count);
    bool refused = cJSON_IsTrue(cJSON_GetObjectItem(item, "lm_eval_error"));
    fl_token_pair pair;
    fl_error error;
    fl_status status = fl_tokenizer_encode_pair(tokenizer, context, context_bytes, continuation, bytes, -1,
                                                FL_PAIR_LM_EVAL, &pair, &error);
    assert_int_equal(status, refused ? FL_ERROR_ARGUMENT : FL_OK);
    if (!refused) {
        assert_ids(pair.context, pair.context_count, context_ids, context_count, context);
        assert_ids(pair.continuation, pair.continuation_count, ids, count, continuation);
    } else {
        assert_null(pair.context);
        assert_null(pair.continuation);
    }
    fl_token_pair_release(&pair);
    fl_memory_free(context);
    fl_memory_free(continuation);
    fl_memory_free(context_ids);
    fl_memory_free(ids);
}

static void test_smollm2_pairs_are_those_of_lm_eval(void **state) {
    (void)state;
    const char *model = fl_default_model_path();
    if (model == NULL) fl_fixture_skip(__func__, "models/smollm2-135m.gguf");
    fl_tokenizer *tokenizer;
    fl_error error;
    if (fl_tokenizer_open(model, &tokenizer, &error) != FL_OK) fail_msg("%s", error.message);
    cJSON *item, *cases = fl_read_json_lines(fl_fixture_path("smollm2/tokenizer_pairs.jsonl"));
    assert_int_equal(cJSON_GetArraySize(cases), 45);
    cJSON_ArrayForEach(item, cases) check_golden(tokenizer, item);
    cJSON_Delete(cases);
    fl_tokenizer_close(tokenizer);
}

static void test_qwen3_pairs(void **state) {
    (void)state;
    const char *path = fl_pack_path("tokenizers/qwen3");
    if (path == NULL) fl_fixture_skip(__func__, "pack tokenizers");
    fl_tokenizer *tokenizer;
    fl_error error;
    if (fl_tokenizer_open(path, &tokenizer, &error) != FL_OK) fail_msg("%s", error.message);
    assert_pair(tokenizer, "Answer:", " A", IDS(16141, 25), IDS(362));
    assert_pair(tokenizer, "Answer: ", "A", IDS(16141, 25), IDS(362));
    assert_pair(tokenizer, "Answer:\n", " A", IDS(16141, 25), IDS(362)); /* the newline vanishes */
    assert_pair(tokenizer, "(", "A)", IDS(7), IDS(8));
    assert_pair(tokenizer, "un", "believable", IDS(359), IDS(31798, 23760));
    fl_token_pair pair;
    assert_int_equal(fl_tokenizer_encode_pair(tokenizer, "hel", 3, "lo", 2, -1, FL_PAIR_LM_EVAL, &pair, NULL),
                     FL_ERROR_ARGUMENT);
    assert_int_equal(fl_tokenizer_encode_pair(tokenizer, "x =", 3, "=", 1, -1, FL_PAIR_LM_EVAL, &pair, NULL),
                     FL_ERROR_ARGUMENT);
    fl_tokenizer_close(tokenizer);
}

#define ADDED "[{\"id\": 261, \"content\": \"<s>\", \"special\": true}]"
#define TEMPLATE                                                                                             \
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": " \
    "{\"id\": "                                                                                              \
    "\"A\"}}], \"special_tokens\": {\"<s>\": {\"ids\": [261]}}}"

static void test_white_space_moves_to_the_continuation(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = fl_open_tokenizer_parts(&(fl_tokenizer_parts){0});
    assert_pair(tokenizer, "a ", "hello", IDS('a'), IDS(260));
    assert_pair(tokenizer, "a\x1C", "b", IDS('a'), IDS(0x1C, 'b'));
    assert_pair(tokenizer, "a\xE3\x80\x80", "b", IDS('a'), IDS(0xE3, 0x80, 0x80, 'b'));
    assert_pair(tokenizer, "a\xE2\x80\x8B", "b", IDS('a', 0xE2, 0x80, 0x8B), IDS('b'));
    fl_tokenizer_close(tokenizer);
}

static void test_an_empty_context_is_the_prefix(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = fl_open_tokenizer_parts(&(fl_tokenizer_parts){.added_tokens = ADDED});
    fl_token_pair pair;
    fl_error error;
    assert_int_equal(fl_tokenizer_encode_pair(tokenizer, "", 0, "a", 1, -1, FL_PAIR_LM_EVAL, &pair, &error),
                     FL_ERROR_UNSUPPORTED);
    static const char *const contexts[] = {"", " \n"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fl_tokenizer_encode_pair(tokenizer, contexts[i], strlen(contexts[i]), "a", 1, 261,
                                                  FL_PAIR_LM_EVAL, &pair, &error),
                         FL_OK);
        assert_ids(pair.context, pair.context_count, IDS(261), "prefix");
        assert_int_equal(pair.continuation_count, 1 + strlen(contexts[i]));
        fl_token_pair_release(&pair);
    }
    assert_int_equal(
        fl_tokenizer_encode_pair(tokenizer, "", 0, "<s>a", 4, 261, FL_PAIR_LM_EVAL, &pair, &error), FL_OK);
    assert_ids(pair.context, pair.context_count, IDS(261), "prefix in the text");
    assert_ids(pair.continuation, pair.continuation_count, IDS('a'), "rest");
    fl_token_pair_release(&pair);
    assert_int_equal(
        fl_tokenizer_encode_pair(tokenizer, "", 0, "<s>", 3, 261, FL_PAIR_LM_EVAL, &pair, &error),
        FL_ERROR_ARGUMENT);
    assert_int_equal(fl_tokenizer_encode_pair(tokenizer, "", 0, "", 0, 261, FL_PAIR_MERGED, &pair, &error),
                     FL_ERROR_ARGUMENT);
    fl_tokenizer_close(tokenizer);
}

static void test_bos_is_added_once(void **state) {
    (void)state;
    fl_tokenizer *tokenizer =
        fl_open_tokenizer_parts(&(fl_tokenizer_parts){.added_tokens = ADDED, .post_processor = TEMPLATE});
    assert_pair(tokenizer, "a", " b", IDS(261, 'a'), IDS(' ', 'b'));
    assert_pair(tokenizer, "<s>a", " b", IDS(261, 'a'), IDS(' ', 'b'));
    assert_pair(tokenizer, "", "b", IDS(261), IDS('b'));
    fl_tokenizer_close(tokenizer);
}

static void test_a_merged_boundary_is_refused_or_scored_whole(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = fl_open_tokenizer_parts(&(fl_tokenizer_parts){.added_tokens = ADDED});
    fl_token_pair pair;
    fl_error error;
    /* " hell" is two tokens and " hello" one, so that the whole is shorter than the context. */
    assert_int_equal(
        fl_tokenizer_encode_pair(tokenizer, "a hell", 6, "o", 1, 261, FL_PAIR_LM_EVAL, &pair, &error),
        FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "no token of its own"));
    assert_int_equal(
        fl_tokenizer_encode_pair(tokenizer, "a hell", 6, "o", 1, 261, FL_PAIR_MERGED, &pair, &error), FL_OK);
    assert_ids(pair.context, pair.context_count, IDS('a'), "context");
    assert_ids(pair.continuation, pair.continuation_count, IDS(260), "continuation");
    fl_token_pair_release(&pair);
    assert_int_equal(
        fl_tokenizer_encode_pair(tokenizer, "hell", 4, "o", 1, 261, FL_PAIR_MERGED, &pair, &error), FL_OK);
    assert_ids(pair.context, pair.context_count, IDS(261), "prefix as context");
    assert_ids(pair.continuation, pair.continuation_count, IDS(259), "continuation");
    fl_token_pair_release(&pair);
    fl_tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2_pairs_are_those_of_lm_eval),
        cmocka_unit_test(test_qwen3_pairs),
        cmocka_unit_test(test_white_space_moves_to_the_continuation),
        cmocka_unit_test(test_an_empty_context_is_the_prefix),
        cmocka_unit_test(test_bos_is_added_once),
        cmocka_unit_test(test_a_merged_boundary_is_refused_or_scored_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
