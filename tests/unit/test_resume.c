/* Going on after a kill: the text and the tasks a cell has finished are read back, bit for bit. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/store/run_file.h"
#include "harness/store/sweep.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

enum { PATH_BYTES = 1024 };

/* Two cells, one trained, with a text, a short task and then one that takes a while. */
static void write_sweep(const char *test) {
    const char *model = fl_write_byte_model(test, fl_test_folder());
    fl_write_ids(fl_inside("ids.json"), 2, 40, 37);
    fl_write_ids(fl_inside("fit.json"), 4, 32, 53);
    FILE *file = fopen(fl_inside("questions.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < 5; i++)
        fprintf(file, "{\"question\": \"Number %d?\", \"choices\": [\"one\", \"two\"], \"answer\": %d}\n", i,
                i % 2);
    fclose(file);
    fl_write_text(fl_inside("sweep.yaml"),
                  "name: resumed\nmodel: {path: %s}\ntext: {ids: %s}\nvariant: {window: 8, sinks: 2}\n"
                  "measure: {ablate: [exact]}\ntasks:\n"
                  "  - {name: multiple_choice, path: %s, label: words}\n"
                  "  - {name: mqar, lengths: [256], pairs: 8, samples: 24, vocabulary: 300, label: slow}\n"
                  "sweep:\n  list:\n    - {variant.rule: gla}\n"
                  "    - {variant.rule: kda, train.steps: 4, train.ids: %s, train.allow_overlap: true}\n",
                  model, fl_inside("ids.json"), fl_inside("questions.jsonl"), fl_inside("fit.json"));
}

static size_t count_files(const char *part) {
    size_t count = 0;
    DIR *directory = opendir(fl_inside("out"));
    if (directory == NULL) return 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += strstr(entry->d_name, part) != NULL;
    closedir(directory);
    return count;
}

/* Kills the run as soon as a journal holds `event`. */
static void run_and_kill(const char *event) {
    fl_shell(NULL,
             "%s run %s --out %s --threads 1 >/dev/null 2>&1 & p=$!; "
             "until grep -q '%s' %s/*.journal.jsonl 2>/dev/null || ! kill -0 $p 2>/dev/null; do sleep 0.005; "
             "done; "
             "kill -KILL $p; wait $p",
             fl_program_path(), fl_inside("sweep.yaml"), fl_inside("out"), event, fl_inside("out"));
}

typedef struct comparison {
    fl_run_reader *a, *b;
    size_t compared;
} comparison;

static fl_status compare_dataset(void *context, const char *path, size_t rank, const size_t *shape,
                                 fl_error *error) {
    comparison *c = context;
    double *x = NULL, *y = NULL;
    size_t y_rank = 0, y_shape[4], elements = 1;
    if (strncmp(path, "/timing", 7) == 0 || strncmp(path, "/provenance", 11) == 0) return FL_OK;
    if (strcmp(path, "/memory/training_bytes") == 0)
        return FL_OK; /* of this process's part of the training */
    for (size_t i = 0; i < rank; i++) elements *= shape[i];
    if (fl_run_reader_doubles(c->a, path, &x, NULL, NULL, NULL) != FL_OK) {
        char **p = NULL, **q = NULL;
        size_t p_count = 0, q_count = 0;
        FL_TRY(fl_run_reader_texts(c->a, path, &p, &p_count, error));
        FL_TRY(fl_run_reader_texts(c->b, path, &q, &q_count, error));
        assert_int_equal(p_count, q_count);
        for (size_t i = 0; i < p_count; i++) assert_string_equal(p[i], q[i]);
        fl_sweep_list_release(p, p_count);
        fl_sweep_list_release(q, q_count);
        return FL_OK;
    }
    FL_TRY(fl_run_reader_doubles(c->b, path, &y, &y_rank, y_shape, error));
    if (y_rank != rank || memcmp(x, y, elements * sizeof *x) != 0) fail_msg("%s differs", path);
    fl_memory_free(x);
    fl_memory_free(y);
    c->compared++;
    return FL_OK;
}

static void compare_metrics(const comparison *c, const char *group) {
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(fl_run_reader_attribute_names(c->a, group, &names, &count, NULL), FL_OK);
    for (size_t i = 0; i < count; i++) {
        double x = 0, y = 0;
        if (strcmp(names[i], "seconds") == 0) continue;
        if (fl_run_reader_attribute_number(c->a, group, names[i], &x, NULL) != FL_OK) continue;
        assert_int_equal(fl_run_reader_attribute_number(c->b, group, names[i], &y, NULL), FL_OK);
        if (memcmp(&x, &y, sizeof x) != 0) fail_msg("%s of %s differs", names[i], group);
    }
    fl_sweep_list_release(names, count);
}

/* Every dataset but times and provenance, and every metric, of all cells of out/ and of whole/. */
static void assert_same_as_undisturbed(void) {
    static const char *const groups[] = {"/tasks/words", "/tasks/slow", "/baseline/full/tasks/slow",
                                         "/baseline/linear_off/tasks/words"};
    char **ids = NULL, path[PATH_BYTES];
    size_t count = 0;
    assert_int_equal(fl_sweep_list_done(fl_inside("whole"), &ids, &count, NULL), FL_OK);
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++) {
        comparison c = {0};
        fl_error error = {0};
        snprintf(path, sizeof path, "%s/%s.h5", fl_inside("whole"), ids[i]);
        assert_int_equal(fl_run_reader_open(path, &c.a, NULL), FL_OK);
        snprintf(path, sizeof path, "%s/%s.h5", fl_inside("out"), ids[i]);
        assert_int_equal(fl_run_reader_open(path, &c.b, NULL), FL_OK);
        if (fl_run_reader_visit(c.a, compare_dataset, &c, &error) != FL_OK) fail_msg("%s", error.message);
        assert_true(c.compared > 60);
        assert_true(fl_run_reader_has(c.b, "/sequences/squared_error") &&
                    fl_run_reader_has(c.b, "/baseline/linear_off/sequences/kl"));
        for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) compare_metrics(&c, groups[g]);
        fl_run_reader_close(c.a);
        fl_run_reader_close(c.b);
    }
    fl_sweep_list_release(ids, count);
}

static void run_undisturbed(void) {
    char *output = NULL;
    int code =
        fl_frostline(&output, "run %s --out %s --threads 1", fl_inside("sweep.yaml"), fl_inside("whole"));
    if (code != 0 || strstr(output, "\nwords\n") == NULL) fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
}

static void resume(bool words_again) {
    char *output = NULL;
    int code =
        fl_frostline(&output, "run %s --out %s --threads 1", fl_inside("sweep.yaml"), fl_inside("out"));
    if (code != 0 || (strstr(output, "\nwords\n") != NULL) != words_again)
        fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    static const char *const strays[] = {".partial", ".journal", ".claim", ".part"};
    for (size_t i = 0; i < sizeof strays / sizeof strays[0]; i++) assert_int_equal(count_files(strays[i]), 0);
}

static void test_finished_text_and_tasks_survive_a_kill_bit_for_bit(void **state) {
    (void)state;
    write_sweep(__func__);
    run_undisturbed();
    run_and_kill("task words");
    assert_int_equal(count_files(".h5"), 0);
    /* Of two cells: own, linear off and one ablation of the text; own, full and linear off of the task. */
    assert_true(count_files(".text.") == 6 && count_files(".task-0.") == 6);
    resume(false);
    assert_same_as_undisturbed();
}

static void test_what_was_damaged_is_computed_again(void **state) {
    (void)state;
    write_sweep(__func__);
    run_undisturbed();
    run_and_kill("task words");
    /* Cut off, and foreign bytes; the rest stays as it is. */
    assert_int_equal(
        fl_shell(NULL,
                 "cd %s && for f in *.task-0.*.partial; do head -c 1000 $f > x; cat x > $f; done; "
                 "for f in *.text.own.partial; do echo no > $f; done; rm -f x",
                 fl_inside("out")),
        0);
    resume(true);
    assert_same_as_undisturbed();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_finished_text_and_tasks_survive_a_kill_bit_for_bit),
        TEST(test_what_was_damaged_is_computed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
