/* Text evaluation of whole linearised models against the `pipeline` pack (float64 references of 40
 * configurations of two checkpoints; the part in the tree covers every rule, merge, convolution, cache and
 * hybrid kind). Relative 1e-4. */
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
#include "harness/measure/text_evaluation.h"
#include "tests/support/arrays.h"
#include "tests/support/fixture.h"
#include "tests/support/pipeline_pack.h"

static const double TOLERANCE = 1e-4;
static const double FLOOR = 1e-8; /* figures whose true value is zero: relative to this */

/* One tensor of the pack and the figure of ours it is compared with. `tail`: last axis of ours that the pack
 * lacks. */
typedef struct {
    const char *stage, *name; /* <stage>.[a.|b.]<name> */
    size_t offset;
    size_t trim;
} fl_figure;

#define FIGURE(stage, name, member, trim)                                                                    \
    { stage, name, offsetof(fl_text_result, member), trim }

static const fl_figure arrays[] = {
    FIGURE("teacher_forced", "layer.mse", mse, 0),
    FIGURE("teacher_forced", "layer.var", variance, 0),
    FIGURE("teacher_forced", "layer.nmse", nmse, 0),
    FIGURE("teacher_forced", "layer.cosine", cosine, 0),
    FIGURE("teacher_forced", "head.nmse", head_nmse, 0),
    FIGURE("teacher_forced", "position.nmse", position_nmse, 0),
    FIGURE("teacher_forced", "head_position.mse", head_position_mse, 0),
    FIGURE("teacher_forced", "state_norm", state_norm, 0),
    FIGURE("propagated", "attn_out.mse", attention_mse, 0),
    FIGURE("propagated", "attn_out.var", attention_variance, 0),
    FIGURE("propagated", "attn_out.nmse", attention_nmse, 0),
    FIGURE("propagated", "attn_out.position.nmse", attention_position_nmse, 0),
    FIGURE("propagated", "residual.mse", residual_mse, 0),
    FIGURE("propagated", "residual.var", residual_variance, 0),
    FIGURE("propagated", "residual.nmse", residual_nmse, 0),
    FIGURE("propagated", "residual.position.nmse", residual_position_nmse, 0),
    FIGURE("propagated", "kl.position", position_kl, 0),
    FIGURE("propagated", "ce.position", position_cross_entropy, 1),
};

static const fl_figure scalars[] = {
    FIGURE("propagated", "ce", cross_entropy, 0),
    FIGURE("propagated", "kl", kl, 0),
    FIGURE("propagated", "top1", agreement, 0),
};

typedef struct {
    double worst;
    char worst_name[160];
    size_t failures, compared;
} fl_verdict;

static void judge(fl_verdict *verdict, const char *label, const double *x, const double *reference,
                  size_t count) {
    double error = 0.0, norm = 0.0;
    for (size_t i = 0; i < count; i++) {
        error += (x[i] - reference[i]) * (x[i] - reference[i]);
        norm += reference[i] * reference[i];
    }
    double relative = sqrt(error) / fmax(sqrt(norm), FLOOR * sqrt((double)count));
    verdict->compared++;
    if (!(relative <= verdict->worst)) {
        verdict->worst = relative;
        snprintf(verdict->worst_name, sizeof verdict->worst_name, "%s", label);
    }
    if (relative <= TOLERANCE) return;
    printf("differs: %s relative %.3g (first: %.9g, expected %.9g)\n", label, relative, x[0], reference[0]);
    verdict->failures++;
}

/* scope: "" pooled, "a." or "b.". */
static void compare_figure(fl_verdict *verdict, const fl_pipeline_case *config, const char *scope,
                           const fl_figure *figure, bool scalar, const fl_text_result *result) {
    char name[96], label[160];
    snprintf(name, sizeof name, "%s.%s%s", figure->stage, scope, figure->name);
    if (!fl_fixture_has(config->expected, name)) return;
    size_t count = 0;
    double *expected = fl_fixture_doubles(config->expected, name, &count, NULL);
    const void *member = (const char *)result + figure->offset;
    const double *x = scalar ? member : *(double *const *)member;
    assert_non_null(x);
    snprintf(label, sizeof label, "%s %s", config->name, name);
    judge(verdict, label, x, expected, count);
    fl_memory_free(expected);
}

static void compare_result(fl_verdict *verdict, const fl_pipeline_case *config, const char *scope,
                           const fl_text_result *result) {
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        compare_figure(verdict, config, scope, &arrays[i], false, result);
    }
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++) {
        compare_figure(verdict, config, scope, &scalars[i], true, result);
    }
}

static void compare_diagnostics(fl_verdict *verdict, const fl_pipeline_pack *pack, const char *scope,
                                const fl_text_result *result) {
    const struct {
        const char *name;
        const double *x;
    } parts[] = {{"key_concentration", result->key_concentration},
                 {"projection_residual", result->projection_residual}};
    for (size_t i = 0; i < 2; i++) {
        char name[96];
        size_t count = 0;
        snprintf(name, sizeof name, "diagnostics.%s%s", scope, parts[i].name);
        double *expected = fl_fixture_doubles(pack->common, name, &count, NULL);
        judge(verdict, name, parts[i].x, expected, count);
        fl_memory_free(expected);
    }
    char name[96];
    snprintf(name, sizeof name, "full.%sce", scope);
    double *expected = fl_fixture_doubles(pack->common, name, NULL, NULL);
    judge(verdict, name, &result->full_cross_entropy, expected, 1);
    fl_memory_free(expected);
}

/* Every configuration at once: all of them from one frozen pass. */
static void compare_sequences(fl_verdict *verdict, const fl_pipeline_pack *pack, const char *which) {
    const fl_text_evaluation_options options = {true, true, true, true};
    fl_sequences sequences = fl_pipeline_sequences(pack, which);
    fl_text_result *results = NULL;
    const fl_mechanism **mechanisms = NULL;
    fl_error error = {0};
    assert_int_equal(FL_ALLOCATE(&results, pack->count, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&mechanisms, pack->count, NULL), FL_OK);
    for (size_t i = 0; i < pack->count; i++) mechanisms[i] = pack->cases[i].mechanism;
    if (fl_text_evaluation_run(pack->under_test.network, &sequences, mechanisms, pack->count, &options, NULL,
                               results, NULL, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    char scope[4] = "";
    if (sequences.count == 1) snprintf(scope, sizeof scope, "%s.", which);
    for (size_t i = 0; i < pack->count; i++) {
        assert_false(results[i].diverged);
        compare_result(verdict, &pack->cases[i], scope, &results[i]);
        if (i == 0 && sequences.count == 1) compare_diagnostics(verdict, pack, scope, &results[i]);
        fl_text_result_release(&results[i]);
    }
    fl_memory_free(results);
    fl_memory_free(mechanisms);
    fl_sequences_release(&sequences);
}

static void compare_pack(const char *test, const char *checkpoint, bool from_pack, const char *which) {
    fl_pipeline_pack pack;
    if (!fl_pipeline_pack_open(checkpoint, from_pack, &pack))
        fl_fixture_skip(test, "pipeline and reference packs");
    fl_verdict verdict = {0};
    compare_sequences(&verdict, &pack, which);
    printf("worst: %s %s, %zu configurations, %zu figures: %.2g (%s)\n", checkpoint, which, pack.count,
           verdict.compared, verdict.worst, verdict.worst_name);
    fl_pipeline_pack_close(&pack);
    if (verdict.failures > 0) fail_msg("%zu of %zu figures differ", verdict.failures, verdict.compared);
}

static void test_fixture_configurations_match_pooled_over_sequences(void **state) {
    (void)state;
    compare_pack(__func__, "llama_gqa", false, "ab");
}

static void test_fixture_configurations_match_on_each_sequence(void **state) {
    (void)state;
    compare_pack(__func__, "llama_gqa", false, "a");
    compare_pack(__func__, "llama_gqa", false, "b");
}

static void test_every_configuration_of_the_llama_pack_matches(void **state) {
    (void)state;
    compare_pack(__func__, "llama_gqa", true, "ab");
    compare_pack(__func__, "llama_gqa", true, "a");
    compare_pack(__func__, "llama_gqa", true, "b");
}

static void test_every_configuration_of_the_qwen3_pack_matches(void **state) {
    (void)state;
    compare_pack(__func__, "qwen3", true, "ab");
    compare_pack(__func__, "qwen3", true, "a");
    compare_pack(__func__, "qwen3", true, "b");
}

/* Mixers run on the frozen model's own stream, for what a text evaluation does not report: outputs, states,
 * decisions. */
typedef struct {
    const fl_pipeline_case *config;
    const fl_attention_shape *shape;
    size_t tokens, layers;
    fl_mixer **mixers; /* [L] */
    float *mix;        /* [L][T][H][D] */
    int32_t *written;  /* [L][Hkv][T] */
} fl_mixer_trace;

static fl_status trace_layer(void *context, const fl_layer_view *view, fl_error *error) {
    fl_mixer_trace *trace = context;
    size_t width = view->tokens * trace->shape->query_heads * trace->shape->head_dim;
    size_t written = view->layer * trace->shape->kv_heads * view->tokens;
    for (size_t i = 0; i < trace->shape->kv_heads * view->tokens; i++) trace->written[written + i] = -1;
    if (trace->mixers[view->layer] == NULL) {
        memcpy(trace->mix + view->layer * width, fl_test_floats(view->mix), width * sizeof(float));
        return FL_OK;
    }
    fl_mixer_call call = {.tokens = view->tokens,
                          .query = view->query,
                          .key = view->key,
                          .value = view->value,
                          .input = view->attention_input,
                          .output = fl_test_array(trace->mix + view->layer * width),
                          .written = trace->written + written};
    return fl_mixer_forward(trace->mixers[view->layer], &call, error);
}

static void compare_floats(fl_verdict *verdict, const fl_pipeline_case *config, const char *name,
                           const float *x, size_t count) {
    if (!fl_fixture_has(config->expected, name)) return;
    size_t expected_count = 0;
    double *expected = fl_fixture_doubles(config->expected, name, &expected_count, NULL), *wide = NULL;
    assert_int_equal(expected_count, count);
    assert_int_equal(FL_ALLOCATE(&wide, count, NULL), FL_OK);
    for (size_t i = 0; i < count; i++) wide[i] = (double)x[i];
    char label[160];
    snprintf(label, sizeof label, "%s %s", config->name, name);
    judge(verdict, label, wide, expected, count);
    fl_memory_free(wide);
    fl_memory_free(expected);
}

static void compare_decisions(const fl_pipeline_case *config, const char *name, const int32_t *written,
                              size_t count) {
    if (!fl_fixture_has(config->expected, name)) return;
    size_t expected_count = 0;
    int32_t *expected = fl_fixture_integers(config->expected, name, &expected_count);
    assert_int_equal(expected_count, count);
    for (size_t i = 0; i < count; i++) {
        if (written[i] != expected[i]) {
            fail_msg("%s %s: decision %zu is %d, expected %d", config->name, name, i, written[i],
                     expected[i]);
        }
    }
    fl_memory_free(expected);
}

static void compare_states(fl_verdict *verdict, const fl_mixer_trace *trace, const char *name) {
    if (!fl_fixture_has(trace->config->expected, name)) return;
    size_t value_dim = 0, key_dim = 0, shape[4];
    fl_memory_free(fl_fixture_doubles(trace->config->expected, name, NULL, shape));
    size_t layer = shape[1] * shape[2] * shape[3];
    float *states = NULL;
    assert_int_equal(FL_ALLOCATE(&states, shape[0] * layer, NULL), FL_OK);
    for (size_t l = 0; l < trace->layers; l++) {
        if (trace->mixers[l] == NULL) continue;
        const float *state = fl_test_floats(fl_mixer_state(trace->mixers[l], &value_dim, &key_dim));
        for (size_t h = 0; state != NULL && h < shape[1];
             h++) { /* a normaliser's row comes last and is not in the pack */
            memcpy(states + l * layer + h * shape[2] * shape[3], state + h * value_dim * key_dim,
                   shape[2] * shape[3] * sizeof(float));
        }
    }
    compare_floats(verdict, trace->config, name, states, shape[0] * layer);
    fl_memory_free(states);
}

static void trace_case(fl_verdict *verdict, const fl_pipeline_pack *pack, const fl_pipeline_case *config,
                       const char *which) {
    const fl_network *network = pack->under_test.network;
    fl_sequences sequences = fl_pipeline_sequences(pack, which);
    size_t tokens = sequences.lengths[0], layers = pack->under_test.model->config.layers;
    fl_mixer_trace trace = {.config = config, .shape = &network->shape, .tokens = tokens, .layers = layers};
    size_t mix = layers * tokens * network->shape.query_heads * network->shape.head_dim;
    assert_int_equal(FL_ALLOCATE(&trace.mixers, layers, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&trace.mix, mix, NULL), FL_OK);
    assert_int_equal(FL_ALLOCATE(&trace.written, layers * network->shape.kv_heads * tokens, NULL), FL_OK);
    for (size_t l = 0; l < layers; l++) {
        if (fl_variant_layer_is_softmax(config->variant, l)) continue;
        assert_int_equal(fl_mixer_create(network->compute, config->mechanism, l, &trace.mixers[l], NULL),
                         FL_OK);
    }
    fl_session *session = NULL;
    fl_session_observer observer = {trace_layer, &trace};
    fl_error error = {0};
    assert_int_equal(fl_session_create(network, NULL, &session, NULL), FL_OK);
    if (fl_session_forward(session, sequences.ids[0], tokens, fl_array_none, fl_array_none, &observer,
                           &error) != FL_OK) {
        fail_msg("%s: %s", config->name, error.message);
    }
    char name[64];
    snprintf(name, sizeof name, "teacher_forced.%s.y_lin", which);
    compare_floats(verdict, config, name, trace.mix, mix);
    snprintf(name, sizeof name, "teacher_forced.%s.state", which);
    compare_states(verdict, &trace, name);
    snprintf(name, sizeof name, "teacher_forced.%s.written", which);
    compare_decisions(config, name, trace.written, layers * network->shape.kv_heads * tokens);
    for (size_t l = 0; l < layers; l++) fl_mixer_destroy(trace.mixers[l]);
    fl_memory_free(trace.mixers);
    fl_memory_free(trace.mix);
    fl_memory_free(trace.written);
    fl_session_destroy(session);
    fl_sequences_release(&sequences);
}

static void trace_pack(const char *test, const char *checkpoint, bool from_pack) {
    fl_pipeline_pack pack;
    if (!fl_pipeline_pack_open(checkpoint, from_pack, &pack))
        fl_fixture_skip(test, "pipeline and reference packs");
    fl_verdict verdict = {0};
    for (size_t i = 0; i < pack.count; i++) {
        trace_case(&verdict, &pack, &pack.cases[i], "a");
        trace_case(&verdict, &pack, &pack.cases[i], "b");
    }
    printf("worst: %s outputs and states, %zu figures: %.2g (%s)\n", checkpoint, verdict.compared,
           verdict.worst, verdict.worst_name);
    fl_pipeline_pack_close(&pack);
    if (verdict.failures > 0) fail_msg("%zu of %zu figures differ", verdict.failures, verdict.compared);
}

static void test_cache_decisions_of_the_fixture_are_identical(void **state) {
    (void)state;
    trace_pack(__func__, "llama_gqa", false);
}

static void test_outputs_states_and_cache_decisions_of_the_packs_match(void **state) {
    (void)state;
    trace_pack(__func__, "llama_gqa", true);
    trace_pack(__func__, "qwen3", true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixture_configurations_match_pooled_over_sequences),
        cmocka_unit_test(test_fixture_configurations_match_on_each_sequence),
        cmocka_unit_test(test_cache_decisions_of_the_fixture_are_identical),
        cmocka_unit_test(test_every_configuration_of_the_llama_pack_matches),
        cmocka_unit_test(test_every_configuration_of_the_qwen3_pack_matches),
        cmocka_unit_test(test_outputs_states_and_cache_decisions_of_the_packs_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
