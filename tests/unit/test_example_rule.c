/* The example of attn_variants/README.md: it is what the README prints, it is sound, and it obeys the laws of
 * a rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "tests/support/fixture.h"
#include "tests/support/mixer_case.h"
#include "tests/support/prepare_check.h"

extern const fl_rule fl_rule_example;

static void test_the_readme_prints_the_file_that_runs_here(void **state) {
    (void)state;
    size_t bytes = 0;
    char *readme = fl_read_file("attn_variants/README.md", &bytes);
    char *code = fl_read_file("tests/support/example_rule.c", &bytes);
    assert_non_null(strstr(readme, code));
    size_t lines = 0;
    for (const char *at = code; *at != '\0'; at++) lines += *at == '\n';
    assert_true(lines <= 40);
    fl_memory_free(readme);
    fl_memory_free(code);
}

static void test_it_passes_the_start_up_check_and_its_derivative_is_right(void **state) {
    (void)state;
    fl_error error;
    const fl_rule *const rules[] = {&fl_rule_example, NULL};
    assert_int_equal(fl_rule_list_check(rules, &error), FL_OK);
    assert_true(fl_prepare_check(&fl_rule_example, "{}", 7) < 1e-3);
}

/* S = g S (I - (1 - g) k k^T) + (1 - g) v k^T in float64, one query head, constant gate. */
static void follow_equation(const fl_mixer_case *c, double gate, double *output) {
    enum { D = 8 };
    double state[D][D] = {{0.0}};
    for (size_t t = 0; t < c->tokens; t++) {
        double key[D], query[D], error[D], key_norm = 0.0, query_norm = 0.0;
        for (size_t i = 0; i < D; i++) {
            key_norm += (double)c->key[t * D + i] * c->key[t * D + i];
            query_norm += (double)c->query[t * D + i] * c->query[t * D + i];
        }
        for (size_t i = 0; i < D; i++) {
            key[i] = c->key[t * D + i] / sqrt(key_norm);
            query[i] = c->query[t * D + i] / sqrt(query_norm);
        }
        for (size_t j = 0; j < D; j++) {
            error[j] = c->value[t * D + j];
            for (size_t i = 0; i < D; i++) error[j] -= gate * state[j][i] * key[i];
        }
        for (size_t j = 0; j < D; j++) {
            output[t * D + j] = 0.0;
            for (size_t i = 0; i < D; i++) {
                state[j][i] = gate * state[j][i] + (1.0 - gate) * error[j] * key[i];
                output[t * D + j] += state[j][i] * query[i];
            }
        }
    }
}

static void test_it_follows_its_equation_in_step_and_chunk_form_and_any_cut(void **state) {
    (void)state;
    static const size_t pieces[] = {1, 30, 0, 7};
    fl_mixer_case c;
    double expected[150 * 8];
    fl_mixer_case_open(&c, &fl_rule_example, "{gate: {source: constant, value: 0.8}}", 1, 1, 8, 150, 1.0, 3);
    follow_equation(&c, 0.8, expected);
    fl_case_result step = fl_mixer_case_run(&c, FL_RECURRENCE_STEP, 0);
    fl_case_result chunk = fl_mixer_case_run(&c, FL_RECURRENCE_CHUNK, 0);
    fl_case_result cut = fl_mixer_case_run_cut(&c, pieces, 4, FL_RECURRENCE_AUTO);
    fl_assert_close(step.output, expected, 150 * 8, 1e-5, "step");
    fl_assert_close(chunk.output, expected, 150 * 8, 1e-5, "chunk");
    fl_assert_close(cut.output, expected, 150 * 8, 1e-5, "cut");
    fl_case_result_free(&step);
    fl_case_result_free(&chunk);
    fl_case_result_free(&cut);
    fl_mixer_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_readme_prints_the_file_that_runs_here),
        cmocka_unit_test(test_it_passes_the_start_up_check_and_its_derivative_is_right),
        cmocka_unit_test(test_it_follows_its_equation_in_step_and_chunk_form_and_any_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
