/* Pictures, from outside: which are drawn, their files, and the numbers beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "analysis/plots.h"
#include "analysis/run_scores.h"
#include "analysis/run_set.h"
#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"
#include "tests/support/svg_texts.h"
#include "tests/support/sweep_fixture.h"

enum { PATH_BYTES = 1024, COMMAND_BYTES = 4096 };

static int plot(char **output, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int plot(char **output, const char *format, ...) {
    char arguments[COMMAND_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    return fl_frostline(output, "plot %s", arguments);
}

static void need_gnuplot(const char *test) {
    if (fl_run_command("gnuplot --version", NULL) != 0) fl_fixture_skip(test, "gnuplot");
}

static void expect(int code, const char *arguments, const char *text) {
    char command[COMMAND_BYTES + 16];
    snprintf(command, sizeof command, "plot %s", arguments);
    fl_expect(code, command, text, NULL);
}

static void test_usage_errors_are_named(void **state) {
    (void)state;
    expect(2, "", "an argument is missing");
    expect(2, "x --format gif", "png, svg or pdf, not \"gif\"");
    expect(2, "x --kind layer", "did you mean layers?");
    expect(1, "/no/such/folder", "/no/such/folder");
    for (const fl_plot_kind *kind = fl_plot_kinds; kind->name != NULL; kind++)
        expect(0, "--list", kind->name);
}

static void test_every_kind_is_drawn_with_its_numbers_beside(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    need_gnuplot(__func__);
    static const char *const names[] = {"nmse_layers",       "nmse_positions",  "nmse_propagated",
                                        "kl_positions",      "heads",           "nmse_by_concentration",
                                        "nmse_by_residual",  "training_loss",   "training_evaluation",
                                        "scores_perplexity", "scores_words",    "scores_letters",
                                        "hybrid_perplexity", "bytes_perplexity"};
    char *output = NULL;
    int code = plot(&output, "%s --format svg --out %s", runs, fl_inside("plots"));
    if (code != 0) fail_msg("%s", output);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[PATH_BYTES];
        size_t bytes = 0;
        snprintf(path, sizeof path, "%s/plots/%s.svg", fl_test_folder(), names[i]);
        char *picture = fl_read_file(path, &bytes);
        if (bytes < 1000 || strstr(picture, "</svg>") == NULL) fail_msg("%s is no picture", path);
        if (strstr(picture, "href=\"data:") != NULL || strstr(picture, "<image") != NULL)
            fail_msg("%s points to other files", path);
        fl_memory_free(picture);
        snprintf(path, sizeof path, "%s/plots/%s.csv", fl_test_folder(), names[i]);
        fl_memory_free(fl_read_file(path, &bytes));
        assert_true(bytes > 20);
        if (strstr(output, names[i]) == NULL) fail_msg("%s is not listed", names[i]);
    }
    fl_memory_free(output);
}

static void test_pictures_come_in_three_formats(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    need_gnuplot(__func__);
    static const char *const signatures[][2] = {{"png", "\x89PNG"}, {"svg", "<?xml"}, {"pdf", "%PDF"}};
    for (size_t i = 0; i < 3; i++) {
        char name[32];
        assert_int_equal(
            plot(NULL, "%s --kind layers --format %s --out %s", runs, signatures[i][0], fl_inside("p")), 0);
        snprintf(name, sizeof name, "p/nmse_layers.%s", signatures[i][0]);
        char *picture = fl_read_file(fl_inside(name), NULL);
        assert_memory_equal(picture, signatures[i][1], 4);
        fl_memory_free(picture);
    }
}

static void test_the_same_runs_give_the_same_bytes(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    need_gnuplot(__func__);
    assert_int_equal(plot(NULL, "%s --format svg --out %s", runs, fl_inside("a")), 0);
    assert_int_equal(plot(NULL, "%s --format svg --out %s", runs, fl_inside("b")), 0);
    char command[COMMAND_BYTES], *output = NULL;
    snprintf(command, sizeof command, "diff -r %s %s", fl_inside("a"), fl_inside("b"));
    if (fl_run_command(command, &output) != 0) fail_msg("%s", output);
    fl_memory_free(output);
}

static void test_scores_carry_error_full_model_linear_off_and_chance(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    fl_run_set *set = NULL;
    fl_run_score *scores = NULL;
    size_t count = 0;
    assert_int_equal(fl_run_set_load(&runs, 1, &set, NULL), FL_OK);
    assert_int_equal(fl_run_scores_list(set, &scores, &count, NULL), FL_OK);
    assert_int_equal(count, 3);
    assert_string_equal(scores[0].value, "perplexity");
    assert_string_equal(scores[1].task, "letters");
    assert_string_equal(scores[2].title, "words, acc");
    assert_true(fl_run_scores_shared(set, scores[2].chance) == 0.25);
    assert_true(isfinite(fl_run_scores_shared(set, scores[2].full)));
    assert_true(isnan(fl_run_scores_shared(set, scores[0].value)));
    for (size_t i = 0; i < set->count; i++) {
        assert_true(fl_run_has_metric(&set->runs[i], scores[2].error));
        if (fl_run_has_linear_part(&set->runs[i]))
            assert_true(fl_run_has_metric(&set->runs[i], scores[2].linear_off));
    }
    fl_memory_free(scores);
    fl_run_set_destroy(set);
}

static void test_without_gnuplot_the_numbers_are_there_all_the_same(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    char command[COMMAND_BYTES], *output = NULL;
    snprintf(command, sizeof command, "PATH=/nowhere %s plot %s --kind layers --out %s", fl_program_path(),
             runs, fl_inside("p"));
    assert_int_equal(fl_run_command(command, &output), 1);
    assert_non_null(strstr(output, "gnuplot is not installed"));
    fl_memory_free(output);
    char *numbers = fl_read_file(fl_inside("p/nmse_layers.csv"), NULL);
    assert_int_equal(strncmp(numbers, "layer,softmax,none,gla,", 23), 0);
    fl_memory_free(numbers);
}

static void test_runs_without_numbers_are_told(void **state) {
    fl_sweep_fixture(__func__);
    (void)state;
    char arguments[COMMAND_BYTES];
    snprintf(arguments, sizeof arguments, "%s --kind training --out %s", fl_sweep_fixture_run("softmax"),
             fl_inside("p"));
    expect(1, arguments, "no run has /training/loss");
    snprintf(arguments, sizeof arguments, "%s --kind hybrid --out %s", fl_sweep_fixture_run("gla"),
             fl_inside("p"));
    expect(1, arguments, "softmax layers");
}

static void test_some_runs_in_panels_at_the_width_of_a_column(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    need_gnuplot(__func__);
    char *output = NULL;
    int code = plot(
        &output,
        "%s --kind nmse --format svg --filter 'rule=gla|kda and kda*' --facet exact_set --title 'It'\"'\"'s' "
        "--width single --out %s",
        runs, fl_inside("p"));
    if (code != 0) fail_msg("%s", output);
    fl_memory_free(output);
    const char *path = fl_inside("p/nmse.svg");
    fl_svg_text *texts = NULL;
    size_t count = 0;
    double width = 0, height = 0;
    fl_svg_texts_check(path);
    fl_svg_texts_read(path, &texts, &count, &width, &height);
    fl_memory_free(texts);
    assert_true(fabs(width - 84 / 25.4 * 96) <= 1);
    assert_true(fl_svg_texts_have(path, "It's"));
    char *numbers = fl_read_file(fl_inside("p/nmse_by_layer.csv"), NULL);
    assert_null(strstr(numbers, "softmax,"));
    assert_null(strstr(numbers, "gla"));
    assert_non_null(strstr(numbers, "kda"));
    fl_memory_free(numbers);
    fl_memory_free(fl_read_file(fl_inside("p/nmse_by_position.csv"), NULL));
    fl_memory_free(fl_read_file(fl_inside("p/nmse.gp"), NULL));
}

static void test_wrong_choices_are_named(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    static const char *const cases[][3] = {
        {"2", "--width 5", "--width is single, double or 40 to 1000 millimetres"},
        {"2", "--width wide", "not \"wide\""},
        {"1", "--filter ruel=kda", "filter: no run has a key \"ruel\""},
        {"1", "--filter 'mamba*'", "no run is left; labels are like"},
        {"1", "--kind layers --facet rulee", "did you mean rule?"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char arguments[COMMAND_BYTES];
        snprintf(arguments, sizeof arguments, "%s %s --out %s", runs, cases[i][1], fl_inside("p"));
        expect(cases[i][0][0] - '0', arguments, cases[i][2]);
    }
}

static void test_no_text_of_any_picture_is_clipped_or_written_over(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    need_gnuplot(__func__);
    static const char *const widths[] = {"single", "double"};
    for (size_t i = 0; i < 2; i++) {
        char *output = NULL, *rest = NULL;
        int code = plot(&output, "%s --format svg --width %s --out %s", runs, widths[i], fl_inside("p"));
        if (code != 0) fail_msg("%s", output);
        size_t pictures = 0;
        for (char *line = strtok_r(output, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
            fl_svg_texts_check(line);
            pictures++;
        }
        assert_true(pictures >= 14);
        fl_memory_free(output);
    }
}

static void test_a_picture_that_fails_is_no_failure_of_the_experiment(void **state) {
    fl_sweep_fixture(__func__);
    (void)state;
    char *output = NULL;
    const char *folder = fl_sweep_fixture_folder();
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command,
             "printf '#!/bin/sh\\necho broken; exit 3\\n' > %s && chmod +x %s && PATH=%s:$PATH %s run "
             "%s/sweep.yaml "
             "train.steps=1 tasks=[] --out %s",
             fl_inside("gnuplot"), fl_inside("gnuplot"), fl_test_folder(), fl_program_path(), folder,
             fl_inside("r"));
    int code = fl_run_command(command, &output);
    if (code != 0 || strstr(output, "no picture: gnuplot failed") == NULL) fail_msg("%d: %s", code, output);
    fl_memory_free(output);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_usage_errors_are_named),
        TEST(test_every_kind_is_drawn_with_its_numbers_beside),
        TEST(test_pictures_come_in_three_formats),
        TEST(test_the_same_runs_give_the_same_bytes),
        TEST(test_scores_carry_error_full_model_linear_off_and_chance),
        TEST(test_without_gnuplot_the_numbers_are_there_all_the_same),
        TEST(test_runs_without_numbers_are_told),
        TEST(test_some_runs_in_panels_at_the_width_of_a_column),
        TEST(test_wrong_choices_are_named),
        TEST(test_no_text_of_any_picture_is_clipped_or_written_over),
        TEST(test_a_picture_that_fails_is_no_failure_of_the_experiment),
    };
    return cmocka_run_group_tests(tests, NULL, fl_sweep_fixture_remove);
}
