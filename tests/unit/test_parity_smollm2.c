/* The frozen forward pass of a real quantised model against Hugging Face Transformers (`smollm2` pack, made
 * on the same GGUF): logits within 3e-4, the floor of float32 being about half of that at 1,100 tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/engine/session.h"
#include "tests/support/arrays.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"

static const double LOGIT_TOLERANCE = 3e-4;
enum { TOP = 50 };

typedef struct {
    const fl_checkpoint *reference;
    const char *prompt;
    const int32_t *ids;
    size_t tokens, vocabulary;
    double worst_logit, worst_log_probability;
} fl_prompt;

static const char *part(const fl_prompt *prompt, const char *name) {
    static char text[96];
    snprintf(text, sizeof text, "%s.%s", prompt->prompt, name);
    return text;
}

static void worse(double *worst, double difference) {
    if (!(difference <= *worst)) *worst = difference; /* NaN is the worst */
}

static double log_sum_exp_of(const float *row, size_t vocabulary) {
    double largest = (double)row[0], sum = 0.0;
    for (size_t i = 1; i < vocabulary; i++) largest = fmax(largest, (double)row[i]);
    for (size_t i = 0; i < vocabulary; i++) sum += exp((double)row[i] - largest);
    return largest + log(sum);
}

static void compare_positions(fl_prompt *prompt, const float *logits) {
    size_t count = 0;
    int32_t *positions = fl_fixture_integers(prompt->reference, part(prompt, "positions"), &count);
    int32_t *top_ids = fl_fixture_integers(prompt->reference, part(prompt, "top_ids"), NULL);
    double *top_logits = fl_fixture_doubles(prompt->reference, part(prompt, "top_logits"), NULL, NULL);
    double *log_sum_exp = fl_fixture_doubles(prompt->reference, part(prompt, "logsumexp"), NULL, NULL);
    for (size_t i = 0; i < count; i++) {
        const float *row = logits + (size_t)positions[i] * prompt->vocabulary;
        worse(&prompt->worst_logit, fabs(log_sum_exp_of(row, prompt->vocabulary) - log_sum_exp[i]));
        for (size_t k = 0; k < TOP; k++) {
            double logit = (double)row[top_ids[i * TOP + k]];
            worse(&prompt->worst_logit, fabs(logit - top_logits[i * TOP + k]));
        }
    }
    fl_memory_free(positions);
    fl_memory_free(top_ids);
    fl_memory_free(top_logits);
    fl_memory_free(log_sum_exp);
}

static void compare_all_tokens(fl_prompt *prompt, const float *logits) {
    size_t count = 0;
    double *expected = fl_fixture_doubles(prompt->reference, part(prompt, "token_logprobs"), &count, NULL);
    for (size_t t = 0; t < count; t++) {
        const float *row = logits + t * prompt->vocabulary;
        double value = (double)row[prompt->ids[t + 1]] - log_sum_exp_of(row, prompt->vocabulary);
        worse(&prompt->worst_log_probability, fabs(value - expected[t]));
    }
    fl_memory_free(expected);
    if (!fl_fixture_has(prompt->reference, part(prompt, "last_logits"))) return;
    double *last = fl_fixture_doubles(prompt->reference, part(prompt, "last_logits"), NULL, NULL);
    const float *row = logits + (prompt->tokens - 1) * prompt->vocabulary;
    for (size_t i = 0; i < prompt->vocabulary; i++)
        worse(&prompt->worst_logit, fabs((double)row[i] - last[i]));
    fl_memory_free(last);
}

static void compare_prompt(const fl_test_network *under_test, const fl_checkpoint *reference,
                           const char *name) {
    fl_prompt prompt = {
        .reference = reference, .prompt = name, .vocabulary = under_test->model->config.vocabulary};
    int32_t *ids = fl_fixture_integers(reference, part(&prompt, "ids"), &prompt.tokens);
    prompt.ids = ids;
    float *hidden = NULL, *logits = NULL;
    fl_session *session = NULL;
    assert_int_equal(FL_ALLOCATE(&hidden, prompt.tokens * under_test->model->config.model_dim, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&logits, prompt.tokens * prompt.vocabulary, NULL), FL_OK);
    assert_int_equal(fl_session_create(under_test->network, NULL, &session, NULL), FL_OK);
    assert_int_equal(
        fl_session_forward(session, ids, prompt.tokens, fl_array_none, fl_test_array(hidden), NULL, NULL),
        FL_OK);
    fl_network_logits(under_test->network, prompt.tokens, fl_test_array(hidden), fl_test_array(logits));
    compare_positions(&prompt, logits);
    compare_all_tokens(&prompt, logits);
    printf("worst: %s logit %.2g, token log probability %.2g\n", name, prompt.worst_logit,
           prompt.worst_log_probability);
    if (!(prompt.worst_logit <= LOGIT_TOLERANCE))
        fail_msg("%s: a logit is off by %.3g", name, prompt.worst_logit);
    if (!(prompt.worst_log_probability <= LOGIT_TOLERANCE)) {
        fail_msg("%s: a token's log probability is off by %.3g", name, prompt.worst_log_probability);
    }
    fl_session_destroy(session);
    fl_memory_free(hidden);
    fl_memory_free(logits);
    fl_memory_free(ids);
}

static void compare_prompts(const char *test, const char *path, const char *const *names) {
    if (path == NULL) fl_fixture_skip(test, "smollm2 pack");
    if (fl_default_model_path() == NULL) fl_fixture_skip(test, "models/smollm2-135m.gguf");
    fl_checkpoint *reference = NULL;
    assert_int_equal(fl_checkpoint_open(path, &reference, NULL), FL_OK);
    fl_test_network under_test = fl_test_network_open(fl_default_model_path(), 0);
    for (; *names != NULL; names++) compare_prompt(&under_test, reference, *names);
    fl_test_network_close(&under_test);
    fl_checkpoint_close(reference);
}

static void test_chat_prompt_of_the_fixture_matches(void **state) {
    (void)state;
    const char *const names[] = {"chat", NULL};
    compare_prompts(__func__, fl_fixture_path("smollm2/logits.safetensors"), names);
}

static void test_texts_of_the_pack_match(void **state) {
    (void)state;
    const char *const names[] = {"chat", "wiki64", "wiki300", NULL};
    compare_prompts(__func__, fl_pack_path("smollm2/logits.safetensors"), names);
}

static void test_long_text_of_the_pack_matches(void **state) {
    (void)state;
    const char *const names[] = {"wiki1100", NULL};
    if (getenv("FROSTLINE_FULL") == NULL) fl_fixture_skip(__func__, "FROSTLINE_FULL=1 (takes a minute)");
    compare_prompts(__func__, fl_pack_path("smollm2/logits.safetensors"), names);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_prompt_of_the_fixture_matches),
        cmocka_unit_test(test_texts_of_the_pack_match),
        cmocka_unit_test(test_long_text_of_the_pack_matches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
