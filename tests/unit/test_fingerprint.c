/* Fingerprints: which sources concern a run, what is said to have changed, and what `plan`, `run` and the
 * tables do about it. */
#include <dirent.h>
#include <hdf5.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "attn_variants/attn_variant.h"
#include "harness/base/memory.h"
#include "harness/store/fingerprint.h"
#include "harness/store/merge_notes.h"
#include "harness/store/sweep.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

static fl_error problem;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        if ((call) != FL_OK) fail_msg("%s", problem.message);                                                \
    } while (0)

static fl_hash fingerprint(const fl_source_table *sources, const char *rule) {
    fl_hash hash;
    OK(fl_fingerprint_of(sources, rule, &hash, &problem));
    return hash;
}

static bool same(const fl_hash *a, const fl_hash *b) {
    return strcmp(a->text, b->text) == 0;
}

static void test_every_rule_has_a_file_of_its_name(void **state) {
    (void)state;
    const fl_source_table sources = fl_fingerprint_sources();
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        char path[128];
        size_t at = 0;
        snprintf(path, sizeof path, "attn_variants/%s.c", fl_rule_registry[i]->name);
        while (at < sources.count && strcmp(sources.rows[at].path, path) != 0) at++;
        if (at == sources.count) fail_msg("no source %s", path);
    }
}

static void test_only_what_numbers_depend_on_counts(void **state) {
    (void)state;
    static const char *const in[] = {"attn_variants/kda.c",
                                     "attn_variants/mixer.h",
                                     "harness/base/random.c",
                                     "harness/base/threads.c",
                                     "harness/compute/cpu_kernels.inc",
                                     "harness/engine/session.c",
                                     "harness/measure/text_evaluation.c",
                                     "harness/eval/scoring.c",
                                     "harness/model/gguf.c"};
    static const char *const out[] = {
        "harness/cli/",    "harness/run/",   "harness/bench/", "analysis/",
        "harness/config/", "harness/store/", "docs/",          "attn_variants/registry.c"};
    const fl_source_table sources = fl_fingerprint_sources();
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        size_t at = 0;
        while (at < sources.count && strcmp(sources.rows[at].path, in[i]) != 0) at++;
        if (at == sources.count) fail_msg("%s does not count", in[i]);
    }
    for (size_t s = 0; s < sources.count; s++) {
        assert_int_equal(strlen(sources.rows[s].hash), 16);
        if (s > 0) assert_true(strcmp(sources.rows[s - 1].path, sources.rows[s].path) < 0);
        for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
            assert_null(strstr(sources.rows[s].path, out[i]));
    }
}

static const fl_source before[] = {{"attn_variants/gla.c", "1111111111111111"},
                                   {"attn_variants/kda.c", "2222222222222222"},
                                   {"attn_variants/mixer.c", "3333333333333333"},
                                   {"attn_variants/none.c", "4444444444444444"},
                                   {"harness/engine/a.c", "5555555555555555"}};
enum { ROWS = sizeof before / sizeof before[0] };

static void test_an_edited_rule_concerns_its_own_runs_alone(void **state) {
    (void)state;
    fl_source after[ROWS];
    const fl_source_table old = {before, ROWS}, new = {after, ROWS};
    static const bool gla_differs[ROWS] = {true, false, true, true, true};
    for (size_t i = 0; i < ROWS; i++) {
        memcpy(after, before, sizeof after);
        after[i].hash = "ffffffffffffffff";
        const fl_hash gla_then = fingerprint(&old, "gla"), gla_now = fingerprint(&new, "gla");
        assert_int_equal(same(&gla_then, &gla_now), !gla_differs[i]);
    }
    /* A rule that has no file of its name: any rule's file may be its own. */
    memcpy(after, before, sizeof after);
    after[1].hash = "ffffffffffffffff";
    const fl_hash then = fingerprint(&old, "delta"), now = fingerprint(&new, "delta");
    assert_false(same(&then, &now));
}

/* What a run file made of `old` says when it is compared with `new`; "" for nothing. */
static const char *changes(const fl_source_table *old, const fl_source_table *new, const char *rule) {
    static char text[512];
    const char *path = fl_inside("one.h5");
    fl_run_file *file = NULL;
    fl_run_reader *reader = NULL;
    char *changed = NULL;
    unlink(path);
    OK(fl_run_file_create_at(path, &file, &problem));
    if (old != NULL) OK(fl_fingerprint_write(file, old, rule, &problem));
    OK(fl_run_file_commit(file, &problem));
    OK(fl_run_reader_open(path, &reader, &problem));
    OK(fl_fingerprint_compare(reader, new, rule, &changed, &problem));
    fl_run_reader_close(reader);
    snprintf(text, sizeof text, "%s", changed != NULL ? changed : "");
    fl_memory_free(changed);
    return text;
}

static void test_what_has_changed_is_named(void **state) {
    (void)state;
    fl_source after[ROWS];
    const fl_source_table old = {before, ROWS};
    fl_source_table new = {after, ROWS};
    memcpy(after, before, sizeof after);
    assert_string_equal(changes(&old, &new, "kda"), "");
    after[0].hash = "ffffffffffffffff";
    assert_string_equal(changes(&old, &new, "kda"), "");
    assert_string_equal(changes(&old, &new, "gla"), "gla.c");
    after[1].hash = after[2].hash = after[3].hash = after[4].hash = "ffffffffffffffff";
    assert_string_equal(changes(&old, &new, "kda"), "kda.c, mixer.c, none.c and 1 more");
    memcpy(after, before, sizeof after);
    after[4].path = "harness/engine/b.c";
    assert_string_equal(changes(&old, &new, "kda"), "a.c (gone), b.c (new)");
    new.count = 4;
    assert_string_equal(changes(&old, &new, "kda"), "a.c (gone)");
    assert_string_equal(changes(NULL, &new, "kda"), "code that the file does not name");
}

static void test_names_from_a_foreign_file_are_not_printed_as_they_are(void **state) {
    (void)state;
    const fl_source hostile[] = {{"x/<b>\033[2J.c", "1"}};
    const fl_source_table old = {hostile, 1}, new = {before, 1};
    assert_string_equal(changes(&old, &new, "gla"), "gla.c (new), ? (gone)");
}

/* A file that names its code and warns. */
static const char *write_run(const char *name, const fl_source_table *sources, const char *warning) {
    const char *path = fl_inside(name), *const warnings[] = {"common", warning};
    fl_run_file *file = NULL;
    OK(fl_run_file_create_at(path, &file, &problem));
    if (sources != NULL) OK(fl_fingerprint_write(file, sources, "kda", &problem));
    OK(fl_run_file_write_texts(file, "/warnings", 2, warnings, "", &problem));
    OK(fl_run_file_commit(file, &problem));
    return path;
}

/* What the pooled file of two says: how many warnings, whether there is the one about the code. */
static size_t pooled_warnings(const char *const paths[2], const fl_source_table *sources, bool *judged,
                              bool *warned) {
    fl_run_file *file = NULL;
    fl_run_reader *reader = NULL;
    char **texts = NULL, *changed = NULL;
    size_t count = 0, codes = 0;
    const char *path = fl_inside("pooled.h5");
    unlink(path);
    OK(fl_run_file_create_at(path, &file, &problem));
    OK(fl_merge_notes_write(paths, 2, file, &problem));
    OK(fl_run_file_commit(file, &problem));
    OK(fl_run_reader_open(path, &reader, &problem));
    OK(fl_run_reader_texts(reader, "/merged/fingerprint", &texts, &codes, &problem));
    assert_int_equal(codes, 2);
    fl_sweep_list_release(texts, codes);
    *judged = fl_run_reader_has(reader, "/provenance/fingerprint");
    if (*judged) {
        OK(fl_fingerprint_compare(reader, sources, "kda", &changed, &problem));
        assert_null(changed);
    }
    OK(fl_run_reader_texts(reader, "/warnings", &texts, &count, &problem));
    *warned = strcmp(texts[count - 1], "merge: the runs were not all made by the same code") == 0;
    assert_string_equal(texts[0], "common");
    fl_sweep_list_release(texts, count);
    fl_run_reader_close(reader);
    return count;
}

static void test_pooled_runs_keep_their_code_and_warnings(void **state) {
    (void)state;
    fl_source after[ROWS];
    memcpy(after, before, sizeof after);
    after[1].hash = "ffffffffffffffff";
    const fl_source_table old = {before, ROWS}, new = {after, ROWS};
    const char *first = write_run("a.h5", &old, "of a"), *same_code = write_run("b.h5", &old, "of b"),
               *other = write_run("c.h5", &new, "of a"), *unknown = write_run("d.h5", NULL, "of a");
    bool judged = false, warned = false;
    assert_int_equal(pooled_warnings((const char *const[]){first, same_code}, &old, &judged, &warned), 3);
    assert_true(judged && !warned);
    assert_int_equal(pooled_warnings((const char *const[]){first, other}, &old, &judged, &warned), 3);
    assert_true(!judged && warned);
    assert_int_equal(pooled_warnings((const char *const[]){unknown, first}, &old, &judged, &warned), 3);
    assert_true(!judged && warned);
}

/* The program from outside. */

static void write_sweep(const char *test) {
    fl_write_ids(fl_inside("ids.json"), 2, 40, 37);
    fl_write_ids(fl_inside("fit.json"), 4, 32, 53);
    fl_write_text(fl_inside("sweep.yaml"),
                  "name: aged\nmodel: {path: %s}\ntext: {ids: %s}\nvariant: {window: 8, sinks: 2}\n"
                  "sweep:\n  list:\n    - {variant.rule: gla}\n"
                  "    - {variant.rule: kda, train.steps: 4, train.ids: %s, train.allow_overlap: true}\n",
                  fl_reference_model(test), fl_inside("ids.json"), fl_inside("fit.json"));
}

static const char *run_file(const char *ending, const char *beside) {
    static char path[1024];
    char **ids = NULL;
    size_t count = 0;
    OK(fl_sweep_list_done(fl_inside("out"), &ids, &count, &problem));
    path[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        char name[1024];
        snprintf(name, sizeof name, "%s/%s%s", fl_inside("out"), ids[i], beside);
        if (access(name, F_OK) == 0) snprintf(path, sizeof path, "%s/%s%s", fl_inside("out"), ids[i], ending);
    }
    fl_sweep_list_release(ids, count);
    return path;
}

/* The trained cell is the one with a mechanism file. */
static const char *of_trained(const char *ending) {
    return run_file(ending, ".mechanism.safetensors");
}

static void write_lines(hid_t file, char *const *lines, size_t count) {
    char block[512][96] = {{0}};
    assert_true(count <= 512);
    for (size_t i = 0; i < count; i++) snprintf(block[i], sizeof block[i], "%s", lines[i]);
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &(hsize_t){count}, NULL);
    H5Tset_size(type, sizeof block[0]);
    H5Tset_cset(type, H5T_CSET_UTF8);
    hid_t data = H5Dcreate2(file, "/provenance/sources", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, block) >= 0);
    H5Dclose(data);
    H5Sclose(space);
    H5Tclose(type);
}

/* As if `source` had had another content when the file was made; NULL: as if nothing had been recorded. */
static void make_older(const char *path, const char *source) {
    fl_run_reader *reader = NULL;
    char **lines = NULL;
    size_t count = 0, edited = 0;
    OK(fl_run_reader_open(path, &reader, &problem));
    OK(fl_run_reader_texts(reader, "/provenance/sources", &lines, &count, &problem));
    fl_run_reader_close(reader);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0);
    H5Ldelete(file, "/provenance/fingerprint", H5P_DEFAULT);
    H5Ldelete(file, "/provenance/sources", H5P_DEFAULT);
    for (size_t i = 0; source != NULL && i < count; i++) {
        if (strncmp(lines[i], source, strlen(source)) != 0) continue;
        memset(strrchr(lines[i], ' ') + 1, 'f', 16);
        edited++;
    }
    if (source != NULL) {
        assert_int_equal(edited, 1);
        write_lines(file, lines, count);
    }
    H5Fclose(file);
    fl_sweep_list_release(lines, count);
}

static const char *command(const char *verb, const char *flags) {
    static char text[4][2048];
    static int next;
    char *out = text[next++ % 4];
    snprintf(out, sizeof text[0], "%s %s --out %s %s", verb, fl_inside("sweep.yaml"), fl_inside("out"),
             flags);
    return out;
}

static size_t count_files(const char *part) {
    size_t count = 0;
    DIR *directory = opendir(fl_inside("out"));
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;)
        count += strstr(entry->d_name, part) != NULL;
    closedir(directory);
    return count;
}

static void test_a_result_of_other_code_is_measured_anew(void **state) {
    (void)state;
    write_sweep(__func__);
    fl_expect(0, command("run", ""), "2 cells to measure, 0 kept", NULL);
    fl_expect(0, command("plan", ""), "2 cells: 0 to do, 2 done", NULL);
    make_older(of_trained(".h5"), "attn_variants/kda.c");
    fl_expect(0, command("plan", ""), "changed", "(changed: kda.c)", "2 cells: 1 to do, 1 done", NULL);
    fl_expect(0, command("plan", "--keep-older"), "2 cells: 0 to do, 2 done", NULL);
    fl_expect(0, command("run", ""), "measured anew", "(changed: kda.c)", "1 cells to measure, 1 kept", NULL);
    fl_expect(0, command("plan", ""), "2 cells: 0 to do, 2 done", NULL);
    assert_int_equal(count_files("older"), 0);
    make_older(of_trained(".h5"), NULL);
    fl_expect(0, command("plan", ""), "(changed: code that the file does not name)", NULL);
}

static void test_older_results_are_kept_on_request_and_marked(void **state) {
    (void)state;
    char *output = NULL;
    write_sweep(__func__);
    fl_expect(0, command("run", ""), "2 cells to measure", NULL);
    make_older(of_trained(".h5"), "attn_variants/kda.c");
    fl_expect(0, command("run", "--keep-older"), "0 cells to measure, 2 kept", "kept, older",
              "older: measured by other code than this program's (kda.c)", NULL);
    output = fl_read_file(fl_inside("out/table.csv"), NULL);
    assert_non_null(strstr(output, ",older,"));
    fl_memory_free(output);
    assert_int_equal(fl_frostline(&output, "export %s --columns older,label", fl_inside("out")), 0);
    assert_non_null(strstr(output, "\n1,"));
    assert_non_null(strstr(output, "\n0,"));
    fl_memory_free(output);
    assert_int_equal(fl_frostline(NULL, "report %s --out %s", fl_inside("out"), fl_inside("r.html")), 0);
    output = fl_read_file(fl_inside("r.html"), &(size_t){0});
    assert_non_null(strstr(output, "<span class=\"tag\">older</span>"));
    assert_non_null(strstr(output, "Older: measured by other code"));
    fl_memory_free(output);
    assert_int_equal(fl_frostline(&output, "export %s --format csv", fl_inside("out")), 0);
    assert_non_null(strstr(output, ",older,"));
    fl_memory_free(output);
}

/* The moments at which a process that measures a cell anew may be killed. */
static void test_an_interrupted_new_measurement_loses_nothing(void **state) {
    (void)state;
    char *before_text = NULL, *after_text = NULL;
    size_t before_bytes = 0, after_bytes = 0;
    char run_id[13] = "", set_aside[1200];
    write_sweep(__func__);
    fl_expect(0, command("run", ""), "2 cells to measure", NULL);
    make_older(of_trained(".h5"), "attn_variants/kda.c");
    snprintf(run_id, sizeof run_id, "%s", strrchr(of_trained(".h5"), '/') + 1);
    snprintf(set_aside, sizeof set_aside, "%s/%s.h5.older", fl_inside("out"), run_id);
    before_text = fl_read_file(of_trained(".mechanism.safetensors"), &before_bytes);

    fl_sweep_stamp stamp;
    fl_sweep_claim *claim = NULL;
    fl_sweep_state seen;
    bool there = false;
    OK(fl_sweep_stamp_of(fl_inside("out"), run_id, &stamp, &there, &problem));
    OK(fl_sweep_claim_again(fl_inside("out"), run_id, &(fl_sweep_policy){0}, &stamp, &claim, &seen,
                            &problem));
    assert_non_null(claim);
    assert_int_equal(access(set_aside, F_OK), 0);
    fl_expect(0, command("plan", ""), "running", NULL);
    OK(fl_sweep_claim_release(claim, &problem));
    fl_expect(0, command("plan", ""), "missing", "2 cells: 1 to do, 1 done", NULL);
    assert_int_equal(fl_frostline(NULL, "report %s --out %s", fl_inside("out"), fl_inside("r.html")), 0);
    char *page = fl_read_file(fl_inside("r.html"), &(size_t){0});
    assert_non_null(strstr(page, "1 begun and not done"));
    fl_memory_free(page);
    /* The old result is there to be put back ... */
    fl_expect(0, command("run", "--keep-older"), "0 cells to measure, 2 kept", "kept, older", NULL);
    assert_int_not_equal(access(set_aside, F_OK), 0);
    after_text = fl_read_file(of_trained(".mechanism.safetensors"), &after_bytes);
    assert_int_equal(before_bytes, after_bytes);
    assert_memory_equal(before_text, after_text, before_bytes);
    /* ... or to be replaced. */
    fl_expect(0, command("run", ""), "1 cells to measure, 1 kept", NULL);
    assert_int_equal(count_files("older"), 0);
    fl_memory_free(before_text);
    fl_memory_free(after_text);
}

static void test_a_training_begun_by_other_code_starts_afresh(void **state) {
    (void)state;
    char path[1200], *output = NULL;
    write_sweep(__func__);
    fl_expect(0, command("run", ""), "2 cells to measure", NULL);
    snprintf(path, sizeof path, "%s", of_trained(".training.safetensors"));
    unlink(of_trained(".h5"));
    /* Anything that is readable and says that it is another's. */
    const float zero = 0;
    const fl_checkpoint_write_tensor tensor = {.name = "x", .data = &zero, .rank = 1, .shape = {1}};
    const char *const keys[] = {"identity"}, *const values[] = {"the same run of other code"};
    OK(fl_checkpoint_write_safetensors(path, &tensor, 1, keys, values, 1, &problem));
    assert_int_equal(fl_frostline(&output, "%s", command("run", "")), 0);
    assert_null(strstr(output, "belongs to another training"));
    fl_memory_free(output);
    fl_expect(0, command("plan", ""), "2 cells: 0 to do, 2 done", NULL);
}

static void test_cells_are_measured_anew_by_name(void **state) {
    (void)state;
    write_sweep(__func__);
    fl_expect(0, command("run", ""), "2 cells to measure", NULL);
    fl_expect(0, command("run", "--rerun all"), "2 cells to measure, 0 kept", NULL);
    fl_expect(0, command("run", "--rerun gla"), "1 cells to measure, 1 kept", "(--rerun)", NULL);
    fl_expect(0, command("run", "--rerun '*gla'"), "1 cells to measure, 1 kept", NULL);
    fl_expect(0, command("run", "--rerun failed"), "0 cells to measure, 2 kept", NULL);
    fl_expect(1, command("run", "--rerun gl4"), "--rerun gl4: no cell has a label or run id like that", NULL);
    assert_int_equal(count_files("older"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rule_has_a_file_of_its_name),
        cmocka_unit_test(test_only_what_numbers_depend_on_counts),
        cmocka_unit_test(test_an_edited_rule_concerns_its_own_runs_alone),
        cmocka_unit_test_setup_teardown(test_what_has_changed_is_named, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_names_from_a_foreign_file_are_not_printed_as_they_are,
                                        fl_test_folder_make, fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_pooled_runs_keep_their_code_and_warnings, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_a_result_of_other_code_is_measured_anew, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_older_results_are_kept_on_request_and_marked,
                                        fl_test_folder_make, fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_an_interrupted_new_measurement_loses_nothing,
                                        fl_test_folder_make, fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_a_training_begun_by_other_code_starts_afresh,
                                        fl_test_folder_make, fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_cells_are_measured_anew_by_name, fl_test_folder_make,
                                        fl_test_folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
