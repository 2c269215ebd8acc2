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

/* Interventions a rule can take. */
static bool applies(const fl_rule *rule, const char *more) {
    bool kernel = rule->normaliser;
    if (strstr(more, "merge: shared") != NULL || strstr(more, "merge: lolcats") != NULL) return kernel;
    if (strstr(more, "gate:") != NULL && rule->gate == FL_GATE_NONE) return false;
    if (strstr(more, "beta:") != NULL && !rule->beta) return false;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rule_with_every_intervention_equals_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
