/* The texts shipped in datasets/: what their manifest says, and free of repetition and overlap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/eval/data_check.h"
#include "harness/model/tokenizer_text.h"
#include "tests/support/fixture.h"

enum { RUN_WORDS = 8 };

static void test_texts_are_what_their_manifest_says(void **state) {
    (void)state;
    fl_data_report report;
    fl_error error;
    if (fl_data_check("datasets/manifest.json", "datasets", &report, &error) != FL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(report.count, 2);
    for (size_t i = 0; i < report.count; i++)
        if (report.files[i].state != FL_DATA_SAME)
            fail_msg("%s: %s", report.files[i].file, report.files[i].finding);
    assert_string_equal(report.licence, "CC0-1.0");
    fl_data_report_release(&report);
}

/* Cuts text into words in place (NUL behind each) and appends them to words[count]. */
static size_t cut_words(char *text, const char **words, size_t count) {
    for (char *at = text; *at != '\0';) {
        at += strspn(at, " \n");
        if (*at == '\0') break;
        words[count++] = at;
        at += strcspn(at, " \n");
        if (*at != '\0') *at++ = '\0';
    }
    return count;
}

static int compare_runs(const void *left, const void *right) {
    const char *const *a = *(const char *const *const *)left, *const *b = *(const char *const *const *)right;
    for (int i = 0; i < RUN_WORDS; i++) {
        int order = strcmp(a[i], b[i]);
        if (order != 0) return order;
    }
    return 0;
}

static void test_no_run_of_words_occurs_twice(void **state) {
    (void)state;
    size_t bytes, count = 0, runs = 0;
    char *texts[2] = {fl_read_file("datasets/calibration.txt", &bytes),
                      fl_read_file("datasets/reading.txt", &bytes)};
    const char **words, *const **starts;
    assert_int_equal(FL_ALLOCATE(&words, strlen(texts[0]) + strlen(texts[1]), NULL), FL_OK);
    size_t first = cut_words(texts[0], words, 0);
    count = cut_words(texts[1], words, first);
    assert_int_equal(first, 5961);
    assert_int_equal(count - first, 6638);
    assert_int_equal(FL_ALLOCATE(&starts, count, NULL), FL_OK);
    for (size_t i = 0; i + RUN_WORDS <= count; i++) starts[runs++] = &words[i];
    qsort(starts, runs, sizeof *starts, compare_runs);
    for (size_t i = 1; i < runs; i++)
        if (compare_runs(&starts[i - 1], &starts[i]) == 0)
            fail_msg("twice: %s %s %s %s ...", starts[i][0], starts[i][1], starts[i][2], starts[i][3]);
    fl_memory_free(starts);
    fl_memory_free(words);
    fl_memory_free(texts[0]);
    fl_memory_free(texts[1]);
}

static void test_texts_are_utf8_with_unix_line_ends(void **state) {
    (void)state;
    static const char *const paths[] = {"datasets/calibration.txt", "datasets/reading.txt"};
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        char *text = fl_read_file(paths[i], &bytes);
        assert_int_equal(fl_text_valid_prefix(text, bytes), bytes);
        assert_null(strchr(text, '\r'));
        assert_null(strchr(text, '\t'));
        assert_null(strstr(text, " \n"));
        assert_true(bytes > 2 && text[bytes - 1] == '\n' && text[bytes - 2] != '\n');
        fl_memory_free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_are_what_their_manifest_says),
        cmocka_unit_test(test_no_run_of_words_occurs_twice),
        cmocka_unit_test(test_texts_are_utf8_with_unix_line_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
