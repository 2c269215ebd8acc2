/* Laws every mixer obeys: equalities between rules, exactness, one memory for every token, bounded memory,
 * copies, failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn_variants/mixer_parts.h"
#include "harness/base/memory.h"
#include "tests/support/arrays.h"
#include "tests/support/mixer_case.h"

enum { TOKENS = 70, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8 };

static void open_case(fl_mixer_case *c, const char *yaml) {
    fl_mixer_case_open(c, NULL, yaml, HEADS, KV_HEADS, HEAD_DIM, TOKENS, 1.0, 17);
}

/* Parameters of one case into another, where both have them. */
static void share_parameters(fl_mixer_case *to, const fl_mixer_case *from) {
    for (size_t i = 0; i < to->mechanism->tensor_count; i++) {
        const fl_mechanism_tensor *tensor = &to->mechanism->tensors[i];
        const float *source = fl_mechanism_find(from->mechanism, FL_CASE_LAYER, tensor->name);
        if (source == NULL) continue;
        memcpy(to->mechanism->layer[FL_CASE_LAYER] + tensor->offset, source, tensor->count * sizeof *source);
    }
}

static void set_parameter(fl_mixer_case *c, const char *name, float value) {
    float *values = fl_mechanism_find(c->mechanism, FL_CASE_LAYER, name);
    const fl_mechanism_tensor *tensor = fl_mechanism_find_tensor(c->mechanism, name);
    assert_non_null(values);
    for (size_t i = 0; i < tensor->count; i++) values[i] = value;
}

static void expect_equal_runs(const fl_mixer_case *a, const fl_mixer_case *b, double bound,
                              const char *what) {
    fl_case_result x = fl_mixer_case_run(a, FL_RECURRENCE_AUTO, 0),
                   y = fl_mixer_case_run(b, FL_RECURRENCE_AUTO, 0);
    fl_difference difference = fl_compare_float_floats(x.output, y.output, fl_mixer_case_floats(a));
    if (difference.not_finite > 0 || difference.relative > bound) {
        fail_msg("%s: relative difference %.3g", what, difference.relative);
    }
    fl_case_result_free(&x);
    fl_case_result_free(&y);
}

static void expect_equal(const char *yaml, const char *other, double bound) {
    fl_mixer_case a, b;
    open_case(&a, yaml);
    open_case(&b, other);
    share_parameters(&b, &a);
    expect_equal_runs(&a, &b, bound, yaml);
    fl_mixer_case_close(&a);
    fl_mixer_case_close(&b);
}

/* For every rule but softmax: "{rule: NAME, <more>}" against "{rule: NAME or other, <other>}". */
static void expect_for_every_rule(const char *more, const char *other_rule, const char *other, double bound) {
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        char a[160], b[160];
        const char *name = fl_rule_registry[i]->name;
        if (strcmp(name, "softmax") == 0) continue;
        snprintf(a, sizeof a, "{rule: %s, %s}", name, more);
        snprintf(b, sizeof b, "{rule: %s, %s}", other_rule == NULL ? name : other_rule, other);
        expect_equal(a, b, bound);
    }
}

static void test_a_prompt_inside_window_and_sinks_is_full_softmax(void **state) {
    (void)state;
    expect_for_every_rule("window: 66, sinks: 4", "none", "window: 70", 1e-6);
}

static void test_a_cache_as_long_as_the_prompt_is_full_softmax(void **state) {
    (void)state;
    expect_for_every_rule("window: 2, sinks: 1, cache: {budget: 67, route: self_recall}", "none",
                          "window: 70", 1e-6);
    expect_for_every_rule("window: 2, cache: {budget: 68, route: attention_mass}", "none", "window: 70",
                          1e-5);
    expect_for_every_rule("cache: {budget: 70, route: random}", "none", "window: 70", 1e-6);
}

static void test_a_recency_cache_is_a_longer_window(void **state) {
    (void)state;
    expect_for_every_rule("window: 3, sinks: 2, cache: {budget: 5, route: recency}", NULL,
                          "window: 8, sinks: 2", 2e-5);
}

static void test_an_identity_convolution_changes_nothing(void **state) {
    (void)state;
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        char a[96], b[96];
        fl_mixer_case plain, convolved;
        if (fl_rule_registry[i]->stateless) continue;
        snprintf(a, sizeof a, "{rule: %s, window: 4, sinks: 1}", fl_rule_registry[i]->name);
        snprintf(b, sizeof b, "{rule: %s, window: 4, sinks: 1, short_conv: {kernel: 6}}",
                 fl_rule_registry[i]->name);
        open_case(&plain, a);
        open_case(&convolved, b);
        share_parameters(&convolved, &plain);
        static const char *const names[3][2] = {{"conv.q.weight", "conv.q.bias"},
                                                {"conv.k.weight", "conv.k.bias"},
                                                {"conv.v.weight", "conv.v.bias"}};
        for (size_t j = 0; j < 3; j++) {
            float *weight = fl_mechanism_find(convolved.mechanism, FL_CASE_LAYER, names[j][0]);
            for (size_t k = 0; k < HEADS * HEAD_DIM * 6; k++) weight[k] = k % 6 == 5 ? 1.0f : 0.0f;
            set_parameter(&convolved, names[j][1], 0.0f);
        }
        expect_equal_runs(&plain, &convolved, 1e-6, a);
        fl_mixer_case_close(&plain);
        fl_mixer_case_close(&convolved);
    }
}

static void test_rules_fall_together_where_their_formulas_do(void **state) {
    (void)state;
    const char *one = "gate: {source: constant, value: 1}", *half = "gate: {source: constant, value: 0.5}";
    char a[192], b[192];
    snprintf(a, sizeof a, "{rule: gated_delta, %s, window: 3}", one);
    expect_equal(a, "{rule: delta, window: 3}", 1e-6);
    snprintf(a, sizeof a, "{rule: kda, %s}", half);
    snprintf(b, sizeof b, "{rule: gated_delta, %s}", half);
    expect_equal(a, b, 2e-6);
    snprintf(a, sizeof a, "{rule: decay, %s, sinks: 2}", one);
    expect_equal(a, "{rule: linear, feature_map: identity, sinks: 2}", 1e-6);
    expect_equal("{rule: kgla, beta: {source: constant, value: 0}}", "{rule: gla}", 1e-6);
    expect_equal("{rule: delta, beta: {source: constant, value: 0}, window: 3}", "{rule: none, window: 3}",
                 0.0);
    expect_equal("{rule: kda, beta: {source: constant, value: 0}, window: 3}", "{rule: none, window: 3}",
                 0.0);
    snprintf(a, sizeof a, "{rule: gated, %s, window: 2}", one);
    expect_equal(a, "{rule: none, window: 2}", 0.0);
    expect_equal("{rule: linear, window: 3, normaliser: true, feature_map: exp}",
                 "{rule: linear, window: 3, feature_map: exp}", 0.0);
}

static void test_newer_rules_start_as_the_rules_they_extend(void **state) {
    (void)state;
    fl_mixer_case a, b;
    open_case(&a, "{rule: gdn2, static: true, window: 2}");
    open_case(&b, "{rule: kda, window: 2}");
    share_parameters(&b, &a);
    set_parameter(&a, "gdn2.erase", 0.0f);
    set_parameter(&a, "gdn2.write", 0.0f);
    expect_equal_runs(&a, &b, 2e-6, "gdn2 against kda");
    fl_mixer_case_close(&a);
    fl_mixer_case_close(&b);
    open_case(&a, "{rule: comba, decay_first: true, window: 2}");
    open_case(&b, "{rule: gated_delta, window: 2}");
    share_parameters(&b, &a);
    set_parameter(&a, "comba.feedback", 40.0f);
    set_parameter(&a, "comba.correction", 0.0f);
    expect_equal_runs(&a, &b, 2e-6, "comba against gated_delta");
    fl_mixer_case_close(&a);
    open_case(
        &a,
        "{rule: delta_product, static: true, householder_steps: 1, negative_eigenvalues: false, window: 2}");
    share_parameters(&b, &a);
    set_parameter(&a, "delta_product.key_scale", 1.0f);
    set_parameter(&a, "delta_product.value_scale", 1.0f);
    expect_equal_runs(&a, &b, 2e-6, "delta_product against gated_delta");
    fl_mixer_case_close(&a);
    fl_mixer_case_close(&b);
}

static void test_outputs_depend_on_the_past_only(void **state) {
    (void)state;
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        char yaml[160];
        fl_mixer_case c;
        if (strcmp(fl_rule_registry[i]->name, "softmax") == 0) continue;
        snprintf(yaml, sizeof yaml, "{rule: %s, window: 3, sinks: 1, cache: {budget: 4, route: self_recall}}",
                 fl_rule_registry[i]->name);
        open_case(&c, yaml);
        fl_case_result before = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
        size_t cut = 41, row = HEADS * HEAD_DIM;
        for (size_t j = cut * row; j < TOKENS * row; j++) c.query[j] += 3.0f;
        for (size_t j = cut * KV_HEADS * HEAD_DIM; j < TOKENS * KV_HEADS * HEAD_DIM; j++) {
            c.key[j] -= 2.0f;
            c.value[j] += 5.0f;
        }
        for (size_t j = cut * c.shape.model_dim; j < TOKENS * c.shape.model_dim; j++) c.input[j] = 0.0f;
        fl_case_result after = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
        fl_difference difference = fl_compare_float_floats(after.output, before.output, cut * row);
        if (difference.relative > 1e-6) fail_msg("%s: %.3g", yaml, difference.relative);
        fl_case_result_free(&before);
        fl_case_result_free(&after);
        fl_mixer_case_close(&c);
    }
}

/* Written tokens and living entries of the exact set, per KV head: together every token once. */
static void expect_one_memory_each(const fl_mixer_case *c, const fl_mixer *mixer, const int32_t *written) {
    const fl_exact_set *set = &mixer->exact;
    for (size_t head = 0; head < KV_HEADS; head++) {
        size_t seen[TOKENS] = {0}, list = set->per_head ? head * set->rows.capacity : 0;
        for (size_t i = 0; i < c->tokens; i++) {
            if (written[head * c->tokens + i] >= 0) seen[written[head * c->tokens + i]]++;
        }
        for (size_t i = 0; i < set->count; i++) {
            if ((size_t)set->expiry[list + i] > c->tokens - 1) seen[set->position[list + i]]++;
        }
        for (size_t i = 0; i < c->tokens; i++) assert_int_equal(seen[i], 1);
    }
}

static void test_every_token_is_in_exactly_one_memory(void **state) {
    (void)state;
    static const char *const variants[] = {
        "{rule: kda}",
        "{rule: kda, window: 5}",
        "{rule: kda, sinks: 3}",
        "{rule: kda, window: 5, sinks: 3}",
        "{rule: none, window: 5, sinks: 80}",
        "{rule: kda, window: 5, sinks: 3, cache: {budget: 7, route: self_recall}}",
        "{rule: gla, window: 0, sinks: 0, cache: {budget: 7, route: attention_mass}}",
        "{rule: linear, window: 1, sinks: 70, cache: {budget: 7, route: value_norm}}",
        "{rule: delta, window: 90, cache: {budget: 7, route: key_norm}}",
        "{rule: delta, window: 2, cache: {budget: 1, route: random}}",
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        fl_mixer_case c;
        fl_error error;
        open_case(&c, variants[i]);
        fl_case_result whole = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
        fl_mixer *mixer = fl_mixer_case_mixer(&c);
        fl_mixer_call call = {.tokens = TOKENS,
                              .query = fl_test_array(c.query),
                              .key = fl_test_array(c.key),
                              .value = fl_test_array(c.value),
                              .input = fl_test_array(c.input),
                              .output = fl_test_array(whole.output),
                              .written = whole.written};
        assert_int_equal(fl_mixer_forward(mixer, &call, &error), FL_OK);
        expect_one_memory_each(&c, mixer, whole.written);
        size_t written = 0;
        for (size_t j = 0; j < TOKENS; j++) written += whole.written[j] >= 0;
        if (c.variant->rule->stateless) written = 0;
        assert_int_equal(fl_mixer_tokens_written(mixer), written);
        assert_int_equal(fl_mixer_position(mixer), TOKENS);
        fl_mixer_destroy(mixer);
        fl_case_result_free(&whole);
        fl_mixer_case_close(&c);
    }
}

static void test_memory_stays_bounded_over_thousands_of_tokens(void **state) {
    (void)state;
    static const char *const variants[] = {
        "{rule: kda, window: 20, sinks: 4}",
        "{rule: gla, window: 6, sinks: 2, cache: {budget: 30, route: attention_mass}}",
        "{rule: none, window: 100}",
    };
    enum { LONG = 3000 };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        fl_mixer_case c;
        fl_mixer_case_open(&c, NULL, variants[i], 2, 1, 4, LONG, 1.0, 3);
        fl_case_result whole = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
        fl_mixer *mixer = fl_mixer_case_mixer(&c);
        float *output = NULL;
        fl_error error;
        assert_int_equal(FL_ALLOCATE(&output, fl_mixer_case_floats(&c), &error), FL_OK);
        size_t living = c.variant->window + c.variant->sinks + c.variant->cache_budget;
        for (size_t at = 0; at < LONG; at++) {
            fl_mixer_case_append(&c, mixer, at, 1, FL_RECURRENCE_AUTO, output);
            assert_true(mixer->exact.rows.capacity <= 2 * living + 256);
        }
        fl_difference difference = fl_compare_float_floats(output, whole.output, fl_mixer_case_floats(&c));
        assert_true(difference.not_finite == 0 && difference.relative < 1e-4);
        assert_int_equal(fl_mixer_exact_bytes(mixer), living * 4 * 2 * sizeof(float));
        fl_memory_free(output);
        fl_mixer_destroy(mixer);
        fl_case_result_free(&whole);
        fl_mixer_case_close(&c);
    }
}

static void test_a_copy_forgets_what_it_held_and_goes_on_alike(void **state) {
    (void)state;
    static const char *const variants[] = {
        "{rule: kda, window: 6, sinks: 2, short_conv: {kernel: 4, init: torch}}",
        "{rule: linear, window: 4, merge: shared_normaliser, cache: {budget: 9, route: attention_mass}}",
        "{rule: oja, window: 4, cache: {budget: 5, route: self_recall}}",
        "{rule: delta_product, window: 3, cache: {budget: 5, route: key_norm}}",
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        fl_mixer_case c;
        fl_error error;
        open_case(&c, variants[i]);
        fl_case_result expected = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
        fl_mixer *source = fl_mixer_case_mixer(&c), *copy = fl_mixer_case_mixer(&c);
        fl_mixer_case_append(&c, copy, 0, 50, FL_RECURRENCE_AUTO, expected.output);
        fl_mixer_case_append(&c, source, 0, 33, FL_RECURRENCE_AUTO, expected.output);
        assert_int_equal(fl_mixer_copy(copy, source, &error), FL_OK);
        fl_mixer_case_append(&c, source, 33, TOKENS - 33, FL_RECURRENCE_AUTO, expected.output);
        fl_case_result again = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
        fl_mixer_case_append(&c, copy, 33, TOKENS - 33, FL_RECURRENCE_AUTO, again.output);
        size_t at = 33 * HEADS * HEAD_DIM;
        assert_memory_equal(again.output + at, expected.output + at,
                            (fl_mixer_case_floats(&c) - at) * sizeof(float));
        fl_mixer_destroy(source);
        fl_mixer_destroy(copy);
        fl_case_result_free(&expected);
        fl_case_result_free(&again);
        fl_mixer_case_close(&c);
    }
}

static void test_running_out_of_memory_anywhere_is_an_error_without_leaks(void **state) {
    (void)state;
    fl_mixer_case c;
    fl_error error;
    open_case(&c, "{rule: linear, window: 3, sinks: 1, merge: shared_normaliser, short_conv: {kernel: 3}, "
                  "cache: {budget: 4, route: self_recall}}");
    fl_case_result expected = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
    fl_case_result result = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
    size_t failures = 0;
    for (size_t n = 1;; n++) {
        fl_mixer *mixer = NULL, *fork = NULL;
        fl_mixer_call call = {.tokens = TOKENS,
                              .query = fl_test_array(c.query),
                              .key = fl_test_array(c.key),
                              .value = fl_test_array(c.value),
                              .input = fl_test_array(c.input),
                              .output = fl_test_array(result.output)};
        fl_memory_fail_at(n);
        fl_status status = fl_mixer_create(c.compute, c.mechanism, FL_CASE_LAYER, &mixer, &error);
        if (status == FL_OK) status = fl_mixer_forward(mixer, &call, &error);
        if (status == FL_OK) status = fl_mixer_fork(mixer, &fork, &error);
        fl_memory_fail_at(0);
        fl_mixer_destroy(mixer);
        fl_mixer_destroy(fork);
        if (status == FL_OK) break;
        assert_int_equal(status, FL_ERROR_MEMORY);
        failures++;
    }
    assert_true(failures > 15);
    assert_memory_equal(result.output, expected.output, fl_mixer_case_floats(&c) * sizeof(float));
    fl_case_result_free(&expected);
    fl_case_result_free(&result);
    fl_mixer_case_close(&c);
}

static void test_state_and_bytes_are_what_the_rule_says(void **state) {
    (void)state;
    fl_mixer_case c;
    size_t value_dim = 0, key_dim = 0;
    open_case(&c, "{rule: taylor, window: 4, sinks: 2}");
    fl_mixer *mixer = fl_mixer_case_mixer(&c);
    assert_non_null(fl_test_floats(fl_mixer_state(mixer, &value_dim, &key_dim)));
    assert_int_equal(value_dim, HEAD_DIM + 1);
    assert_int_equal(key_dim, 1 + HEAD_DIM + HEAD_DIM * (HEAD_DIM + 1) / 2);
    assert_int_equal(fl_mixer_state_bytes(mixer), HEADS * value_dim * key_dim * sizeof(float));
    assert_int_equal(fl_mixer_exact_bytes(mixer), 6 * KV_HEADS * HEAD_DIM * 2 * sizeof(float));
    fl_mixer_destroy(mixer);
    fl_mixer_case_close(&c);
    open_case(&c, "{rule: none}");
    mixer = fl_mixer_case_mixer(&c);
    assert_null(fl_test_floats(fl_mixer_state(mixer, &value_dim, &key_dim)));
    assert_int_equal(fl_mixer_state_bytes(mixer), 0);
    fl_case_result result = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 1);
    for (size_t i = 0; i < fl_mixer_case_floats(&c); i++) assert_true(result.output[i] == 0.0f);
    fl_case_result_free(&result);
    fl_mixer_destroy(mixer);
    fl_mixer_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prompt_inside_window_and_sinks_is_full_softmax),
        cmocka_unit_test(test_a_cache_as_long_as_the_prompt_is_full_softmax),
        cmocka_unit_test(test_a_recency_cache_is_a_longer_window),
        cmocka_unit_test(test_an_identity_convolution_changes_nothing),
        cmocka_unit_test(test_rules_fall_together_where_their_formulas_do),
        cmocka_unit_test(test_newer_rules_start_as_the_rules_they_extend),
        cmocka_unit_test(test_outputs_depend_on_the_past_only),
        cmocka_unit_test(test_every_token_is_in_exactly_one_memory),
        cmocka_unit_test(test_memory_stays_bounded_over_thousands_of_tokens),
        cmocka_unit_test(test_a_copy_forgets_what_it_held_and_goes_on_alike),
        cmocka_unit_test(test_running_out_of_memory_anywhere_is_an_error_without_leaks),
        cmocka_unit_test(test_state_and_bytes_are_what_the_rule_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
