/* The memory lab reproduces what is known of associative memories in closed form. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/measure/exact_lab.h"

static fl_compute *compute;

static int open_compute(void **state) {
    (void)state;
    fl_compute_options options = {.threads = 2, .widen_budget_bytes = SIZE_MAX};
    return fl_compute_create_cpu(&options, &compute, NULL);
}

static int close_compute(void **state) {
    (void)state;
    fl_compute_destroy(compute);
    return 0;
}

static fl_status run(const char *yaml, const fl_memory_lab_options *options, size_t pairs,
                     fl_memory_lab_row *row, fl_error *error) {
    fl_document *document = NULL;
    fl_variant *variant = NULL;
    assert_int_equal(fl_document_parse_text(yaml, strlen(yaml), "test", &document, NULL), FL_OK);
    assert_int_equal(fl_variant_bind(fl_document_root(document), NULL, &variant, NULL), FL_OK);
    fl_document_destroy(document);
    fl_status status = fl_memory_lab_run(compute, variant, options, &pairs, 1, row, error);
    fl_variant_destroy(variant);
    return status;
}

static const fl_memory_lab_options plain = {.dimension = 32, .trials = 50, .seed = 1};

static void test_accumulation_recalls_with_the_expected_interference(void **state) {
    (void)state;
    /* y - v = sum over the other n - 1 pairs of (k_i . k) v_i, and E (k_i . k)^2 = 1 / d. */
    fl_memory_lab_row row;
    assert_int_equal(run("{rule: linear, feature_map: identity}", &plain, 17, &row, NULL), FL_OK);
    assert_true(fabs(row.recall_error - 16.0 / 32.0) < 5.0 * row.recall_error_stderr + 0.01);
    assert_true(row.form_difference < 1e-4);
}

static void test_overwriting_blends_under_accumulation_and_replaces_under_delta(void **state) {
    (void)state;
    fl_memory_lab_options options = plain;
    options.overwrite = true;
    fl_memory_lab_row sum, delta;
    assert_int_equal(run("{rule: linear, feature_map: identity}", &options, 4, &sum, NULL), FL_OK);
    assert_int_equal(run("{rule: delta, beta: {source: constant, value: 1}}", &options, 4, &delta, NULL),
                     FL_OK);
    assert_true(fabs(sum.cosine - sum.cosine_old) < 0.1);
    assert_true(sum.cosine > 0.4 && sum.cosine_old > 0.4);
    assert_true(delta.cosine > 0.9 && fabs(delta.cosine_old) < 0.25);
    assert_true(delta.recall_error < sum.recall_error);
}

static void test_one_pair_is_recalled_exactly(void **state) {
    (void)state;
    fl_memory_lab_row row;
    assert_int_equal(run("{rule: delta, beta: {source: constant, value: 1}}", &plain, 1, &row, NULL), FL_OK);
    assert_true(row.recall_error < 1e-10 && row.accuracy == 1.0);
    assert_true(fabs(row.state_norm - 1.0) < 1e-5);
    assert_true(isnan(row.cosine_old));
}

static void test_a_lower_gate_fades_older_pairs(void **state) {
    (void)state;
    fl_memory_lab_row keep, fade;
    assert_int_equal(run("{rule: decay, gate: {source: constant, value: 1}}", &plain, 8, &keep, NULL), FL_OK);
    assert_int_equal(run("{rule: decay, gate: {source: constant, value: 0.5}}", &plain, 8, &fade, NULL),
                     FL_OK);
    assert_true(fade.state_norm < keep.state_norm);
    assert_true(fade.accuracy < keep.accuracy);
}

static void test_the_fixed_size_of_the_state_is_the_limit(void **state) {
    (void)state;
    fl_memory_lab_row few, many;
    assert_int_equal(run("{rule: delta, beta: {source: constant, value: 1}}", &plain, 4, &few, NULL), FL_OK);
    assert_int_equal(run("{rule: delta, beta: {source: constant, value: 1}}", &plain, 128, &many, NULL),
                     FL_OK);
    assert_true(few.accuracy > 0.99 && many.accuracy < 0.5);
}

static void compare_with_definition(const char *yaml, fl_exact_rule rule, bool overwrite) {
    fl_memory_lab_options options = {.dimension = 24, .trials = 4, .overwrite = overwrite, .seed = 3};
    fl_memory_lab_row row;
    fl_exact_recall exact;
    const fl_exact_strength strength = {0.9, 0.9, 0.7};
    assert_int_equal(run(yaml, &options, 20, &row, NULL), FL_OK);
    assert_int_equal(fl_exact_lab_recall(rule, &strength, &options, 20, &exact, NULL), FL_OK);
    assert_true(fabs(exact.recall_error - row.recall_error) < 1e-5);
    assert_true(fabs(exact.cosine - row.cosine) < 1e-5);
    assert_true(exact.accuracy == row.accuracy);
    if (overwrite) assert_true(fabs(exact.cosine_old - row.cosine_old) < 1e-5);
}

static void test_rules_in_float32_agree_with_their_definition_in_float64(void **state) {
    (void)state;
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        compare_with_definition("{rule: linear, feature_map: identity}", FL_EXACT_LINEAR, overwrite);
        compare_with_definition("{rule: delta, beta: {source: constant, value: 0.7}}", FL_EXACT_DELTA,
                                overwrite);
        compare_with_definition("{rule: gated_delta, gate: {source: constant, value: 0.9}, "
                                "beta: {source: constant, value: 0.7}}",
                                FL_EXACT_GATED_DELTA, overwrite);
        compare_with_definition("{rule: kda, gate: {source: constant, value: 0.9}, "
                                "beta: {source: constant, value: 0.7}}",
                                FL_EXACT_KDA, overwrite);
    }
}

/* A gate of its own for half of the channels: what was written there alone is kept. */
static void test_kda_keeps_channels_that_do_not_fade(void **state) {
    (void)state;
    const double first[3] = {1, 0, 0}, last[3] = {0, 0, 1}, value[3] = {1, 2, 3};
    double matrix[9] = {0}, recalled[3];
    const fl_exact_strength strength = {0.5, 1.0, 1.0};
    fl_exact_lab_write(FL_EXACT_KDA, &strength, 3, first, value, matrix, recalled);
    fl_exact_lab_write(FL_EXACT_KDA, &strength, 3, last, value, matrix, recalled);
    fl_exact_lab_write(FL_EXACT_KDA, &strength, 3, last, value, matrix, recalled);
    assert_true(matrix[0] == 0.25 && matrix[2] == 1.0 && matrix[5] == 2.0 && matrix[1] == 0.0);
}

static void test_what_cannot_run_is_refused_by_name(void **state) {
    (void)state;
    fl_memory_lab_row row;
    fl_error error;
    assert_int_equal(run("{rule: none, window: 4}", &plain, 2, &row, &error), FL_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "none"));
    assert_int_equal(run("{rule: kda}", &plain, 2, &row, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "gate"));
    assert_int_equal(run("{rule: linear}", &plain, 0, &row, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "0 pairs"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accumulation_recalls_with_the_expected_interference),
        cmocka_unit_test(test_overwriting_blends_under_accumulation_and_replaces_under_delta),
        cmocka_unit_test(test_one_pair_is_recalled_exactly),
        cmocka_unit_test(test_a_lower_gate_fades_older_pairs),
        cmocka_unit_test(test_the_fixed_size_of_the_state_is_the_limit),
        cmocka_unit_test(test_rules_in_float32_agree_with_their_definition_in_float64),
        cmocka_unit_test(test_kda_keeps_channels_that_do_not_fade),
        cmocka_unit_test(test_what_cannot_run_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, open_compute, close_compute);
}
