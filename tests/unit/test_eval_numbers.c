/* Python's random numbers, SHA-256, and the metrics, against published vectors and the figures of the smollm2
 * pack. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <cjson/cJSON.h>

#include "harness/base/memory.h"
#include "harness/base/sha256.h"
#include "harness/model/json_rows.h"
#include "harness/eval/metrics.h"
#include "harness/eval/python_random.h"
#include "tests/support/fixture.h"

#define ASSERT_NEAR(x, y, bound) assert_true(fabs((x) - (y)) <= (bound))

static void assert_sample(fl_python_random *random, size_t population, size_t k, const size_t *expected) {
    size_t chosen[32];
    assert_int_equal(fl_python_random_sample(random, population, k, chosen, NULL), FL_OK);
    for (size_t i = 0; i < k; i++) assert_int_equal(chosen[i], expected[i]);
}

static void test_successive_samples_are_those_of_python(void **state) {
    (void)state;
    static const size_t expected[3][5] = {
        {225, 59, 3, 46, 17}, {42, 50, 181, 121, 8}, {15, 8, 177, 247, 237}};
    fl_python_random random;
    fl_python_random_seed(&random, 1234);
    for (int i = 0; i < 3; i++) assert_sample(&random, 285, 5, expected[i]);
}

static void test_sample_takes_the_set_branch_and_the_pool_branch_as_python_does(void **state) {
    (void)state;
    static const size_t large[25] = {902, 239, 15,  185, 71,  171, 201, 726,  484, 35,  63,  32,  708,
                                     991, 949, 304, 186, 374, 234, 29,  1030, 996, 511, 132, 1108};
    static const size_t small[5] = {3, 0, 4, 2, 1};
    fl_python_random random;
    fl_python_random_seed(&random, 1234);
    assert_sample(&random, 1119, 25, large);
    fl_python_random_seed(&random, 1234);
    assert_sample(&random, 5, 5, small);
}

static void test_first_uniform_numbers_of_seed_0_and_of_a_long_seed(void **state) {
    (void)state;
    fl_python_random random;
    fl_python_random_seed(&random, 0);
    assert_true(fl_python_random_uniform(&random) == 0.8444218515250481);
    assert_true(fl_python_random_uniform(&random) == 0.7579544029403025);
    fl_python_random_seed(&random, UINT64_C(1) << 40);
    assert_true(fl_python_random_uniform(&random) == 0.1036394562812375);
}

static void test_sample_larger_than_the_population_is_refused(void **state) {
    (void)state;
    fl_python_random random;
    fl_python_random_seed(&random, 1);
    fl_error error;
    size_t chosen[4];
    assert_int_equal(fl_python_random_sample(&random, 3, 4, chosen, &error), FL_ERROR_ARGUMENT);
    assert_string_equal(error.message, "cannot sample 4 of 3");
}

static void test_sha256_of_the_standard_messages(void **state) {
    (void)state;
    char text[FL_SHA256_TEXT_BYTES];
    fl_sha256_bytes("", 0, text);
    assert_string_equal(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    fl_sha256_bytes("abc", 3, text);
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    fl_sha256 sha;
    fl_sha256_start(&sha);
    for (int i = 0; i < 1000; i++) {
        char piece[1000];
        memset(piece, 'a', sizeof piece);
        fl_sha256_add(&sha, piece, 999);
        fl_sha256_add(&sha, piece, 1);
    }
    fl_sha256_finish(&sha, text);
    assert_string_equal(text, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    fl_error error;
    assert_int_equal(fl_sha256_file("no/such/file", text, &error), FL_ERROR_IO);
    assert_non_null(strstr(error.message, "no/such/file"));
}

static void test_group_figures_of_the_worked_example(void **state) {
    (void)state;
    const double first[3] = {1, 0, 1}, second[4] = {0, 1, 1, 1};
    const size_t sizes[2] = {3, 4};
    const double values[2] = {fl_metric_mean(first, 3), fl_metric_mean(second, 4)};
    const double errors[2] = {fl_metric_mean_stderr(first, 3), fl_metric_mean_stderr(second, 4)};
    ASSERT_NEAR(errors[0], 1.0 / 3, 1e-12);
    ASSERT_NEAR(errors[1], 0.25, 1e-12);
    ASSERT_NEAR(fl_metric_group_micro(values, sizes, 2), 5.0 / 7, 1e-12);
    ASSERT_NEAR(fl_metric_group_macro(values, 2), (2.0 / 3 + 0.75) / 2, 1e-12);
    ASSERT_NEAR(fl_metric_group_stderr(errors, sizes, 2), 0.201187, 5e-7);
}

static void test_a_single_item_has_no_standard_error_and_neither_has_its_group(void **state) {
    (void)state;
    const double one[1] = {1}, errors[2] = {fl_metric_mean_stderr(one, 1), 0.1};
    const size_t sizes[2] = {1, 5};
    assert_true(isnan(errors[0]));
    assert_true(isnan(fl_metric_group_stderr(errors, sizes, 2)));
    double bootstrap = 0.0;
    assert_int_equal(fl_metric_perplexity_stderr(one, 1, 1000, &bootstrap, NULL), FL_OK);
    assert_true(isnan(bootstrap));
}

static void test_the_first_of_equal_scores_wins_and_nan_never_does(void **state) {
    (void)state;
    const double tie[3] = {-2.0, -1.0, -1.0}, with_nan[3] = {NAN, -5.0, NAN}, lengths[3] = {4.0, 1.0, 1.0};
    assert_int_equal(fl_metric_best(tie, NULL, 3), 1);
    assert_int_equal(fl_metric_best(with_nan, NULL, 3), 1);
    assert_int_equal(fl_metric_best(tie, lengths, 3), 0);
}

static void test_paired_comparison_of_a_small_table(void **state) {
    (void)state;
    /* 1 right in the first alone, 6 in the second alone, 3 in both. */
    double first[10] = {1, 0, 0, 0, 0, 0, 0, 1, 1, 1}, second[10] = {0, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    fl_paired_comparison compared;
    assert_int_equal(fl_metric_compare(first, second, 10, &compared, NULL), FL_OK);
    assert_int_equal(compared.only_first, 1);
    assert_int_equal(compared.only_second, 6);
    ASSERT_NEAR(compared.difference, 0.5, 1e-12);
    ASSERT_NEAR(compared.difference_stderr, sqrt(4.5 / 9 / 10), 1e-12);
    ASSERT_NEAR(compared.exact_p, 2.0 * 8 / 128, 1e-12);
    ASSERT_NEAR(compared.chi_squared, 16.0 / 7, 1e-12);
    ASSERT_NEAR(compared.chi_squared_p, 0.130570, 1e-6);
    assert_int_equal(fl_metric_compare(first, first, 10, &compared, NULL), FL_OK);
    assert_true(compared.exact_p == 1.0 && compared.chi_squared_p == 1.0 && compared.difference == 0.0);
}

static void test_bootstrap_error_of_lambada_equals_the_pack(void **state) {
    (void)state;
    const char *path = fl_pack_path("smollm2/items_lambada_openai.jsonl");
    if (path == NULL) fl_fixture_skip(__func__, "pack smollm2");
    fl_json_rows *rows = NULL;
    assert_int_equal(fl_json_rows_read(path, &rows, NULL), FL_OK);
    double *values = NULL;
    assert_int_equal(FL_ALLOCATE(&values, rows->count, NULL), FL_OK);
    for (size_t i = 0; i < rows->count; i++) {
        const cJSON *requests = fl_json_rows_member(rows, i, "requests");
        values[i] = cJSON_GetObjectItem(requests->child, "ll")->valuedouble;
    }
    double error_of_perplexity = 0.0;
    assert_int_equal(fl_metric_perplexity_stderr(values, rows->count, 100000, &error_of_perplexity, NULL),
                     FL_OK);
    ASSERT_NEAR(fl_metric_perplexity(values, rows->count), 62.22377673690039, 1e-9);
    ASSERT_NEAR(error_of_perplexity, 17.541765288878352, 1e-9);
    fl_memory_free(values);
    fl_json_rows_destroy(rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_successive_samples_are_those_of_python),
        cmocka_unit_test(test_sample_takes_the_set_branch_and_the_pool_branch_as_python_does),
        cmocka_unit_test(test_first_uniform_numbers_of_seed_0_and_of_a_long_seed),
        cmocka_unit_test(test_sample_larger_than_the_population_is_refused),
        cmocka_unit_test(test_sha256_of_the_standard_messages),
        cmocka_unit_test(test_group_figures_of_the_worked_example),
        cmocka_unit_test(test_a_single_item_has_no_standard_error_and_neither_has_its_group),
        cmocka_unit_test(test_the_first_of_equal_scores_wins_and_nan_never_does),
        cmocka_unit_test(test_paired_comparison_of_a_small_table),
        cmocka_unit_test(test_bootstrap_error_of_lambada_equals_the_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
