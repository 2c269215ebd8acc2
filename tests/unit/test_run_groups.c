/* Groups of runs that differ in seeds only: which runs, what they are called, mean and spread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "analysis/run_axes.h"
#include "analysis/run_groups.h"
#include "analysis/run_label.h"
#include "harness/base/memory.h"

enum { RUNS = 5 };

static char empty[] = "", rule_key[] = "variant.rule", seed_key[] = "variant.seed",
            train_key[] = "train.seed", gla[] = "gla", kda[] = "kda", perplexity[] = "perplexity",
            sequences_key[] = "text.sequences";
static char *keys[] = {sequences_key, train_key, rule_key, seed_key};
static char one[] = "1", two[] = "2", three[] = "3";
static char *values[RUNS][4] = {{one, one, gla, one},
                                {one, two, gla, one},
                                {one, two, gla, three},
                                {one, one, kda, one},
                                {two, one, kda, one}};
static fl_run_metric metrics[RUNS] = {
    {perplexity, 20}, {perplexity, 23}, {perplexity, 26}, {perplexity, 30}, {perplexity, 40}};
static fl_run_entry runs[RUNS];
static fl_run_set set;

static int make_set(void **state) {
    (void)state;
    for (size_t i = 0; i < RUNS; i++) {
        runs[i] = (fl_run_entry){.path = empty,
                                 .run_id = empty,
                                 .name = empty,
                                 .cell = empty,
                                 .key_count = 4,
                                 .keys = keys,
                                 .values = values[i],
                                 .metric_count = i == 4 ? 0 : 1,
                                 .metrics = &metrics[i]};
    }
    set = (fl_run_set){.count = RUNS, .runs = runs};
    assert_int_equal(fl_run_axes_find(&set, NULL), FL_OK);
    assert_int_equal(fl_run_label_all(&set, NULL), FL_OK);
    return 0;
}

static int release_set(void **state) {
    (void)state;
    for (size_t i = 0; i < RUNS; i++) {
        fl_memory_free(runs[i].label);
        fl_cell_axes_release(&runs[i].axes);
    }
    fl_memory_free(set.axes);
    return 0;
}

static void test_runs_that_differ_in_seeds_are_one_group(void **state) {
    (void)state;
    fl_run_groups *groups = NULL;
    assert_int_equal(fl_run_groups_make(&set, false, &groups, NULL), FL_OK);
    assert_int_equal(groups->count, 3);
    assert_int_equal(groups->items[0].count, 3);
    assert_int_equal(groups->items[1].count, 1);
    assert_true(fl_run_groups_any_seeds(groups));
    assert_string_equal(groups->items[0].label, "gla, sequences 1");
    assert_string_equal(groups->items[1].label, "kda, sequences 1");
    assert_string_equal(groups->items[2].label, "kda, sequences 2");
    fl_run_spread spread = fl_run_group_metric(groups, 0, "perplexity");
    assert_int_equal(spread.n, 3);
    assert_true(spread.mean == 23 && spread.sd == 3);
    spread = fl_run_group_metric(groups, 1, "perplexity");
    assert_true(spread.n == 1 && spread.mean == 30 && isnan(spread.sd));
    spread = fl_run_group_metric(groups, 2, "perplexity");
    assert_true(spread.n == 0 && isnan(spread.mean) && isnan(spread.sd));
    fl_run_groups_destroy(groups);
}

static void test_each_run_is_a_group_when_asked_for(void **state) {
    (void)state;
    fl_run_groups *groups = NULL;
    assert_int_equal(fl_run_groups_make(&set, true, &groups, NULL), FL_OK);
    assert_int_equal(groups->count, RUNS);
    assert_false(fl_run_groups_any_seeds(groups));
    for (size_t i = 0; i < RUNS; i++) assert_string_equal(groups->items[i].label, set.runs[i].label);
    fl_run_groups_destroy(groups);
}

static void test_spread_is_the_sample_standard_deviation(void **state) {
    (void)state;
    const double numbers[] = {1, 2, 3, 4};
    fl_run_spread spread = fl_run_spread_of(numbers, 4);
    assert_true(spread.mean == 2.5 && fabs(spread.sd - sqrt(5.0 / 3.0)) < 1e-15);
    assert_true(isnan(fl_run_spread_of(numbers, 1).sd) && fl_run_spread_of(numbers, 0).n == 0);
    const double diverged[] = {1, NAN};
    assert_true(isnan(fl_run_spread_of(diverged, 2).mean));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_set, release_set)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_runs_that_differ_in_seeds_are_one_group),
        TEST(test_each_run_is_a_group_when_asked_for),
        TEST(test_spread_is_the_sample_standard_deviation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
