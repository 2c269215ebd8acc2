/* The report page: what it says, that it stands alone, and how a browser shows it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "analysis/equal_bytes.h"
#include "analysis/html.h"
#include "analysis/report_certainty.h"
#include "analysis/run_axes.h"
#include "analysis/run_label.h"
#include "analysis/report_tables.h"
#include "analysis/report_warnings.h"
#include "analysis/run_set.h"
#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"
#include "tests/support/sweep_fixture.h"

enum { PATH_BYTES = 1024, COMMAND_BYTES = 8192 };

/* The page of the fixture's sweep; must be freed. */
static char *make_page(const char *test, const char *environment) {
    const char *runs = fl_sweep_fixture(test);
    char command[COMMAND_BYTES], *output = NULL;
    snprintf(command, sizeof command, "%s %s report %s --out %s", environment, fl_program_path(), runs,
             fl_inside("report.html"));
    int code = fl_run_command(command, &output);
    if (code != 0) fail_msg("%s", output);
    fl_memory_free(output);
    return fl_read_file(fl_inside("report.html"), NULL);
}

static void assert_says(const char *page, const char *text) {
    if (strstr(page, text) == NULL) fail_msg("the page does not say \"%s\"", text);
}

static void test_the_page_has_question_tables_warnings_figures_and_provenance(void **state) {
    (void)state;
    char *page = make_page(__func__, "");
    static const char *const texts[] = {"<h1>tiny</h1>",
                                        "variant.softmax_layers",
                                        "Read this first",
                                        "perplexity, linear off",
                                        "perplexity, full model",
                                        "Which variant is best at equal bytes?",
                                        "Is the linear part worth having?",
                                        "cannot be told",
                                        "fewer than 5 different sequences",
                                        "download=\"runs.csv\" href=\"data:text/csv;charset=utf-8,",
                                        "id=\"definitions\"",
                                        "acc minus linear off",
                                        "McNemar p",
                                        "&plusmn;",
                                        "within two standard errors of chance",
                                        "weights_hash_before",
                                        "code_revision",
                                        "<svg"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bool needs_gnuplot = strcmp(texts[i], "<svg") == 0 && fl_run_command("gnuplot --version", NULL) != 0;
        if (!needs_gnuplot) assert_says(page, texts[i]);
    }
    fl_memory_free(page);
}

static void test_the_page_points_to_nothing_outside_itself(void **state) {
    (void)state;
    char *page = make_page(__func__, "");
    static const char *const outside[] = {"src=",        "fetch(", "@import", "url(http",
                                          "href=\"http", "<image", "<?xml"};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        if (strstr(page, outside[i]) != NULL) fail_msg("the page holds %s", outside[i]);
    }
    fl_memory_free(page);
}

static void test_without_gnuplot_the_page_says_so(void **state) {
    (void)state;
    char *page = make_page(__func__, "PATH=/nowhere");
    assert_says(page, "gnuplot is not installed");
    assert_says(page, "McNemar p");
    fl_memory_free(page);
}

static void test_the_same_runs_give_the_same_page(void **state) {
    (void)state;
    char *first = make_page(__func__, ""), *second = make_page(__func__, "");
    assert_string_equal(first, second);
    fl_memory_free(first);
    fl_memory_free(second);
}

/* A run with the given figures, in memory only. */
static fl_run_metric metrics[32];
static size_t metric_count;

static void add(const char *name, double value) {
    metrics[metric_count++] = (fl_run_metric){(char *)(uintptr_t)name, value};
}

static char *warnings_of(const char *rule, bool diverged, size_t failed) {
    static char id[] = "0123abc", cause[] = "out of <memory>", file[] = "runs/9.h5",
                damage[] = "not an HDF5 file";
    fl_absent_run absent[] = {{FL_ABSENT_FAILED, id, cause}, {FL_ABSENT_UNREADABLE, file, damage}};
    static char key[] = "variant.rule", label[] = "kda <8 + 56>", task[] = "mmlu", path[] = "x.h5",
                empty[] = "";
    static char said[] = "said by the run file <i>";
    char *warnings[] = {said};
    char *keys[] = {key}, *values[] = {(char *)(uintptr_t)rule}, *tasks[] = {task};
    fl_run_entry run = {.path = path,
                        .run_id = empty,
                        .name = empty,
                        .cell = empty,
                        .status = empty,
                        .tier = empty,
                        .label = label,
                        .diverged = diverged,
                        .warning_count = diverged ? 1 : 0,
                        .warnings = warnings,
                        .key_count = 1,
                        .keys = keys,
                        .values = values,
                        .metric_count = metric_count,
                        .metrics = metrics,
                        .task_count = 1,
                        .tasks = tasks};
    fl_run_set set = {.count = 1, .runs = &run, .absent = {.count = failed, .items = absent}};
    FILE *stream = fopen(fl_inside("warnings.html"), "wb");
    assert_int_equal(fl_report_warnings_write(&set, stream, NULL), FL_OK);
    fclose(stream);
    metric_count = 0;
    return fl_read_file(fl_inside("warnings.html"), NULL);
}

/* Files of before /sweep: the axes are what differs, a mapping as a whole. */
static void test_runs_that_recorded_no_axes_are_named_by_what_differs(void **state) {
    (void)state;
    static const char *const keys[] = {"variant.cache.budget", "variant.cache.route", "variant.rule",
                                       "variant.short_conv.init", "variant.short_conv.kernel"};
    static const char *const values[3][5] = {{"32", "recency", "kda", "identity", "4"},
                                             {"32", "random", "kda", "identity", "8"},
                                             {"0", "recency", "kda", "null", "null"}};
    static const char *const expected[] = {"cache 32 recency, conv 4", "cache 32 random, conv 8",
                                           "no cache, no conv"};
    static char empty[] = "";
    fl_run_entry runs[3];
    for (size_t i = 0; i < 3; i++) {
        runs[i] = (fl_run_entry){.path = empty,
                                 .run_id = empty,
                                 .name = empty,
                                 .cell = empty,
                                 .key_count = 5,
                                 .keys = (char **)(uintptr_t)keys,
                                 .values = (char **)(uintptr_t)values[i]};
        if (i == 2) runs[i].key_count = 3; /* no convolution */
    }
    fl_run_set set = {.count = 3, .runs = runs};
    assert_int_equal(fl_run_axes_find(&set, NULL), FL_OK);
    assert_int_equal(set.axis_count, 2);
    assert_string_equal(set.axes[0], "variant.cache");
    assert_string_equal(set.axes[1], "variant.short_conv");
    assert_int_equal(fl_run_label_all(&set, NULL), FL_OK);
    assert_string_equal(runs[0].label, expected[2]);
    for (size_t i = 0; i < 3; i++) {
        size_t found = 0;
        for (size_t j = 0; j < 3; j++) found += strcmp(runs[j].label, expected[i]) == 0;
        if (found != 1) fail_msg("no run is called \"%s\" but %s", expected[i], runs[i].label);
    }
    for (size_t i = 0; i < 3; i++) {
        fl_memory_free(runs[i].label);
        fl_cell_axes_release(&runs[i].axes);
    }
    fl_memory_free(set.axes);
}

static void test_every_warning_appears_when_it_should(void **state) {
    (void)state;
    add("nmse", 0.1), add("linear_off/nmse", 0.2);
    add("perplexity", 30), add("linear_off/perplexity", 20);
    add("linear_share", 0);
    add("tasks/mmlu/acc", 0.26), add("tasks/mmlu/acc_stderr", 0.01), add("tasks/mmlu/chance", 0.25);
    add("tasks/mmlu/n", 100), add("tasks/mmlu/truncated", 3), add("tasks/mmlu/linear_share", 0);
    add("linear_off/tasks/mmlu/difference", -0.02), add("linear_off/tasks/mmlu/difference_stderr", 0.01);
    char *text = warnings_of("kda", true, 2);
    static const char *const findings[] = {"1 failed, in no table",
                                           "<code>0123abc</code>: out of &lt;memory&gt;",
                                           "<code>runs/9.h5</code>: not an HDF5 file",
                                           "said by the run file &lt;i&gt; (all runs)",
                                           "Diverged",
                                           "was not tested: kda",
                                           "No gain",
                                           "disagree",
                                           "30, without it 20",
                                           "lower nMSE, higher",
                                           "3 of 100 items",
                                           "standard errors of chance",
                                           "&minus;0.02 &plusmn;",
                                           "kda &lt;8 + 56&gt;"};
    for (size_t i = 0; i < sizeof findings / sizeof findings[0]; i++) assert_says(text, findings[i]);
    fl_memory_free(text);
}

static void test_a_run_without_fault_gives_no_warning(void **state) {
    (void)state;
    add("nmse", 0.1), add("linear_off/nmse", 0.2);
    add("perplexity", 20), add("linear_off/perplexity", 30);
    add("linear_share", 0.9);
    add("tasks/mmlu/acc", 0.5), add("tasks/mmlu/acc_stderr", 0.01), add("tasks/mmlu/chance", 0.25);
    add("tasks/mmlu/n", 100), add("tasks/mmlu/truncated", 0), add("tasks/mmlu/linear_share", 0.8);
    add("linear_off/tasks/mmlu/difference", 0.02);
    char *text = warnings_of("kda", false, 0);
    assert_string_equal(text, "");
    fl_memory_free(text);
}

static void test_baselines_are_not_warned_about(void **state) {
    (void)state;
    add("perplexity", 20), add("linear_off/perplexity", 20), add("linear_share", 0);
    char *text = warnings_of("none", false, 0);
    assert_string_equal(text, "");
    fl_memory_free(text);
}

static void test_paired_differences_are_the_run_minus_its_baseline(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    fl_run_set *set = NULL;
    assert_int_equal(fl_run_set_load(&runs, 1, &set, NULL), FL_OK);
    for (size_t i = 0; i < set->count; i++) {
        double own = fl_run_metric_value(&set->runs[i], "tasks/words/acc");
        double full = fl_run_metric_value(&set->runs[i], "full/tasks/words/acc");
        assert_true(fabs(fl_run_metric_value(&set->runs[i], "full/tasks/words/difference") - (own - full)) <
                    1e-12);
    }
    fl_run_set_destroy(set);
}

static void test_numbers_are_short_and_text_is_escaped(void **state) {
    (void)state;
    char text[FL_HTML_NUMBER_BYTES];
    assert_string_equal(fl_html_number(0.08794, text), "0.08794");
    assert_string_equal(fl_html_number(-2.98e6, text), "&minus;2.98&times;10<sup>6</sup>");
    assert_string_equal(fl_html_number(24207.09, text), "24207");
    assert_string_equal(fl_html_number(INFINITY, text), "&infin;");
    assert_string_equal(fl_html_number((double)NAN, text), "&ndash;");
    FILE *stream = fopen(fl_inside("t"), "wb");
    fl_html_text(stream, "<a href=\"x\" b='y'>&\x01");
    fclose(stream);
    char *written = fl_read_file(fl_inside("t"), NULL);
    assert_string_equal(written, "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;\xEF\xBF\xBD");
    fl_memory_free(written);
}

/* 100 bytes: a is best. 101 is the same budget, and b in it worse. Of 200, d is best and a is second; c
 * diverged. */
static void test_best_at_equal_bytes_counts_all_that_hold_no_more(void **state) {
    (void)state;
    const fl_contender contenders[] = {{.group = 0, .score = 20, .bytes = 100},
                                       {.group = 1, .score = 21, .bytes = 101},
                                       {.group = 2, .score = (double)NAN, .bytes = 200},
                                       {.group = 3, .score = 19, .bytes = 200},
                                       {.group = 4, .score = 1, .bytes = (double)NAN}};
    fl_budget *budgets = NULL;
    size_t count = 0;
    assert_int_equal(fl_budgets_find(contenders, 5, false, &budgets, &count, NULL), FL_OK);
    assert_int_equal(count, 2);
    assert_true(budgets[0].bytes == 101 && budgets[0].runs == 2 && budgets[0].best == 0 &&
                budgets[0].next == 1);
    assert_true(budgets[1].bytes == 200 && budgets[1].runs == 2 && budgets[1].best == 3 &&
                budgets[1].next == 0);
    fl_memory_free(budgets);
    assert_int_equal(fl_budgets_find(contenders, 5, true, &budgets, &count, NULL), FL_OK);
    assert_true(budgets[1].best == 1 && budgets[1].next == 0);
    fl_memory_free(budgets);
    assert_int_equal(fl_budgets_find(&contenders[2], 1, true, &budgets, &count, NULL), FL_OK);
    assert_true(count == 1 && budgets[0].best == FL_NO_CONTENDER && budgets[0].next == FL_NO_CONTENDER);
    fl_memory_free(budgets);
}

static void test_a_difference_is_told_only_when_its_interval_leaves_zero_out(void **state) {
    (void)state;
    const fl_interval below = {.low = -3, .high = -1, .level = 0.95, .p = 0.01, .known = true};
    const fl_interval above = {.low = 1, .high = 3, .level = 0.95, .p = (double)NAN, .known = true};
    const fl_interval across = {.low = -1, .high = 3, .level = 0.95, .p = 0.4, .known = true};
    const fl_interval discordant = {.low = 0.01, .high = 3, .level = 0.95, .p = 0.06, .known = true};
    const fl_interval none = {.low = 1, .high = 3, .level = 0.95, .p = 0.01, .known = false};
    assert_int_equal(fl_interval_verdict(&below), FL_BELOW_ZERO);
    assert_int_equal(fl_interval_verdict(&above), FL_ABOVE_ZERO);
    assert_int_equal(fl_interval_verdict(&across), FL_CANNOT_BE_TOLD);
    assert_int_equal(fl_interval_verdict(&discordant), FL_CANNOT_BE_TOLD);
    assert_int_equal(fl_interval_verdict(&none), FL_CANNOT_BE_TOLD);
}

static void assert_with_error(double value, double error, const char *expected) {
    FILE *stream = fopen(fl_inside("e"), "wb");
    fl_html_with_error(stream, value, error);
    fclose(stream);
    char *written = fl_read_file(fl_inside("e"), NULL);
    assert_string_equal(written, expected);
    fl_memory_free(written);
}

static void test_values_have_the_digits_that_their_error_leaves(void **state) {
    (void)state;
    assert_with_error(516.3471, 4.758, "516.3 &plusmn; 4.8");
    assert_with_error(-0.02, 0.0104, "&minus;0.020 &plusmn; 0.010");
    assert_with_error(1657.2, 86.1, "1657 &plusmn; 86");
    assert_with_error(492.1, 6.9e-14, "492.1");
    assert_with_error(36.221, (double)NAN, "36.22");
    assert_with_error(2.98e6, 1e4, "2.98&times;10<sup>6</sup> &plusmn; 10000");
    assert_with_error((double)NAN, 1, "&ndash;");
}

static void test_a_download_holds_the_bytes_of_the_numbers(void **state) {
    (void)state;
    static const char csv[] = "a,\"b%\"\n1,2#&<>\n";
    FILE *stream = fopen(fl_inside("d"), "wb");
    fl_html_download(stream, "n.csv", csv, sizeof csv - 1);
    fclose(stream);
    char *written = fl_read_file(fl_inside("d"), NULL);
    assert_says(written,
                "download=\"n.csv\" href=\"data:text/csv;charset=utf-8,a,%22b%25%22%0A1,2%23%26%3C%3E%0A\"");
    fl_memory_free(written);
}

/* A sweep of which nothing is finite has a page, and it says so. */
static void test_a_sweep_of_diverged_runs_has_a_page(void **state) {
    static const char spoil[] =
        "import glob, h5py, sys\n"
        "for path in glob.glob(sys.argv[1] + \"/*.h5\"):\n"
        "    with h5py.File(path, \"r+\") as run:\n"
        "        run.attrs[\"diverged\"] = 1\n"
        "        def lose(name, data):\n"
        "            if isinstance(data, h5py.Dataset) and data.dtype.kind == \"f\":\n"
        "                data[...] = float(\"nan\")\n"
        "        run.visititems(lose)\n";
    (void)state;
    const char *python = fl_python_with(__func__, "h5py");
    char *output = NULL;
    fl_shell(NULL, "cp -r %s %s", fl_sweep_fixture(__func__), fl_inside("lost"));
    fl_write_file(fl_inside("spoil.py"), spoil, sizeof spoil - 1);
    if (fl_shell(&output, "%s %s %s", python, fl_inside("spoil.py"), fl_inside("lost")) != 0)
        fail_msg("%s", output);
    fl_memory_free(output);
    if (fl_frostline(&output, "report %s --out %s", fl_inside("lost"), fl_inside("lost.html")) != 0)
        fail_msg("%s", output);
    char *page = fl_read_file(fl_inside("lost.html"), NULL);
    assert_says(page, "no variant has a finite perplexity");
    assert_says(page, "Diverged (figures that are not finite are the result)");
    assert_says(page, "<span class=\"tag\">diverged</span>");
    fl_memory_free(page);
    fl_memory_free(output);
}

static void test_an_unreadable_run_file_is_named_and_left_out(void **state) {
    char *output = NULL;
    (void)state;
    fl_shell(NULL, "cp -r %s %s", fl_sweep_fixture(__func__), fl_inside("copy"));
    fl_write_text(fl_inside("copy/0000deadbeef.h5"), "not an HDF5 file");
    if (fl_frostline(&output, "report %s --out %s", fl_inside("copy"), fl_inside("copy.html")) != 3)
        fail_msg("%s", output);
    assert_says(output, "left out: ");
    char *page = fl_read_file(fl_inside("copy.html"), NULL);
    assert_says(page, "1 left out: the run file cannot be read");
    assert_says(page, "0000deadbeef.h5");
    assert_says(page, "McNemar p");
    fl_memory_free(page);
    fl_memory_free(output);
}

/* Loads the page in a frame of a phone's width and lets it tell how wide it is. */
static void test_a_browser_shows_it_on_a_phone_without_errors_or_overflow(void **state) {
    (void)state;
    if (fl_run_command("chromium --version", NULL) != 0) fl_fixture_skip(__func__, "chromium");
    char *page = make_page(__func__, ""), command[COMMAND_BYTES], *output = NULL;
    static const char probe[] = "<script>onload = () => parent.postMessage("
                                "document.documentElement.scrollWidth + ' of ' + innerWidth, '*')</script>";
    static const char frame[] =
        "<!doctype html><html><body><iframe src=\"probed.html\" width=\"390\" height=\"800\" "
        "style=\"border:0\"></iframe><p id=\"said\"></p><script>addEventListener('message', e => "
        "document.getElementById('said').textContent = 'width ' + e.data)</script></body></html>";
    char *probed = NULL;
    assert_int_equal(FL_ALLOCATE(&probed, strlen(page) + sizeof probe, NULL), FL_OK);
    snprintf(probed, strlen(page) + sizeof probe, "%s%s", page, probe);
    fl_write_file(fl_inside("probed.html"), probed, strlen(probed));
    fl_write_file(fl_inside("frame.html"), frame, strlen(frame));
    snprintf(command, sizeof command,
             "timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir=%s "
             "--enable-logging=stderr "
             "--virtual-time-budget=10000 --dump-dom file://%s",
             fl_inside("profile"), fl_inside("frame.html"));
    fl_run_command(command, &output);
    if (strstr(output, "CONSOLE") != NULL) fail_msg("the page wrote to the console:\n%s", output);
    const char *said = strstr(output, "<p id=\"said\">width ");
    if (said == NULL) fail_msg("the page did not load:\n%s", output);
    long wide = 0, room = 0;
    assert_int_equal(sscanf(said, "<p id=\"said\">width %ld of %ld", &wide, &room), 2);
    assert_int_equal(room, 390);
    if (wide > room) fail_msg("the page is %ld pixels wide on a screen of %ld", wide, room);
    fl_memory_free(output);
    fl_memory_free(probed);
    fl_memory_free(page);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_the_page_has_question_tables_warnings_figures_and_provenance),
        TEST(test_the_page_points_to_nothing_outside_itself),
        TEST(test_without_gnuplot_the_page_says_so),
        TEST(test_the_same_runs_give_the_same_page),
        TEST(test_runs_that_recorded_no_axes_are_named_by_what_differs),
        TEST(test_every_warning_appears_when_it_should),
        TEST(test_a_run_without_fault_gives_no_warning),
        TEST(test_baselines_are_not_warned_about),
        TEST(test_paired_differences_are_the_run_minus_its_baseline),
        TEST(test_numbers_are_short_and_text_is_escaped),
        TEST(test_best_at_equal_bytes_counts_all_that_hold_no_more),
        TEST(test_a_difference_is_told_only_when_its_interval_leaves_zero_out),
        TEST(test_values_have_the_digits_that_their_error_leaves),
        TEST(test_a_download_holds_the_bytes_of_the_numbers),
        TEST(test_a_sweep_of_diverged_runs_has_a_page),
        TEST(test_an_unreadable_run_file_is_named_and_left_out),
        TEST(test_a_browser_shows_it_on_a_phone_without_errors_or_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, fl_sweep_fixture_remove);
}
