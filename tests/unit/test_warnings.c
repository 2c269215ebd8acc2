/* Warnings: what is measured and can hardly be meant is said by plan, by run's table, in the run file and in
 * the report. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "analysis/run_warnings.h"
#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

static fl_error problem;

/* A cell of the tiny model on two sequences of 40 tokens (ids.json). */
static void write_config(const char *test, const char *text, const char *rest) {
    fl_write_ids(fl_inside("ids.json"), 2, 40, 37);
    fl_write_ids(fl_inside("fit.json"), 3, 32, 53);
    fl_write_text(fl_inside("c.yaml"), "model: {path: %s}\ntext: {ids: %s%s}\n%s\n", fl_reference_model(test),
                  fl_inside("ids.json"), text, rest);
}

static char *plan(int code) {
    char *output = NULL;
    assert_int_equal(fl_frostline(&output, "plan %s --out %s", fl_inside("c.yaml"), fl_inside("out")), code);
    return output;
}

static void expect_warning(const char *test, const char *text, const char *rest, const char *warning) {
    write_config(test, text, rest);
    char *output = plan(0);
    if (strstr(output, warning) == NULL) fail_msg("no '%s' in:\n%s", warning, output);
    fl_memory_free(output);
}

static void expect_none(const char *test, const char *text, const char *rest) {
    write_config(test, text, rest);
    char *output = plan(0);
    if (strstr(output, "warning:") != NULL) fail_msg("a warning for %s:\n%s", rest, output);
    fl_memory_free(output);
}

static void test_texts_shorter_than_asked_for(void **state) {
    (void)state;
    expect_warning(__func__, ", sequences: 5", "variant: {rule: kda}",
                   "warning: text: 2 sequences of the 5 asked for: there is no more text");
    expect_warning(__func__, ", sequence_length: 64", "variant: {rule: kda}",
                   "warning: text: the longest sequence has 40 tokens, fewer than sequence_length 64");
    expect_none(__func__, ", sequences: 2, sequence_length: 40", "variant: {rule: kda}");
    expect_none(__func__, ", sequences: 1", "variant: {rule: kda, window: 39}");
}

static void test_sequences_longer_than_the_models_context(void **state) {
    (void)state;
    write_config(__func__, "", "variant: {rule: kda}");
    fl_write_ids(fl_inside("ids.json"), 1, 2049, 37);
    char *output = plan(0);
    const char *said = strstr(output, "longer than the model's context of ");
    assert_non_null(said);
    assert_non_null(strstr(output, "warning: text: sequences of 2049 tokens"));
    fl_memory_free(output);
}

static void test_an_exact_set_that_covers_everything(void **state) {
    (void)state;
    static const char *const covering[] = {"{rule: kda, window: 40}", "{rule: kda, window: 500}",
                                           "{rule: gla, sinks: 40}", "{rule: kda, window: 32, sinks: 8}",
                                           "{rule: kda, window: 8, sinks: 2, cache: {budget: 30}}"};
    for (size_t i = 0; i < sizeof covering / sizeof covering[0]; i++) {
        char variant[128];
        snprintf(variant, sizeof variant, "variant: %s", covering[i]);
        expect_warning(__func__, "", variant, "everything is exact, the state is never read");
    }
    expect_warning(__func__, "", "variant: {rule: none, window: 40}", "(40 tokens): everything is exact\n");
    expect_none(__func__, "", "variant: {rule: kda, window: 31, sinks: 8}");
    expect_none(__func__, "", "variant: {rule: softmax, window: 500}");
}

static void test_parts_that_change_nothing(void **state) {
    (void)state;
    const char *const convolution =
        "warning: short_conv: an identity convolution that is not fitted changes nothing";
    expect_warning(__func__, "", "variant: {rule: kda, short_conv: {kernel: 4}}", convolution);
    expect_none(__func__, "", "variant: {rule: kda, short_conv: {kernel: 4, init: torch}}");
    expect_none(__func__, "", "variant: {rule: none, window: 4, short_conv: {kernel: 4}}");
    expect_warning(__func__, "", "variant: {rule: kda, lora: {rank: 2}}",
                   "warning: lora: adapters that are not fitted change nothing");
    expect_warning(__func__, "", "variant: {rule: kda, softmax_layers: {every: 1}}", "nothing is linearised");
    expect_warning(__func__, "", "variant: {rule: kda, softmax_layers: [2, 0, 1]}", "nothing is linearised");
    expect_none(__func__, "", "variant: {rule: kda, softmax_layers: [2, 0]}");
}

static void write_training(const char *test, const char *rule, const char *keys) {
    char rest[1024];
    snprintf(rest, sizeof rest,
             "variant: {rule: %s, window: 4, short_conv: {kernel: 4}}\n"
             "train: {ids: %s, allow_overlap: true, %s}",
             rule, fl_inside("fit.json"), keys);
    write_config(test, "", rest);
}

static void test_trainings(void **state) {
    (void)state;
    char *output = NULL;
    write_training(__func__, "none", "steps: 4, warmup_steps: 1");
    output = plan(0);
    assert_non_null(strstr(output, "warning: train: rule none has nothing to fit: measured as it is"));
    fl_memory_free(output);
    write_training(__func__, "kda", "steps: 4");
    output = plan(0);
    assert_non_null(
        strstr(output,
               "warning: train: warmup_steps 100 of 4 steps: the learning rate never reaches learning_rate"));
    fl_memory_free(output);
    write_training(__func__, "kda", "steps: 4, warmup_steps: 1, sequences: 9");
    output = plan(0);
    assert_null(strstr(output, "warning:"));
    fl_memory_free(output);
    assert_int_equal(fl_frostline(&output, "run %s --out %s", fl_inside("c.yaml"), fl_inside("out")), 0);
    assert_non_null(strstr(output, "warning: train: 3 sequences of the 9 asked for"));
    assert_non_null(strstr(output, "warning: train: 4 sequences are drawn from 3: each is seen 1.33 times"));
    fl_memory_free(output);
    /* Kept: the run file remembers. */
    assert_int_equal(fl_frostline(&output, "run %s --out %s", fl_inside("c.yaml"), fl_inside("out")), 0);
    assert_non_null(strstr(output, "0 cells to measure, 1 kept"));
    assert_non_null(strstr(output, "warning: train: 4 sequences are drawn from 3"));
    fl_memory_free(output);
}

static void test_tasks_with_fewer_documents_than_the_limit(void **state) {
    (void)state;
    const char *model = fl_write_byte_model(__func__, fl_test_folder());
    fl_write_text(fl_inside("q.jsonl"), "%s",
                  "{\"question\": \"One?\", \"choices\": [\"a\", \"b\"], \"answer\": 0}\n"
                  "{\"question\": \"Two?\", \"choices\": [\"a\", \"b\"], \"answer\": 1}\n");
    for (int limit = 2; limit <= 3; limit++) {
        fl_write_text(fl_inside("c.yaml"),
                      "model: {path: %s}\nvariant: {rule: kda}\n"
                      "tasks: [{name: multiple_choice, path: %s, label: words, limit: %d}]\n",
                      model, fl_inside("q.jsonl"), limit);
        char *output = plan(0);
        assert_int_equal(strstr(output, "warning: task words: 2 documents, fewer than limit 3") != NULL,
                         limit == 3);
        fl_memory_free(output);
    }
}

static void test_mistakes_are_errors(void **state) {
    (void)state;
    const char *const none = "measure: {teacher_forced: false, propagated: false, diagnostics: false, "
                             "language_model: false}\n";
    write_config(__func__, "", none);
    char *output = plan(1);
    assert_non_null(strstr(output, "nothing would be measured"));
    fl_memory_free(output);
    write_config(
        __func__, "",
        "sweep: {grid: {variant.rule: [kda, gla]}, exclude: [{variant.rule: kda}, {variant.rule: delta}]}\n");
    output = plan(1);
    assert_non_null(strstr(output, "sweep.exclude: no cell is like this entry"));
    assert_non_null(strstr(output, "c.yaml:3:74:"));
    fl_memory_free(output);
    /* An override may have taken away what is excluded. */
    assert_int_equal(
        fl_frostline(NULL, "plan %s --out %s variant.window=4", fl_inside("c.yaml"), fl_inside("out")), 0);
}

static void test_run_file_table_and_report_say_it(void **state) {
    (void)state;
    char *output = NULL;
    write_config(__func__, ", sequences: 3",
                 "variant: {window: 4}\n"
                 "sweep: {grid: {variant.rule: [kda, delta], variant.short_conv: [null, {kernel: 4}]}}\n");
    assert_int_equal(fl_frostline(&output, "run %s --out %s", fl_inside("c.yaml"), fl_inside("out")), 0);
    const char *equal = strstr(output, "equal numbers: kda");
    assert_non_null(equal);
    assert_non_null(strstr(equal, "equal numbers: delta"));
    assert_non_null(strstr(output, "warning: text: 2 sequences of the 3 asked for"));
    assert_non_null(strstr(output, "warning: short_conv:"));
    fl_memory_free(output);
    assert_int_equal(fl_frostline(&output, "export %s --columns warnings", fl_inside("out")), 0);
    assert_string_equal(output, "warnings\n1\n2\n1\n2\n");
    fl_memory_free(output);
    fl_shell(&output, "for f in %s/*.h5; do h5dump -d /warnings $f; done", fl_inside("out"));
    assert_non_null(strstr(output, "2 sequences of the 3 asked for"));
    fl_memory_free(output);
    assert_int_equal(fl_frostline(NULL, "report %s --out %s", fl_inside("out"), fl_inside("r.html")), 0);
    output = fl_read_file(fl_inside("r.html"), &(size_t){0});
    assert_non_null(
        strstr(output, "<li>text: 2 sequences of the 3 asked for: there is no more text (all runs).</li>"));
    assert_non_null(strstr(output, "<li>Equal numbers: "));
    fl_memory_free(output);
}

static void test_a_text_comes_once_with_its_cells(void **state) {
    (void)state;
    char a[] = "a", b[] = "b";
    char *both[] = {a, b}, *one[] = {b};
    const fl_warned rows[] = {{"x", both, 2}, {"y", NULL, 0}, {"z", one, 1}};
    fl_warning_group *groups = NULL;
    size_t count = 0;
    assert_int_equal(fl_run_warnings_group(rows, 3, &groups, &count, &problem), FL_OK);
    assert_int_equal(count, 2);
    assert_string_equal(groups[0].text, "a");
    assert_int_equal(groups[0].count, 1);
    assert_int_equal(groups[1].count, 2);
    assert_int_equal(groups[1].cells[1], 2);
    fl_run_warnings_release(groups, count);
}

static void test_twins_have_all_figures_in_common(void **state) {
    (void)state;
    char nmse[] = "nmse", kl[] = "kl", off[] = "linear_off/kl", bytes[] = "state_bytes";
    fl_run_metric first[] = {{nmse, 0.5}, {kl, 1}, {off, 1}, {bytes, 8}},
                  same[] = {{nmse, 0.5}, {kl, 1}, {off, 2}, {bytes, 9}},
                  other[] = {{nmse, 0.5}, {kl, 1 + 1e-15}}, fewer[] = {{nmse, 0.5}},
                  undefined[] = {{nmse, NAN}, {kl, NAN}}, infinite[] = {{nmse, INFINITY}, {kl, 1}};
    fl_run_entry runs[] = {
        {.metrics = first, .metric_count = 4},     {.metrics = other, .metric_count = 2},
        {.metrics = same, .metric_count = 4},      {.metrics = fewer, .metric_count = 1},
        {.metrics = undefined, .metric_count = 2}, {.metrics = undefined, .metric_count = 2},
        {.metrics = infinite, .metric_count = 2},  {.metrics = infinite, .metric_count = 2}};
    const fl_run_entry *pointers[] = {&runs[0], &runs[1], &runs[2], NULL,    &runs[3],
                                      &runs[4], &runs[5], &runs[6], &runs[7]};
    static const size_t expected[] = {0, 1, 0, 3, 4, 5, 6, 7, 8};
    size_t twin_of[9];
    fl_run_twins_find(pointers, 9, twin_of);
    for (size_t i = 0; i < 9; i++) assert_int_equal(twin_of[i], expected[i]);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_texts_shorter_than_asked_for),
        IN_FOLDER(test_sequences_longer_than_the_models_context),
        IN_FOLDER(test_an_exact_set_that_covers_everything),
        IN_FOLDER(test_parts_that_change_nothing),
        IN_FOLDER(test_trainings),
        IN_FOLDER(test_tasks_with_fewer_documents_than_the_limit),
        IN_FOLDER(test_mistakes_are_errors),
        IN_FOLDER(test_run_file_table_and_report_say_it),
        cmocka_unit_test(test_a_text_comes_once_with_its_cells),
        cmocka_unit_test(test_twins_have_all_figures_in_common),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
