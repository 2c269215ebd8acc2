/* Made prompts: they fit, hold what they ask for, at the depth asked for; recall sequences; greedy generation
 * and its scores. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/engine/generation.h"
#include "harness/eval/retrieval.h"
#include "harness/eval/task.h"
#include "harness/eval/task_requests.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"

static const char prose[] =
    "The road went up through the trees. It had rained in the night, and the stones were dark!\nNobody "
    "spoke. Was it far? The "
    "guide shook his head and pointed to the ridge.\n\nBehind it lay the village. They reached it late.";

static fl_tokenizer *opened(const char *test) {
    const char *path = fl_default_model_path();
    if (path == NULL) fl_fixture_skip(test, "the default model");
    fl_tokenizer *tokenizer = NULL;
    fl_error error = {0};
    if (fl_tokenizer_open(path, &tokenizer, &error) != FL_OK) fail_msg("%s", error.message);
    return tokenizer;
}

static size_t token_count(const fl_tokenizer *tokenizer, const char *text) {
    int32_t *ids = NULL;
    size_t count = 0;
    assert_int_equal(fl_tokenizer_encode(tokenizer, text, strlen(text), true, &ids, &count, NULL), FL_OK);
    fl_memory_free(ids);
    return count;
}

static fl_retrieval_prompt made(const fl_tokenizer *tokenizer, const fl_retrieval_request *request) {
    fl_retrieval_prompt prompt;
    fl_error error = {0};
    if (fl_retrieval_make(request, tokenizer, &prompt, &error) != FL_OK) fail_msg("%s", error.message);
    return prompt;
}

static size_t occurrences(const char *text, const char *part) {
    size_t count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) count++;
    return count;
}

static void test_every_prompt_fits_and_holds_its_answers(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = opened(__func__);
    for (int kind = FL_RETRIEVAL_PASSKEY; kind <= FL_RETRIEVAL_FREQUENT_WORDS; kind++) {
        const size_t length = kind == FL_RETRIEVAL_COMMON_WORDS ? 3000 : 700;
        const fl_retrieval_request request = {.kind = (fl_retrieval_kind)kind,
                                              .length = length,
                                              .depth = 0.5,
                                              .seed = 42,
                                              .sample = 3,
                                              .prose = prose};
        fl_retrieval_prompt prompt = made(tokenizer, &request), again = made(tokenizer, &request);
        const size_t tokens = token_count(tokenizer, prompt.text);
        assert_true(tokens + prompt.new_tokens <= length);
        assert_true(tokens + prompt.new_tokens + 60 > length);
        assert_string_equal(prompt.text, again.text);
        assert_true(prompt.answer_count > 0);
        for (size_t a = 0; a < prompt.answer_count; a++)
            assert_true(occurrences(prompt.text, prompt.answers[a]) > 0);
        const char last = prompt.text[strlen(prompt.text) - 1];
        assert_true(last != ' ' && last != '\n');
        fl_retrieval_release(&prompt);
        fl_retrieval_release(&again);
    }
    fl_tokenizer_close(tokenizer);
}

/* Where the answer stands, as a share of the text. */
static double place_of(const fl_tokenizer *tokenizer, fl_retrieval_kind kind, double depth) {
    const fl_retrieval_request request = {
        .kind = kind, .length = 1500, .depth = depth, .seed = 1, .prose = prose};
    fl_retrieval_prompt prompt = made(tokenizer, &request);
    const double place =
        (double)(strstr(prompt.text, prompt.answers[0]) - prompt.text) / (double)strlen(prompt.text);
    fl_retrieval_release(&prompt);
    return place;
}

static void test_the_needle_stands_at_the_depth_asked_for(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = opened(__func__);
    static const fl_retrieval_kind kinds[] = {FL_RETRIEVAL_PASSKEY, FL_RETRIEVAL_NEEDLE,
                                              FL_RETRIEVAL_SINGLE_1, FL_RETRIEVAL_SINGLE_3,
                                              FL_RETRIEVAL_MULTIKEY_2};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        assert_true(place_of(tokenizer, kinds[i], 0.0) < 0.12);
        assert_true(fabs(place_of(tokenizer, kinds[i], 0.5) - 0.5) < 0.12);
        assert_true(place_of(tokenizer, kinds[i], 1.0) > 0.85);
    }
    fl_tokenizer_close(tokenizer);
}

static void test_prompts_are_worded_as_published(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = opened(__func__);
    fl_retrieval_request request = {.kind = FL_RETRIEVAL_SINGLE_1, .length = 600, .depth = 0.5, .seed = 5};
    fl_retrieval_prompt prompt = made(tokenizer, &request);
    static const char head[] = "A special magic number is hidden within the following text. Make sure to "
                               "memorize it. I will quiz you "
                               "about the number afterwards.\nThe grass is green.";
    assert_true(strncmp(prompt.text, head, sizeof head - 1) == 0);
    assert_int_equal(occurrences(prompt.text, "One of the special magic numbers for "), 1);
    assert_non_null(strstr(prompt.text, "\nWhat is the special magic number for "));
    assert_string_equal(prompt.text + strlen(prompt.text) - strlen(" mentioned in the provided text is"),
                        " mentioned in the provided text is");
    fl_retrieval_release(&prompt);
    request.kind = FL_RETRIEVAL_MULTIQUERY;
    request.prose = prose;
    prompt = made(tokenizer, &request);
    assert_int_equal(prompt.answer_count, 4);
    assert_non_null(strstr(prompt.text, "Some special magic numbers are hidden"));
    assert_non_null(strstr(prompt.text, ", and "));
    assert_int_equal(occurrences(prompt.text, "One of the special magic numbers for "), 4);
    fl_retrieval_release(&prompt);
    request.kind = FL_RETRIEVAL_PASSKEY;
    prompt = made(tokenizer, &request);
    char line[256];
    snprintf(line, sizeof line, "\nThe pass key is %s. Remember it. %s is the pass key.\n", prompt.answers[0],
             prompt.answers[0]);
    assert_int_equal(occurrences(prompt.text, line), 1);
    fl_retrieval_release(&prompt);
    fl_tokenizer_close(tokenizer);
}

static void test_too_short_a_length_and_missing_prose_are_refused(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = opened(__func__);
    fl_retrieval_prompt prompt;
    fl_error error;
    fl_retrieval_request request = {.kind = FL_RETRIEVAL_PASSKEY, .length = 40};
    assert_int_equal(fl_retrieval_make(&request, tokenizer, &prompt, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "a length of 40 tokens is too short"));
    request.kind = FL_RETRIEVAL_NEEDLE;
    request.prose = " \n ";
    assert_int_equal(fl_retrieval_make(&request, tokenizer, &prompt, &error), FL_ERROR_ARGUMENT);
    fl_tokenizer_close(tokenizer);
}

static void test_scores_of_continuations(void **state) {
    (void)state;
    fl_retrieval_prompt prompt = {.answer_count = 1, .answers = {"4711"}, .first_integer = true};
    assert_true(fl_retrieval_score(&prompt, " 4711. Remember") == 1.0);
    assert_true(fl_retrieval_score(&prompt, "not 47110") == 0.0);
    assert_true(fl_retrieval_score(&prompt, "12 or 4711") == 0.0);
    assert_true(fl_retrieval_score(&prompt, "") == 0.0);
    prompt = (fl_retrieval_prompt){.answer_count = 4, .answers = {"Alpha", "beta", "7", "x-ray"}};
    assert_true(fl_retrieval_score(&prompt, "ALPHA, Beta and 17") == 0.75);
}

static fl_task_config recall_config(const char *name) {
    fl_task_config config;
    fl_error error = {0};
    if (fl_task_config_default(name, NULL, &config, &error) != FL_OK) fail_msg("%s", error.message);
    config.vocabulary = 320;
    config.first_token = 10;
    config.pairs = 6;
    config.samples = 2;
    return config;
}

static void test_recall_asks_every_key_and_offers_every_value(void **state) {
    (void)state;
    fl_task_config config = recall_config("associative_recall");
    config.overwrites = 2;
    fl_task_requests *task = NULL;
    assert_int_equal(fl_task_requests_build(&config, NULL, 512, &task, NULL), FL_OK);
    assert_int_equal(task->item_count, 12);
    for (size_t i = 0; i < task->item_count; i++) {
        const fl_task_item *item = &task->items[i];
        assert_int_equal(item->request_count, 18);
        assert_int_equal(item->stale_first, 16);
        const fl_score_request *first = &task->requests[item->first_request];
        const int32_t key = first->context[first->context_count - 1];
        int32_t values[3];
        size_t found = 0;
        for (size_t t = 0; t + 1 < first->context_count; t += 2) {
            if (first->context[t] == key) values[found++] = first->context[t + 1];
        }
        assert_int_equal(found, 3);
        assert_int_equal(first->continuation[0], values[2]);
        for (size_t s = 0; s < 2; s++)
            assert_int_equal(task->requests[item->first_request + 16 + s].continuation[0], values[s]);
    }
    fl_task_requests_destroy(task);
    fl_task_config_clear(&config);
}

static void test_mqar_repeats_each_key_behind_the_pairs(void **state) {
    (void)state;
    fl_task_config config = recall_config("mqar");
    config.lengths.count = 1;
    config.lengths.values[0] = 64;
    fl_task_requests *task = NULL;
    fl_error error = {0};
    if (fl_task_requests_build(&config, NULL, 512, &task, &error) != FL_OK) fail_msg("%s", error.message);
    assert_int_equal(task->item_count, 12);
    for (size_t i = 0; i < task->item_count; i++) {
        const fl_task_item *item = &task->items[i];
        const fl_score_request *gold = &task->requests[item->first_request + (size_t)item->gold];
        assert_true(gold->context_count > 12 && gold->context_count <= 64 && gold->context_count % 2 == 1);
        const int32_t key = gold->context[gold->context_count - 1];
        assert_true(key >= 10 && key < 165);
        assert_int_equal(gold->context[2 * (i % 6)], key);
        assert_int_equal(gold->context[2 * (i % 6) + 1], gold->continuation[0]);
    }
    fl_task_requests_destroy(task);
    config.lengths.values[0] = 22;
    assert_int_equal(fl_task_requests_build(&config, NULL, 512, &task, &error), FL_ERROR_ARGUMENT);
    fl_task_config_clear(&config);
}

static void test_recall_is_scored_for_several_variants_at_once(void **state) {
    (void)state;
    fl_test_network network = fl_test_network_open(fl_fixture_path("reference/llama_gqa"), 1);
    fl_test_mechanism delta = fl_test_mechanism_create(&network, "rule: delta\n");
    fl_task_config config = recall_config("associative_recall");
    const fl_mechanism *const mechanisms[2] = {NULL, delta.mechanism};
    fl_task_result results[2];
    fl_error error = {0};
    if (fl_task_run(network.network, NULL, mechanisms, 2, &config, NULL, results, &error) != FL_OK)
        fail_msg("%s", error.message);
    for (size_t v = 0; v < 2; v++) {
        assert_int_equal(results[v].count, 12);
        assert_int_equal(results[v].choices, 6);
        assert_true(fl_task_result_metric(&results[v], "acc") >= 0.0);
        assert_true(fl_task_result_metric(&results[v], "n") == 12.0);
        assert_true(isnan(fl_task_result_metric(&results[v], "no such metric")));
        assert_true(results[v].linear_share[0] == (v == 0 ? 0.0 : 1.0));
        assert_true(results[v].counts.computed_tokens < results[v].counts.asked_tokens);
    }
    fl_paired_comparison compared;
    assert_int_equal(fl_task_compare(&results[0], &results[1], &compared, &error), FL_OK);
    assert_int_equal(compared.count, 12);
    results[1].document[3] = 99;
    assert_int_equal(fl_task_compare(&results[0], &results[1], &compared, &error), FL_ERROR_ARGUMENT);
    for (size_t v = 0; v < 2; v++) fl_task_result_release(&results[v]);
    fl_task_config_clear(&config);
    fl_test_mechanism_destroy(&delta);
    fl_test_network_close(&network);
}

static void test_a_task_survives_every_failed_allocation(void **state) {
    (void)state;
    fl_test_network network = fl_test_network_open(fl_fixture_path("reference/llama_gqa"), 1);
    fl_test_mechanism kda = fl_test_mechanism_create(&network, "rule: kda\nwindow: 4\n");
    fl_task_config config = recall_config("mqar");
    config.lengths.count = 1;
    config.lengths.values[0] = 24;
    config.samples = 1;
    const fl_mechanism *mechanism = kda.mechanism;
    fl_status status = FL_ERROR_MEMORY;
    for (size_t n = 1; status != FL_OK; n++) {
        assert_true(n < 5000);
        fl_task_result result;
        fl_memory_fail_at(n);
        status = fl_task_run(network.network, NULL, &mechanism, 1, &config, NULL, &result, NULL);
        fl_memory_fail_at(0);
        assert_true(status == FL_OK || status == FL_ERROR_MEMORY);
        assert_true(status == FL_OK || result.document == NULL);
        fl_task_result_release(&result);
    }
    fl_task_config_clear(&config);
    fl_test_mechanism_destroy(&kda);
    fl_test_network_close(&network);
}

static void test_greedy_generation_continues_with_the_argmax(void **state) {
    (void)state;
    fl_test_network network = fl_test_network_open(fl_fixture_path("reference/llama_gqa"), 1);
    const int32_t prompt[5] = {3, 17, 200, 41, 8};
    fl_session *session = NULL;
    fl_generation whole, stopped;
    assert_int_equal(fl_session_create(network.network, NULL, &session, NULL), FL_OK);
    assert_int_equal(fl_generate_greedy(session, network.network, prompt, 5, 6, -1, &whole, NULL), FL_OK);
    assert_int_equal(whole.count, 6);
    /* Each token is greedy after those before it. */
    int32_t ids[11];
    memcpy(ids, prompt, sizeof prompt);
    memcpy(ids + 5, whole.ids, 6 * sizeof *ids);
    const fl_score_request request = {ids, ids + 5, 5, 6};
    const fl_score_options options = {.share = true};
    fl_score_plan *plan = NULL;
    fl_score score;
    assert_int_equal(fl_score_plan_create(&request, 1, &options, network.network, &plan, NULL), FL_OK);
    assert_int_equal(fl_score_run(plan, network.network, NULL, NULL, "test", &score, NULL, NULL), FL_OK);
    assert_true(score.greedy);
    fl_score_plan_destroy(plan);
    size_t first_of_third = 0;
    while (whole.ids[first_of_third] != whole.ids[2]) first_of_third++;
    fl_session_reset(session);
    assert_int_equal(fl_generate_greedy(session, network.network, prompt, 5, 6, whole.ids[2], &stopped, NULL),
                     FL_OK);
    assert_int_equal(stopped.count, first_of_third);
    fl_error error;
    fl_generation none;
    assert_int_equal(fl_generate_greedy(session, network.network, prompt, 0, 6, -1, &none, &error),
                     FL_ERROR_ARGUMENT);
    fl_generation_release(&whole);
    fl_generation_release(&stopped);
    fl_session_destroy(session);
    fl_test_network_close(&network);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_prompt_fits_and_holds_its_answers),
        cmocka_unit_test(test_the_needle_stands_at_the_depth_asked_for),
        cmocka_unit_test(test_prompts_are_worded_as_published),
        cmocka_unit_test(test_too_short_a_length_and_missing_prose_are_refused),
        cmocka_unit_test(test_scores_of_continuations),
        cmocka_unit_test(test_recall_asks_every_key_and_offers_every_value),
        cmocka_unit_test(test_mqar_repeats_each_key_behind_the_pairs),
        cmocka_unit_test(test_recall_is_scored_for_several_variants_at_once),
        cmocka_unit_test(test_a_task_survives_every_failed_allocation),
        cmocka_unit_test(test_greedy_generation_continues_with_the_argmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
