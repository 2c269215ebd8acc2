/* Intervals: quantiles against scipy, the bootstrap against its definitions, and sums read from run files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "analysis/bootstrap.h"
#include "analysis/distributions.h"
#include "analysis/intervals.h"
#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/eval/metrics.h"
#include "harness/measure/text_result.h"
#include "harness/store/run_record.h"
#include "tests/support/fixture.h"

static fl_error problem;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        if ((call) != FL_OK) fail_msg("%s", problem.message);                                                \
    } while (0)

static void assert_near(double x, double y, double tolerance) {
    if (!(fabs(x - y) <= tolerance * (1.0 + fabs(y)))) fail_msg("%.17g instead of %.17g", x, y);
}

/* The numbers are scipy 1.17's (norm.ppf, t.ppf, t.cdf, binomtest) and numpy's (quantile). */
static void test_distributions_are_those_of_scipy(void **state) {
    (void)state;
    static const double normal[][2] = {{0.025, -1.9599639845400545},
                                       {0.0001, -3.7190164854556804},
                                       {0.3, -0.5244005127080409},
                                       {0.975, 1.959963984540054},
                                       {0.5, 0.0}};
    static const struct {
        double p;
        size_t degrees;
        double value;
    } quantiles[] = {{0.025, 4, -2.7764451051977943},  {0.975, 15, 2.131449545559776},
                     {0.005, 1, -63.65674116287158},   {0.2, 2, -1.060660171779821},
                     {0.025, 63, -1.9983405425207417}, {0.001, 499, -3.1066446079462327}},
      cumulative[] = {{-2.5, 4, 0.03338327240599407},
                      {1.3, 7, 0.8826160823038114},
                      {0.0, 3, 0.5},
                      {-3.9, 31, 0.00024098859526060313},
                      {5, 2, 0.9811252243246882}};
    for (size_t i = 0; i < 5; i++) assert_near(fl_normal_quantile(normal[i][0]), normal[i][1], 1e-10);
    assert_near(fl_normal_cumulative(-1.9599639845400545), 0.025, 1e-14);
    for (size_t i = 0; i < 6; i++)
        assert_near(fl_student_quantile(quantiles[i].p, quantiles[i].degrees), quantiles[i].value, 1e-10);
    for (size_t i = 0; i < 5; i++)
        assert_near(fl_student_cumulative(cumulative[i].p, cumulative[i].degrees), cumulative[i].value,
                    1e-10);
}

static void test_quantiles_of_values_are_those_of_numpy(void **state) {
    (void)state;
    static const double sorted[] = {1.0, 1.5, 2.5, 3.0, 4.0, 6.0, 9.25};
    static const double known[][2] = {{0, 1.0},   {0.025, 1.075},  {0.3, 2.3},
                                      {0.5, 3.0}, {0.975, 8.7625}, {1, 9.25}};
    for (size_t i = 0; i < 6; i++)
        assert_near(fl_sorted_quantile(sorted, 7, known[i][0]), known[i][1], 1e-14);
}

static void test_mcnemar_is_the_exact_binomial(void **state) {
    (void)state;
    static const struct {
        size_t first, second;
        double p;
    } known[] = {
        {3, 12, 0.03515625}, {0, 6, 0.03125}, {10, 10, 1.0}, {40, 61, 0.046044066929342785}, {1, 0, 1.0}};
    for (size_t i = 0; i < 5; i++) {
        double a[128] = {0}, b[128] = {0};
        for (size_t k = 0; k < known[i].first; k++) a[k] = 1.0;
        for (size_t k = 0; k < known[i].second; k++) b[known[i].first + k] = 1.0;
        fl_paired_comparison paired;
        OK(fl_metric_compare(a, b, 128, &paired, &problem));
        assert_near(paired.exact_p, known[i].p, 1e-10);
    }
}

static void mean_of(const void *context, const double *totals, double *out) {
    (void)context;
    out[0] = totals[0] / totals[1];
}

static fl_bootstrap_result bootstrap_mean(const double *values, size_t units) {
    double sums[256];
    fl_bootstrap_result out;
    for (size_t i = 0; i < units; i++) {
        sums[2 * i] = values[i];
        sums[2 * i + 1] = 1.0;
    }
    const fl_bootstrap b = {
        .units = units, .columns = 2, .sums = sums, .statistics = 1, .statistic = mean_of};
    OK(fl_bootstrap_run(&b, &out, &problem));
    return out;
}

/* Of a mean of many the interval is the classical one: mean +- t s / sqrt(n). */
static void test_the_bootstrap_of_a_mean_is_the_classical_interval(void **state) {
    (void)state;
    enum { N = 100 };
    double values[N], mean = 0.0, squares = 0.0;
    fl_random random;
    fl_random_seed(&random, 7, 0);
    for (size_t i = 0; i < N; i++) mean += (values[i] = 0.2 + fl_random_normal(&random)) / N;
    for (size_t i = 0; i < N; i++) squares += (values[i] - mean) * (values[i] - mean);
    const double error = sqrt(squares / (N - 1) / N), half = fl_student_quantile(0.975, N - 1) * error;
    const fl_bootstrap_result r = bootstrap_mean(values, N);
    assert_near(r.estimate, mean, 1e-13);
    /* 10,000 resamples know a quantile in the tail to about 0.03 standard errors. */
    assert_true(fabs(r.low - (mean - half)) < 0.1 * error && fabs(r.high - (mean + half)) < 0.1 * error);
    const double p = 2.0 * fl_student_cumulative(-fabs(mean / error), N - 1);
    assert_true(fabs(r.p - p) < 0.3 * p + 0.002);
    const fl_bootstrap_result again = bootstrap_mean(values, N);
    assert_memory_equal(&again, &r, sizeof r);
}

/* p is below 0.05 where the interval leaves 0 out, and only there. */
static void test_p_and_interval_agree(void **state) {
    (void)state;
    size_t out_of = 0;
    for (size_t i = 0; i < 40; i++) {
        double values[12];
        fl_random random;
        fl_random_seed(&random, i, 0);
        for (size_t k = 0; k < 12; k++) values[k] = 0.55 + fl_random_normal(&random);
        const fl_bootstrap_result r = bootstrap_mean(values, 12);
        const bool leaves_out = r.low > 0.0 || r.high < 0.0;
        out_of += leaves_out;
        if (fabs(r.p - 0.05) > 0.002) assert_int_equal(r.p < 0.05, leaves_out);
    }
    assert_true(out_of > 5 && out_of < 35);
}

static void test_few_units_and_values_that_are_none_give_no_interval(void **state) {
    (void)state;
    double values[] = {1, 2, 3, 4, 5};
    fl_bootstrap_result r = bootstrap_mean(values, FL_BOOTSTRAP_FEWEST - 1);
    assert_true(r.estimate == 2.5 && isnan(r.low) && isnan(r.high) && isnan(r.p));
    assert_true(bootstrap_mean(values, FL_BOOTSTRAP_FEWEST).low > 1.0);
    values[2] = NAN;
    r = bootstrap_mean(values, 5);
    assert_true(isnan(r.estimate) && isnan(r.low) && isnan(r.p));
}

enum { SEQUENCES = 8, LAYERS = 2 };

/* A run of sequences first .. first + count - 1 of a made-up text, measured with noise of `seed`. */
static const char *write_run(const char *directory, const char *id, size_t first, size_t count,
                             uint64_t seed) {
    static char paths[8][600];
    static int next;
    char *path = paths[next++ % 8];
    static const fl_text_evaluation_options all = {true, true, false, true};
    fl_text_result r = {
        .layers = LAYERS, .query_heads = 1, .kv_heads = 1, .positions = 10, .sequences = count};
    fl_random random;
    OK(fl_text_result_create(&all, &r, &problem));
    for (size_t s = 0; s < count; s++) {
        fl_random_seed(&random, seed, first + s);
        r.sequence_ids_hash[s] = (double)(1000 + (first + s) % SEQUENCES);
        r.sequence_tokens[s] = 10, r.sequence_scored_tokens[s] = 9, r.sequence_output_count[s] = 40;
        r.sequence_full_cross_entropy[s] = 9 * (2.0 + 0.3 * (double)((first + s) % 3));
        r.sequence_cross_entropy[s] =
            r.sequence_full_cross_entropy[s] + 9 * (0.2 + 0.1 * fl_random_uniform(&random));
        r.sequence_kl[s] = 10 * fl_random_uniform(&random);
        r.sequence_agreement[s] = 5 + floor(4 * fl_random_uniform(&random));
        for (size_t l = 0; l < LAYERS; l++) {
            r.sequence_output_sum[s * LAYERS + l] = 4.0;
            r.sequence_output_sum_squares[s * LAYERS + l] = 40.0;
            r.sequence_squared_error[s * LAYERS + l] = (double)(1 + l) * (2.0 + fl_random_uniform(&random));
        }
    }
    fl_run_file *file = NULL;
    OK(fl_run_file_create(directory, id, &file, &problem));
    OK(fl_run_record_write_text_result(file, &r, &problem));
    for (size_t s = 0; s < count; s++) r.sequence_kl[s] += 1.0;
    OK(fl_run_record_write_comparison(file, "/baseline/linear_off", &r, &problem));
    OK(fl_run_file_commit(file, &problem));
    fl_text_result_release(&r);
    snprintf(path, sizeof paths[0], "%s/%s.h5", directory, id);
    return path;
}

static fl_run_sums *sums_of(const char *path) {
    fl_run_sums *sums = NULL;
    OK(fl_run_sums_read(path, &sums, &problem));
    return sums;
}

static void test_figures_and_differences_of_run_files(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_run_sums *a = sums_of(write_run(directory, "a", 0, SEQUENCES, 1));
    fl_interval one, layers[LAYERS];
    assert_int_equal(fl_run_sums_layers(a), LAYERS);
    OK(fl_interval_of(a, FL_SIDE_RUN, "nmse", &one, layers, &problem));
    assert_true(one.known && one.sequences == SEQUENCES && one.low < one.estimate && one.estimate < one.high);
    assert_near(one.estimate, 0.5 * (layers[0].estimate + layers[1].estimate), 1e-12);
    assert_true(isnan(one.p) && layers[1].estimate > layers[0].estimate);
    /* Texts differ more from each other than the run from the model: pairing shows it. */
    fl_interval of_run, difference, full;
    OK(fl_interval_of(a, FL_SIDE_RUN, "cross_entropy", &of_run, NULL, &problem));
    OK(fl_interval_of(a, FL_SIDE_FULL, "cross_entropy", &full, NULL, &problem));
    OK(fl_interval_against(a, FL_SIDE_FULL, "cross_entropy", &difference, NULL, &problem));
    assert_near(difference.estimate, of_run.estimate - full.estimate, 1e-12);
    assert_true(difference.low > 0.2 && difference.p < 0.01);
    assert_true(difference.high - difference.low < 0.5 * (of_run.high - of_run.low));
    OK(fl_interval_against(a, FL_SIDE_LINEAR_OFF, "kl", &difference, NULL, &problem));
    assert_near(difference.estimate, -0.1, 1e-12);
    assert_near(difference.high - difference.low, 0.0, 1e-12);
    OK(fl_interval_against(a, FL_SIDE_FULL, "kl", &difference, NULL, &problem));
    assert_false(difference.known);
    assert_string_equal(difference.why_not, "the full model has no such figure");
    assert_int_equal(fl_interval_of(a, FL_SIDE_RUN, "speed", &one, NULL, &problem), FL_ERROR_ARGUMENT);
    fl_run_sums_destroy(a);
    fl_temporary_remove(directory);
}

static void test_runs_are_paired_over_the_texts_they_share(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    const char *path = write_run(directory, "a", 0, SEQUENCES, 1);
    fl_run_sums *a = sums_of(path), *b = sums_of(write_run(directory, "b", 2, 6, 1)),
                *c = sums_of(write_run(directory, "c", 0, 3, 2)),
                *d = sums_of(write_run(directory, "d", 3, 2, 2)),
                *twice = sums_of(write_run(directory, "e", 0, 2 * SEQUENCES, 3));
    fl_interval i;
    assert_int_equal(fl_run_sums_common(a, b), 6);
    OK(fl_interval_between(a, b, "kl", &i, NULL, &problem)); /* the same numbers on the six texts */
    assert_true(i.known && i.sequences == 6 && i.estimate == 0.0 && i.p == 1.0);
    OK(fl_interval_between(a, c, "nmse", &i, NULL, &problem));
    assert_true(!i.known && i.sequences == 3 && isfinite(i.estimate));
    assert_string_equal(i.why_not, "fewer than 5 different sequences");
    OK(fl_interval_between(c, d, "kl", &i, NULL, &problem));
    assert_true(!i.known && isnan(i.estimate));
    assert_string_equal(i.why_not, "no sequence in common");
    /* A text that was measured twice is one unit. */
    assert_int_equal(fl_run_sums_sequences(twice), SEQUENCES);
    OK(fl_interval_of(twice, FL_SIDE_RUN, "kl", &i, NULL, &problem));
    assert_true(i.known && i.sequences == SEQUENCES);
    fl_run_entry entry = {.path = (char *)(uintptr_t)path};
    fl_interval own, off;
    OK(fl_interval_of_run(&entry, "kl", &own, &problem));
    OK(fl_interval_of_run(&entry, "linear_off/kl", &off, &problem));
    assert_near(off.estimate - own.estimate, 0.1, 1e-12);
    fl_run_sums *const all[] = {a, b, c, d, twice};
    for (size_t k = 0; k < 5; k++) fl_run_sums_destroy(all[k]);
    fl_temporary_remove(directory);
}

static void test_files_without_sums_and_damaged_ones_say_so(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    char path[600];
    fl_run_file *file = NULL;
    fl_interval i;
    OK(fl_run_file_create(directory, "old", &file, &problem));
    OK(fl_run_file_commit(file, &problem));
    snprintf(path, sizeof path, "%s/old.h5", directory);
    fl_run_sums *old = sums_of(path);
    OK(fl_interval_of(old, FL_SIDE_RUN, "kl", &i, NULL, &problem));
    assert_string_equal(i.why_not, "the run file keeps no sums of its sequences");
    fl_run_sums_destroy(old);
    const double three[] = {1, 2, 3};
    OK(fl_run_file_create(directory, "odd", &file, &problem));
    OK(fl_run_file_write_doubles(file, "/sequences/ids_hash", 1, (size_t[]){3}, three, "1", "x", &problem));
    OK(fl_run_file_write_doubles(file, "/sequences/kl", 1, (size_t[]){2}, three, "1", "x", &problem));
    OK(fl_run_file_commit(file, &problem));
    snprintf(path, sizeof path, "%s/odd.h5", directory);
    fl_error error = {0};
    assert_int_equal(fl_run_sums_read(path, &old, &error), FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "/sequences/kl"));
    fl_temporary_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributions_are_those_of_scipy),
        cmocka_unit_test(test_quantiles_of_values_are_those_of_numpy),
        cmocka_unit_test(test_mcnemar_is_the_exact_binomial),
        cmocka_unit_test(test_the_bootstrap_of_a_mean_is_the_classical_interval),
        cmocka_unit_test(test_p_and_interval_agree),
        cmocka_unit_test(test_few_units_and_values_that_are_none_give_no_interval),
        cmocka_unit_test(test_figures_and_differences_of_run_files),
        cmocka_unit_test(test_runs_are_paired_over_the_texts_they_share),
        cmocka_unit_test(test_files_without_sums_and_damaged_ones_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
