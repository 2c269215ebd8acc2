#include "tests/support/arrays.h"
#include "tests/support/mixer_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "tests/support/reference_mixer.h"

static void must(fl_status status, const fl_error *error) {
    if (status != FL_OK) fail_msg("%s", error->message);
}

static float *random_floats(size_t count, double amplitude, uint64_t seed, uint64_t stream) {
    fl_error error;
    float *values = NULL;
    fl_random random;
    must(FL_ALLOCATE(&values, count, &error), &error);
    fl_random_seed(&random, seed, stream);
    for (size_t i = 0; i < count; i++) values[i] = (float)(amplitude * fl_random_normal(&random));
    return values;
}

/* Initial values are too regular (zeros, ones, identities) to show a mistake. */
static void disturb(fl_mechanism *mechanism, uint64_t seed) {
    fl_random random;
    fl_random_seed(&random, seed, 77);
    for (size_t i = 0; i < mechanism->layer_floats; i++) {
        mechanism->layer[FL_CASE_LAYER][i] += (float)(0.2 * fl_random_normal(&random));
    }
}

void fl_mixer_case_open(fl_mixer_case *c, const fl_rule *rule, const char *yaml, size_t query_heads,
                        size_t kv_heads, size_t head_dim, size_t tokens, double amplitude, uint64_t seed) {
    fl_error error;
    enum { MODEL_DIM = 24 };
    memset(c, 0, sizeof *c);
    c->shape =
        (fl_attention_shape){query_heads, kv_heads, head_dim, MODEL_DIM, 1.0f / sqrtf((float)head_dim)};
    c->tokens = tokens;
    must(fl_document_parse_text(yaml, strlen(yaml), "case", &c->document, &error), &error);
    const fl_node *root = fl_document_root(c->document);
    must(rule == NULL ? fl_variant_bind(root, NULL, &c->variant, &error)
                      : fl_variant_bind_rule(rule, root, NULL, &c->variant, &error),
         &error);
    must(fl_variant_fit(c->variant, &c->shape, FL_CASE_LAYERS, &error), &error);
    must(fl_mechanism_create(c->variant, &c->shape, FL_CASE_LAYERS, &c->mechanism, &error), &error);
    disturb(c->mechanism, seed);
    fl_compute_options options = {.threads = 2, .widen_budget_bytes = 0};
    must(fl_compute_create_cpu(&options, &c->compute, &error), &error);
    c->query = random_floats(tokens * query_heads * head_dim, amplitude, seed, 1);
    c->key = random_floats(tokens * kv_heads * head_dim, amplitude, seed, 2);
    c->value = random_floats(tokens * kv_heads * head_dim, amplitude, seed, 3);
    c->input = random_floats(tokens * MODEL_DIM, 1.0, seed, 4);
}

void fl_mixer_case_close(fl_mixer_case *c) {
    fl_memory_free(c->query);
    fl_memory_free(c->key);
    fl_memory_free(c->value);
    fl_memory_free(c->input);
    fl_compute_destroy(c->compute);
    fl_mechanism_destroy(c->mechanism);
    fl_variant_destroy(c->variant);
    fl_document_destroy(c->document);
}

size_t fl_mixer_case_floats(const fl_mixer_case *c) {
    return c->tokens * c->shape.query_heads * c->shape.head_dim;
}

fl_mixer *fl_mixer_case_mixer(const fl_mixer_case *c) {
    fl_error error;
    fl_mixer *mixer = NULL;
    must(fl_mixer_create(c->compute, c->mechanism, FL_CASE_LAYER, &mixer, &error), &error);
    return mixer;
}

static void append(const fl_mixer_case *c, fl_mixer *mixer, size_t first, size_t count,
                   fl_recurrence_mode mode, fl_case_result result) {
    fl_error error;
    size_t query_row = c->shape.query_heads * c->shape.head_dim,
           key_row = c->shape.kv_heads * c->shape.head_dim;
    fl_mixer_call call = {.tokens = count,
                          .query = fl_test_array(c->query + first * query_row),
                          .key = fl_test_array(c->key + first * key_row),
                          .value = fl_test_array(c->value + first * key_row),
                          .input = fl_test_array(c->input + first * c->shape.model_dim),
                          .output = fl_test_array(result.output + first * query_row),
                          .state_norm = fl_test_array(result.state_norm),
                          .written = result.written,
                          .mode = mode};
    must(fl_mixer_forward(mixer, &call, &error), &error);
}

void fl_mixer_case_append(const fl_mixer_case *c, fl_mixer *mixer, size_t first, size_t count,
                          fl_recurrence_mode mode, float *output) {
    append(c, mixer, first, count, mode, (fl_case_result){.output = output});
}

fl_case_result fl_mixer_case_run(const fl_mixer_case *c, fl_recurrence_mode mode, int with_norm) {
    fl_error error;
    fl_case_result result = {NULL, NULL, NULL};
    must(FL_ALLOCATE(&result.output, fl_mixer_case_floats(c), &error), &error);
    must(FL_ALLOCATE(&result.written, c->tokens * c->shape.kv_heads, &error), &error);
    if (with_norm) must(FL_ALLOCATE(&result.state_norm, c->tokens * c->shape.query_heads, &error), &error);
    fl_mixer *mixer = fl_mixer_case_mixer(c);
    append(c, mixer, 0, c->tokens, mode, result);
    fl_mixer_destroy(mixer);
    return result;
}

fl_case_result fl_mixer_case_run_cut(const fl_mixer_case *c, const size_t *pieces, size_t count,
                                     fl_recurrence_mode mode) {
    fl_error error;
    fl_case_result result = {NULL, NULL, NULL};
    must(FL_ALLOCATE(&result.output, fl_mixer_case_floats(c), &error), &error);
    fl_mixer *mixer = fl_mixer_case_mixer(c);
    for (size_t at = 0, i = 0; at < c->tokens; i++) {
        size_t piece = pieces[i % count];
        if (piece > c->tokens - at) piece = c->tokens - at;
        append(c, mixer, at, piece, mode, result);
        at += piece;
    }
    fl_mixer_destroy(mixer);
    return result;
}

void fl_case_result_free(fl_case_result *result) {
    fl_memory_free(result->output);
    fl_memory_free(result->state_norm);
    fl_memory_free(result->written);
}

fl_case_reference fl_mixer_case_reference(const fl_mixer_case *c) {
    fl_error error;
    fl_case_reference reference = {NULL, NULL, NULL};
    must(FL_ALLOCATE(&reference.output, fl_mixer_case_floats(c), &error), &error);
    must(FL_ALLOCATE(&reference.state_norm, c->tokens * c->shape.query_heads, &error), &error);
    must(FL_ALLOCATE(&reference.written, c->tokens * c->shape.kv_heads, &error), &error);
    fl_reference_call call = {
        c->mechanism,     FL_CASE_LAYER,        c->tokens,        c->query, c->key, c->value, c->input,
        reference.output, reference.state_norm, reference.written};
    fl_reference_mixer(&call);
    return reference;
}

void fl_case_reference_free(fl_case_reference *reference) {
    fl_memory_free(reference->output);
    fl_memory_free(reference->state_norm);
    fl_memory_free(reference->written);
}
