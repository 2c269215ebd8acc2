/* Labels: one short name a cell, from the axes that a sweep declares. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/config/experiment.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

static fl_experiment_list *load(const char *path, const char *override) {
    fl_experiment_list *list = NULL;
    fl_error error;
    fl_status status = fl_experiment_load(path, &override, override != NULL, &list, &error);
    if (status != FL_OK) fail_msg("%s", error.message);
    return list;
}

static void expect(fl_experiment_list *list, const char *const *labels, size_t count) {
    assert_int_equal(list->count, count);
    for (size_t i = 0; i < count; i++) assert_string_equal(list->cells[i]->label, labels[i]);
    fl_experiment_list_destroy(list);
}

#define EXPECT(list, ...)                                                                                    \
    do {                                                                                                     \
        static const char *const labels[] = {__VA_ARGS__};                                                   \
        expect(list, labels, sizeof labels / sizeof labels[0]);                                              \
    } while (0)

/* A config in the test's folder. */
static fl_experiment_list *made_of(const char *text) {
    const char *path = fl_inside("sweep.yaml");
    fl_write_file(path, text, strlen(text));
    return load(path, NULL);
}

static void refused(const char *text, const char *message) {
    fl_experiment_list *list = NULL;
    fl_error error;
    const char *path = fl_inside("sweep.yaml");
    fl_write_file(path, text, strlen(text));
    if (fl_experiment_load(path, NULL, 0, &list, &error) == FL_OK) fail_msg("accepted: %s", text);
    if (strstr(error.message, message) == NULL) fail_msg("no '%s' in '%s'", message, error.message);
}

static void test_the_shipped_sweeps_have_short_names(void **state) {
    (void)state;
    EXPECT(load("configs/quickstart.yaml", NULL), "softmax", "none, 8 + 56", "gla, 8 + 56", "kgla, 8 + 56",
           "delta, 8 + 56", "kda, 8 + 56", "gla, pure", "kgla, pure", "delta, pure", "kda, pure",
           "gla, 8 + 56, layer_mse", "kgla, 8 + 56, layer_mse", "delta, 8 + 56, layer_mse",
           "kda, 8 + 56, layer_mse");
    EXPECT(load("configs/window_split.yaml", NULL), "gla, 0 + 64", "gla, 8 + 56", "gla, 32 + 32",
           "gla, 0 + 64, conv 4", "gla, 8 + 56, conv 4", "gla, 32 + 32, conv 4", "kda, 0 + 64", "kda, 8 + 56",
           "kda, 32 + 32", "kda, 0 + 64, conv 4", "kda, 8 + 56, conv 4", "kda, 32 + 32, conv 4");
    EXPECT(load("configs/routing.yaml", "variant.rule=kda"), "window 56", "window 24, cache 32 recency",
           "window 24, cache 32 self_recall", "window 24, cache 32 attention_mass");
    EXPECT(load("configs/fitting.yaml", NULL), "gla", "gla, layer_mse", "gla, next_token", "kda",
           "kda, layer_mse", "kda, next_token");
}

static void test_models_and_texts_are_told_by_their_last_component(void **state) {
    (void)state;
    EXPECT(made_of("text: {path: t.txt}\nvariant: {rule: kda}\n"
                   "sweep: {grid: {model.path: [models/a.gguf, /data/SmolLM2-360M/]}}\n"),
           "a", "SmolLM2-360M");
    EXPECT(made_of("model: {path: m.gguf}\nsweep:\n  grid: {variant.rule: [gla, kda]}\n"
                   "  list: [{text.path: one/books.txt}, {text.path: two/code.txt}]\n"),
           "gla, books.txt", "gla, code.txt", "kda, books.txt", "kda, code.txt");
    EXPECT(made_of(
               "sweep: {grid: {variant.rule: [softmax, gla], variant.window: [8, 32], model.path: [m/a.gguf, "
               "m/b.gguf]}}\n"),
           "softmax, window 8, a", "softmax, window 8, b", "softmax, window 32, a", "softmax, window 32, b",
           "gla, window 8, a", "gla, window 8, b", "gla, window 32, a", "gla, window 32, b");
    /* Equal names are said whole. */
    EXPECT(made_of("sweep: {grid: {model.path: [one/a.gguf, two/a.gguf]}}\n"), "one/a.gguf", "two/a.gguf");
}

static void test_seeds_of_both_kinds_are_said_once(void **state) {
    (void)state;
    EXPECT(made_of("sweep: {grid: {variant.rule: [gla, kda], train.seed: [1, 2]}}\n"), "gla, seed 1",
           "gla, seed 2", "kda, seed 1", "kda, seed 2");
    EXPECT(made_of("sweep: {zip: {variant.seed: [1, 2], train.seed: [1, 2]}}\n"), "seed 1", "seed 2");
    EXPECT(made_of("sweep: {grid: {variant.seed: [1, 2], train.seed: [2]}}\n"), "seed 1", "seed 2");
    EXPECT(made_of("sweep: {grid: {variant.seed: [1, 2], train.seed: [2, 3]}}\n"), "seed 1, train seed 2",
           "seed 1, train seed 3", "seed 2", "seed 2, train seed 3");
}

static void test_what_is_off_is_left_out_unless_nothing_else_is_left(void **state) {
    (void)state;
    EXPECT(made_of("variant: {rule: kda}\nsweep: {grid: {variant.short_conv: [null, {kernel: 4}]}}\n"),
           "no conv", "conv 4");
    EXPECT(
        made_of("sweep: {grid: {variant.rule: [kda], variant.softmax_layers: [[], [0, 3], {every: 4}]}}\n"),
        "no softmax layers", "softmax layers 0 3", "softmax every 4");
    /* The frozen model has neither window nor training, unless that is all there is. */
    EXPECT(made_of("sweep: {list: [{variant.rule: softmax}, {variant.rule: gla, variant.window: 8}]}\n"),
           "softmax", "gla, window 8");
    EXPECT(made_of("sweep: {grid: {variant.rule: [softmax, gla], variant.normaliser: [true, false]}}\n"),
           "softmax, normaliser", "softmax, no normaliser", "gla, normaliser", "gla, no normaliser");
}

static void test_mappings_are_told_by_what_differs(void **state) {
    (void)state;
    EXPECT(made_of("variant: {rule: kda}\nsweep:\n  grid:\n    train:\n"
                   "      - null\n      - {objective: layer_mse, steps: 10, path: t.txt}\n"
                   "      - {objective: layer_mse, steps: 100, path: t.txt}\n"
                   "      - {objective: kl, steps: 100, path: t.txt}\n"),
           "no training", "layer_mse steps 10", "layer_mse steps 100", "kl");
    EXPECT(made_of(
               "sweep:\n  grid:\n    variant.gate: [{source: projected, rank: 16}, {source: constant, value: "
               "0.9}, {source: constant, value: 0.97}]\n"),
           "gate projected", "gate constant 0.9", "gate constant 0.97");
    EXPECT(made_of("sweep: {grid: {variant: [{rule: gla, window: 8}, {rule: kda, window: 8}]}}\n"), "gla",
           "kda");
    EXPECT(made_of("sweep: {grid: {train.learning_rate: [1.0e-3, 0.01]}}\n"), "learning rate 0.001",
           "learning rate 0.01");
}

static void test_users_names_are_taken(void **state) {
    (void)state;
    EXPECT(made_of("sweep:\n  list:\n    - {label: baseline, variant.rule: none}\n"
                   "    - {variant.rule: kda, variant.window: 8}\n  grid: {train.seed: [1, 2]}\n"),
           "baseline, seed 1", "baseline, seed 2", "kda, window 8, seed 1", "kda, window 8, seed 2");
    EXPECT(made_of("sweep:\n  labels: {train: [null, calibrated], variant.sinks: [split, all window]}\n"
                   "  grid: {train: [null, {objective: layer_mse}], variant.rule: [gla, kda]}\n"
                   "  zip: {variant.window: [56, 64], variant.sinks: [8, 0]}\n"),
           "gla, split", "gla, all window", "kda, split", "kda, all window", "gla, calibrated, split",
           "gla, calibrated, all window", "kda, calibrated, split", "kda, calibrated, all window");
}

static void test_names_that_name_nothing_are_refused(void **state) {
    (void)state;
    refused("sweep:\n  grid: {variant.rule: [gla, kda]}\n  labels: {variant.rul: [a, b]}\n",
            "3:12: sweep.labels: no axis of the sweep has the key 'variant.rul'");
    refused("sweep:\n  grid: {variant.rule: [gla, kda]}\n  labels: {variant.rule: [a]}\n",
            "sweep.labels: 1 names for the 2 values of 'variant.rule'");
    refused("sweep:\n  grid: {variant.rule: [gla, kda]}\n  labels: {variant.rule: [a, a]}\n",
            "3:30: label: 'a' is the name of another choice of this axis");
    refused("sweep:\n  list: [{label: a, x: 1}, {label: a, x: 2}]\n", "label: 'a' is the name of another");
    refused("sweep:\n  list: [{label: [a], x: 1}]\n", "2:18: label: expected a name in one line");
    refused("sweep:\n  list: [{label: '', x: 1}]\n", "label: expected a name in one line");
    refused("sweep:\n  list: [{x: 1}, {x: 2}]\n  labels: {x: [a, b]}\n",
            "whose entries take a `label:` each");
    refused("sweep: {labels: [a]}\n", "sweep.labels is a mapping");
}

static void test_every_label_of_a_large_sweep_is_unique_and_short(void **state) {
    (void)state;
    fl_experiment_list *list =
        made_of("sweep:\n  grid: {variant.rule: [softmax, none, gla, kda], variant.window: "
                "[0, 8], variant.sinks: [0, 2],\n"
                "         variant.cache: [{budget: 0}, {budget: 8}], train: [null, "
                "{objective: kl}], train.seed: [1]}\n"
                "  exclude: [{train.objective: null, variant.rule: kda}]\n"
                "  zip: {variant.merge: [sum, half]}\n");
    for (size_t i = 0; i < list->count; i++) {
        assert_in_range(strlen(list->cells[i]->label), 3, 60);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(list->cells[i]->label, list->cells[k]->label);
    }
    fl_experiment_list_destroy(list);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_the_shipped_sweeps_have_short_names),
        TEST(test_models_and_texts_are_told_by_their_last_component),
        TEST(test_seeds_of_both_kinds_are_said_once),
        TEST(test_what_is_off_is_left_out_unless_nothing_else_is_left),
        TEST(test_mappings_are_told_by_what_differs),
        TEST(test_users_names_are_taken),
        TEST(test_names_that_name_nothing_are_refused),
        TEST(test_every_label_of_a_large_sweep_is_unique_and_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
