/* `frostline bench`, from outside: what it writes, and what it refuses. How fast anything is, is no test's
 * business. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cjson/cJSON.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/compute/cpu_recurrence.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"
#include "tests/support/tokenizer_cases.h"

enum { TEXT_BYTES = 8192, PATH_BYTES = 1024, VOCABULARY = 262 };

static const char *folder; /* a tiny model with a tokenizer */

static const char *inside(const char *name) {
    static char paths[4][PATH_BYTES];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

static int set_up(void **state) {
    (void)state;
    folder = fl_temporary_directory();
    fl_tiny_model_write(folder, &(fl_tiny_model_options){.vocabulary = VOCABULARY, .scale = 0.2f});
    char *json = fl_tokenizer_json(&(fl_tokenizer_parts){0});
    fl_write_file(inside("tokenizer.json"), json, strlen(json));
    fl_memory_free(json);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fl_temporary_remove(folder);
    return 0;
}

/* Runs "frostline bench <arguments>", which must exit with `code` and say `text` (NULL: anything). */
static void bench(int code, const char *text, const char *arguments) {
    char command[TEXT_BYTES], *output = NULL;
    snprintf(command, sizeof command, "%s bench %s", fl_program_path(), arguments);
    int got = fl_run_command(command, &output);
    if (got != code) fail_msg("bench %s: exit code %d\n%s", arguments, got, output);
    if (text != NULL && strstr(output, text) == NULL)
        fail_msg("bench %s: no \"%s\" in\n%s", arguments, text, output);
    fl_memory_free(output);
}

static cJSON *read_json(const char *path) {
    size_t bytes = 0;
    char *text = fl_read_file(path, &bytes);
    cJSON *root = cJSON_ParseWithLength(text, bytes);
    fl_memory_free(text);
    if (root == NULL) fail_msg("%s is not JSON", path);
    return root;
}

static cJSON *get(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static void expect_positive(const cJSON *row, const char *name, double most) {
    const cJSON *item = get(row, name);
    const char *label = cJSON_GetStringValue(get(row, "name"));
    if (!cJSON_IsNumber(item)) fail_msg("%s: no %s", label, name);
    if (!isfinite(item->valuedouble) || item->valuedouble <= 0 || item->valuedouble > most)
        fail_msg("%s: %s is %g", label, name, item->valuedouble);
}

static void expect_measured(const cJSON *row) {
    const cJSON *seconds = get(row, "seconds"), *second = NULL;
    double least = INFINITY;
    assert_true(cJSON_GetArraySize(seconds) > 0);
    cJSON_ArrayForEach(second, seconds) least = fmin(least, second->valuedouble);
    expect_positive(row, "minimum_seconds", 1e6);
    expect_positive(row, "median_seconds", 1e6);
    expect_positive(row, "median_value", 1e18);
    assert_true(least == get(row, "minimum_seconds")->valuedouble);
    assert_true(get(row, "median_seconds")->valuedouble >= least);
    double rate = get(row, "work")->valuedouble / least;
    assert_true(fabs(get(row, "value")->valuedouble / rate - 1.0) < 1e-6);
    expect_positive(row, "peak_resident_bytes", 1e15);
}

static size_t rows_of(const cJSON *root, const char *group, const char *name) {
    const cJSON *row = NULL;
    size_t count = 0;
    cJSON_ArrayForEach(row, get(root, "rows")) {
        count += strcmp(cJSON_GetStringValue(get(row, "group")), group) == 0 &&
                 strcmp(cJSON_GetStringValue(get(row, "name")), name) == 0;
    }
    return count;
}

/* The FLOPs of the first row of that group and name. */
static double flops_of(const cJSON *root, const char *group, const char *name) {
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, get(root, "rows")) {
        if (strcmp(cJSON_GetStringValue(get(row, "group")), group) == 0 &&
            strcmp(cJSON_GetStringValue(get(row, "name")), name) == 0)
            return get(row, "flops")->valuedouble;
    }
    return NAN;
}

static void test_flops_are_those_of_the_work(void **state) {
    (void)state;
    char arguments[TEXT_BYTES];
    snprintf(arguments, sizeof arguments, "%s --quick --rows forward --rules softmax --lengths 64 --json %s",
             folder, inside("full.json"));
    bench(0, NULL, arguments);
    cJSON *full = read_json(inside("full.json"));
    /* 2 layers, width 32, 4 query heads on 2 of width 8, MLP 48; then the pairs, then one row of logits */
    double projections = 2.0 * 64 * 2 * 32 * (12 * 8 + 3 * 48), pairs = 64 * 65 / 2;
    projections -=
        2.0 * 63 * 32 * (4 * 8 + 3 * 48); /* after its mixing the last layer sees the last token only */
    double softmax = 2 * 4.0 * pairs * 4 * 8, logits = 2.0 * 32 * VOCABULARY;
    assert_true(flops_of(full, "machine", "sgemm") == 2.0 * 384 * 384 * 384);
    assert_true(flops_of(full, "forward", "prefill") == projections + softmax + logits);
    cJSON_Delete(full);
    snprintf(arguments, sizeof arguments, "%s --quick --rows forward --rules linear --lengths 64 --json %s",
             folder, inside("linear.json"));
    bench(0, NULL, arguments);
    cJSON *linear = read_json(inside("linear.json"));
    /* 9 value channels: linear divides by its normaliser; 4 and 1 as in bench_flops.h */
    double state_products = 4 * 8.0 * 9, triangles = FL_CHUNK_TOKENS * (8.0 + 9);
    double recurrence = 2.0 * 4 * 64 * (state_products + triangles);
    assert_true(flops_of(linear, "forward", "prefill") == projections + logits + recurrence);
    cJSON_Delete(linear);
}

static void test_every_row_of_a_quick_run_is_there_with_positive_finite_figures(void **state) {
    (void)state;
    char arguments[TEXT_BYTES];
    snprintf(arguments, sizeof arguments, "%s --quick --threads 2 --rules softmax,kda --json %s", folder,
             inside("bench.json"));
    bench(0, "largest over smallest cost of a token", arguments);
    cJSON *root = read_json(inside("bench.json"));
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, get(root, "rows")) {
        expect_positive(row, "value", 1e18);
        expect_positive(get(row, "parameters"), "threads", 2);
        assert_non_null(cJSON_GetStringValue(get(row, "unit")));
        if (get(row, "seconds") != NULL) expect_measured(row);
    }
    static const struct {
        const char *group, *name;
        size_t count;
    } wanted[] = {
        {"machine", "sgemm", 2},
        {"machine", "memory read", 1},
        {"machine", "memory update", 1},
        {"forward", "prefill", 3},
        {"length", "prefill", 4},
        {"kernels", "linear", 8},
        {"kernels", "softmax", 4},
        {"kernels", "softmax backward", 3},
        {"kernels", "chunk", 7},
        {"kernels", "step", 7},
        {"kernels", "chunk backward", 7},
        {"variants", "teacher forced", 3},
        {"tasks", "mmlu", 3},
        {"tasks", "gain of sharing", 1},
        {"training", "step", 4},
        {"length", "largest over smallest cost of a token", 1},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        size_t count = rows_of(root, wanted[i].group, wanted[i].name);
        if (count != wanted[i].count)
            fail_msg("%s %s: %zu rows, not %zu", wanted[i].group, wanted[i].name, count, wanted[i].count);
    }
    const cJSON *machine = get(root, "machine");
    assert_non_null(cJSON_GetStringValue(get(machine, "vector_kernels")));
    assert_non_null(cJSON_GetStringValue(get(machine, "openblas")));
    assert_non_null(cJSON_GetStringValue(get(machine, "revision")));
    expect_positive(machine, "processors", 1e6);
    assert_true(cJSON_IsTrue(get(get(root, "settings"), "quick")));
    cJSON_Delete(root);
}

static void test_without_a_model_the_machine_and_the_kernels_are_measured(void **state) {
    (void)state;
    char arguments[TEXT_BYTES];
    snprintf(arguments, sizeof arguments, "--quick --rows machine --threads 1,2 --repeats 3 --json %s",
             inside("machine.json"));
    bench(0, "machine, 2 threads", arguments);
    cJSON *root = read_json(inside("machine.json"));
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, get(root, "rows"))
        assert_string_equal(cJSON_GetStringValue(get(row, "group")), "machine");
    assert_int_equal(rows_of(root, "machine", "sgemm"), 4);
    cJSON_Delete(root);
}

static void test_task_rows_can_be_chosen(void **state) {
    (void)state;
    static const struct {
        const char *flags;
        size_t questions, gains;
    } cases[] = {{"--rules softmax --shared-only", 1, 0}, {"--rules softmax", 2, 1}, {"--rules gla", 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char arguments[TEXT_BYTES];
        snprintf(arguments, sizeof arguments, "%s --quick --rows tasks %s --json %s", folder, cases[i].flags,
                 inside("tasks.json"));
        bench(0, "machine, ", arguments);
        cJSON *root = read_json(inside("tasks.json"));
        assert_int_equal(rows_of(root, "tasks", "mmlu"), cases[i].questions);
        assert_int_equal(rows_of(root, "tasks", "gain of sharing"), cases[i].gains);
        cJSON_Delete(root);
    }
}

static void test_what_makes_no_sense_is_refused_by_name(void **state) {
    (void)state;
    char arguments[TEXT_BYTES];
    bench(2, "no rows \"foward\"; did you mean forward?", "--rows foward");
    bench(2, "an empty name", "--rows machine,,kernels");
    bench(2, "rows tasks need a MODEL", "--rows tasks");
    bench(2, "no rule \"kdda\"; did you mean kda?", "--quick --rules kdda");
    bench(2, "\"0\" is not a number from 1", "--threads 0");
    bench(2, "\"1x\" is not a number", "--lengths 128,1x");
    bench(2, "--repeats is at most", "--repeats 1000");
    bench(1, "absent: cannot open", "absent --quick");
    bench(1, "absent/bench.json", "--quick --rows machine --json absent/bench.json");
    snprintf(arguments, sizeof arguments, "%s --quick --rows forward --text absent.txt", folder);
    bench(1, "absent.txt", arguments);
    snprintf(arguments, sizeof arguments, "%s --quick --rows tasks --mmlu absent", folder);
    bench(1, "rows tasks: absent", arguments);
    snprintf(arguments, sizeof arguments, "%s --ids a.json --text b.txt", folder);
    bench(2, "--text or --ids, not both", arguments);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_row_of_a_quick_run_is_there_with_positive_finite_figures,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_flops_are_those_of_the_work, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_a_model_the_machine_and_the_kernels_are_measured, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_task_rows_can_be_chosen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_makes_no_sense_is_refused_by_name, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
