/* Sweeps from outside: several workers in one directory, interrupts, failures, what they leave behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/hash.h"
#include "harness/base/memory.h"
#include "harness/store/run_file.h"
#include "harness/store/sweep.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

enum { PATH_BYTES = 1024, COMMAND_BYTES = 8192, MOST_CELLS = 16 };

/* Eight cells over the tiny model; two of them train. */
static const char *write_sweep(const char *model, const char *more) {
    fl_write_ids(fl_inside("ids.json"), 2, 40, 37);
    fl_write_ids(fl_inside("fit.json"), 4, 32, 53);
    fl_write_text(fl_inside("sweep.yaml"),
                  "name: workers\nmodel: {path: %s}\ntext: {ids: %s}\nvariant: {window: 8, sinks: 2}\n%s"
                  "sweep:\n  list:\n"
                  "    - {variant.rule: none}\n    - {variant.rule: linear}\n    - {variant.rule: gla}\n"
                  "    - {variant.rule: kgla}\n    - {variant.rule: delta}\n    - {variant.rule: kda}\n"
                  "    - {variant.rule: gla, train.steps: 6, train.ids: %s, train.allow_overlap: true}\n"
                  "    - {variant.rule: kda, train.steps: 6, train.ids: %s, train.allow_overlap: true}\n",
                  model, fl_inside("ids.json"), more, fl_inside("fit.json"), fl_inside("fit.json"));
    static char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s", fl_inside("sweep.yaml"));
    return path;
}

static size_t count_files(const char *path, const char *part) {
    DIR *directory = opendir(path);
    if (directory == NULL) return 0;
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += strstr(entry->d_name, part) != NULL;
    closedir(directory);
    return count;
}

/* Finished run files and their mechanisms, tables and pictures; nothing else. */
static void assert_tidy(size_t run_files) {
    const char *out = fl_inside("out");
    assert_int_equal(count_files(out, ".h5"), run_files);
    static const char *const strays[] = {".claim", ".part", ".partial", ".journal", ".training", ".failed"};
    for (size_t i = 0; i < sizeof strays / sizeof strays[0]; i++) {
        if (count_files(out, strays[i]) > 0) fail_msg("left behind: a file with %s in its name", strays[i]);
    }
}

static size_t occurrences(const char *text, const char *part) {
    size_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part)) count++;
    return count;
}

/* `workers` processes at once, taking one cell at a time; every cell is computed by exactly one. A worker
 * that ends before the others says so (75). */
static void run_workers(const char *test, size_t workers) {
    const char *config = write_sweep(fl_reference_model(test), "");
    char *output = NULL;
    int code = fl_shell(
        &output,
        "n=0; for w in $(seq %zu); do %s run %s --out %s --threads 1 --batch 1 > %s.$w 2>&1 & "
        "pids=\"$pids $!\"; done; for p in $pids; do wait $p || [ $? = 75 ] || n=1; done; cat %s.*; exit $n",
        workers, fl_program_path(), config, fl_inside("out"), fl_inside("log"), fl_inside("log"));
    if (code != 0) fail_msg("exit %d:\n%s", code, output);
    if (occurrences(output, "\ndone: ") != 8)
        fail_msg("%zu cells computed, not 8:\n%s", occurrences(output, "\ndone: "), output);
    fl_memory_free(output);
    assert_tidy(8);
}

static void test_two_workers_compute_every_cell_once(void **state) {
    (void)state;
    run_workers(__func__, 2);
}

static void test_four_workers_compute_every_cell_once(void **state) {
    (void)state;
    run_workers(__func__, 4);
}

/* Names of the run files of out/ and the hashes of their bytes. */
static size_t hash_run_files(char ***ids, fl_hash *hashes) {
    size_t count = 0;
    assert_int_equal(fl_sweep_list_done(fl_inside("out"), ids, &count, NULL), FL_OK);
    assert_true(count <= MOST_CELLS);
    for (size_t i = 0; i < count; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s.h5", fl_inside("out"), (*ids)[i]);
        assert_int_equal(fl_hash_file(path, &hashes[i], NULL), FL_OK);
    }
    return count;
}

static void test_an_interrupt_keeps_what_is_done_and_the_next_run_takes_the_rest(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "");
    char *output = NULL;
    /* Interrupted as soon as the first cell is there: the second one may be under way. */
    int code = fl_shell(&output,
                        "%s run %s --out %s --threads 1 --batch 1 2>&1 & p=$!; "
                        "until ls %s/*.h5 >/dev/null 2>&1 || ! kill -0 $p 2>/dev/null; do sleep 0.01; done; "
                        "kill -INT $p; wait $p",
                        fl_program_path(), config, fl_inside("out"), fl_inside("out"));
    if (code != 130 || strstr(output, "the same command resumes") == NULL)
        fail_msg("exit %d, not 130:\n%s", code, output);
    fl_memory_free(output);
    char **ids = NULL, **later = NULL;
    fl_hash before[MOST_CELLS], after[MOST_CELLS];
    size_t done = hash_run_files(&ids, before);
    assert_in_range(done, 1, 7);
    assert_int_equal(count_files(fl_inside("out"), ".claim"), 0);
    assert_int_equal(count_files(fl_inside("out"), ".part-"), 0);
    assert_int_equal(count_files(fl_inside("out"), ".failed"), 0);
    code = fl_shell(&output, "%s run %s --out %s --threads 1", fl_program_path(), config, fl_inside("out"));
    if (code != 0) fail_msg("exit %d:\n%s", code, output);
    assert_int_equal(occurrences(output, "\ndone: "), 8 - done);
    fl_memory_free(output);
    assert_int_equal(hash_run_files(&later, after), 8);
    for (size_t i = 0; i < done; i++) {
        size_t at = 0;
        while (at < 8 && strcmp(later[at], ids[i]) != 0) at++;
        assert_in_range(at, 0, 7);
        assert_string_equal(before[i].text, after[at].text);
    }
    fl_sweep_list_release(ids, done);
    fl_sweep_list_release(later, 8);
    assert_tidy(8);
}

static void test_a_failure_is_recorded_and_retried_only_on_request(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    fl_write_ids(fl_inside("ids.json"), 2, 40, 37);
    fl_write_text(fl_inside("sweep.yaml"),
                  "name: failing\nmodel: {path: %s}\ntext: {ids: %s}\n"
                  "variant: {window: 8, sinks: 2}\n"
                  "sweep:\n  list:\n    - {variant.rule: none}\n"
                  "    - {variant.rule: kda, variant.mechanism: %s/model.safetensors}\n",
                  model, fl_inside("ids.json"), model);
    char *output = NULL;
    int code =
        fl_shell(&output, "%s run %s --out %s", fl_program_path(), fl_inside("sweep.yaml"), fl_inside("out"));
    if (code != 1 || strstr(output, "1 of 2 cells failed") == NULL) fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    assert_int_equal(count_files(fl_inside("out"), ".failed.json"), 1);
    assert_int_equal(count_files(fl_inside("out"), ".claim"), 0);
    code =
        fl_shell(&output, "%s run %s --out %s", fl_program_path(), fl_inside("sweep.yaml"), fl_inside("out"));
    if (code != 1 || strstr(output, "recorded by an earlier run") == NULL ||
        strstr(output, "0 cells to measure, 1 kept") == NULL)
        fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    code = fl_shell(&output, "%s plan %s --out %s", fl_program_path(), fl_inside("sweep.yaml"),
                    fl_inside("out"));
    if (code != 1 || strstr(output, "recorded by an earlier run") == NULL)
        fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    code = fl_shell(&output, "%s run %s --out %s --retry-failed", fl_program_path(), fl_inside("sweep.yaml"),
                    fl_inside("out"));
    if (code != 1 || strstr(output, "1 cells to measure, 1 kept") == NULL)
        fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
}

/* The run id in the first line of `plan` that ends in `label`. */
static void planned_id(const char *config, const char *label, char id[16]) {
    char *plan = NULL, wanted[PATH_BYTES];
    fl_shell(&plan, "%s plan %s --out %s", fl_program_path(), config, fl_inside("out"));
    snprintf(wanted, sizeof wanted, "  %s\n", label);
    const char *end = strstr(plan, wanted);
    if (end == NULL) fail_msg("no \"%s\" in:\n%s", label, plan);
    while (end > plan && end[-1] != '\n') end--;
    snprintf(id, 16, "%.12s", end);
    fl_memory_free(plan);
}

static void test_a_cell_running_elsewhere_is_left_alone_and_shown(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "");
    char id[16];
    planned_id(config, "delta", id);
    fl_sweep_claim *claim = NULL;
    fl_sweep_state found;
    assert_int_equal(fl_sweep_claim_create(fl_inside("out"), id, &(fl_sweep_policy){0}, &claim, &found, NULL),
                     FL_OK);
    assert_non_null(claim);
    char *output = NULL;
    int code =
        fl_shell(&output, "%s run %s --out %s --threads 1", fl_program_path(), config, fl_inside("out"));
    if (code != 75 || strstr(output, "1 of 8 cells are still running elsewhere") == NULL)
        fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    assert_int_equal(count_files(fl_inside("out"), ".h5"), 7);
    fl_shell(&output, "%s plan %s --out %s", fl_program_path(), config, fl_inside("out"));
    if (strstr(output, "running") == NULL) fail_msg("%s", output);
    fl_memory_free(output);
    assert_int_equal(fl_sweep_claim_release(claim, NULL), FL_OK);
    code = fl_shell(&output, "%s run %s --out %s --threads 1", fl_program_path(), config, fl_inside("out"));
    if (code != 0) fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    assert_tidy(8);
}

static void test_a_killed_worker_is_taken_over_and_its_traces_removed(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "");
    char *output = NULL;
    fl_shell(
        &output,
        "%s run %s --out %s --threads 1 >/dev/null 2>&1 & p=$!; "
        "until grep -q begun %s/*.journal.jsonl 2>/dev/null || ! kill -0 $p 2>/dev/null; do sleep 0.005; "
        "done; kill -KILL "
        "$p; wait $p",
        fl_program_path(), config, fl_inside("out"), fl_inside("out"));
    fl_memory_free(output);
    assert_true(count_files(fl_inside("out"), ".claim") > 0);
    fl_shell(&output, "%s plan %s --out %s", fl_program_path(), config, fl_inside("out"));
    if (strstr(output, "stale") == NULL) fail_msg("%s", output);
    fl_memory_free(output);
    assert_int_equal(fl_shell(&output, "%s inspect %s", fl_program_path(), fl_inside("out")), 0);
    if (strstr(output, "stale") == NULL || strstr(output, "journal: begun") == NULL ||
        strstr(output, "claimed by ") == NULL || strstr(output, "0 runs finished, ") == NULL)
        fail_msg("%s", output);
    fl_memory_free(output);
    assert_int_equal(
        fl_shell(&output, "%s merge %s --out %s", fl_program_path(), fl_inside("out"), fl_inside("m.h5")), 1);
    if (strstr(output, "begun and not finished: ") == NULL) fail_msg("%s", output);
    fl_memory_free(output);
    int code =
        fl_shell(&output, "%s run %s --out %s --threads 1", fl_program_path(), config, fl_inside("out"));
    if (code != 0 || strstr(output, "taking over: ") == NULL) fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    assert_tidy(8);
}

static void test_traces_beside_a_finished_cell_are_removed(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "");
    char id[16], name[64];
    planned_id(config, "delta", id);
    assert_int_equal(
        fl_shell(NULL, "%s run %s --out %s --threads 1", fl_program_path(), config, fl_inside("out")), 0);
    static const char *const traces[][2] = {{"", ".journal.jsonl"},
                                            {".", ".h5.part-99999"},
                                            {"", ".failed.json"},
                                            {"", ".training.safetensors.partial-9-0"}};
    for (size_t i = 0; i < sizeof traces / sizeof traces[0]; i++) {
        snprintf(name, sizeof name, "out/%s%s%s", traces[i][0], id, traces[i][1]);
        fl_write_text(fl_inside(name), "{}\n");
    }
    assert_int_equal(count_files(fl_inside("out"), ".part"), 2);
    assert_int_equal(
        fl_shell(NULL, "%s run %s --out %s --threads 1", fl_program_path(), config, fl_inside("out")), 0);
    assert_tidy(8);
}

static void test_a_foreign_file_in_the_place_of_a_run_file_is_named_and_kept(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "");
    char id[16], name[64];
    planned_id(config, "delta", id);
    assert_int_equal(fl_shell(NULL, "mkdir %s", fl_inside("out")), 0);
    snprintf(name, sizeof name, "out/%s.h5", id);
    fl_write_text(fl_inside(name), "notes\n");
    char *output = NULL;
    int code =
        fl_shell(&output, "%s run %s --out %s --threads 1", fl_program_path(), config, fl_inside("out"));
    if (code != 1 || strstr(output, "delete it to have the cell computed again") == NULL)
        fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    size_t bytes = 0;
    char *text = fl_read_file(fl_inside(name), &bytes);
    assert_string_equal(text, "notes\n");
    fl_memory_free(text);
}

static void test_self_check_runs_in_every_cell(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    fl_write_ids(fl_inside("ids.json"), 1, 64, 37);
    fl_write_text(fl_inside("sweep.yaml"),
                  "name: checked\nmodel: {path: %s}\ntext: {ids: %s}\nvariant: {window: 8, sinks: 2}\n"
                  "sweep:\n  grid:\n    variant.rule: [none, kda]\n",
                  model, fl_inside("ids.json"));
    char *output = NULL;
    int code = fl_shell(&output, "%s run %s --out %s --self-check", fl_program_path(),
                        fl_inside("sweep.yaml"), fl_inside("out"));
    if (code != 0 || occurrences(output, "self check of ") != 2) fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    char **ids = NULL, path[PATH_BYTES];
    size_t count = 0;
    assert_int_equal(fl_sweep_list_done(fl_inside("out"), &ids, &count, NULL), FL_OK);
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++) {
        fl_run_reader *reader = NULL;
        double passed = 0;
        snprintf(path, sizeof path, "%s/%s.h5", fl_inside("out"), ids[i]);
        assert_int_equal(fl_run_reader_open(path, &reader, NULL), FL_OK);
        assert_int_equal(fl_run_reader_attribute_number(reader, "/self_check", "passed", &passed, NULL),
                         FL_OK);
        assert_true(passed == 1);
        fl_run_reader_close(reader);
    }
    fl_sweep_list_release(ids, count);
}

static void test_merge_pools_the_runs_of_a_folder(void **state) {
    (void)state;
    const char *model = fl_reference_model(__func__);
    fl_write_ids(fl_inside("ids.json"), 2, 40, 37);
    fl_write_ids(fl_inside("more.json"), 3, 40, 53);
    fl_write_text(fl_inside("sweep.yaml"),
                  "name: pooled\nmodel: {path: %s}\nvariant: {rule: kda, window: 8, sinks: 2}\n"
                  "sweep:\n  grid:\n    text.ids: [%s, %s]\n",
                  model, fl_inside("ids.json"), fl_inside("more.json"));
    char *output = NULL;
    int code = fl_shell(&output, "%s run %s --out %s && %s merge %s --out %s && %s inspect %s",
                        fl_program_path(), fl_inside("sweep.yaml"), fl_inside("out"), fl_program_path(),
                        fl_inside("out"), fl_inside("pooled.h5"), fl_program_path(), fl_inside("pooled.h5"));
    if (code != 0 || strstr(output, "pooled.h5: 2 runs pooled") == NULL || strstr(output, "merged") == NULL)
        fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
}

static void test_plan_counts_states_and_estimates_time(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "");
    char *output = NULL;
    assert_int_equal(fl_shell(&output, "%s plan %s --out %s", fl_program_path(), config, fl_inside("out")),
                     0);
    if (strstr(output, "8 cells: 8 to do, 0 done; 1 frozen pass") == NULL ||
        strstr(output, "for one worker here (from the sizes") == NULL || strstr(output, "of memory") == NULL)
        fail_msg("%s", output);
    fl_memory_free(output);
    assert_int_equal(
        fl_shell(NULL, "%s run %s --out %s --threads 1", fl_program_path(), config, fl_inside("out")), 0);
    char id[16], name[64];
    planned_id(config, "delta", id);
    snprintf(name, sizeof name, "out/%s.h5", id);
    assert_int_equal(unlink(fl_inside(name)), 0);
    assert_int_equal(fl_shell(&output, "%s plan %s --out %s", fl_program_path(), config, fl_inside("out")),
                     0);
    if (strstr(output, "1 to do, 7 done") == NULL || strstr(output, "(from the cells done)") == NULL)
        fail_msg("%s", output);
    fl_memory_free(output);
    fl_write_text(fl_inside("excluding.yaml"),
                  "name: x\nmodel: {path: %s}\ntext: {ids: %s}\nvariant: {window: 8}\nsweep:\n  grid:\n"
                  "    variant.rule: [none, kda, kda]\n    variant.sinks: [0, 1]\n"
                  "  exclude: [{variant.rule: none, variant.sinks: 1}]\n",
                  fl_reference_model(__func__), fl_inside("ids.json"));
    assert_int_equal(fl_shell(&output, "%s plan %s", fl_program_path(), fl_inside("excluding.yaml")), 0);
    if (strstr(output, "2 the same as another, 1 excluded") == NULL) fail_msg("%s", output);
    fl_memory_free(output);
}

static void test_plan_writes_a_slurm_script_that_runs_a_worker(void **state) {
    (void)state;
    const char *config = write_sweep(fl_reference_model(__func__), "");
    char *output = NULL;
    int code =
        fl_shell(&output, "%s plan %s --out %s --slurm --array 3 \"name=it's quoted\" > %s && cat %s",
                 fl_program_path(), config, fl_inside("out"), fl_inside("job.sh"), fl_inside("job.sh"));
    if (code != 0 || strncmp(output, "#!/bin/bash\n#SBATCH ", 20) != 0 ||
        strstr(output, "#SBATCH --array=0-2\n") == NULL || strstr(output, "#SBATCH --requeue\n") == NULL)
        fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    /* Outside Slurm the script is one worker. */
    code = fl_shell(&output, "bash %s", fl_inside("job.sh"));
    if (code != 0) fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
    assert_tidy(8);
    code = fl_shell(&output, "%s plan %s --array 3", fl_program_path(), config);
    if (code != 2 || strstr(output, "--array belongs to --slurm") == NULL)
        fail_msg("exit %d:\n%s", code, output);
    fl_memory_free(output);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_two_workers_compute_every_cell_once),
        TEST(test_four_workers_compute_every_cell_once),
        TEST(test_an_interrupt_keeps_what_is_done_and_the_next_run_takes_the_rest),
        TEST(test_a_failure_is_recorded_and_retried_only_on_request),
        TEST(test_a_cell_running_elsewhere_is_left_alone_and_shown),
        TEST(test_a_killed_worker_is_taken_over_and_its_traces_removed),
        TEST(test_traces_beside_a_finished_cell_are_removed),
        TEST(test_a_foreign_file_in_the_place_of_a_run_file_is_named_and_kept),
        TEST(test_self_check_runs_in_every_cell),
        TEST(test_merge_pools_the_runs_of_a_folder),
        TEST(test_plan_counts_states_and_estimates_time),
        TEST(test_plan_writes_a_slurm_script_that_runs_a_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
