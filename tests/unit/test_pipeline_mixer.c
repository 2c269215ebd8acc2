/* Mixers against the pipeline pack: every configuration of both checkpoints, on sequence b of the frozen
 * model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variants/mixer_parts.h"
#include "harness/base/memory.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/fixture.h"

enum { LAYERS = 3, TOKENS = 37 };
static const double BOUND = 1e-4;

typedef struct pack_configuration {
    const char *name, *yaml;
} pack_configuration;

static const pack_configuration configurations[] = {
    {"linear_identity_pure", "rule: linear, feature_map: identity, normaliser: false"},
    {"linear_identity_window", "rule: linear, feature_map: identity, window: 7, sinks: 1"},
    {"linear_elu1_pure", "rule: linear, feature_map: elu1, normaliser: true"},
    {"linear_elu1_window", "rule: linear, window: 8, sinks: 2"},
    {"linear_elu1_shared_window", "rule: linear, window: 8, sinks: 2, merge: shared_normaliser"},
    {"linear_elu1_shared_conv_window",
     "rule: linear, window: 6, sinks: 2, merge: shared_normaliser, short_conv: {kernel: 8, init: torch}"},
    {"gated_constant_pure", "rule: gated, gate: {source: constant, value: 0.97}"},
    {"gated_projected_window", "rule: gated, window: 10, sinks: 1"},
    {"decay_constant_window", "rule: decay, gate: {source: constant, value: 0.95}, window: 5, sinks: 3"},
    {"decay_projected_pure", "rule: decay"},
    {"gla_projected_pure", "rule: gla"},
    {"gla_projected_window", "rule: gla, window: 12, sinks: 4"},
    {"gla_constant_half", "rule: gla, gate: {source: constant, value: 0.9}, window: 8, merge: half"},
    {"kgla_projected_pure", "rule: kgla"},
    {"kgla_projected_window", "rule: kgla, window: 8, sinks: 2"},
    {"delta_projected_pure", "rule: delta"},
    {"delta_projected_window", "rule: delta, window: 8, sinks: 4"},
    {"delta_constant_window", "rule: delta, beta: {source: constant, value: 0.5}, window: 6"},
    {"gated_delta_projected_pure", "rule: gated_delta"},
    {"gated_delta_projected_window", "rule: gated_delta, window: 8, sinks: 4"},
    {"gated_delta_projected_half", "rule: gated_delta, window: 9, sinks: 3, merge: half"},
    {"gated_delta_constant_window", "rule: gated_delta, gate: {source: constant, value: 0.96}, "
                                    "beta: {source: constant, value: 0.4}, window: 4, sinks: 1"},
    {"gated_delta_conv_pure", "rule: gated_delta, short_conv: {kernel: 8, init: torch}"},
    {"kda_projected_pure", "rule: kda"},
    {"kda_projected_window", "rule: kda, window: 8, sinks: 4"},
    {"kda_conv_identity_window", "rule: kda, window: 8, sinks: 4, short_conv: {kernel: 8}"},
    {"kda_conv_random_window", "rule: kda, window: 8, sinks: 4, short_conv: {kernel: 8, init: torch}"},
    {"kda_window_one", "rule: kda, window: 1"},
    {"kda_sinks_only", "rule: kda, sinks: 3"},
    {"kda_window_covers", "rule: kda, window: 80, sinks: 4"},
    {"window_only", "rule: none, window: 8, sinks: 4"},
    {"delta_cache_self_recall", "rule: delta, window: 6, sinks: 2, cache: {budget: 4, route: self_recall}"},
    {"kda_cache_attention_mass",
     "rule: kda, window: 6, sinks: 2, cache: {budget: 12, route: attention_mass}"},
    {"gated_delta_cache_key_norm", "rule: gated_delta, window: 6, cache: {budget: 3, route: key_norm}"},
    {"gla_cache_value_norm", "rule: gla, window: 5, sinks: 1, cache: {budget: 4, route: value_norm}"},
    {"kda_cache_recency", "rule: kda, window: 6, sinks: 2, cache: {budget: 4, route: recency}"},
    {"kda_cache_conv_self_recall", "rule: kda, window: 6, sinks: 2, cache: {budget: 4, route: self_recall}, "
                                   "short_conv: {kernel: 8, init: torch}"},
    {"linear_elu1_cache_shared", "rule: linear, window: 6, sinks: 2, merge: shared_normaliser, "
                                 "cache: {budget: 4, route: self_recall}"},
    {"kda_hybrid", "rule: kda, window: 8, sinks: 4, softmax_layers: [1]"},
    {"delta_hybrid_pure", "rule: delta, softmax_layers: [0, 2]"},
};
enum { CONFIGURATIONS = sizeof configurations / sizeof configurations[0] };

static const char *const checkpoints[] = {"llama_gqa", "qwen3"};

typedef struct common_file {
    fl_checkpoint *file;
    float *query, *key, *value, *input; /* [L][T][H or Hkv][D], [L][T][E] */
    double *full;                       /* [L][T][H][D] */
    fl_attention_shape shape;
} common_file;

typedef struct case_run {
    const common_file *common;
    fl_checkpoint *file;
    fl_document *document;
    fl_variant *variant;
    fl_mechanism *mechanism;
    fl_compute *compute;
    float *output, *norm; /* [T][H][D], [H][T] */
    int32_t *written;     /* [Hkv][T] */
} case_run;

static double worst;

static void must(fl_status status, const fl_error *error) {
    if (status != FL_OK) fail_msg("%s", error->message);
}

static bool open_common(const char *checkpoint, common_file *common) {
    char name[128];
    fl_error error;
    size_t shape[4];
    snprintf(name, sizeof name, "pipeline/%s/common.safetensors", checkpoint);
    const char *path = fl_pack_path(name);
    if (path == NULL) return false;
    must(fl_checkpoint_open(path, &common->file, &error), &error);
    common->query = fl_fixture_floats(common->file, "full.b.q", NULL, shape);
    size_t heads = shape[2], head_dim = shape[3];
    common->key = fl_fixture_floats(common->file, "full.b.k", NULL, shape);
    size_t kv_heads = shape[2];
    common->value = fl_fixture_floats(common->file, "full.b.v", NULL, shape);
    common->input = fl_fixture_floats(common->file, "full.b.attn_in", NULL, shape);
    common->full = fl_fixture_doubles(common->file, "full.b.y", NULL, NULL);
    common->shape = (fl_attention_shape){heads, kv_heads, head_dim, shape[2], 1.0f / sqrtf((float)head_dim)};
    return true;
}

static void close_common(common_file *common) {
    fl_checkpoint_close(common->file);
    fl_memory_free(common->query);
    fl_memory_free(common->key);
    fl_memory_free(common->value);
    fl_memory_free(common->input);
    fl_memory_free(common->full);
}

static void fill_parameters(case_run *run) {
    for (size_t layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; run->mechanism->layer[layer] != NULL && i < run->mechanism->tensor_count; i++) {
            const fl_mechanism_tensor *tensor = &run->mechanism->tensors[i];
            char name[96];
            size_t count = 0, shape[4];
            snprintf(name, sizeof name, "params.layers.%zu.%s", layer, tensor->name);
            float *values = fl_fixture_floats(run->file, name, &count, shape);
            assert_int_equal(count, tensor->count);
            for (size_t axis = 0; axis < tensor->rank; axis++)
                assert_int_equal(shape[axis], tensor->shape[axis]);
            memcpy(run->mechanism->layer[layer] + tensor->offset, values, count * sizeof *values);
            fl_memory_free(values);
        }
    }
}

static bool open_case(const char *checkpoint, const pack_configuration *chosen, const common_file *common,
                      case_run *run) {
    char name[128], yaml[512];
    fl_error error;
    snprintf(name, sizeof name, "pipeline/%s/%s.safetensors", checkpoint, chosen->name);
    const char *path = fl_pack_path(name);
    if (path == NULL) return false;
    memset(run, 0, sizeof *run);
    run->common = common;
    snprintf(yaml, sizeof yaml, "{%s}", chosen->yaml);
    must(fl_checkpoint_open(path, &run->file, &error), &error);
    must(fl_document_parse_text(yaml, strlen(yaml), chosen->name, &run->document, &error), &error);
    must(fl_variant_bind(fl_document_root(run->document), NULL, &run->variant, &error), &error);
    must(fl_variant_fit(run->variant, &common->shape, LAYERS, &error), &error);
    must(fl_mechanism_create(run->variant, &common->shape, LAYERS, &run->mechanism, &error), &error);
    fill_parameters(run);
    fl_compute_options options = {.threads = 2, .widen_budget_bytes = SIZE_MAX};
    must(fl_compute_create_cpu(&options, &run->compute, &error), &error);
    must(FL_ALLOCATE(&run->output, TOKENS * common->shape.query_heads * common->shape.head_dim, &error),
         &error);
    must(FL_ALLOCATE(&run->norm, TOKENS * common->shape.query_heads, &error), &error);
    must(FL_ALLOCATE(&run->written, TOKENS * common->shape.kv_heads, &error), &error);
    return true;
}

static void close_case(case_run *run) {
    fl_memory_free(run->output);
    fl_memory_free(run->norm);
    fl_memory_free(run->written);
    fl_mechanism_destroy(run->mechanism);
    fl_variant_destroy(run->variant);
    fl_document_destroy(run->document);
    fl_compute_destroy(run->compute);
    fl_checkpoint_close(run->file);
}

static void note(double relative, const char *what, const case_run *run, size_t layer) {
    if (!(relative <= BOUND)) {
        fail_msg("%s of layer %zu (rule %s): relative error %.3g", what, layer, run->variant->rule->name,
                 relative);
    }
    if (relative > worst) worst = relative;
}

static void compare(const case_run *run, const float *x, const char *name, size_t layer, size_t count) {
    if (!fl_fixture_has(run->file, name)) return;
    double *reference = fl_fixture_doubles(run->file, name, NULL, NULL);
    note(fl_compare_floats(x, reference + layer * count, count).relative, name, run, layer);
    fl_memory_free(reference);
}

static void compare_probe(const case_run *run, size_t layer) {
    static const size_t positions[] = {4, 12, 20, 28, 36};
    const char *name = "teacher_forced.b.y_lin.probe";
    size_t row = run->common->shape.query_heads * run->common->shape.head_dim;
    if (!fl_fixture_has(run->file, name)) return;
    double *reference = fl_fixture_doubles(run->file, name, NULL, NULL);
    float *rows = NULL;
    fl_error error;
    must(FL_ALLOCATE(&rows, 5 * row, &error), &error);
    for (size_t i = 0; i < 5; i++)
        memcpy(rows + i * row, run->output + positions[i] * row, row * sizeof *rows);
    note(fl_compare_floats(rows, reference + layer * 5 * row, 5 * row).relative, name, run, layer);
    fl_memory_free(rows);
    fl_memory_free(reference);
}

/* mean of (y_full - y_lin)^2 per head: a check of every position, also where only probes are stored. */
static void compare_head_errors(const case_run *run, size_t layer) {
    size_t heads = run->common->shape.query_heads, head_dim = run->common->shape.head_dim;
    double *stored = fl_fixture_doubles(run->file, "teacher_forced.b.head.mse", NULL, NULL);
    double *variance = fl_fixture_doubles(run->file, "teacher_forced.b.head.var", NULL, NULL);
    const double *full = run->common->full + layer * TOKENS * heads * head_dim;
    for (size_t head = 0; head < heads; head++) {
        double sum = 0.0;
        for (size_t token = 0; token < TOKENS; token++) {
            for (size_t i = 0; i < head_dim; i++) {
                size_t at = (token * heads + head) * head_dim + i;
                sum += (full[at] - run->output[at]) * (full[at] - run->output[at]);
            }
        }
        double mse = sum / (double)(TOKENS * head_dim), reference = stored[layer * heads + head];
        double scale =
            reference > variance[layer * heads + head] ? reference : variance[layer * heads + head];
        note(fabs(mse - reference) / scale, "head mse", run, layer);
    }
    fl_memory_free(stored);
    fl_memory_free(variance);
}

static void compare_written(const case_run *run, size_t layer) {
    const char *name = "teacher_forced.b.written";
    size_t count = 0, entries = run->common->shape.kv_heads * TOKENS;
    if (!fl_fixture_has(run->file, name)) return;
    int32_t *reference = fl_fixture_integers(run->file, name, &count);
    assert_memory_equal(run->written, reference + layer * entries, entries * sizeof *reference);
    fl_memory_free(reference);
}

static void compare_state(const case_run *run, const fl_mixer *mixer, size_t layer) {
    const char *name = "teacher_forced.b.state";
    size_t heads = run->common->shape.query_heads, value_dim = 0, key_dim = 0;
    size_t head_floats = run->common->shape.head_dim * run->common->shape.head_dim;
    if (!fl_fixture_has(run->file, name)) return;
    const float *state = fl_test_floats(fl_mixer_state(mixer, &value_dim, &key_dim));
    double *reference = fl_fixture_doubles(run->file, name, NULL, NULL);
    for (size_t head = 0; head < heads; head++) {
        const double *of_head = reference + (layer * heads + head) * head_floats;
        note(fl_compare_floats(state + head * value_dim * key_dim, of_head, head_floats).relative, name, run,
             layer);
    }
    fl_memory_free(reference);
}

static void forward(case_run *run, fl_mixer *mixer, size_t layer, size_t first, size_t tokens, float *norm,
                    int32_t *written, fl_recurrence_mode mode) {
    const fl_attention_shape *shape = &run->common->shape;
    size_t query_row = shape->query_heads * shape->head_dim, key_row = shape->kv_heads * shape->head_dim;
    size_t at = layer * TOKENS + first;
    fl_error error;
    fl_mixer_call call = {.tokens = tokens,
                          .query = fl_test_array(run->common->query + at * query_row),
                          .key = fl_test_array(run->common->key + at * key_row),
                          .value = fl_test_array(run->common->value + at * key_row),
                          .input = fl_test_array(run->common->input + at * shape->model_dim),
                          .output = fl_test_array(run->output + first * query_row),
                          .state_norm = fl_test_array(norm),
                          .written = written,
                          .mode = mode};
    must(fl_mixer_forward(mixer, &call, &error), &error);
}

static void check_layer(case_run *run, size_t layer) {
    const fl_attention_shape *shape = &run->common->shape;
    size_t floats = TOKENS * shape->query_heads * shape->head_dim;
    fl_error error;
    fl_mixer *mixer = NULL;
    must(fl_mixer_create(run->compute, run->mechanism, layer, &mixer, &error), &error);
    forward(run, mixer, layer, 0, TOKENS, run->norm, run->written, FL_RECURRENCE_AUTO);
    compare(run, run->output, "teacher_forced.b.y_lin", layer, floats);
    compare(run, run->norm, "teacher_forced.b.state_norm", layer, TOKENS * shape->query_heads);
    compare_probe(run, layer);
    compare_head_errors(run, layer);
    compare_written(run, layer);
    compare_state(run, mixer, layer);
    fl_mixer_reset(mixer);
    forward(run, mixer, layer, 0, TOKENS, NULL, run->written, FL_RECURRENCE_CHUNK);
    compare(run, run->output, "teacher_forced.b.y_lin", layer, floats);
    compare_probe(run, layer);
    compare_head_errors(run, layer);
    compare_written(run, layer);
    fl_mixer_reset(mixer);
    static const size_t pieces[] = {1, 5, 0, 11, 2, 18};
    size_t at = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        forward(run, mixer, layer, at, pieces[i], NULL, NULL, FL_RECURRENCE_AUTO);
        at += pieces[i];
    }
    assert_int_equal(at, TOKENS);
    compare_probe(run, layer);
    compare_head_errors(run, layer);
    compare_state(run, mixer, layer);
    fl_mixer_destroy(mixer);
}

static void test_every_configuration_gives_the_packs_outputs_states_norms_and_decisions(void **state) {
    (void)state;
    size_t found = 0, layers = 0;
    for (size_t i = 0; i < sizeof checkpoints / sizeof checkpoints[0]; i++) {
        common_file common;
        if (!open_common(checkpoints[i], &common)) continue;
        for (size_t j = 0; j < CONFIGURATIONS; j++) {
            case_run run;
            if (!open_case(checkpoints[i], &configurations[j], &common, &run)) continue;
            double before = worst;
            worst = 0.0;
            for (size_t layer = 0; layer < LAYERS; layer++) {
                if (fl_variant_layer_is_softmax(run.variant, layer)) continue;
                check_layer(&run, layer);
                layers++;
            }
            if (getenv("FROSTLINE_FIGURES") != NULL) {
                printf("%s %s: %.2g\n", checkpoints[i], configurations[j].name, worst);
            }
            if (before > worst) worst = before;
            found++;
            close_case(&run);
        }
        close_common(&common);
    }
    if (found == 0) fl_fixture_skip("pipeline mixer", "pack pipeline");
    printf("worst: %zu configurations, %zu layers: relative error %.2g\n", found, layers, worst);
}

/* What the rule of layer 0 saw, by token: q, k, v after convolution and unit length, gate, beta. */
static void check_debug(const case_run *run, const fl_mixer_block *block) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_attention_shape *shape = &run->common->shape;
    size_t heads = shape->query_heads, head_dim = shape->head_dim, window = plan->variant->window;
    static const char *const names[] = {"debug.b.layer0.q", "debug.b.layer0.k", "debug.b.layer0.v",
                                        "debug.b.layer0.gate", "debug.b.layer0.beta"};
    double *expected[5];
    for (size_t i = 0; i < 5; i++) expected[i] = fl_fixture_doubles(run->file, names[i], NULL, NULL);
    for (size_t token = 0; token < TOKENS; token++) {
        for (size_t head = 0; head < heads; head++) {
            size_t at = (token * heads + head) * head_dim;
            float gate[64];
            for (size_t i = 0; i < head_dim; i++)
                gate[i] = expf(fl_test_floats(block->scratch->projected[FL_PROJECT_GATE])[at + i]);
            fl_assert_close(gate, expected[3] + at, head_dim, BOUND, names[3]);
            fl_assert_close(fl_test_floats(block->scratch->projected[FL_PROJECT_BETA]) + at / head_dim,
                            expected[4] + at / head_dim, 1, BOUND, names[4]);
            fl_assert_close(fl_test_floats(block->scratch->query) + (head * TOKENS + token) * head_dim,
                            expected[0] + at, head_dim, BOUND, names[0]);
            if (token < plan->variant->sinks || token + window >= TOKENS) continue; /* not in the stream */
            fl_assert_close(fl_test_floats(fl_write_row(&plan->layout, &block->stream, FL_WRITE_KEY, head,
                                                        token + window)),
                            expected[1] + at, head_dim, BOUND, names[1]);
            fl_assert_close(fl_test_floats(fl_write_row(&plan->layout, &block->stream, FL_WRITE_VALUE, head,
                                                        token + window)),
                            expected[2] + at, head_dim, BOUND, names[2]);
        }
    }
    for (size_t i = 0; i < 5; i++) fl_memory_free(expected[i]);
}

static void test_the_rule_sees_the_packs_q_k_v_gate_and_beta(void **state) {
    (void)state;
    size_t found = 0;
    for (size_t i = 0; i < sizeof checkpoints / sizeof checkpoints[0]; i++) {
        common_file common;
        fl_error error;
        if (!open_common(checkpoints[i], &common)) continue;
        for (size_t j = 0; j < CONFIGURATIONS; j++) {
            case_run run;
            if (strcmp(configurations[j].name, "kda_conv_random_window") != 0) continue;
            if (!open_case(checkpoints[i], &configurations[j], &common, &run)) continue;
            fl_mixer *mixer = NULL;
            fl_lent_memory lent;
            fl_mixer_scratch scratch;
            fl_mixer_block block;
            fl_mixer_call call = {.tokens = TOKENS,
                                  .query = fl_test_array(common.query),
                                  .key = fl_test_array(common.key),
                                  .value = fl_test_array(common.value),
                                  .input = fl_test_array(common.input)};
            must(fl_mixer_create(run.compute, run.mechanism, 0, &mixer, &error), &error);
            must(fl_mixer_replay(mixer, &call, false, &lent, &scratch, &block, &error), &error);
            check_debug(&run, &block);
            fl_compute_take_back(run.compute, lent);
            fl_mixer_destroy(mixer);
            close_case(&run);
            found++;
        }
        close_common(&common);
    }
    if (found == 0) fl_fixture_skip("what the rule sees", "pack pipeline");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_configuration_gives_the_packs_outputs_states_norms_and_decisions),
        cmocka_unit_test(test_the_rule_sees_the_packs_q_k_v_gate_and_beta),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
