/* One name and one table: what plan, run, table, export and table.csv call the same cells; seeds pooled;
 * several sweeps in one folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

enum { CONFIG_BYTES = 4096, CELLS_MOST = 32, LABEL_BYTES = 128 };

static void write_ids(const char *name, int step) {
    char text[CONFIG_BYTES];
    int used = snprintf(text, sizeof text, "[[");
    for (int i = 0; i < 2 * 24; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%d",
                         i == 24 ? "], ["
                         : i > 0 ? ", "
                                 : "",
                         (i * i % 53 * step + 3) % 300);
    snprintf(text + used, sizeof text - (size_t)used, "]]");
    fl_write_file(fl_inside(name), text, strlen(text));
}

static void write_config(const char *name, const char *rest) {
    char text[CONFIG_BYTES];
    write_ids("ids.json", 5);
    write_ids("train.json", 7);
    snprintf(text, sizeof text,
             "name: %s\nmodel: {path: tests/fixtures/reference/llama_gqa}\ntext: {ids: %s/ids.json}\n"
             "variant: {window: 8, sinks: 2}\nmeasure: {diagnostics: false}\n%s",
             name, fl_test_folder(), rest);
    char file[LABEL_BYTES];
    snprintf(file, sizeof file, "%s.yaml", name);
    fl_write_file(fl_inside(file), text, strlen(text));
}

/* A mapping swept as a whole, a name of the user's, and a rule without a linear part. */
static void write_sweep(void) {
    char rest[CONFIG_BYTES];
    snprintf(
        rest, sizeof rest,
        "sweep:\n  zip:\n    variant.rule: [softmax, none, gla, kda]\n    variant.window: [8, 8, 8, 0]\n"
        "    variant.sinks: [2, 2, 2, 0]\n  grid:\n    train:\n      - null\n"
        "      - {objective: layer_mse, steps: 2, warmup_steps: 1, ids: %s/train.json, order: sequential}\n"
        "  exclude:\n    - {train.objective: layer_mse, variant.rule: softmax}\n"
        "    - {train.objective: layer_mse, variant.rule: none}\n",
        fl_test_folder());
    write_config("sweep", rest);
}

typedef struct labels {
    size_t count;
    char items[CELLS_MOST][LABEL_BYTES];
} labels;

static void add(labels *out, const char *from, size_t bytes) {
    assert_true(out->count < CELLS_MOST && bytes < LABEL_BYTES);
    snprintf(out->items[out->count++], LABEL_BYTES, "%.*s", (int)bytes, from);
}

static int compare(const void *a, const void *b) {
    return strcmp(a, b);
}

static void assert_same(labels *a, labels *b) {
    qsort(a->items, a->count, LABEL_BYTES, compare);
    qsort(b->items, b->count, LABEL_BYTES, compare);
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) assert_string_equal(a->items[i], b->items[i]);
}

/* What stands behind `mark` in each line that holds it, up to `end`. */
static void collect(const char *output, const char *mark, const char *end, labels *out) {
    *out = (labels){0};
    for (const char *at = output; (at = strstr(at, mark)) != NULL;) {
        at += strlen(mark);
        const char *stop = strstr(at, end);
        if (stop == NULL) fail_msg("no end of a label in %s", at);
        add(out, at, (size_t)(stop - at));
    }
}

/* The first field of each line of a CSV but the header, unquoted. */
static void first_fields(const char *csv, labels *out) {
    *out = (labels){0};
    for (const char *line = strchr(csv, '\n'); line != NULL && line[1] != '\0';
         line = strchr(line + 1, '\n')) {
        const char *from = line[1] == '"' ? line + 2 : line + 1;
        add(out, from, strcspn(from, line[1] == '"' ? "\"" : ",\n"));
    }
}

static char *said(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *said(const char *format, ...) {
    char arguments[CONFIG_BYTES], *output = NULL;
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    int code = fl_frostline(&output, "%s", arguments);
    if (code != 0) fail_msg("%s: %s", arguments, output);
    return output;
}

static void test_plan_run_export_and_report_use_one_label(void **state) {
    (void)state;
    labels planned, done, exported;
    write_sweep();
    char *config = strdup(fl_inside("sweep.yaml")), *out = strdup(fl_inside("out"));
    char *output = said("plan %s --out %s", config, out);
    collect(output, " 2 x 24       ", "\n", &planned);
    assert_int_equal(planned.count, 6);
    fl_memory_free(output);
    output = said("run %s --out %s", config, out);
    collect(output, "done: ", " (", &done);
    fl_memory_free(output);
    output = said("export %s --columns label --format csv", out);
    first_fields(output, &exported);
    fl_memory_free(output);
    assert_same(&planned, &done);
    assert_same(&planned, &exported);
    static const char *const expected[] = {"gla, 2 + 8",           "gla, 2 + 8, layer_mse", "kda, pure",
                                           "kda, pure, layer_mse", "none, 2 + 8",           "softmax"};
    for (size_t i = 0; i < exported.count; i++) assert_string_equal(exported.items[i], expected[i]);
    output = said("report %s --out %s", out, fl_inside("report.html"));
    fl_memory_free(output);
    output = fl_read_file(fl_inside("report.html"), NULL);
    for (size_t i = 0; i < exported.count; i++) {
        if (strstr(output, expected[i]) == NULL) fail_msg("no \"%s\" in the report", expected[i]);
    }
    fl_memory_free(output);
    output = fl_read_file(fl_inside("out/table.csv"), NULL);
    assert_int_equal(
        strncmp(output, "run_id,label,name,model,text,tier,status,older,warnings,rule,window,sinks,train,",
                80),
        0);
    assert_null(strstr(output, "train."));
    assert_non_null(strstr(output, ",layer_mse,"));
    fl_memory_free(output);
    free(config), free(out);
}

static void test_a_folder_of_two_sweeps_has_one_table(void **state) {
    (void)state;
    labels all;
    write_config("first", "sweep: {grid: {variant.rule: [gla, kda]}}\n");
    write_config("second", "sweep: {grid: {variant.window: [4, 8], variant.rule: [gla]}}\n");
    char *out = strdup(fl_inside("out"));
    fl_memory_free(said("run %s --out %s", fl_inside("first.yaml"), out));
    fl_memory_free(said("run %s --out %s", fl_inside("second.yaml"), out));
    char *output = said("export %s --columns label --format csv", out);
    first_fields(output, &all);
    fl_memory_free(output);
    /* gla at window 8 is of both sweeps, and measured once. */
    static const char *const expected[] = {"gla, window 4", "gla, window 8", "kda, window 8"};
    assert_int_equal(all.count, 3);
    for (size_t i = 0; i < 3; i++) assert_string_equal(all.items[i], expected[i]);
    output = fl_read_file(fl_inside("out/table.csv"), NULL);
    assert_non_null(strstr(output, ",first,"));
    assert_non_null(strstr(output, ",second,"));
    fl_memory_free(output);
    free(out);
}

static void test_seeds_are_one_row_unless_each_is_asked_for(void **state) {
    (void)state;
    labels rows;
    write_config("seeds", "sweep: {grid: {variant.rule: [gla, kda], variant.seed: [1, 2, 3]}}\n");
    char *out = strdup(fl_inside("out")), *output = said("run %s --out %s", fl_inside("seeds.yaml"), out);
    assert_non_null(strstr(output, "Over seeds:\n"));
    fl_memory_free(output);
    output = said("export %s --columns label,n,perplexity --format csv", out);
    assert_int_equal(strncmp(output, "label,n,perplexity,perplexity_sd\ngla,3,", 39), 0);
    first_fields(output, &rows);
    assert_int_equal(rows.count, 2);
    fl_memory_free(output);
    output = said("export %s --each --columns label,variant.seed --format csv", out);
    first_fields(output, &rows);
    assert_int_equal(rows.count, 6);
    assert_string_equal(rows.items[5], "kda, seed 3");
    fl_memory_free(output);
    output = said("table %s --sort perplexity --descending", out);
    assert_non_null(strstr(output, "run  tier       n "));
    assert_non_null(strstr(output, " \xC2\xB1 "));
    assert_non_null(strstr(output, "standard deviation over the n seeds"));
    fl_memory_free(output);
    char command[CONFIG_BYTES];
    snprintf(command, sizeof command, "table %s --sort colour", out);
    fl_expect(1, command, "--sort: the table has no column 'colour'", NULL);
    free(out);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_plan_run_export_and_report_use_one_label),
        TEST(test_a_folder_of_two_sweeps_has_one_table),
        TEST(test_seeds_are_one_row_unless_each_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
