/* The mixer's backward pass against finite differences of the float64 mixer: every rule, merges, convolution,
 * routing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variants/mixer_backward.h"
#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "tests/support/arrays.h"
#include "tests/support/mixer_case.h"

enum { TOKENS = 19, SAMPLES = 8 };
static const double BOUND = 1e-3;

static double worst;

static void must(fl_status status, const fl_error *error) {
    if (status != FL_OK) fail_msg("%s", error->message);
}

typedef struct backward_case {
    fl_mixer_case inputs;
    const char *yaml;
    float *weights; /* dLoss/d(output) */
    int32_t *written;
    fl_random random;
} backward_case;

/* Loss in float64; *flipped when routing decided otherwise than at the point itself. */
static double loss(backward_case *c, bool *flipped) {
    fl_case_reference reference = fl_mixer_case_reference(&c->inputs);
    double sum = 0.0;
    for (size_t i = 0; i < fl_mixer_case_floats(&c->inputs); i++) sum += c->weights[i] * reference.output[i];
    size_t bytes = c->inputs.tokens * c->inputs.shape.kv_heads * sizeof *c->written;
    if (c->written == NULL) {
        c->written = reference.written;
        reference.written = NULL;
    } else if (memcmp(c->written, reference.written, bytes) != 0) {
        *flipped = true;
    }
    fl_case_reference_free(&reference);
    return sum;
}

static double slope(backward_case *c, float *x, bool *flipped) {
    static const double steps[4] = {-2.0, -1.0, 1.0, 2.0};
    double step = 2e-4 * fmax(1.0, fabs(*x)), of[4], at[4];
    float kept = *x;
    for (size_t i = 0; i < 4; i++) {
        *x = (float)(kept + steps[i] * step);
        at[i] = *x;
        of[i] = loss(c, flipped);
    }
    *x = kept;
    double near = (of[2] - of[1]) / (at[2] - at[1]), far = (of[3] - of[0]) / (at[3] - at[0]);
    return (4.0 * near - far) / 3.0;
}

static void compare_kind(backward_case *c, size_t count, float *x, const float *gradient, const char *what) {
    double largest = 1e-5;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(gradient[i]));
    for (size_t i = 0; i < SAMPLES && count > 0; i++) {
        size_t at = count <= SAMPLES ? i % count : (size_t)fl_random_below(&c->random, count);
        bool flipped = false;
        double expected = slope(c, &x[at], &flipped);
        if (flipped) continue;
        double difference = fabs(expected - gradient[at]) / largest;
        if (!(difference <= BOUND)) {
            fail_msg("%s: %s[%zu]: gradient %.6g, finite difference %.6g, largest %.3g", c->yaml, what, at,
                     gradient[at], expected, largest);
        }
        worst = fmax(worst, difference);
    }
}

static void check(const char *yaml, fl_recurrence_mode mode) {
    backward_case c = {.yaml = yaml};
    fl_error error;
    fl_random_seed(&c.random, 3, 1);
    fl_mixer_case_open(&c.inputs, NULL, yaml, 4, 2, 5, TOKENS, 0.8, 21);
    fl_mixer_case *inputs = &c.inputs;
    size_t queries = fl_mixer_case_floats(inputs), keys = TOKENS * 2 * 5;
    size_t model = TOKENS * inputs->shape.model_dim, parameters = inputs->mechanism->layer_floats;
    float *query = fl_test_block(queries, sizeof(float)), *key = fl_test_block(keys, sizeof(float)),
          *value = fl_test_block(keys, sizeof(float)), *input = fl_test_block(model, sizeof(float));
    float *block = fl_test_block(parameters, sizeof(float)),
          *again = fl_test_block(parameters, sizeof(float));
    c.weights = fl_test_block(queries, sizeof(float));
    for (size_t i = 0; i < queries; i++) c.weights[i] = (float)fl_random_normal(&c.random);
    fl_mixer_call call = {.tokens = TOKENS,
                          .query = fl_test_array(inputs->query),
                          .key = fl_test_array(inputs->key),
                          .value = fl_test_array(inputs->value),
                          .input = fl_test_array(inputs->input),
                          .mode = mode};
    must(fl_mixer_backward(inputs->compute, inputs->mechanism, FL_CASE_LAYER, &call, fl_test_array(c.weights),
                           fl_test_array(query), fl_test_array(key), fl_test_array(value),
                           fl_test_array(input), fl_test_array(block), &error),
         &error);
    bool flipped = false;
    loss(&c, &flipped);
    compare_kind(&c, queries, inputs->query, query, "query");
    compare_kind(&c, keys, inputs->key, key, "key");
    compare_kind(&c, keys, inputs->value, value, "value");
    compare_kind(&c, model, inputs->input, input, "input");
    for (size_t i = 0; i < inputs->mechanism->tensor_count; i++) {
        const fl_mechanism_tensor *tensor = &inputs->mechanism->tensors[i];
        compare_kind(&c, tensor->count, inputs->mechanism->layer[FL_CASE_LAYER] + tensor->offset,
                     block + tensor->offset, tensor->name);
    }
    /* Parameters alone, into a block that is not empty. */
    for (size_t i = 0; i < parameters; i++) again[i] = block[i];
    must(fl_mixer_backward(inputs->compute, inputs->mechanism, FL_CASE_LAYER, &call, fl_test_array(c.weights),
                           fl_array_none, fl_array_none, fl_array_none, fl_array_none, fl_test_array(again),
                           &error),
         &error);
    for (size_t i = 0; i < parameters; i++) {
        assert_true(fabs(again[i] - 2.0 * block[i]) <= 1e-4 * (fabs(block[i]) + 1e-3));
    }
    fl_memory_free(c.weights);
    fl_memory_free(c.written);
    fl_memory_free(query);
    fl_memory_free(key);
    fl_memory_free(value);
    fl_memory_free(input);
    fl_memory_free(block);
    fl_memory_free(again);
    fl_mixer_case_close(inputs);
}

static void test_every_rule_has_the_gradient_of_the_float64_mixer(void **state) {
    (void)state;
    static const char *const more[] = {"", ", window: 3, sinks: 2",
                                       ", window: 2, sinks: 1, short_conv: {kernel: 3, init: torch}"};
    worst = 0.0;
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        const fl_rule *rule = fl_rule_registry[i];
        if (strcmp(rule->name, "softmax") == 0) continue;
        for (size_t j = 0; j < sizeof more / sizeof more[0]; j++) {
            char yaml[160];
            snprintf(yaml, sizeof yaml, "{rule: %s%s}", rule->name, more[j]);
            check(yaml, j == 0 ? FL_RECURRENCE_STEP : FL_RECURRENCE_CHUNK);
        }
    }
    printf("worst: gradients of every rule %.2g\n", worst);
}

static void test_merges_normaliser_and_routing_have_their_gradients(void **state) {
    (void)state;
    static const char *const cases[] = {
        "{rule: gla, window: 3, sinks: 1, merge: half}",
        "{rule: linear, window: 3, merge: half}",
        "{rule: linear, feature_map: identity, window: 3, sinks: 1}",
        "{rule: linear, feature_map: exp, window: 3, sinks: 1, merge: shared_normaliser}",
        "{rule: linear, window: 3, sinks: 1, merge: lolcats}",
        "{rule: hedgehog, window: 3, merge: lolcats}",
        "{rule: hedgehog, window: 4, sinks: 1, merge: lolcats_invariant}",
        "{rule: taylor, window: 2, sinks: 1, merge: shared_normaliser, short_conv: {kernel: 2, init: torch}}",
        "{rule: kda, window: 2, sinks: 1, cache: {budget: 3, route: self_recall}}",
        "{rule: kda, window: 2, cache: {budget: 3, route: attention_mass}, short_conv: {kernel: 4, init: "
        "torch}}",
        "{rule: linear, window: 2, cache: {budget: 3, route: key_norm}, merge: shared_normaliser}",
        "{rule: linear, window: 2, cache: {budget: 3, route: attention_mass}, merge: lolcats}",
        "{rule: delta_product, cache: {budget: 4, route: recency}}",
        "{rule: kda, gate: {source: constant, value: 0.9}, beta: {source: constant, value: 0.3}, window: 2}",
        "{rule: ssd, gate: {source: constant, value: -1}, window: 2}",
        "{rule: gated_delta, window: 40, sinks: 1}",
        "{rule: kda, sinks: 3}",
        "{rule: oja, window: 2, sinks: 1, cache: {budget: 3, route: self_recall}, merge: half}",
        "{rule: oja, gate: {source: constant, value: 0.9}, beta: {source: constant, value: 0.3}}",
        "{rule: kda, gate: {form: softplus}, beta: {maximum: 2}, window: 2}",
        "{rule: gated_delta, gate: {form: softplus}, scale: sqrt_dim}",
        "{rule: oja, gate: {form: softplus}, scale: 0.3}",
        "{rule: comba, decay_first: true, window: 2}",
        "{rule: gdn2, static: true, window: 2}",
        "{rule: gdn2, negative_eigenvalues: true, factors: {rank: 3}}",
        "{rule: delta_product, static: true, householder_steps: 3, scale: sqrt_dim}",
        "{rule: longhorn, diagonal: true}",
        "{rule: longhorn, diagonal: true, window: 2, sinks: 1, cache: {budget: 3, route: self_recall}}",
        "{rule: rwkv7, unit: false, scale: 0.5, short_conv: {kernel: 3, init: torch}}",
        "{rule: rwkv7, sinks: 2}",
        "{rule: mamba, skip: true, scale: 0.5}",
        "{rule: hgrn2, lower_bound: 0.3, unit: false}",
        "{rule: rwkv6, unit: false, sinks: 2}",
        "{rule: mlstm, unit: false}",
        "{rule: lightning, unit: false}",
        "{rule: gsa, slots: 5, softness: 2}",
        "{rule: rebased, normalise: false, window: 2, merge: shared_normaliser}",
        "{rule: mamba, unit: false, window: 2, sinks: 1}",
        "{rule: s4d, init: real, window: 2}",
        "{rule: s4d, unit: false}",
    };
    worst = 0.0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check(cases[i], FL_RECURRENCE_AUTO);
    printf("worst: gradients of interventions %.2g\n", worst);
}

/* A rule with its own step and parameters of its own: S += (c . v) k^T, y = S (p . q); the loss is linear in
 * c and in p. */
static size_t scaled_floats(size_t head_dim, const void *options) {
    (void)options;
    return head_dim * head_dim;
}

static const float *scale_of(const fl_rule_input *token, size_t which) {
    return token->parameters[which] + token->head * token->head_dim;
}

static void scaled_write(const fl_rule_input *token, float *state) {
    size_t n = token->head_dim;
    for (size_t at = 0; at < n * n; at++) {
        state[at] += scale_of(token, 0)[at / n] * token->value[at / n] * token->key[at % n];
    }
}

static void scaled_read(const fl_rule_input *token, const float *state, float *output) {
    size_t n = token->head_dim;
    memset(output, 0, n * sizeof *output);
    for (size_t at = 0; at < n * n; at++) {
        output[at / n] += state[at] * scale_of(token, 1)[at % n] * token->query[at % n];
    }
}

static void scaled_write_backward(const fl_rule_input *token, const float *before, float *gradient_state,
                                  fl_rule_input_gradient *out) {
    (void)before;
    size_t n = token->head_dim;
    memset(out->key, 0, n * sizeof *out->key);
    memset(out->value, 0, n * sizeof *out->value);
    for (size_t at = 0; at < n * n; at++) {
        float scale = scale_of(token, 0)[at / n], value = token->value[at / n], key = token->key[at % n];
        out->key[at % n] += gradient_state[at] * scale * value;
        out->value[at / n] += gradient_state[at] * scale * key;
        out->parameters[0][token->head * n + at / n] += gradient_state[at] * value * key;
    }
}

static void scaled_read_backward(const fl_rule_input *token, const float *state, const float *gradient_output,
                                 float *gradient_state, fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    memset(out->query, 0, n * sizeof *out->query);
    for (size_t at = 0; at < n * n; at++) {
        float scale = scale_of(token, 1)[at % n], query = token->query[at % n];
        float read = gradient_output[at / n] * state[at];
        gradient_state[at] += gradient_output[at / n] * scale * query;
        out->query[at % n] += read * scale;
        out->parameters[1][token->head * n + at % n] += read * query;
    }
}

static void test_a_rule_with_its_own_step_has_gradients_of_its_own_parameters(void **state) {
    (void)state;
    static const fl_rule_parameter parameters[] = {
        {.name = "write_scale", .axes = "HD", .init = "1", .help = "of the value"},
        {.name = "read_scale", .axes = "HD", .init = "1", .help = "of the query"}};
    const fl_rule rule = {.abi = FL_RULE_ABI,
                          .name = "scaled",
                          .summary = "linear attention with two scales",
                          .equation = "S = S + (c . v) k^T;  y = S (p . q)",
                          .source = "this test",
                          .parameters = parameters,
                          .parameter_count = 2,
                          .own = {.state_floats = scaled_floats,
                                  .write = scaled_write,
                                  .read = scaled_read,
                                  .write_backward = scaled_write_backward,
                                  .read_backward = scaled_read_backward}};
    fl_mixer_case c;
    fl_error error;
    fl_mixer_case_open(&c, &rule, "{rule: scaled, window: 2, sinks: 1}", 4, 2, 5, TOKENS, 0.8, 4);
    fl_mixer_call call = {.tokens = TOKENS,
                          .query = fl_test_array(c.query),
                          .key = fl_test_array(c.key),
                          .value = fl_test_array(c.value),
                          .input = fl_test_array(c.input)};
    size_t count = c.mechanism->layer_floats;
    float *weights = fl_test_block(fl_mixer_case_floats(&c), sizeof(float)),
          *gradient = fl_test_block(count, sizeof(float));
    float *parameter = c.mechanism->layer[FL_CASE_LAYER];
    for (size_t i = 0; i < fl_mixer_case_floats(&c); i++) weights[i] = (float)(i % 7) - 3.0f;
    must(fl_mixer_backward(c.compute, c.mechanism, FL_CASE_LAYER, &call, fl_test_array(weights),
                           fl_array_none, fl_array_none, fl_array_none, fl_array_none,
                           fl_test_array(gradient), &error),
         &error);
    assert_int_equal(count, 2 * 4 * 5);
    for (size_t i = 0; i < count; i++) {
        double at[2];
        float kept = parameter[i];
        for (int side = 0; side < 2; side++) {
            parameter[i] = kept + (float)side;
            fl_case_result result = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
            at[side] = 0.0;
            for (size_t j = 0; j < fl_mixer_case_floats(&c); j++) at[side] += weights[j] * result.output[j];
            fl_case_result_free(&result);
        }
        parameter[i] = kept;
        if (!(fabs(at[1] - at[0] - gradient[i]) <= 1e-4 * (1.0 + fabs(gradient[i]))))
            fail_msg("parameter %zu: gradient %.6g, difference %.6g", i, gradient[i], at[1] - at[0]);
    }
    fl_memory_free(weights);
    fl_memory_free(gradient);
    fl_mixer_case_close(&c);
}

static void test_a_rule_without_a_derivative_is_refused_by_name(void **state) {
    (void)state;
    fl_mixer_case c;
    fl_error error;
    fl_rule rule = *fl_rule_find("oja");
    rule.own.write_backward = NULL;
    rule.own.read_backward = NULL;
    fl_mixer_case_open(&c, &rule, "{rule: oja}", 2, 1, 4, 3, 1.0, 1);
    fl_mixer_call call = {.tokens = 3,
                          .query = fl_test_array(c.query),
                          .key = fl_test_array(c.key),
                          .value = fl_test_array(c.value),
                          .input = fl_test_array(c.input)};
    assert_int_equal(fl_mixer_backward(c.compute, c.mechanism, FL_CASE_LAYER, &call, fl_test_array(c.query),
                                       fl_array_none, fl_array_none, fl_array_none, fl_array_none,
                                       fl_array_none, &error),
                     FL_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "oja"));
    fl_mixer_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rule_has_the_gradient_of_the_float64_mixer),
        cmocka_unit_test(test_merges_normaliser_and_routing_have_their_gradients),
        cmocka_unit_test(test_a_rule_with_its_own_step_has_gradients_of_its_own_parameters),
        cmocka_unit_test(test_a_rule_without_a_derivative_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
