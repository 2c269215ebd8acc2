/* Tables of run files, from outside: formats, shapes, bytes. */
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

#include "analysis/run_columns.h"
#include "analysis/run_groups.h"
#include "analysis/run_set.h"
#include "analysis/run_tables.h"
#include "analysis/table.h"
#include "harness/base/memory.h"
#include "harness/store/run_file.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"
#include "tests/support/sweep_fixture.h"

enum { PATH_BYTES = 1024, COMMAND_BYTES = 8192 };

/* Runs "frostline export <arguments>"; *output must be freed. */
static int export(char **output, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int export(char **output, const char *format, ...) {
    char arguments[COMMAND_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    return fl_frostline(output, "export %s", arguments);
}

static size_t count_lines(const char *text) {
    size_t lines = 0;
    for (; *text != '\0'; text++) lines += *text == '\n';
    return lines;
}

static void expect(int code, const char *arguments, const char *text) {
    char command[COMMAND_BYTES + 16];
    snprintf(command, sizeof command, "export %s", arguments);
    fl_expect(code, command, text, NULL);
}

static void test_usage_errors_are_named(void **state) {
    (void)state;
    expect(2, "", "an argument is missing");
    expect(2, "x --format xls", "csv, json, markdown or latex, not \"xls\"");
    expect(2, "x --summary --by layer", "give one of");
    expect(2, "x --by layer --columns nmse", "--columns is of the table with one row a run");
    expect(1, "/no/such/folder", "/no/such/folder");
    expect(1, fl_test_folder(), "no run files");
}

static void test_long_form_has_one_row_a_run_layer_and_position(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    char *output = NULL;
    assert_int_equal(export(&output, "%s", runs), 0);
    assert_int_equal(count_lines(output), 1 + 5 * 3 * 40);
    char header[512];
    snprintf(header, sizeof header, "%.*s", (int)strcspn(output, "\n"), output);
    assert_non_null(strstr(header, "run_id,label,name,tier,status,rule,window,sinks,"));
    assert_non_null(strstr(header, "variant.softmax_layers"));
    assert_non_null(strstr(header, "layer,position,"));
    assert_non_null(strstr(header, "errors/teacher_forced/position_nmse"));
    assert_null(strstr(header, "text.ids"));
    assert_null(strstr(header, "baseline"));
    fl_memory_free(output);
    assert_int_equal(export(&output, "%s --by layer,head", runs), 0);
    assert_int_equal(count_lines(output), 1 + 5 * 3 * 4);
    fl_memory_free(output);
    assert_int_equal(export(&output, "%s errors/teacher_forced/nmse", runs), 0);
    assert_int_equal(count_lines(output), 1 + 5 * 3);
    fl_memory_free(output);
    assert_int_equal(export(&output, "%s tasks/words/items/subject tasks/words/items/correct", runs), 0);
    assert_int_equal(count_lines(output), 1 + 5 * 8);
    assert_non_null(strstr(output, ",even\n"));
    fl_memory_free(output);
}

static void test_bins_edges_and_quantiles_have_their_own_lengths(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    char *output = NULL;
    assert_int_equal(export(&output, "%s diagnostics/trends/key_concentration/nmse", runs), 0);
    assert_int_equal(count_lines(output), 1 + 5 * 3 * 16);
    fl_memory_free(output);
    assert_int_equal(export(&output, "%s diagnostics/trends/projection_residual/edges", runs), 0);
    assert_int_equal(count_lines(output), 1 + 5 * 3 * 17);
    fl_memory_free(output);
    assert_int_equal(export(&output, "%s diagnostics/gates/gate_quantiles", fl_sweep_fixture_run("gla")), 0);
    assert_int_equal(count_lines(output), 1 + 3 * 4 * 7);
    fl_memory_free(output);
}

static void test_exported_numbers_are_those_of_the_run_file(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    fl_run_set *set = NULL;
    fl_table table;
    const char *wanted[] = {"errors/teacher_forced/nmse"};
    assert_int_equal(fl_run_set_load(&runs, 1, &set, NULL), FL_OK);
    assert_int_equal(set->count, 5);
    assert_string_equal(fl_run_entry_value(&set->runs[0], "variant.rule"), "softmax");
    assert_string_equal(fl_run_entry_value(&set->runs[1], "variant.rule"), "none");
    assert_int_equal(fl_run_tables_long(set, wanted, 1, &table, NULL), FL_OK);
    size_t row = 0;
    for (size_t r = 0; r < set->count; r++) {
        fl_run_reader *reader = NULL;
        double *data = NULL;
        size_t rank = 0, shape[4];
        assert_int_equal(fl_run_reader_open(set->runs[r].path, &reader, NULL), FL_OK);
        assert_int_equal(
            fl_run_reader_doubles(reader, "/errors/teacher_forced/nmse", &data, &rank, shape, NULL), FL_OK);
        for (size_t i = 0; i < shape[0]; i++, row++)
            assert_true(table.columns[table.column_count - 1].numbers[row] == data[i]);
        fl_memory_free(data);
        fl_run_reader_close(reader);
    }
    assert_int_equal(row, table.rows);
    fl_table_release(&table);
    fl_run_set_destroy(set);
}

static void test_summary_has_every_metric_and_its_baselines(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    char *output = NULL;
    assert_int_equal(export(&output, "%s --summary", runs), 0);
    assert_int_equal(count_lines(output), 1 + 5);
    static const char *const columns[] = {"perplexity",
                                          "full_perplexity",
                                          "linear_off/perplexity",
                                          "tasks/words/acc",
                                          "tasks/words/acc_stderr",
                                          "full/tasks/words/acc",
                                          "linear_share",
                                          "linear_off/tasks/words/difference_stderr"};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        if (strstr(output, columns[i]) == NULL) fail_msg("no column %s", columns[i]);
    }
    fl_memory_free(output);
}

static void test_latex_summary_is_a_page_wide_with_errors_beside_the_scores(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    char *output = NULL;
    assert_int_equal(export(&output, "%s --summary --format latex", runs), 0);
    static const char *const texts[] = {
        "% Errors: ",
        "\\toprule",
        "run & tier & nMSE & nMSE, linear off & ppl & ppl, linear off & ppl, full "
        "& KL (nat) & agree (\\%) & state (KiB)",
        "words, acc",
        "0.12 $\\pm$ 0.12",
        "kda, softmax layers 1"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strstr(output, texts[i]) == NULL) fail_msg("no %s in:\n%s", texts[i], output);
    }
    assert_null(strstr(output, "run\\_id"));
    assert_null(strstr(output, "\xC2\xB1"));
    fl_memory_free(output);
}

static void test_columns_are_chosen_by_name(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    char *output = NULL;
    assert_int_equal(
        export(&output, "%s --columns label,rule,train.steps,tasks/words/acc --format markdown", runs), 0);
    assert_non_null(
        strstr(output, "| run | rule | train.steps | tasks/words/acc |\n| --- | --- | --- | ---: |\n"));
    assert_non_null(strstr(output, "| softmax | softmax | 6 | 0.12 \xC2\xB1 0.12 |\n"));
    fl_memory_free(output);
    assert_int_equal(export(&output, "%s --columns label,perplexity --format csv", runs), 0);
    assert_int_equal(strncmp(output, "label,perplexity\nsoftmax,554.2", 29), 0);
    fl_memory_free(output);
    char arguments[COMMAND_BYTES];
    snprintf(arguments, sizeof arguments, "%s --columns label,perplexty", runs);
    expect(1, arguments, "no run has a column 'perplexty'; did you mean 'perplexity'?");
    snprintf(arguments, sizeof arguments, "%s --columns label,,nmse", runs);
    expect(1, arguments, "--columns: an empty name");
}

static void test_items_are_one_row_each(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    char *output = NULL;
    assert_int_equal(export(&output, "%s tasks/words/items", runs), 0);
    assert_int_equal(count_lines(output), 1 + 5 * 8);
    static const char *const columns[] = {"document", "subject", "gold", "prediction", "correct"};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        char name[PATH_BYTES];
        snprintf(name, sizeof name, ",tasks/words/items/%s", columns[i]);
        if (strstr(output, name) == NULL) fail_msg("no %s in %.600s", name, output);
    }
    fl_memory_free(output);
}

static void test_every_format_gives_the_same_bytes_twice(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    static const char *const formats[] = {"csv", "json", "markdown", "latex"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        size_t bytes[2];
        char *data[2];
        for (int turn = 0; turn < 2; turn++) {
            assert_int_equal(
                export(NULL, "%s --by layer --format %s --out %s", runs, formats[i], fl_inside("table")), 0);
            data[turn] = fl_read_file(fl_inside("table"), &bytes[turn]);
        }
        assert_int_equal(bytes[0], bytes[1]);
        assert_memory_equal(data[0], data[1], bytes[0]);
        fl_memory_free(data[0]);
        fl_memory_free(data[1]);
    }
}

static void test_datasets_with_different_axes_are_refused(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    char arguments[COMMAND_BYTES];
    snprintf(arguments, sizeof arguments,
             "%s errors/teacher_forced/nmse errors/teacher_forced/position_count", runs);
    expect(1, arguments, "has the axes (position), others (layer)");
    snprintf(arguments, sizeof arguments, "%s errors/no_such", runs);
    expect(1, arguments, "there is no errors/no_such");
    snprintf(arguments, sizeof arguments, "%s --by colour", runs);
    expect(1, arguments, "no dataset has the axes colour");
}

/* A table with everything that is awkward. */
static void make_awkward(fl_table *table) {
    size_t text = 0, number = 0;
    *table = (fl_table){.rows = 4};
    assert_int_equal(fl_table_add(table, "a,b", "", true, &text, NULL), FL_OK);
    assert_int_equal(fl_table_add(table, "x", "nat", false, &number, NULL), FL_OK);
    fl_table_set_text(table, 0, text, "say \"hi\"");
    fl_table_set_text(table, 1, text, "\xC3\xA9 & 5% of_it");
    fl_table_set_text(table, 3, text, "bad \xFF byte");
    fl_table_set_number(table, 0, number, (double)NAN);
    fl_table_set_number(table, 1, number, -INFINITY);
    fl_table_set_number(table, 2, number, 0.1);
}

static void written(void (*write)(const fl_table *table, FILE *stream), const char *expected) {
    fl_table table;
    make_awkward(&table);
    FILE *stream = fopen(fl_inside("written"), "wb");
    write(&table, stream);
    fclose(stream);
    char *text = fl_read_file(fl_inside("written"), NULL);
    assert_string_equal(text, expected);
    fl_memory_free(text);
    fl_table_release(&table);
}

static void write_text(const fl_table *table, FILE *stream) {
    assert_int_equal(fl_table_write_text(table, stream, 0, &(size_t){0}, NULL), FL_OK);
}

static void test_awkward_values_survive_in_every_text_format(void **state) {
    (void)state;
    written(fl_table_write_csv,
            "\"a,b\",x\n\"say \"\"hi\"\"\",nan\n\xC3\xA9 & 5% of_it,-inf\n,0.1\nbad \xFF byte,\n");
    written(fl_table_write_json,
            "[\n {\"a,b\": \"say \\\"hi\\\"\", \"x\": null},\n"
            " {\"a,b\": \"\xC3\xA9 & 5% of_it\", \"x\": -1e999},\n"
            " {\"a,b\": null, \"x\": 0.1},\n {\"a,b\": \"bad \\ufffd byte\", \"x\": null}\n]\n");
    written(fl_table_write_latex,
            "\\begin{tabular}{lr}\n\\toprule\na,b & x (nat) \\\\\n\\midrule\nsay \"hi\" & nan \\\\\n"
            "\xC3\xA9 \\& 5\\% of\\_it & $-\\infty$ \\\\\n-- & 0.1 \\\\\nbad \xFF byte & -- \\\\\n"
            "\\bottomrule\n\\end{tabular}\n");
    written(fl_table_write_markdown,
            "| a,b | x (nat) |\n| --- | ---: |\n| say \"hi\" | nan |\n| \xC3\xA9 & 5% of\\_it | -inf |\n"
            "| - | 0.1 |\n| bad \xFF byte | - |\n");
    written(write_text,
            "a,b              x\n               nat\nsay \"hi\"       nan\n\xC3\xA9 & 5% of_it  -inf\n"
            "-              0.1\nbad \xFF byte       -\n");
}

/* A number is rounded to two digits of its error. */
static void test_digits_follow_the_error(void **state) {
    static const struct {
        double number, error;
        const char *latex;
    } rows[] = {{0.58912, 0.01234, "0.589 $\\pm$ 0.012"},
                {1234.5, 30, "1234 $\\pm$ 30"},
                {-0.5, 0.25, "$-0.50$ $\\pm$ 0.25"},
                {2.984e-6, 0, "$2.98 \\times 10^{-6}$"},
                {562.31, 9.97, "562 $\\pm$ 10"},
                {20, NAN, "20"},
                {INFINITY, 1, "$\\infty$"}};
    enum { ROWS = sizeof rows / sizeof rows[0] };
    fl_table table = {.rows = ROWS};
    size_t column = 0;
    (void)state;
    assert_int_equal(fl_table_add(&table, "x", "", false, &column, NULL), FL_OK);
    for (size_t i = 0; i < ROWS; i++)
        assert_int_equal(fl_table_set_measured(&table, i, column, rows[i].number, rows[i].error, NULL),
                         FL_OK);
    FILE *stream = fopen(fl_inside("written"), "wb");
    fl_table_write_latex(&table, stream);
    fclose(stream);
    char *text = fl_read_file(fl_inside("written"), NULL);
    for (size_t i = 0; i < ROWS; i++) {
        char line[PATH_BYTES];
        snprintf(line, sizeof line, "\n%s \\\\\n", rows[i].latex);
        if (strstr(text, line) == NULL) fail_msg("no %s in:\n%s", line, text);
    }
    fl_memory_free(text);
    fl_table_release(&table);
}

static void test_rows_are_sorted_by_a_column(void **state) {
    static const double sorted[] = {-INFINITY, 0.1};
    fl_table table;
    (void)state;
    make_awkward(&table);
    assert_int_equal(fl_table_sort(&table, 1, false, NULL), FL_OK);
    assert_true(table.columns[1].numbers[0] == sorted[0] && table.columns[1].numbers[1] == sorted[1]);
    assert_true(isnan(table.columns[1].numbers[2]) && table.columns[1].missing[3]);
    assert_string_equal(table.columns[0].texts[0], "\xC3\xA9 & 5% of_it");
    assert_int_equal(fl_table_sort(&table, 1, true, NULL), FL_OK);
    assert_true(table.columns[1].numbers[0] == sorted[1] && isnan(table.columns[1].numbers[2]));
    assert_int_equal(fl_table_sort(&table, 0, false, NULL), FL_OK);
    assert_string_equal(table.columns[0].texts[0], "bad \xFF byte");
    assert_null(table.columns[0].texts[3]);
    fl_table_release(&table);
}

static void test_numbers_read_back_the_same(void **state) {
    (void)state;
    static const double numbers[] = {0.1, 1.0 / 3.0, 1e300, 5e-324, -0.0, 123456789.123456789, 2.5};
    char text[FL_NUMBER_BYTES];
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        assert_true(strtod(fl_table_number_text(numbers[i], text), NULL) == numbers[i]);
    assert_string_equal(fl_table_number_text(0.1, text), "0.1");
}

static void python(const char *interpreter, const char *script) {
    char command[COMMAND_BYTES], *output = NULL;
    fl_write_file(fl_inside("check.py"), script, strlen(script));
    snprintf(command, sizeof command, "cd %s && %s check.py", fl_test_folder(), interpreter);
    int code = fl_run_command(command, &output);
    if (code != 0) fail_msg("%s", output);
    fl_memory_free(output);
}

static void test_pandas_reads_the_records(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    const char *interpreter = fl_python_with(__func__, "pandas");
    fl_table table;
    make_awkward(&table);
    FILE *stream = fopen(fl_inside("awkward.json"), "wb");
    fl_table_write_json(&table, stream);
    fclose(stream);
    fl_table_release(&table);
    assert_int_equal(export(NULL, "%s --summary --format json --out %s", runs, fl_inside("runs.json")), 0);
    assert_int_equal(export(NULL, "%s --summary --out %s", runs, fl_inside("runs.csv")), 0);
    python(interpreter,
           "import numpy as np, pandas as pd\n"
           "a = pd.read_json('awkward.json')\n"
           "assert list(a.columns) == ['a,b', 'x'] and a['x'].dtype == float, a\n"
           "assert a['x'][1] == -np.inf and a['x'][2] == 0.1 and a['x'].isna().sum() == 2, a\n"
           "r, c = pd.read_json('runs.json', dtype={'run_id': str}), pd.read_csv('runs.csv', "
           "dtype={'run_id': str})\n"
           "assert len(r) == 5 and set(r.columns) == set(c.columns), (r.columns, c.columns)\n"
           "assert (r['run_id'] == c['run_id']).all() and r['label'].is_unique\n"
           "for name in ('nmse', 'perplexity', 'tasks/words/acc', 'tasks/words/acc_stderr'):\n"
           "    assert r[name].dtype == float and np.allclose(r[name], c[name], rtol=1e-14, atol=0), name\n");
}

static void test_lm_eval_files_hold_the_run_files_results(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    char *output = NULL;
    int code = export(&output, "%s --lm-eval %s", runs, fl_inside("lm"));
    if (code != 0) fail_msg("%s", output);
    assert_non_null(strstr(output, "5 runs"));
    fl_memory_free(output);
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command, "ls %s/*/ | grep -c 'results_.*json\\|samples_.*jsonl'",
             fl_inside("lm"));
    assert_int_equal(fl_run_command(command, &output), 0);
    assert_int_equal(strtol(output, NULL, 10), 5 * (1 + 2 + 2));
    fl_memory_free(output);
    snprintf(command, sizeof command, "ls -A %s | grep -c '^[._]'", fl_inside("lm"));
    assert_int_equal(fl_run_command(command, &output), 1); /* none is hidden */
    fl_memory_free(output);
    const char *interpreter = fl_python_with(__func__, "json");
    python(interpreter,
           "import json, glob\n"
           "for path in glob.glob('lm/*/results_*.json'):\n"
           "    r = json.load(open(path))\n"
           "    assert set(r['results']) == {'words', 'words_even', 'words_odd', 'letters', 'letters_even', "
           "'letters_odd'}\n"
           "    assert r['group_subtasks'] == {'words': ['words_even', 'words_odd'], 'letters': "
           "['letters_even', 'letters_odd']}\n"
           "    assert r['n-samples']['words_odd'] == {'original': 4, 'effective': 4}\n"
           "    assert r['n-shot']['letters_even'] == 0 and r['date'] > 1.7e9\n"
           "    assert r['higher_is_better']['words_even'] == {'acc': True, 'acc_norm': True, 'acc_bytes': "
           "True}\n"
           "    total = []\n"
           "    for leaf in ('words_even', 'words_odd'):\n"
           "        sample, = glob.glob(path.rsplit('/', 1)[0] + '/samples_' + leaf + '_*.jsonl')\n"
           "        rows = [json.loads(line) for line in open(sample)]\n"
           "        assert len(rows) == 4 and all(len(row['arguments']) == 4 for row in rows)\n"
           "        for row in rows:\n"
           "            best = max(range(4), key=lambda c: float(row['filtered_resps'][c][0]))\n"
           "            assert row['acc'] == float(str(best) == row['target']), row\n"
           "        mean = sum(row['acc'] for row in rows) / 4\n"
           "        assert abs(mean - r['results'][leaf]['acc,none']) < 1e-12\n"
           "        total += [row['acc'] for row in rows]\n"
           "    assert abs(sum(total) / 8 - r['results']['words']['acc,none']) < 1e-12\n");
}

static void test_an_allocation_that_fails_leaves_nothing_behind(void **state) {
    const char *runs = fl_sweep_fixture(__func__);
    (void)state;
    for (size_t n = 1; n < 200; n += 7) {
        fl_run_set *set = NULL;
        fl_table table = {0};
        fl_memory_fail_at(n);
        fl_status status = fl_run_set_load(&runs, 1, &set, NULL);
        if (status == FL_OK) {
            fl_run_groups *groups = NULL;
            status = fl_run_groups_make(set, false, &groups, NULL);
            if (status == FL_OK) status = fl_run_columns_tidy(groups, NULL, 0, &table, NULL);
            if (status == FL_OK) fl_table_release(&table);
            fl_run_groups_destroy(groups);
            fl_run_set_destroy(set);
        }
        fl_memory_fail_at(0);
        assert_true(status == FL_OK || status == FL_ERROR_MEMORY || status == FL_ERROR_FORMAT);
    }
}

static void test_a_file_that_is_no_run_file_is_named(void **state) {
    (void)state;
    fl_write_file(fl_inside("bad.h5"), "not HDF5", 8);
    expect(1, fl_inside("bad.h5"), "bad.h5");
    expect(1, fl_test_folder(), "bad.h5");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_usage_errors_are_named),
        TEST(test_long_form_has_one_row_a_run_layer_and_position),
        TEST(test_bins_edges_and_quantiles_have_their_own_lengths),
        TEST(test_exported_numbers_are_those_of_the_run_file),
        TEST(test_summary_has_every_metric_and_its_baselines),
        TEST(test_latex_summary_is_a_page_wide_with_errors_beside_the_scores),
        TEST(test_every_format_gives_the_same_bytes_twice),
        TEST(test_datasets_with_different_axes_are_refused),
        TEST(test_awkward_values_survive_in_every_text_format),
        TEST(test_numbers_read_back_the_same),
        TEST(test_digits_follow_the_error),
        TEST(test_pandas_reads_the_records),
        TEST(test_items_are_one_row_each),
        TEST(test_columns_are_chosen_by_name),
        TEST(test_rows_are_sorted_by_a_column),
        TEST(test_lm_eval_files_hold_the_run_files_results),
        TEST(test_an_allocation_that_fails_leaves_nothing_behind),
        TEST(test_a_file_that_is_no_run_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, fl_sweep_fixture_remove);
}
