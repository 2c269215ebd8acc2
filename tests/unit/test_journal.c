/* Journals: whole lines survive whatever happens to the process, torn ones are dropped. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/store/journal.h"
#include "tests/support/fixture.h"

static fl_error problem;

#define OK(call)                                                                                             \
    do {                                                                                                     \
        if ((call) != FL_OK) fail_msg("%s", problem.message);                                                \
    } while (0)

static const char *file_in(const char *directory) {
    static char path[600];
    snprintf(path, sizeof path, "%s/a.journal.jsonl", directory);
    return path;
}

static void append(fl_journal *journal, const char *event, double number) {
    fl_journal_field field = {.name = "x", .number = number};
    OK(fl_journal_append(journal, event, &field, 1, &problem));
}

static void test_lines_are_read_back_with_every_digit(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_journal *journal = NULL;
    static const double numbers[] = {0.1, DBL_MAX, -5e-324, NAN, INFINITY, -INFINITY, 0.0};
    const fl_journal_field fields[] = {{.name = "text", .text = "größe \"x\"\n"},
                                       {.name = "list", .numbers = numbers, .count = 7},
                                       {.name = "third", .number = 1.0 / 3.0},
                                       {.name = "bad", .number = NAN},
                                       {.name = "none", .numbers = numbers, .count = 0}};
    OK(fl_journal_open(directory, "a", &journal, &problem));
    OK(fl_journal_append(journal, "stage", fields, 5, &problem));
    append(journal, "row", 2);
    OK(fl_journal_close(journal, true, &problem));
    fl_journal_lines *lines = NULL;
    OK(fl_journal_read(directory, "a", &lines, &problem));
    assert_int_equal(fl_journal_line_count(lines), 2);
    assert_false(fl_journal_was_torn(lines));
    assert_string_equal(fl_journal_event(lines, 0), "stage");
    assert_string_equal(fl_journal_text(lines, 0, "text"), "größe \"x\"\n");
    assert_null(fl_journal_text(lines, 0, "third"));
    assert_null(fl_journal_text(lines, 7, "text"));
    double value = 0;
    assert_true(fl_journal_number(lines, 0, "third", &value));
    assert_true(value == 1.0 / 3.0);
    assert_true(fl_journal_number(lines, 0, "bad", &value) && isnan(value));
    assert_false(fl_journal_number(lines, 0, "text", &value));
    assert_false(fl_journal_number(lines, 0, "absent", &value));
    double *list = NULL;
    size_t count = 0;
    OK(fl_journal_numbers(lines, 0, "list", &list, &count, &problem));
    assert_int_equal(count, 7);
    for (size_t i = 0; i < 7; i++)
        assert_true(list[i] == numbers[i] || (isnan(list[i]) && isnan(numbers[i])));
    fl_memory_free(list);
    OK(fl_journal_numbers(lines, 0, "none", &list, &count, &problem));
    assert_int_equal(count, 0);
    fl_memory_free(list);
    assert_int_equal(fl_journal_numbers(lines, 0, "third", &list, &count, &problem), FL_ERROR_FORMAT);
    fl_journal_lines_destroy(lines);
    fl_temporary_remove(directory);
}

static void test_a_missing_journal_is_empty(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_journal_lines *lines = NULL;
    OK(fl_journal_read(directory, "a", &lines, &problem));
    assert_int_equal(fl_journal_line_count(lines), 0);
    fl_journal_lines_destroy(lines);
    fl_temporary_remove(directory);
}

static void test_a_torn_last_line_is_dropped_and_said(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    static const char text[] = "{\"event\":\"one\",\"x\":1}\n{\"event\":\"two\",\"x\":2}\n{\"event\":\"thr";
    fl_write_file(file_in(directory), text, sizeof text - 1);
    fl_journal_lines *lines = NULL;
    OK(fl_journal_read(directory, "a", &lines, &problem));
    assert_int_equal(fl_journal_line_count(lines), 2);
    assert_true(fl_journal_was_torn(lines));
    fl_journal_lines_destroy(lines);
    fl_journal *journal = NULL;
    OK(fl_journal_open(directory, "a", &journal, &problem));
    append(journal, "three", 3);
    OK(fl_journal_close(journal, true, &problem));
    OK(fl_journal_read(directory, "a", &lines, &problem));
    assert_int_equal(fl_journal_line_count(lines), 3);
    assert_string_equal(fl_journal_event(lines, 2), "three");
    assert_false(fl_journal_was_torn(lines));
    fl_journal_lines_destroy(lines);
    fl_temporary_remove(directory);
}

static void test_a_damaged_line_in_the_middle_names_its_number(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    static const char *const bad[] = {"{\"event\":\"a\"}\nrubbish\n", "{\"event\":\"a\"}\n{\"no\":1}\n",
                                      "{\"event\":\"a\"}\n\n", "{\"event\":\"a\"}\n[1]\n",
                                      "{\"event\":\"a\"}\n{\"event\":3}\n"};
    for (size_t i = 0; i < 5; i++) {
        fl_write_file(file_in(directory), bad[i], strlen(bad[i]));
        fl_journal_lines *lines = NULL;
        fl_error error = {0};
        assert_int_equal(fl_journal_read(directory, "a", &lines, &error), FL_ERROR_FORMAT);
        assert_null(lines);
        assert_non_null(strstr(error.message, "a.journal.jsonl:2: "));
    }
    fl_temporary_remove(directory);
}

static void test_closing_without_keeping_deletes_it(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_journal *journal = NULL;
    OK(fl_journal_open(directory, "a", &journal, &problem));
    append(journal, "one", 1);
    OK(fl_journal_close(journal, false, &problem));
    assert_int_equal(access(file_in(directory), F_OK), -1);
    OK(fl_journal_close(NULL, false, &problem));
    fl_temporary_remove(directory);
}

/* Killed at random moments, the journal has a prefix of the lines and no damage. */
static void test_a_killed_writer_leaves_whole_lines(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    double expected = 0;
    for (int round = 0; round < 12; round++) {
        pid_t child = fork();
        if (child == 0) {
            fl_journal *journal = NULL;
            if (fl_journal_open(directory, "a", &journal, NULL) != FL_OK) _exit(1);
            for (double i = expected;; i++) {
                fl_journal_field field = {.name = "i", .number = i};
                if (fl_journal_append(journal, "row", &field, 1, NULL) != FL_OK) _exit(1);
            }
        }
        nanosleep(&(struct timespec){0, 1000000L * (2 + 3 * round)}, NULL);
        kill(child, SIGKILL);
        int result = 0;
        waitpid(child, &result, 0);
        assert_true(WIFSIGNALED(result));
        fl_journal_lines *lines = NULL;
        OK(fl_journal_read(directory, "a", &lines, &problem));
        size_t count = fl_journal_line_count(lines);
        assert_true((double)count >= expected);
        for (size_t i = 0; i < count; i++) {
            double value = -1;
            assert_true(fl_journal_number(lines, i, "i", &value));
            assert_true(value == (double)i);
        }
        expected = (double)count;
        fl_journal_lines_destroy(lines);
    }
    assert_true(expected > 0);
    fl_temporary_remove(directory);
}

static void test_a_full_disk_keeps_the_lines_before(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = {1000, 1000};
        setrlimit(RLIMIT_FSIZE, &limit);
        fl_journal *journal = NULL;
        if (fl_journal_open(directory, "a", &journal, NULL) != FL_OK) _exit(2);
        fl_journal_field field = {.name = "x",
                                  .text = "some hundred bytes of text, or nearly as many as that"};
        fl_status status = FL_OK;
        for (int i = 0; i < 100 && status == FL_OK; i++)
            status = fl_journal_append(journal, "row", &field, 1, NULL);
        _exit(status == FL_ERROR_IO ? 0 : 3);
    }
    int result = 0;
    waitpid(child, &result, 0);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    fl_journal_lines *lines = NULL;
    OK(fl_journal_read(directory, "a", &lines, &problem));
    assert_true(fl_journal_line_count(lines) > 5);
    assert_false(fl_journal_was_torn(lines));
    fl_journal_lines_destroy(lines);
    fl_temporary_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_read_back_with_every_digit),
        cmocka_unit_test(test_a_missing_journal_is_empty),
        cmocka_unit_test(test_a_torn_last_line_is_dropped_and_said),
        cmocka_unit_test(test_a_damaged_line_in_the_middle_names_its_number),
        cmocka_unit_test(test_closing_without_keeping_deletes_it),
        cmocka_unit_test(test_a_killed_writer_leaves_whole_lines),
        cmocka_unit_test(test_a_full_disk_keeps_the_lines_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
