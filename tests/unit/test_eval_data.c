/* Data checks: our questions and the manifests of public sets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/base/sha256.h"
#include "harness/eval/data_check.h"
#include "harness/eval/readers.h"
#include "tests/support/fixture.h"

static const char questions[] = "datasets/questions", manifests[] = "datasets/manifests";

static void test_our_questions_are_complete_and_balanced(void **state) {
    (void)state;
    const fl_reader_request request = {.path = questions, .split = "test", .needs_shots = true};
    fl_task_data data = {0};
    fl_error error = {0};
    if (fl_read_hendrycks(&request, &data, &error) != FL_OK) fail_msg("%s", error.message);
    assert_int_equal(fl_task_data_finish(&data, &error), FL_OK);
    assert_true(data.subject_count >= 12);
    assert_int_equal(data.note_count, 0);
    for (size_t s = 0; s < data.subject_count; s++) {
        const fl_task_subject *subject = &data.subjects[s];
        size_t letters[4] = {0};
        assert_int_equal(subject->count, 20);
        assert_int_equal(subject->shot_count, 5);
        for (size_t i = 0; i < subject->count; i++) letters[data.documents.items[subject->first + i].gold]++;
        for (int l = 0; l < 4; l++) assert_int_equal(letters[l], 5);
    }
    for (size_t i = 0; i < data.documents.count; i++) {
        const fl_task_document *document = &data.documents.items[i];
        for (size_t a = 0; a < 4; a++) {
            for (size_t b = 0; b < a; b++) assert_string_not_equal(document->choice[a], document->choice[b]);
        }
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(document->piece[0], data.documents.items[j].piece[0]);
        for (size_t j = 0; j < data.pool.count; j++)
            assert_string_not_equal(document->piece[0], data.pool.items[j].piece[0]);
    }
    fl_task_data_release(&data);
}

static void test_our_questions_are_what_their_manifest_says(void **state) {
    (void)state;
    char **paths = NULL;
    size_t count = 0;
    fl_error error = {0};
    if (fl_data_manifests_for(questions, manifests, &paths, &count, &error) != FL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(count, 1);
    assert_string_equal(paths[0], "datasets/questions/manifest.json");
    fl_data_report report;
    if (fl_data_check(paths[0], questions, &report, &error) != FL_OK) fail_msg("%s", error.message);
    assert_int_equal(report.count, 24);
    assert_int_equal(report.same, 24);
    assert_string_equal(report.licence, "CC0-1.0");
    fl_data_report_release(&report);
    fl_data_manifests_release(paths, count);
}

/* A set of three files in `folder`: a.csv known by hash, b.jsonl by rows, c.txt by hash. */
static void write_set(const char *folder) {
    char path[512], hash[FL_SHA256_TEXT_BYTES], manifest[1024];
    snprintf(path, sizeof path, "%s/a.csv", folder);
    fl_write_file(path, "q,1\nr,2\n", 8);
    fl_sha256_bytes("q,1\nr,2\n", 8, hash);
    snprintf(manifest, sizeof manifest,
             "{\"name\": \"s\", \"files\": [{\"file\": \"a.csv\", \"bytes\": 8, \"rows\": 2, \"sha256\": "
             "\"%s\"}, {\"file\": \"b.jsonl\", "
             "\"rows\": 2}, {\"file\": \"sub/c.txt\", \"bytes\": 3, \"sha256\": \"%s\"}]}",
             hash, hash);
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    fl_write_file(path, manifest, strlen(manifest));
    snprintf(path, sizeof path, "%s/b.jsonl", folder);
    fl_write_file(path, "{}\n{}\n", 6);
}

static fl_data_report checked(const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    fl_data_report report;
    fl_error error = {0};
    if (fl_data_check(path, folder, &report, &error) != FL_OK) fail_msg("%s", error.message);
    return report;
}

static void test_missing_and_altered_files_are_told_apart(void **state) {
    (void)state;
    char folder[256], path[512];
    snprintf(folder, sizeof folder, "%s", fl_temporary_directory());
    write_set(folder);
    fl_data_report report = checked(folder);
    assert_int_equal(report.same, 1);
    assert_int_equal(report.unverified, 1);
    assert_int_equal(report.missing, 1);
    assert_int_equal(report.files[2].state, FL_DATA_MISSING);
    fl_data_report_release(&report);
    snprintf(path, sizeof path, "%s/a.csv", folder);
    fl_write_file(path, "q,1\r\nr,2\r\n\"x", 12);
    snprintf(path, sizeof path, "%s/b.jsonl", folder);
    fl_write_file(path, "{}\n", 3);
    report = checked(folder);
    assert_int_equal(report.altered, 2);
    assert_non_null(strstr(report.files[0].finding, "12 bytes instead of 8"));
    assert_non_null(strstr(report.files[0].finding, "a.csv:3: a quoted cell"));
    assert_string_equal(report.files[1].finding, "1 rows, 2 expected");
    fl_data_report_release(&report);
    fl_temporary_remove(folder);
}

static void assert_not_a_manifest(const char *folder, const char *text) {
    char path[512];
    fl_data_report report;
    fl_error error = {0};
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    fl_write_file(path, text, strlen(text));
    assert_int_equal(fl_data_check(path, folder, &report, &error), FL_ERROR_FORMAT);
    assert_true(strstr(error.message, "not a manifest") != NULL || strstr(error.message, "JSON: ") != NULL);
    assert_non_null(strstr(error.message, path));
}

static void test_what_is_not_a_manifest_is_refused(void **state) {
    (void)state;
    char folder[256];
    snprintf(folder, sizeof folder, "%s", fl_temporary_directory());
    assert_not_a_manifest(folder, "");
    assert_not_a_manifest(folder, "[1]");
    assert_not_a_manifest(folder, "{\"name\": \"x\"}");
    assert_not_a_manifest(folder, "{\"name\": \"x\", \"files\": [{\"file\": \"../y\"}]}");
    assert_not_a_manifest(folder, "{\"name\": \"x\", \"files\": [{\"file\": \"/etc/passwd\"}]}");
    char **paths = NULL;
    size_t count = 0;
    fl_error error;
    char empty[512];
    snprintf(empty, sizeof empty, "%s/empty", folder);
    assert_int_equal(mkdir(empty, 0777), 0);
    assert_int_equal(fl_data_manifests_for(empty, manifests, &paths, &count, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "mmlu"));
    assert_int_equal(fl_data_manifests_for("no/such", manifests, &paths, &count, &error), FL_ERROR_IO);
    fl_temporary_remove(folder);
}

static void test_the_packs_are_what_the_manifests_say(void **state) {
    (void)state;
    static const struct {
        const char *folder, *manifest;
    } sets[] = {{"mmlu", "mmlu"},
                {"arc", "arc"},
                {"piqa", "piqa"},
                {"winogrande", "winogrande"},
                {"lambada", "lambada"},
                {"truthfulqa", "truthfulqa"},
                {"text/wikitext-2-raw", "wikitext-2-raw"}};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        const char *folder = fl_pack_path(sets[i].folder);
        if (folder == NULL) fl_fixture_skip(__func__, sets[i].folder);
        char path[256];
        fl_data_report report;
        fl_error error = {0};
        snprintf(path, sizeof path, "%s/%s.json", manifests, sets[i].manifest);
        if (fl_data_check(path, folder, &report, &error) != FL_OK) fail_msg("%s", error.message);
        if (report.same != report.count)
            fail_msg("%s: %zu of %zu files", sets[i].folder, report.same, report.count);
        fl_data_report_release(&report);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_our_questions_are_complete_and_balanced),
        cmocka_unit_test(test_our_questions_are_what_their_manifest_says),
        cmocka_unit_test(test_missing_and_altered_files_are_told_apart),
        cmocka_unit_test(test_what_is_not_a_manifest_is_refused),
        cmocka_unit_test(test_the_packs_are_what_the_manifests_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
