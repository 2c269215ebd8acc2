/* Experiments: the top level of a config, sweeps and run ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/config/expansion.h"
#include "harness/config/experiment.h"
#include "harness/config/text_builder.h"
#include "tests/support/fixture.h"

static const char whole[] = "name: quickstart\n"
                            "model: {path: models/a.gguf}\n"
                            "text: {path: datasets/reading.txt, sequence_length: 512, sequences: 16}\n"
                            "variant: {rule: kda, window: 56}\n"
                            "train: {steps: 200}\n"
                            "tasks: [{name: mmlu, path: DIR}]\n"
                            "measure: {propagated: false}\n";

static fl_experiment_list *load(const char *text, const char *const *overrides, size_t count) {
    fl_experiment_list *list = NULL;
    fl_error error = {0};
    if (fl_experiment_parse(text, "a.yaml", overrides, count, &list, &error) != FL_OK)
        fail_msg("%s", error.message);
    return list;
}

static void assert_refused_with(const char *text, const char *override, const char *message) {
    fl_experiment_list *list = NULL;
    fl_error error = {0};
    fl_status status = fl_experiment_parse(text, "a.yaml", &override, override != NULL, &list, &error);
    if (status == FL_OK) fail_msg("accepted: %s", text);
    assert_null(list);
    if (strncmp(error.message, message, strlen(message)) != 0)
        fail_msg("expected '%s', got '%s'", message, error.message);
}

static void assert_refused(const char *text, const char *message) {
    assert_refused_with(text, NULL, message);
}

static void assert_labels(const fl_experiment_list *list, const char *const *labels, size_t count) {
    assert_int_equal(list->count, count);
    for (size_t i = 0; i < count; i++) assert_string_equal(list->cells[i]->cell_label, labels[i]);
}

static void test_the_top_level_is_bound(void **state) {
    (void)state;
    fl_experiment_list *list = load(whole, NULL, 0);
    assert_int_equal(list->count, 1);
    const fl_experiment *e = list->cells[0];
    assert_string_equal(e->name, "quickstart");
    assert_string_equal(e->model_path, "models/a.gguf");
    assert_true(e->has_text);
    assert_string_equal(e->text.path, "datasets/reading.txt");
    assert_null(e->text.ids);
    assert_int_equal(e->text.sequence_length, 512);
    assert_int_equal(e->text.sequences, 16);
    assert_string_equal(fl_node_get(e->variant, "rule")->text, "kda");
    assert_string_equal(fl_node_get(e->train, "steps")->text, "200");
    assert_int_equal(e->tasks->count, 1);
    assert_true(e->measure.teacher_forced);
    assert_false(e->measure.propagated);
    assert_string_equal(e->cell_label, "");
    assert_string_equal(fl_resolved_find(e->resolved, "measure.teacher_forced"), "true");
    fl_experiment_list_destroy(list);
}

static void test_everything_but_the_mapping_itself_is_optional(void **state) {
    (void)state;
    fl_experiment_list *list = load("variant: {rule: kda}\ntrain:\ntext: ~\n", NULL, 0);
    const fl_experiment *e = list->cells[0];
    assert_null(e->model_path);
    assert_false(e->has_text);
    assert_null(e->train);
    assert_null(e->tasks);
    fl_experiment_list_destroy(list);
    assert_refused("", "a.yaml:1:1: the config is empty");
    assert_refused("[1]", "a.yaml:1:1: expected a mapping");
}

static void test_unknown_top_level_key_names_its_line(void **state) {
    (void)state;
    assert_refused("name: x\nvairant: {rule: kda}\n",
                   "a.yaml:2:1: unknown key 'vairant'; did you mean 'variant'?");
    assert_refused("swep: {}\n", "a.yaml:1:1: unknown key 'swep'; did you mean 'sweep'?");
    assert_refused("measure: {propagate: true}\n",
                   "a.yaml:1:11: unknown key 'measure.propagate'; did you mean 'propagated'?");
    assert_refused("model: {file: x}\n", "a.yaml:1:9: unknown key 'model.file'");
    assert_refused("model: {}\n", "a.yaml:1:8: model.path is missing");
    assert_refused("model: x.gguf\n", "a.yaml:1:8: model: expected a mapping");
    assert_refused("tasks: {name: x}\n", "a.yaml:1:8: tasks: expected a list");
    assert_refused("variant: kda\n", "a.yaml:1:10: variant: expected a mapping");
    assert_refused("train: [1]\n", "a.yaml:1:8: train: expected a mapping");
}

static void test_text_needs_exactly_one_of_path_and_ids(void **state) {
    (void)state;
    assert_refused("text: {sequences: 3}\n",
                   "a.yaml:1:7: text: path (a text file), ids (a JSON file) or self_generated is missing");
    assert_refused("text: {path: a, ids: b}\n", "a.yaml:1:22: text: give path or ids, not both");
    assert_refused("text: {path: a, sequence_length: 1}\n", "a.yaml:1:34: text.sequence_length: at least 2");
    fl_experiment_list *list = load("text: {ids: b.json}\n", NULL, 0);
    assert_int_equal(list->cells[0]->text.sequence_length, 0);
    assert_string_equal(list->cells[0]->text.ids, "b.json");
    fl_experiment_list_destroy(list);
    list = load("text: {path: b.txt}\n", NULL, 0);
    assert_int_equal(list->cells[0]->text.sequence_length, 512);
    fl_experiment_list_destroy(list);
}

static void test_overrides_beat_the_file_in_order(void **state) {
    (void)state;
    static const char *const overrides[] = {"variant.rule=gla", "text.sequences=2", "text.sequences=3"};
    fl_experiment_list *list = load(whole, overrides, 3);
    assert_string_equal(fl_node_get(list->cells[0]->variant, "rule")->text, "gla");
    assert_int_equal(list->cells[0]->text.sequences, 3);
    fl_experiment_list_destroy(list);
    assert_refused_with(whole, "text.sequences=many",
                        "command line:1:16: sequences: expected a whole number");
    assert_refused_with(whole, "modle.path=x",
                        "command line:1:1: unknown key 'modle'; did you mean 'model'?");
    assert_refused_with(whole, "modle=x", "command line:1:1: unknown key 'modle'; did you mean 'model'?");
}

static void test_a_grid_is_multiplied_with_the_last_key_fastest(void **state) {
    (void)state;
    fl_experiment_list *list =
        load("sweep:\n  grid: {variant.rule: [gla, kda], train.seed: [1, 2]}\n", NULL, 0);
    static const char *const labels[] = {"variant.rule=gla train.seed=1", "variant.rule=gla train.seed=2",
                                         "variant.rule=kda train.seed=1", "variant.rule=kda train.seed=2"};
    assert_labels(list, labels, 4);
    assert_string_equal(fl_node_get(list->cells[3]->variant, "rule")->text, "kda");
    assert_string_equal(fl_node_get(list->cells[3]->train, "seed")->text, "2");
    assert_null(fl_node_find(fl_document_root(list->cells[0]->document), "sweep"));
    fl_experiment_list_destroy(list);
}

static void test_zip_walks_its_lists_together(void **state) {
    (void)state;
    fl_experiment_list *list = load("sweep:\n  zip: {variant.window: [64, 56], variant.sinks: [0, 8]}\n"
                                    "  grid: {variant.rule: [gla, kda]}\n",
                                    NULL, 0);
    static const char *const labels[] = {"variant.window=64 variant.sinks=0 variant.rule=gla",
                                         "variant.window=64 variant.sinks=0 variant.rule=kda",
                                         "variant.window=56 variant.sinks=8 variant.rule=gla",
                                         "variant.window=56 variant.sinks=8 variant.rule=kda"};
    assert_labels(list, labels, 4);
    fl_experiment_list_destroy(list);
}

static void test_zip_lists_of_different_length_are_an_error_at_their_place(void **state) {
    (void)state;
    assert_refused("sweep:\n  zip:\n    variant.window: [64, 56]\n    variant.sinks: [0, 8, 9]\n",
                   "a.yaml:4:20: sweep.zip: 'variant.sinks' has 3 values but 'variant.window' has 2");
}

static void test_a_list_of_cells_is_one_axis(void **state) {
    (void)state;
    fl_experiment_list *list =
        load("sweep:\n  list:\n    - {variant.rule: none, variant.window: 64}\n    - {variant.rule: kda}\n"
             "  grid: {variant.seed: [1, 2]}\n",
             NULL, 0);
    static const char *const labels[] = {"variant.rule=none variant.window=64 variant.seed=1",
                                         "variant.rule=none variant.window=64 variant.seed=2",
                                         "variant.rule=kda variant.seed=1",
                                         "variant.rule=kda variant.seed=2"};
    assert_labels(list, labels, 4);
    assert_null(fl_node_get(list->cells[2]->variant, "window"));
    fl_experiment_list_destroy(list);
}

static void test_exclude_drops_matching_cells(void **state) {
    (void)state;
    fl_experiment_list *list =
        load("variant: {seed: 1.0e0}\nsweep:\n  grid: {variant.rule: [none, kda], variant.window: [0, 8]}\n"
             "  exclude: [{variant.rule: none, variant.window: 0, variant.seed: 1}]\n",
             NULL, 0);
    static const char *const labels[] = {"variant.rule=none variant.window=8",
                                         "variant.rule=kda variant.window=0",
                                         "variant.rule=kda variant.window=8"};
    assert_labels(list, labels, 3);
    assert_int_equal(list->excluded, 1);
    fl_experiment_list_destroy(list);
    assert_refused("sweep:\n  grid: {a: [1]}\n  exclude: [{b: 1}]\n", "a.yaml:3:14: no cell has the key 'b'");
    assert_refused("name: x\nsweep:\n  exclude: [{name: x}]\n",
                   "a.yaml:3:12: sweep.exclude drops every cell");
    assert_refused("sweep:\n  exclude: [{}]\n", "a.yaml:2:13: an empty entry");
}

static void test_duplicate_cells_are_dropped_and_counted(void **state) {
    (void)state;
    fl_experiment_list *list = load("sweep:\n  grid: {train.lr: [1e-3, 2e-3, 0.001, 1.0e-3]}\n", NULL, 0);
    static const char *const labels[] = {"train.lr=0.001", "train.lr=0.002"};
    assert_labels(list, labels, 2);
    assert_int_equal(list->duplicates, 2);
    fl_experiment_list_destroy(list);
}

static void test_an_override_takes_its_key_out_of_the_sweep(void **state) {
    (void)state;
    static const char text[] = "sweep:\n  grid: {variant.rule: [gla, kda], train.seed: [1, 2]}\n"
                               "  zip: {variant.window: [64, 56], variant.sinks: [0, 8]}\n";
    static const char *const rule[] = {"variant.rule=delta", "variant.sinks=4"};
    fl_experiment_list *list = load(text, rule, 2);
    static const char *const labels[] = {"train.seed=1 variant.window=64", "train.seed=1 variant.window=56",
                                         "train.seed=2 variant.window=64", "train.seed=2 variant.window=56"};
    assert_labels(list, labels, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(fl_node_get(list->cells[i]->variant, "rule")->text, "delta");
        assert_string_equal(fl_node_get(list->cells[i]->variant, "sinks")->text, "4");
    }
    fl_experiment_list_destroy(list);
    static const char *const other_axes[] = {"sweep.grid.train.seed=[7]", "sweep.grid.variant.seed=[1, 2]",
                                             "sweep.zip="};
    list = load(text, other_axes, 3);
    static const char *const other_labels[] = {
        "variant.rule=gla train.seed=7 variant.seed=1", "variant.rule=gla train.seed=7 variant.seed=2",
        "variant.rule=kda train.seed=7 variant.seed=1", "variant.rule=kda train.seed=7 variant.seed=2"};
    assert_labels(list, other_labels, 4);
    fl_experiment_list_destroy(list);
    static const char *const no_sweep[] = {"sweep="};
    list = load(text, no_sweep, 1);
    assert_int_equal(list->count, 1);
    fl_experiment_list_destroy(list);
}

static void test_an_override_also_beats_an_axis_that_replaces_its_mapping(void **state) {
    (void)state;
    static const char *const overrides[] = {"variant.window=3"};
    fl_experiment_list *list =
        load("sweep:\n  grid: {variant: [{rule: gla, window: 8}, {rule: kda}]}\n", overrides, 1);
    assert_int_equal(list->count, 2);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(fl_node_get(list->cells[i]->variant, "window")->text, "3");
    fl_experiment_list_destroy(list);
}

static void test_bad_sweeps_are_refused_at_their_place(void **state) {
    (void)state;
    assert_refused("sweep: [1]\n", "a.yaml:1:1: sweep is a mapping");
    assert_refused("sweep: {gird: {a: [1]}}\n", "a.yaml:1:9: unknown key in sweep; did you mean 'grid'?");
    assert_refused("sweep: {whatever: 1}\n", "a.yaml:1:9: unknown key 'sweep.whatever'");
    assert_refused("sweep: {grid: {variant.rule: kda}}\n",
                   "a.yaml:1:16: sweep axis 'variant.rule' needs a list");
    assert_refused("sweep: {grid: {variant: {rule: [kda]}}}\n",
                   "a.yaml:1:16: sweep axis 'variant' needs a list");
    assert_refused("sweep: {grid: {name: []}}\n", "a.yaml:1:16: sweep axis 'name' has no values");
    assert_refused("sweep: {grid: {a..b: [1]}}\n", "a.yaml:1:");
    assert_refused("sweep: {grid: {sweep.grid: [1]}}\n", "a.yaml:1:16: 'sweep.grid' cannot be swept");
    assert_refused("sweep: {grid: {name: [a]}, zip: {name: [b]}}\n",
                   "a.yaml:1:34: the sweep already sets 'name'");
    assert_refused("sweep: {grid: {variant.rule: [a], variant: [{}]}}\n",
                   "a.yaml:1:35: the sweep already sets 'variant.rule'");
    assert_refused("sweep: {list: [1]}\n", "a.yaml:1:16: an entry of sweep.list is a mapping");
    assert_refused("sweep: {list: []}\n", "a.yaml:1:9: sweep.list is empty");
    assert_refused("variant: {rule: a}\nsweep: {grid: {variant.rule.x: [1]}}\n",
                   "a.yaml:2:33: cannot set 'variant.rule.x'");
    assert_refused("sweep: {grid: {varient.rule: [1, 2]}}\n",
                   "a.yaml:1:31: unknown key 'varient'; did you mean 'variant'?");
}

static void test_a_sweep_without_end_is_refused(void **state) {
    (void)state;
    fl_text_builder text = {0};
    fl_text_builder_add(&text, "sweep:\n  grid:\n", NULL);
    for (int i = 0; i < 64; i++) fl_text_builder_format(&text, NULL, "    train.k%d: [1, 2]\n", i);
    assert_refused(text.text, "a.yaml:2:3: the sweep has more than 10000 cells");
    fl_text_builder_release(&text);
}

/* "NAME0VALUE, NAME1VALUE, ..." between `begin` and `end`: refused with `message`. */
static void assert_many_refused(const char *begin, const char *name, const char *value, size_t count,
                                const char *end, const char *message) {
    fl_text_builder text = {0};
    fl_text_builder_add(&text, begin, NULL);
    for (size_t i = 0; i < count; i++)
        fl_text_builder_format(&text, NULL, "%s%s%zu%s", i > 0 ? ",\n" : "", name, i, value);
    fl_text_builder_add(&text, end, NULL);
    assert_refused(text.text, message);
    fl_text_builder_release(&text);
}

static void test_what_grows_faster_than_its_file_is_refused(void **state) {
    (void)state;
    assert_many_refused("variant: {", "k", ": 1", 100000, "}",
                        "a.yaml:1025:1: 'k1024': a mapping with more than 1024 keys");
    assert_many_refused("{", "train.k", ": 1", 1025, "}",
                        "a.yaml:1025:1: 'train.k1024': a mapping with more than 1024 keys");
    assert_many_refused("sweep: {grid: {", "train.k", ": [1]", 300, "}}",
                        "a.yaml:257:1: 'train.k256': the sweep sets more than 256");
    assert_many_refused("sweep: {list: [", "{train.k", ": 1}", 9000, "]}",
                        "a.yaml:257:2: 'train.k256': the sweep sets more than 256");
    assert_many_refused("sweep: {list: [", "{train.seed: ", "}", 40000, "]}",
                        "a.yaml:1:15: the sweep has more than 10000 cells");
    assert_many_refused("sweep: {grid: {train.seed: [1, 2, 3, 4, 5], variant.softmax_layers: [[", "", "",
                        240000, "]]}}", "a.yaml:1:8: the sweep is too large: 5 cells of 240");
    assert_many_refused("tasks: [", "", "", 250000, "]",
                        "a.yaml:249999:1: more than 250000 values; this is no config file");
    assert_many_refused(
        "sweep:\n grid: {train.seed: [1, 2, 3, 4, 5, 6, 7, 8], variant.window: [1, 2]}\n exclude: [",
        "{train.seed: ", "}", 80000, "]", "a.yaml:3:2: sweep.exclude has too many entries for so many cells");
}

static void run_id(const char *text, const char *override, const char *hash, char out[13]) {
    fl_experiment_list *list = load(text, &override, override != NULL);
    assert_int_equal(fl_experiment_run_id(list->cells[0], &hash, hash != NULL, out, NULL), FL_OK);
    assert_int_equal(strspn(out, "0123456789abcdef"), 12);
    fl_experiment_list_destroy(list);
}

static void test_run_id_is_of_the_work_not_of_names_and_places(void **state) {
    (void)state;
    char id[13], other[13];
    run_id(whole, NULL, "h", id);
    static const char *const same[] = {"name=other",
                                       "model.path=elsewhere.gguf",
                                       "text.path=b.txt",
                                       "variant.mechanism=x.st",
                                       "tasks.0.path=other",
                                       "measure.teacher_forced=true",
                                       "measure.propagated=False",
                                       "train.clip=",
                                       "train.activation_budget=7",
                                       "train.scratch_budget=7",
                                       "train.scratch_folder=x",
                                       "train.memory_budget=7",
                                       "train.checkpoint_every=7",
                                       "text.sequences=16"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        run_id(whole, same[i], "h", other);
        if (strcmp(id, other) != 0) fail_msg("%s changes the run id", same[i]);
    }
    static const char *const different[] = {
        "variant.rule=gla",        "variant.seed=2",   "train.steps=201",
        "text.sequences=17",       "tasks.0.name=arc", "measure.diagnostics=false",
        "measure.ablate=[window]", "train=",           "tasks=[]"};
    for (size_t i = 0; i < sizeof different / sizeof different[0]; i++) {
        run_id(whole, different[i], "h", other);
        if (strcmp(id, other) == 0) fail_msg("%s does not change the run id", different[i]);
    }
    run_id(whole, NULL, "other content", other);
    assert_string_not_equal(id, other);
    run_id(whole, NULL, NULL, other);
    assert_string_not_equal(id, other);
}

static void test_run_id_ignores_order_and_spelling(void **state) {
    (void)state;
    char id[13], other[13];
    run_id("train: {learning_rate: 1e-3, steps: 5}\nvariant: {rule: kda}\n", NULL, NULL, id);
    run_id("variant:\n  rule: 'kda'\ntrain:\n  steps: 5\n  learning_rate: 1.0e-03\n", NULL, NULL, other);
    assert_string_equal(id, other);
}

static void test_run_ids_stay_what_they_are(void **state) {
    (void)state;
    char id[13];
    run_id("text: {path: a.txt}\nvariant: {rule: kda, window: 56}\n", NULL, "0123", id);
    assert_string_equal(id, "4c0fc557ed5d");
}

static void test_a_file_is_loaded_like_its_text(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    char path[512];
    snprintf(path, sizeof path, "%s/a.yaml", directory);
    fl_write_file(path, whole, strlen(whole));
    fl_experiment_list *list = NULL;
    assert_int_equal(fl_experiment_load(path, NULL, 0, &list, NULL), FL_OK);
    assert_int_equal(list->count, 1);
    fl_experiment_list_destroy(list);
    fl_temporary_remove(directory);
}

static void test_no_allocation_failure_is_lost(void **state) {
    (void)state;
    static const char text[] =
        "text: {path: a}\nsweep: {grid: {variant.rule: [a, b]}, exclude: [{variant.rule: b}]}\n";
    bool finished = false;
    for (size_t n = 1; !finished && n < 3000; n++) {
        fl_experiment_list *list = NULL;
        char id[13];
        fl_memory_fail_at(n);
        fl_status status = fl_experiment_parse(text, "a.yaml", NULL, 0, &list, NULL);
        if (status == FL_OK) status = fl_experiment_run_id(list->cells[0], NULL, 0, id, NULL);
        fl_memory_fail_at(0);
        finished = status == FL_OK;
        if (!finished) assert_int_equal(status, FL_ERROR_MEMORY);
        fl_experiment_list_destroy(list);
    }
    assert_true(finished);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_top_level_is_bound),
        cmocka_unit_test(test_everything_but_the_mapping_itself_is_optional),
        cmocka_unit_test(test_unknown_top_level_key_names_its_line),
        cmocka_unit_test(test_text_needs_exactly_one_of_path_and_ids),
        cmocka_unit_test(test_overrides_beat_the_file_in_order),
        cmocka_unit_test(test_a_grid_is_multiplied_with_the_last_key_fastest),
        cmocka_unit_test(test_zip_walks_its_lists_together),
        cmocka_unit_test(test_zip_lists_of_different_length_are_an_error_at_their_place),
        cmocka_unit_test(test_a_list_of_cells_is_one_axis),
        cmocka_unit_test(test_exclude_drops_matching_cells),
        cmocka_unit_test(test_duplicate_cells_are_dropped_and_counted),
        cmocka_unit_test(test_an_override_takes_its_key_out_of_the_sweep),
        cmocka_unit_test(test_an_override_also_beats_an_axis_that_replaces_its_mapping),
        cmocka_unit_test(test_bad_sweeps_are_refused_at_their_place),
        cmocka_unit_test(test_a_sweep_without_end_is_refused),
        cmocka_unit_test(test_what_grows_faster_than_its_file_is_refused),
        cmocka_unit_test(test_run_id_is_of_the_work_not_of_names_and_places),
        cmocka_unit_test(test_run_id_ignores_order_and_spelling),
        cmocka_unit_test(test_run_ids_stay_what_they_are),
        cmocka_unit_test(test_a_file_is_loaded_like_its_text),
        cmocka_unit_test(test_no_allocation_failure_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
