/* Every registered rule x interventions, against the float64 mixer and against itself: chunk = step, any cut,
 * fork, reset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "tests/support/mixer_case.h"

static const double BOUND = 1e-4;

typedef struct shape_row {
    size_t heads, kv_heads, head_dim;
} shape_row;

static void compose(const fl_rule *rule, const char *more, char *yaml, size_t room) {
    snprintf(yaml, room, "{rule: %s%s%s}", rule->name, more[0] != '\0' ? ", " : "", more);
}

static bool has_option(const fl_rule *rule, const char *key) {
    for (size_t i = 0; i < rule->option_count; i++) {
        if (strcmp(rule->options[i].key, key) == 0) return true;
    }
    return false;
}

/* Whatever its options. */
static bool takes_beta(const fl_rule *rule) {
    return rule->beta && rule->takes_beta == NULL;
}

/* Interventions a rule can take. */
static bool applies(const fl_rule *rule, const char *more) {
    bool kernel = rule->normaliser;
    if (strstr(more, "merge: shared") != NULL || strstr(more, "merge: lolcats") != NULL) return kernel;
    if (strstr(more, "gate:") != NULL && rule->gate == FL_GATE_NONE) return false;
    if (strstr(more, "beta:") != NULL && !takes_beta(rule)) return false;
    if (strstr(more, "maximum:") != NULL && !rule->beta_may_reflect) return false;
    if (strstr(more, "form:") != NULL && rule->gate_activation != FL_ACTIVATE_LOG_SIGMOID) return false;
    if (strstr(more, "scale:") != NULL && rule->stateless) return false;
    static const char *const of_rules[] = {"decay_first", "static",    "diagonal",   "negative_eigenvalues",
                                           "unit",        "skip",      "init: real", "lower_bound",
                                           "shifts",      "normalise", "slots"};
    for (size_t i = 0; i < sizeof of_rules / sizeof of_rules[0]; i++) {
        char key[32];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(of_rules[i], ":"), of_rules[i]);
        if (strstr(more, of_rules[i]) != NULL && !has_option(rule, key)) return false;
    }
    return true;
}

static const char *const interventions[] = {
    "",
    "window: 5",
    "sinks: 3",
    "window: 7, sinks: 2, merge: half",
    "window: 4, sinks: 1, merge: shared_normaliser",
    "window: 4, sinks: 1, merge: lolcats",
    "window: 4, sinks: 1, merge: lolcats_invariant",
    "window: 6, sinks: 2, short_conv: {kernel: 4, init: torch}",
    "short_conv: {kernel: 1, init: torch}",
    "window: 3, sinks: 1, cache: {budget: 5, route: self_recall}",
    "window: 3, sinks: 1, cache: {budget: 5, route: self_recall}, short_conv: {kernel: 3, init: torch}",
    "window: 4, cache: {budget: 6, route: attention_mass}",
    "window: 2, sinks: 2, cache: {budget: 4, route: key_norm}",
    "window: 0, sinks: 1, cache: {budget: 3, route: value_norm}",
    "window: 3, cache: {budget: 4, route: recency}",
    "window: 3, sinks: 1, cache: {budget: 4, route: random}, merge: half",
    "gate: {form: softplus}",
    "beta: {maximum: 2}, window: 3",
    "scale: sqrt_dim, window: 3, sinks: 1",
    "scale: 0.5",
    "decay_first: true, window: 3",
    "static: true, window: 4, sinks: 1",
    "static: true, negative_eigenvalues: false",
    "negative_eigenvalues: true",
    "diagonal: true",
    "diagonal: true, window: 3, sinks: 1, cache: {budget: 4, route: self_recall}",
    "unit: false, scale: sqrt_dim",
    "skip: true",
    "skip: true, sinks: 2, short_conv: {kernel: 3, init: torch}",
    "init: real, window: 3",
    "lower_bound: 0.4, window: 3",
    "shifts: 1",
    "slots: 7, softness: 2, window: 2",
    "normalise: false, window: 2",
};

static void check_close(const float *x, const double *reference, size_t count, const char *yaml,
                        const char *what) {
    if (count == 0) return;
    fl_difference difference = fl_compare_floats(x, reference, count);
    if (difference.not_finite > 0 || !(difference.relative <= BOUND)) {
        fail_msg("%s: %s: relative error %.3g, %zu not finite", yaml, what, difference.relative,
                 difference.not_finite);
    }
    fl_assert_close(x, reference, count, BOUND, what);
}

static void check_same(const float *x, const float *reference, size_t count, const char *yaml,
                       const char *what) {
    if (count == 0) return;
    fl_difference difference = fl_compare_float_floats(x, reference, count);
    if (difference.not_finite > 0 || !(difference.relative <= BOUND)) {
        fail_msg("%s: %s: relative difference %.3g, %zu not finite", yaml, what, difference.relative,
                 difference.not_finite);
    }
}

/* One case: the whole sequence against float64, both forms, cut, forked half way, reset and run again. */
static void check_case(const char *yaml, shape_row shape, size_t tokens, double amplitude,
                       bool against_reference) {
    static const size_t pieces[] = {1, 0, 3, 17, 2, 40};
    fl_mixer_case c;
    fl_error error;
    fl_mixer_case_open(&c, NULL, yaml, shape.heads, shape.kv_heads, shape.head_dim, tokens, amplitude, 5);
    size_t floats = fl_mixer_case_floats(&c);
    fl_case_result whole = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
    if (against_reference) {
        fl_case_reference reference = fl_mixer_case_reference(&c);
        fl_case_result normed = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 1);
        for (size_t i = 0; i < tokens * shape.kv_heads; i++) {
            if (whole.written[i] == reference.written[i]) continue;
            fail_msg("%s: written at head %zu step %zu: %d, expected %d", yaml, i / tokens, i % tokens,
                     (int)whole.written[i], (int)reference.written[i]);
        }
        check_close(whole.output, reference.output, floats, yaml, "output");
        check_close(normed.state_norm, reference.state_norm, tokens * shape.heads, yaml, "state norm");
        fl_case_result_free(&normed);
        fl_case_reference_free(&reference);
    }
    fl_case_result chunked = fl_mixer_case_run(&c, FL_RECURRENCE_CHUNK, 0);
    fl_case_result stepped = fl_mixer_case_run(&c, FL_RECURRENCE_STEP, 0);
    fl_case_result cut =
        fl_mixer_case_run_cut(&c, pieces, sizeof pieces / sizeof pieces[0], FL_RECURRENCE_AUTO);
    check_same(chunked.output, stepped.output, floats, yaml, "chunk against step");
    check_same(cut.output, whole.output, floats, yaml, "cut against one call");

    fl_mixer *mixer = fl_mixer_case_mixer(&c), *fork = NULL;
    size_t half = tokens / 2;
    memset(cut.output, 0, floats * sizeof *cut.output);
    fl_mixer_case_append(&c, mixer, 0, half, FL_RECURRENCE_AUTO, cut.output);
    assert_int_equal(fl_mixer_fork(mixer, &fork, &error), FL_OK);
    fl_mixer_case_append(&c, mixer, half, tokens - half, FL_RECURRENCE_AUTO, cut.output);
    fl_mixer_case_append(&c, fork, half, tokens - half, FL_RECURRENCE_AUTO, stepped.output);
    size_t at = half * shape.heads * shape.head_dim;
    assert_memory_equal(cut.output + at, stepped.output + at, (floats - at) * sizeof(float));
    check_same(cut.output, whole.output, floats, yaml, "fork against one call");
    fl_mixer_reset(fork);
    fl_mixer_case_append(&c, fork, 0, tokens, FL_RECURRENCE_AUTO, stepped.output);
    assert_memory_equal(stepped.output, whole.output, floats * sizeof(float));
    fl_mixer_destroy(mixer);
    fl_mixer_destroy(fork);
    fl_case_result_free(&whole);
    fl_case_result_free(&chunked);
    fl_case_result_free(&stepped);
    fl_case_result_free(&cut);
    fl_mixer_case_close(&c);
}

static void test_every_rule_with_every_intervention_equals_float64(void **state) {
    (void)state;
    char yaml[256];
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        if (strcmp(fl_rule_registry[i]->name, "softmax") == 0) continue;
        for (size_t j = 0; j < sizeof interventions / sizeof interventions[0]; j++) {
            if (!applies(fl_rule_registry[i], interventions[j])) continue;
            compose(fl_rule_registry[i], interventions[j], yaml, sizeof yaml);
            check_case(yaml, (shape_row){4, 2, 12}, 71, 0.9, true);
        }
    }
    printf("worst: relative error %.2g\n", fl_worst_reset());
}

/* Shapes and lengths around the chunk's edges, thinned: every rule meets every length, and the head
 * dimensions in turn. */
static void test_odd_lengths_and_shapes_equal_float64(void **state) {
    (void)state;
    static const size_t lengths[] = {0, 1, 2, 63, 64, 65, 130};
    static const shape_row shapes[] = {{2, 1, 32}, {3, 3, 60},  {4, 1, 64},
                                       {2, 2, 80}, {3, 1, 100}, {2, 1, 128}};
    static const char *const more[] = {"", "window: 9, sinks: 3",
                                       "window: 1, short_conv: {kernel: 8, init: torch}"};
    enum { LENGTHS = sizeof lengths / sizeof lengths[0], SHAPES = sizeof shapes / sizeof shapes[0] };
    char yaml[256];
    size_t turn = 0;
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        const fl_rule *rule = fl_rule_registry[i];
        /* Features by the square of the head dimension. */
        bool heavy = strcmp(rule->name, "taylor") == 0 || strcmp(rule->name, "rebased") == 0;
        if (strcmp(rule->name, "softmax") == 0) continue;
        for (size_t j = 0; j < LENGTHS; j++, turn++) {
            compose(rule, more[turn % 3], yaml, sizeof yaml);
            check_case(yaml, heavy ? shapes[0] : shapes[turn % SHAPES], lengths[j], 0.5, true);
        }
    }
    check_case("{rule: kda, window: 56, sinks: 8}", (shape_row){4, 2, 64}, 500, 0.5, true);
    check_case("{rule: gated_delta}", (shape_row){2, 1, 100}, 500, 0.5, true);
    check_case("{rule: rwkv7, window: 3}", (shape_row){2, 1, 60}, 500, 0.5, true);
    check_case("{rule: hedgehog, window: 20, merge: lolcats_invariant}", (shape_row){2, 1, 32}, 500, 0.5,
               true);
    check_case("{rule: delta, window: 8, cache: {budget: 40, route: self_recall}}", (shape_row){4, 2, 32},
               700, 0.5, true);
    check_case("{rule: gla, window: 8, sinks: 1, cache: {budget: 40, route: attention_mass}}",
               (shape_row){4, 2, 32}, 700, 0.5, true);
    printf("worst: relative error %.2g\n", fl_worst_reset());
}

static void test_gates_and_betas_at_their_limits_equal_float64(void **state) {
    (void)state;
    static const char *const gates[] = {"0", "1", "1e-6", "0.999999", "0.5"};
    static const char *const betas[] = {"0", "1", "1e-6"};
    char yaml[256], more[192];
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        const fl_rule *rule = fl_rule_registry[i];
        if (rule->gate == FL_GATE_NONE && !takes_beta(rule)) continue;
        for (size_t j = 0; j < (rule->gate == FL_GATE_NONE ? 1 : 5); j++) {
            for (size_t k = 0; k < (takes_beta(rule) ? 3 : 1); k++) {
                size_t used = (size_t)snprintf(more, sizeof more, "window: 2");
                if (rule->gate != FL_GATE_NONE) {
                    used += (size_t)snprintf(more + used, sizeof more - used,
                                             ", gate: {source: constant, value: %s}", gates[j]);
                }
                if (takes_beta(rule)) {
                    snprintf(more + used, sizeof more - used, ", beta: {source: constant, value: %s}",
                             betas[k]);
                }
                compose(rule, more, yaml, sizeof yaml);
                check_case(yaml, (shape_row){2, 1, 16}, 90, 0.8, true);
            }
        }
    }
    printf("worst: relative error %.2g\n", fl_worst_reset());
}

/* Amplitudes at which float32 keeps its sense are compared; beyond, only what is finite in float64 must be
 * finite here. */
static void test_huge_and_tiny_values_make_no_nan_of_their_own(void **state) {
    (void)state;
    static const double amplitudes[] = {1e-25, 1e-13, 1e-6, 40.0, 1e4};
    static const char *const more[] = {"", "window: 3, sinks: 1",
                                       "window: 3, cache: {budget: 3, route: self_recall}",
                                       "window: 3, merge: shared_normaliser", "window: 3, merge: lolcats"};
    char yaml[256];
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        if (strcmp(fl_rule_registry[i]->name, "softmax") == 0) continue;
        for (size_t j = 0; j < 5 * 5; j++) {
            if (!applies(fl_rule_registry[i], more[j / 5])) continue;
            fl_mixer_case c;
            compose(fl_rule_registry[i], more[j / 5], yaml, sizeof yaml);
            fl_mixer_case_open(&c, NULL, yaml, 2, 1, 16, 80, amplitudes[j % 5], 9);
            fl_case_reference reference = fl_mixer_case_reference(&c);
            fl_case_result result = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
            for (size_t k = 0; k < fl_mixer_case_floats(&c); k++) {
                if (isfinite(result.output[k]) || !isfinite(reference.output[k])) continue;
                fail_msg("%s at %g: output %zu is %g, float64 has %g", yaml, amplitudes[j % 5], k,
                         result.output[k], reference.output[k]);
            }
            fl_case_reference_free(&reference);
            fl_case_result_free(&result);
            fl_mixer_case_close(&c);
        }
    }
}

static void test_long_runs_of_zeros_equal_float64(void **state) {
    (void)state;
    static const char *const more[] = {"", "window: 4, sinks: 2, cache: {budget: 3, route: recency}"};
    char yaml[256];
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        if (strcmp(fl_rule_registry[i]->name, "softmax") == 0) continue;
        for (size_t j = 0; j < 2; j++) {
            fl_mixer_case c;
            compose(fl_rule_registry[i], more[j], yaml, sizeof yaml);
            fl_mixer_case_open(&c, NULL, yaml, 2, 1, 16, 150, 0.8, 9);
            memset(c.key, 0, 40 * 16 * sizeof *c.key);
            memset(c.key + 60 * 16, 0, 70 * 16 * sizeof *c.key);
            memset(c.value + 70 * 16, 0, 70 * 16 * sizeof *c.value);
            memset(c.query + 100 * 32, 0, 30 * 32 * sizeof *c.query);
            fl_case_reference reference = fl_mixer_case_reference(&c);
            fl_case_result result = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
            check_close(result.output, reference.output, fl_mixer_case_floats(&c), yaml, "output");
            fl_case_reference_free(&reference);
            fl_case_result_free(&result);
            fl_mixer_case_close(&c);
        }
    }
    printf("worst: relative error %.2g\n", fl_worst_reset());
}

/* The order of a batch: two timelines on one backend, interleaved call by call, equal each alone. */
static void test_interleaved_timelines_do_not_touch_each_other(void **state) {
    (void)state;
    char yaml[256];
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        if (strcmp(fl_rule_registry[i]->name, "softmax") == 0) continue;
        compose(fl_rule_registry[i], "window: 3, sinks: 1, cache: {budget: 4, route: attention_mass}", yaml,
                sizeof yaml);
        static const size_t piece = 11;
        fl_mixer_case c;
        fl_mixer_case_open(&c, NULL, yaml, 2, 1, 12, 66, 0.8, 13);
        fl_case_result alone = fl_mixer_case_run_cut(&c, &piece, 1, FL_RECURRENCE_AUTO);
        fl_case_result first = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
        fl_case_result second = fl_mixer_case_run(&c, FL_RECURRENCE_AUTO, 0);
        fl_mixer *a = fl_mixer_case_mixer(&c), *b = fl_mixer_case_mixer(&c);
        for (size_t at = 0; at < 66; at += piece) {
            fl_mixer_case_append(&c, b, at, piece, FL_RECURRENCE_AUTO, second.output);
            fl_mixer_case_append(&c, a, at, piece, FL_RECURRENCE_AUTO, first.output);
        }
        assert_memory_equal(first.output, alone.output, fl_mixer_case_floats(&c) * sizeof(float));
        assert_memory_equal(second.output, alone.output, fl_mixer_case_floats(&c) * sizeof(float));
        fl_mixer_destroy(a);
        fl_mixer_destroy(b);
        fl_case_result_free(&alone);
        fl_case_result_free(&first);
        fl_case_result_free(&second);
        fl_mixer_case_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rule_with_every_intervention_equals_float64),
        cmocka_unit_test(test_odd_lengths_and_shapes_equal_float64),
        cmocka_unit_test(test_gates_and_betas_at_their_limits_equal_float64),
        cmocka_unit_test(test_huge_and_tiny_values_make_no_nan_of_their_own),
        cmocka_unit_test(test_long_runs_of_zeros_equal_float64),
        cmocka_unit_test(test_interleaved_timelines_do_not_touch_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
