/* The log of a run: every line is JSON with a time and an event, and tells the training's curve; what cannot
 * be written costs the log alone. And how runs end that were interrupted or found no place to write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

enum { STEPS = 4, LINES = 512 };

/* Two trained cells on the tiny model. */
static void write_config(const char *test) {
    const char *model = fl_reference_model(test);
    fl_write_ids(fl_inside("eval.json"), 2, 24, 7);
    fl_write_ids(fl_inside("train.json"), 4, 24, 5);
    fl_write_text(
        fl_inside("log.yaml"),
        "name: log\nmodel: {path: %s}\ntext: {ids: %s}\nvariant: {window: 4, sinks: 1}\n"
        "train: {objective: layer_mse, ids: %s, steps: %d, warmup_steps: 1, learning_rate: 1.0e-2}\n"
        "sweep: {grid: {variant.rule: [gla, kda]}}\n",
        model, fl_inside("eval.json"), fl_inside("train.json"), (int)STEPS);
}

/* The lines of a log, parsed; the count. */
static size_t read_log(const char *path, cJSON *lines[LINES]) {
    size_t bytes = 0, count = 0;
    char *text = fl_read_file(path, &bytes);
    for (char *at = text; *at != '\0' && count < LINES;) {
        size_t length = strcspn(at, "\n");
        assert_true(at[length] == '\n'); /* every line is whole */
        at[length] = '\0';
        lines[count] = cJSON_Parse(at);
        if (lines[count] == NULL) fail_msg("no JSON: %s", at);
        assert_non_null(cJSON_GetStringValue(cJSON_GetObjectItem(lines[count], "time")));
        assert_non_null(cJSON_GetStringValue(cJSON_GetObjectItem(lines[count], "event")));
        count++;
        at += length + 1;
    }
    fl_memory_free(text);
    return count;
}

static bool is_event(const cJSON *line, const char *event) {
    return strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(line, "event")), event) == 0;
}

static size_t count_events(cJSON *const *lines, size_t count, const char *event) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) found += is_event(lines[i], event);
    return found;
}

static void release(cJSON *const *lines, size_t count) {
    for (size_t i = 0; i < count; i++) cJSON_Delete(lines[i]);
}

static void test_a_log_tells_the_run_and_its_training(void **state) {
    (void)state;
    cJSON *lines[LINES];
    char arguments[1024];
    write_config(__func__);
    snprintf(arguments, sizeof arguments, "run %s --out %s --log %s", fl_inside("log.yaml"), fl_inside("out"),
             fl_inside("run.jsonl"));
    fl_expect(0, arguments, "kda", NULL);
    size_t count = read_log(fl_inside("run.jsonl"), lines);
    assert_true(count > 0 && is_event(lines[0], "run_begun") && is_event(lines[count - 1], "run_ended"));
    assert_int_equal((int)cJSON_GetObjectItem(lines[0], "cells")->valuedouble, 2);
    assert_int_equal(count_events(lines, count, "cell_begun"), 2);
    assert_int_equal(count_events(lines, count, "cell_done"), 2);
    assert_int_equal(count_events(lines, count, "cell_failed"), 0);
    size_t steps = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_event(lines[i], "step")) continue;
        const char *figures[] = {"step", "loss", "gradient_norm", "learning_rate"};
        for (size_t j = 0; j < sizeof figures / sizeof figures[0]; j++) {
            const cJSON *figure = cJSON_GetObjectItem(lines[i], figures[j]);
            if (!cJSON_IsNumber(figure) || !isfinite(figure->valuedouble))
                fail_msg("a step without %s", figures[j]);
        }
        assert_true(cJSON_IsString(cJSON_GetObjectItem(lines[i], "run_id")));
        steps++;
    }
    assert_int_equal(steps, 2 * STEPS);
    release(lines, count);

    fl_expect(0, arguments, "kept", NULL); /* goes on in the same file */
    size_t more = read_log(fl_inside("run.jsonl"), lines);
    assert_true(more > count);
    assert_int_equal(count_events(lines, more, "run_begun"), 2);
    assert_int_equal(count_events(lines, more, "step"), 2 * STEPS);
    release(lines, more);
}

static void test_a_log_that_cannot_be_written_costs_the_log_alone(void **state) {
    (void)state;
    char arguments[1024];
    write_config(__func__);
    snprintf(arguments, sizeof arguments, "run %s --out %s --log %s/no/such/folder.jsonl",
             fl_inside("log.yaml"), fl_inside("unlogged"), fl_test_folder());
    fl_expect(0, arguments, "warning: no log", "kda", NULL);
    snprintf(arguments, sizeof arguments, "run %s --out %s --log /dev/full --rerun all",
             fl_inside("log.yaml"), fl_inside("unlogged"));
    fl_expect(0, arguments, "kda", NULL);
}

static void test_a_folder_that_takes_no_files_is_refused_before_measuring(void **state) {
    (void)state;
    char arguments[1024];
    write_config(__func__);
    fl_write_text(fl_inside("taken"), "a file\n");
    snprintf(arguments, sizeof arguments, "run %s --out %s/taken", fl_inside("log.yaml"), fl_test_folder());
    fl_expect(1, arguments, "taken", NULL);
}

/* The signal comes before the first safe point or after it: the status is the same, and the same command
 * finishes. */
static void test_an_interrupted_run_says_so_by_its_status_and_goes_on(void **state) {
    (void)state;
    char *output = NULL, arguments[1024];
    write_config(__func__);
    const struct {
        const char *signal;
        int status;
    } cases[] = {{"INT", 130}, {"TERM", 143}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* Far more steps than the time until the signal, so that it always finds the run at work. */
        int status = fl_shell(&output,
                              "%s run %s train.steps=2000000 --out %s/stopped%zu --threads 1 & run=$!; "
                              "while [ ! -e %s/stopped%zu ] || ! ls %s/stopped%zu/*.claim >/dev/null 2>&1; "
                              "do sleep 0.05; done; "
                              "sleep 0.3; kill -%s $run; wait $run",
                              fl_program_path(), fl_inside("log.yaml"), fl_test_folder(), i, fl_test_folder(),
                              i, fl_test_folder(), i, cases[i].signal);
        if (status != cases[i].status) fail_msg("SIG%s: status %d\n%s", cases[i].signal, status, output);
        fl_memory_free(output);
        assert_int_not_equal(fl_shell(NULL, "ls %s/stopped%zu/*.claim 2>/dev/null", fl_test_folder(), i), 0);
        assert_int_not_equal(
            fl_shell(NULL, "ls %s/stopped%zu/*.failed.json 2>/dev/null", fl_test_folder(), i), 0);
    }
    snprintf(arguments, sizeof arguments, "run %s --out %s/stopped0", fl_inside("log.yaml"),
             fl_test_folder());
    fl_expect(0, arguments, "kda", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_log_tells_the_run_and_its_training),
        cmocka_unit_test(test_a_log_that_cannot_be_written_costs_the_log_alone),
        cmocka_unit_test(test_a_folder_that_takes_no_files_is_refused_before_measuring),
        cmocka_unit_test(test_an_interrupted_run_says_so_by_its_status_and_goes_on),
    };
    return cmocka_run_group_tests(tests, fl_test_folder_make, fl_test_folder_remove);
}
