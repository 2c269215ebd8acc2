/* The frozen forward pass against Hugging Face Transformers, on the tiny checkpoints of the `reference` pack.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/engine/session.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"

static const double TOLERANCE = 1e-4; /* absolute, on logits and streams of order 1 */

/* What a forward pass left behind: per layer the attention's input and output and the stream. */
typedef struct {
    size_t tokens, width;
    float *input, *output, *residual; /* [L][T][E] */
} fl_streams;

static fl_status keep_streams(void *context, const fl_layer_view *view, fl_error *error) {
    (void)error;
    fl_streams *streams = context;
    size_t at = (view->layer * streams->tokens + view->first_position) * streams->width;
    size_t bytes = view->tokens * streams->width * sizeof(float);
    memcpy(streams->input + at, fl_test_floats(view->attention_input), bytes);
    memcpy(streams->output + at, fl_test_floats(view->attention_output), bytes);
    memcpy(streams->residual + at, fl_test_floats(view->residual), bytes);
    return FL_OK;
}

static void compare_part(const fl_checkpoint *reference, const char *name, size_t batch, const float *x,
                         size_t count) {
    if (!fl_fixture_has(reference, name)) return;
    double *expected = fl_fixture_doubles(reference, name, NULL, NULL);
    fl_assert_near(x, expected + batch * count, count, TOLERANCE, name);
    fl_memory_free(expected);
}

static void compare_sequence(const fl_test_network *under_test, const fl_checkpoint *reference, size_t batch,
                             const int32_t *ids, size_t tokens) {
    const fl_model_config *config = &under_test->model->config;
    size_t width = config->model_dim, stream = tokens * width;
    fl_streams streams = {.tokens = tokens, .width = width};
    float *embedding = NULL, *hidden = NULL, *logits = NULL;
    fl_session *session = NULL;
    assert_int_equal(FL_ALLOCATE(&streams.input, config->layers * stream, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&streams.output, config->layers * stream, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&streams.residual, config->layers * stream, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&embedding, stream, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&hidden, stream, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&logits, tokens * config->vocabulary, NULL), FL_OK);
    assert_int_equal(fl_session_create(under_test->network, NULL, &session, NULL), FL_OK);
    fl_session_observer observer = {keep_streams, &streams};
    assert_int_equal(fl_session_forward(session, ids, tokens, fl_test_array(embedding), fl_test_array(hidden),
                                        &observer, NULL),
                     FL_OK);
    fl_network_logits(under_test->network, tokens, fl_test_array(hidden), fl_test_array(logits));

    char name[64];
    compare_part(reference, "logits", batch, logits, tokens * config->vocabulary);
    compare_part(reference, "hidden0", batch, embedding, stream);
    for (size_t l = 0; l < config->layers; l++) {
        snprintf(name, sizeof name, "layer%zu.attn_in", l);
        compare_part(reference, name, batch, streams.input + l * stream, stream);
        snprintf(name, sizeof name, "layer%zu.attn_out", l);
        compare_part(reference, name, batch, streams.output + l * stream, stream);
        snprintf(name, sizeof name, "hidden%zu", l + 1);
        compare_part(reference, name, batch, l + 1 == config->layers ? hidden : streams.residual + l * stream,
                     stream);
    }
    fl_session_destroy(session);
    fl_memory_free(streams.input);
    fl_memory_free(streams.output);
    fl_memory_free(streams.residual);
    fl_memory_free(embedding);
    fl_memory_free(hidden);
    fl_memory_free(logits);
}

/* The references of checkpoints stored in half precision were made by a model whose RoPE frequencies had been
 * rounded to that type along with the weights. Divisors, as GGUF files may carry them, put the same
 * frequencies into ours. */
static void round_frequencies(fl_model *model, int significant_bits, float *divisors) {
    float frequencies[64], factor = 0.0f;
    fl_rope_inverse_frequencies(&model->config.rope, model->config.max_positions, 0, frequencies, &factor);
    for (size_t i = 0; i < model->config.rope.rotary_dim / 2; i++) {
        int exponent = 0;
        double mantissa = frexp((double)frequencies[i], &exponent);
        double rounded = ldexp(rint(ldexp(mantissa, significant_bits)), exponent - significant_bits);
        divisors[i] = (float)((double)frequencies[i] / rounded);
    }
    model->config.rope.divisors = divisors;
}

/* significant_bits: of the type that RoPE frequencies were rounded to, 0 = none. */
static void compare_checkpoint(const char *test, bool from_pack, const char *checkpoint,
                               int significant_bits) {
    char relative[256];
    snprintf(relative, sizeof relative, "reference/%s/reference.safetensors", checkpoint);
    const char *path = from_pack ? fl_pack_path(relative) : fl_fixture_path(relative);
    if (path == NULL) fl_fixture_skip(test, "reference pack");
    fl_error error = {0};
    fl_checkpoint *reference = NULL;
    if (fl_checkpoint_open(path, &reference, &error) != FL_OK) fail_msg("%s", error.message);
    snprintf(relative, sizeof relative, "reference/%s", checkpoint);
    fl_test_network under_test =
        fl_test_network_open(from_pack ? fl_pack_path(relative) : fl_fixture_path(relative), 0);
    float divisors[64];
    if (significant_bits > 0) round_frequencies(under_test.model, significant_bits, divisors);
    size_t shape[4];
    int32_t *ids = fl_fixture_integers(reference, "input_ids", NULL);
    fl_memory_free(fl_fixture_doubles(reference, "input_ids", NULL, shape));
    fl_worst_reset();
    for (size_t b = 0; b < shape[0]; b++)
        compare_sequence(&under_test, reference, b, ids + b * shape[1], shape[1]);
    printf("worst: %s %.2g\n", checkpoint, fl_worst_reset());
    fl_memory_free(ids);
    fl_test_network_close(&under_test);
    fl_checkpoint_close(reference);
}

static void test_llama_with_grouped_queries_matches_in_the_fixture(void **state) {
    (void)state;
    compare_checkpoint(__func__, false, "llama_gqa", 0);
}

static void test_qwen3_with_query_key_norm_matches_in_the_fixture(void **state) {
    (void)state;
    compare_checkpoint(__func__, false, "qwen3", 0);
}

static void test_checkpoints_of_the_pack_match(void **state) {
    (void)state;
    static const char *const names[] = {"llama_gqa",   "llama_mha_bias", "llama3_rope", "llama_linear_rope",
                                        "mistral_swa", "qwen2",          "qwen2_yarn",  "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        compare_checkpoint(__func__, true, names[i], 0);
}

static void test_half_precision_checkpoints_of_the_pack_match(void **state) {
    (void)state;
    compare_checkpoint(__func__, true, "llama_bf16_sharded", 8);
    compare_checkpoint(__func__, true, "llama_f16", 11);
}

/* Files of several types, as they are published: logits of a float64 pass on the widened weights. */
static void test_models_of_k_quants_match(void **state) {
    (void)state;
    static const char *const mixes[] = {"Q2_K",   "Q3_K_S", "Q3_K_M", "Q4_K_S",
                                        "Q4_K_M", "Q5_K_M", "Q6_K",   "Q8_0"};
    static const double ROUNDED = 3e-4; /* float32 against float64, and the stored logits' step of 2^-14 */
    fl_worst_reset();
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++) {
        char relative[96];
        snprintf(relative, sizeof relative, "reference2/gguf/models/%s.safetensors", mixes[i]);
        const char *path = fl_pack_path(relative);
        if (path == NULL) fl_fixture_skip(__func__, "reference2 pack");
        fl_checkpoint *reference = NULL;
        assert_int_equal(fl_checkpoint_open(path, &reference, NULL), FL_OK);
        snprintf(relative, sizeof relative, "reference2/gguf/models/%s.gguf", mixes[i]);
        fl_test_network under_test = fl_test_network_open(fl_pack_path(relative), 0);
        size_t tokens = 0, places = 0, count = 0, vocabulary = under_test.model->config.vocabulary;
        int32_t *ids = fl_fixture_integers(reference, "input_ids", &tokens);
        int32_t *positions = fl_fixture_integers(reference, "positions", &places);
        double *expected = fl_fixture_doubles(reference, "logits", &count, NULL);
        assert_int_equal(count, places * vocabulary);
        float *hidden = NULL, *logits = NULL;
        fl_session *session = NULL;
        assert_int_equal(FL_ALLOCATE(&hidden, tokens * under_test.model->config.model_dim, NULL), FL_OK);
        assert_int_equal(FL_ALLOCATE(&logits, tokens * vocabulary, NULL), FL_OK);
        assert_int_equal(fl_session_create(under_test.network, NULL, &session, NULL), FL_OK);
        assert_int_equal(
            fl_session_forward(session, ids, tokens, fl_array_none, fl_test_array(hidden), NULL, NULL),
            FL_OK);
        fl_network_logits(under_test.network, tokens, fl_test_array(hidden), fl_test_array(logits));
        for (size_t p = 0; p < places; p++)
            fl_assert_near(logits + (size_t)positions[p] * vocabulary, expected + p * vocabulary, vocabulary,
                           ROUNDED, mixes[i]);
        fl_session_destroy(session);
        fl_memory_free(hidden);
        fl_memory_free(logits);
        fl_memory_free(expected);
        fl_memory_free(positions);
        fl_memory_free(ids);
        fl_test_network_close(&under_test);
        fl_checkpoint_close(reference);
    }
    printf("worst: K-quants %.2g\n", fl_worst_reset());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_with_grouped_queries_matches_in_the_fixture),
        cmocka_unit_test(test_qwen3_with_query_key_norm_matches_in_the_fixture),
        cmocka_unit_test(test_checkpoints_of_the_pack_match),
        cmocka_unit_test(test_half_precision_checkpoints_of_the_pack_match),
        cmocka_unit_test(test_models_of_k_quants_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
