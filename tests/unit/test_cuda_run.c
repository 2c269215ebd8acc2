/* `frostline run --device cuda` beside the cpu: the same cells, measured and trained, and what is said when
 * there is no device. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/cuda_device.h"
#include "tests/support/fixture.h"

/* Reads a table; the caller frees it. */
static char *table_of(const char *folder) {
    char *text = NULL;
    assert_int_equal(fl_shell(&text, "cat %s/table.csv", folder), 0);
    return text;
}

/* Cuts the text at its next `mark`; NULL after its end. */
static char *next_part(char **rest, char mark) {
    char *part = *rest;
    if (part == NULL || *part == '\0') return NULL;
    char *end = strchr(part, mark);
    if (end != NULL) *end = '\0';
    *rest = end != NULL ? end + 1 : NULL;
    return part;
}
static char *next_line(char **rest) {
    return next_part(rest, '\n');
}
/* A field may be empty. */
static char *next_field(char **rest) {
    static char nothing[1];
    if (*rest != NULL && **rest == ',') {
        (*rest)++;
        return nothing;
    }
    char *field = next_part(rest, ',');
    return field != NULL ? field : nothing;
}

/* Worst relative difference of numbers; every other field must be equal. Columns of seconds are left out. */
static double table_difference(char *own, char *cpu) {
    char *lines[2], *rest[2] = {own, cpu}, *header[64], *names = NULL;
    size_t columns = 0;
    double worst = 0.0;
    for (size_t row = 0; (lines[0] = next_line(&rest[0])) != NULL; row++) {
        lines[1] = next_line(&rest[1]);
        assert_non_null(lines[1]);
        if (row == 0) {
            assert_string_equal(lines[0], lines[1]);
            for (char *name = strtok_r(lines[0], ",", &names); name != NULL;
                 name = strtok_r(NULL, ",", &names)) {
                assert_true(columns < 64);
                header[columns++] = name;
            }
            continue;
        }
        for (size_t column = 0; column < columns; column++) {
            char *field[2], *end;
            for (size_t i = 0; i < 2; i++) field[i] = next_field(&lines[i]);
            if (strstr(header[column], "seconds") != NULL || strcmp(field[0], field[1]) == 0) continue;
            const double x = strtod(field[0], &end), y = strtod(field[1], NULL);
            if (*end != '\0') fail_msg("row %zu, %s: %s, cpu %s", row, header[column], field[0], field[1]);
            worst = fmax(worst, fabs(x - y) / fmax(fabs(y), 1e-30));
        }
    }
    return worst;
}

static void compare_runs(const char *name, double bound) {
    char *output = NULL, *tables[2];
    static const char *const devices[2] = {"cuda", "cpu"};
    for (size_t i = 0; i < 2; i++) {
        char folder[1024];
        snprintf(folder, sizeof folder, "%s.%s", fl_inside(name), devices[i]);
        if (fl_frostline(&output, "run %s --device %s --out %s", fl_inside(name), devices[i], folder) != 0)
            fail_msg("%s", output);
        fl_memory_free(output);
        tables[i] = table_of(folder);
    }
    const double worst = table_difference(tables[0], tables[1]);
    printf("worst: %s on the device beside the cpu %.2e\n", name, worst);
    assert_true(worst <= bound);
    fl_memory_free(tables[0]);
    fl_memory_free(tables[1]);
}

/* The program finds the object that the other tests use. */
static void use_object(void) {
    fl_cuda_device();
    setenv("FROSTLINE_CUDA", fl_cuda_device_object(), 1);
}

static void a_sweep_is_the_cpus(void **state) {
    (void)state;
    use_object();
    const char *model = fl_reference_model("a_sweep_is_the_cpus");
    fl_write_ids(fl_inside("ids.json"), 2, 40, 7);
    fl_write_text(fl_inside("sweep.yaml"),
                  "model: {path: %s}\ntext: {ids: %s}\nvariant: {rule: kda, window: 8, sinks: 2, short_conv: "
                  "{kernel: 4}}\n"
                  "sweep: {grid: {variant.rule: [kda, gla, linear, rwkv7, gsa]}}\n",
                  model, fl_inside("ids.json"));
    compare_runs("sweep.yaml", 1e-5);
}

static void trainings_are_the_cpus(void **state) {
    (void)state;
    use_object();
    const char *model = fl_reference_model("trainings_are_the_cpus");
    fl_write_ids(fl_inside("train.json"), 2, 40, 11);
    fl_write_ids(fl_inside("test.json"), 1, 40, 7);
    fl_write_text(fl_inside("train.yaml"),
                  "model: {path: %s}\ntext: {ids: %s}\nvariant: {rule: kda, window: 8, sinks: 2, short_conv: "
                  "{kernel: 4}}\n"
                  "train: {ids: %s, steps: 3, learning_rate: 0.01, warmup_steps: 1}\n"
                  "sweep: {grid: {train.objective: [layer_mse, next_token, kl]}}\n",
                  model, fl_inside("test.json"), fl_inside("train.json"));
    compare_runs("train.yaml", 1e-5);
}

static void a_missing_device_is_said(void **state) {
    (void)state;
    const char *model = fl_reference_model("a_missing_device_is_said");
    fl_write_ids(fl_inside("few.json"), 1, 20, 7);
    fl_write_text(fl_inside("few.yaml"),
                  "model: {path: %s}\ntext: {ids: %s}\nvariant: {rule: kda, window: 4}\n", model,
                  fl_inside("few.json"));
    char line[1024];
    setenv("FROSTLINE_CUDA", "/nowhere/libfrostline_cuda.so", 1);
    snprintf(line, sizeof line, "run %s --device cuda --out %s", fl_inside("few.yaml"), fl_inside("none"));
    fl_expect(1, line, "compute.device cuda: FROSTLINE_CUDA: /nowhere/libfrostline_cuda.so", NULL);
    unsetenv("FROSTLINE_CUDA");
    snprintf(line, sizeof line, "run %s --device tpu --out %s", fl_inside("few.yaml"), fl_inside("none"));
    fl_expect(1, line, "device: expected one of cpu, cuda, but 'tpu' is none of them", NULL);
    snprintf(line, sizeof line, "run %s --out %s compute.precision=fast", fl_inside("few.yaml"),
             fl_inside("none"));
    fl_expect(1, line, "compute.precision: fast is not there yet", NULL);
}

static int open_both(void **state) {
    return fl_test_folder_make(state) != 0 ? -1 : fl_cuda_device_open(state);
}
static int close_both(void **state) {
    fl_cuda_device_close(state);
    return fl_test_folder_remove(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sweep_is_the_cpus),
        cmocka_unit_test(trainings_are_the_cpus),
        cmocka_unit_test(a_missing_device_is_said),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
