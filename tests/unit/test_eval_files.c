/* Readers of text, CSV and JSON: what is accepted, and how bad input is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/eval/csv.h"
#include "harness/model/json_rows.h"
#include "harness/eval/python_text.h"
#include "harness/base/text_file.h"
#include "tests/support/fixture.h"

static fl_csv_table *parsed(const char *text) {
    fl_csv_table *table = NULL;
    fl_error error = {0};
    if (fl_csv_parse(text, strlen(text), "t.csv", &table, &error) != FL_OK) fail_msg("%s", error.message);
    return table;
}

static void test_cells_keep_commas_line_breaks_and_quotes(void **state) {
    (void)state;
    fl_csv_table *table = parsed("\"a, b\nc\",\"say \"\"x\"\"\",None,\"\",\r\nnan,NA,null,0,1\r\n\n\"last\"");
    assert_int_equal(table->count, 3);
    assert_int_equal(table->rows[0].cells, 5);
    assert_string_equal(table->rows[0].cell[0], "a, b\nc");
    assert_string_equal(table->rows[0].cell[1], "say \"x\"");
    assert_string_equal(table->rows[0].cell[2], "None");
    assert_string_equal(table->rows[0].cell[3], "");
    assert_string_equal(table->rows[0].cell[4], "");
    assert_int_equal(table->rows[1].line, 3);
    assert_string_equal(table->rows[1].cell[1], "NA");
    assert_int_equal(table->rows[1].cells, 5);
    assert_int_equal(table->rows[2].line, 5);
    assert_string_equal(table->rows[2].cell[0], "last");
    fl_csv_destroy(table);
}

static void test_a_carriage_return_inside_quotes_stays(void **state) {
    (void)state;
    fl_csv_table *table = parsed("\"a\r\nb\",c\rd,e");
    assert_int_equal(table->count, 2);
    assert_string_equal(table->rows[0].cell[0], "a\r\nb");
    assert_string_equal(table->rows[1].cell[1], "e");
    fl_csv_destroy(table);
}

static void test_a_byte_order_mark_is_skipped_and_remembered(void **state) {
    (void)state;
    fl_csv_table *table = parsed("\xEF\xBB\xBFquestion,a");
    assert_true(table->byte_order_mark);
    assert_string_equal(table->rows[0].cell[0], "question");
    fl_csv_destroy(table);
    table = parsed("");
    assert_int_equal(table->count, 0);
    fl_csv_destroy(table);
}

static void assert_csv_fault(const char *text, size_t bytes, const char *message) {
    fl_csv_table *table = NULL;
    fl_error error = {0};
    assert_int_equal(fl_csv_parse(text, bytes, "t.csv", &table, &error), FL_ERROR_FORMAT);
    assert_string_equal(error.message, message);
    assert_null(table);
}

static void test_csv_faults_name_file_and_line(void **state) {
    (void)state;
#define BYTES(text) (text), sizeof(text) - 1
    assert_csv_fault(BYTES("a,b\n\"c\nd"), "t.csv:2: a quoted cell that starts here is never closed");
    assert_csv_fault(BYTES("a\n\"c\nd\"x,e"), "t.csv:3: text after a closing quote");
    assert_csv_fault(BYTES("a\nb,c\"d"), "t.csv:2: a quote inside an unquoted cell");
    assert_csv_fault(BYTES("a\n\nb\0c"), "t.csv:3: a NUL byte in a text file (byte 2 of the line)");
    assert_csv_fault(BYTES("a\nb\xff"), "t.csv:2: not valid UTF-8 (0xFF, byte 2 of the line)");
    assert_csv_fault(BYTES("\xed\xa0\x80"), "t.csv:1: not valid UTF-8 (0xED, byte 1 of the line)");
    fl_error error;
    fl_csv_table *table = NULL;
    assert_int_equal(fl_csv_read("no/such.csv", &table, &error), FL_ERROR_IO);
    assert_int_equal(fl_csv_read("/", &table, &error), FL_ERROR_ARGUMENT);
}

static fl_json_rows *rows_of(const char *folder, const char *text, size_t bytes, fl_error *error) {
    char path[512];
    snprintf(path, sizeof path, "%s/rows.jsonl", folder);
    fl_write_file(path, text, bytes);
    fl_json_rows *rows = NULL;
    *error = (fl_error){0};
    fl_json_rows_read(path, &rows, error);
    return rows;
}

static void test_json_lines_and_arrays_give_rows_with_places(void **state) {
    (void)state;
    const char *folder = fl_temporary_directory();
    fl_error error;
    fl_json_rows *rows = rows_of(folder, BYTES("{\"a\": {\"b\": \"x\"}}\r\n\n{\"a\": 1}\n"), &error);
    assert_non_null(rows);
    assert_int_equal(rows->count, 2);
    assert_int_equal(rows->rows[1].line, 3);
    const char *text = NULL;
    assert_int_equal(fl_json_rows_text(rows, 0, "a.b", &text, NULL), FL_OK);
    assert_string_equal(text, "x");
    assert_int_equal(fl_json_rows_text(rows, 1, "a", &text, &error), FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "rows.jsonl:3: \"a\" is not a string"));
    fl_json_rows_destroy(rows);
    rows = rows_of(folder, BYTES("\xEF\xBB\xBF[{\"a\": 1},\n {\"c\": 2}]"), &error);
    assert_non_null(rows);
    assert_true(rows->array && rows->byte_order_mark);
    assert_int_equal(fl_json_rows_text(rows, 1, "a", &text, &error), FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "rows.jsonl: element 2: no \"a\""));
    fl_json_rows_destroy(rows);
    fl_temporary_remove(folder);
}

static void test_json_faults_name_file_and_line(void **state) {
    (void)state;
    const char *folder = fl_temporary_directory();
    fl_error error;
    static const struct {
        const char *text, *message;
    } faults[] = {
        {"{\"a\": 1}\n{\"a\": }\n", "rows.jsonl:2:7: JSON: syntax error"},
        {"{\"a\": 1} x\n", "rows.jsonl:1:10: JSON: text after the end"},
        {"{\"a\": 1}\n3\n", "rows.jsonl:2: not a JSON object"},
        {"{\"a\": 1}\n{\"a\": \"x\\u0000y\"}\n", "rows.jsonl:2:9: JSON: NUL in a string"},
        {"[{\"a\": 1}, 2]", "rows.jsonl: element 2: not a JSON object"},
        {"[{\"a\": 1},\n}", "rows.jsonl:2:1: JSON: syntax error"},
        {"{\"a\": 1}\n{\"a\": 1, \"b\": 2, \"a\": 3}\n", "rows.jsonl:2: JSON: duplicate key \"a\""},
        {"{\"a\": 1}\n\r\n{\"a\": 1}{\"a\": 2}\r\n", "rows.jsonl:3:9: JSON: text after the end"},
        {"{\"a\": 01}\n", "rows.jsonl:1:7: JSON: this number"},
        {"{\"a\": \"\xc3\"}", "rows.jsonl:1: not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        assert_null(rows_of(folder, faults[i].text, strlen(faults[i].text), &error));
        if (strstr(error.message, faults[i].message) == NULL) fail_msg("%s", error.message);
    }
    fl_json_rows *rows = rows_of(folder, BYTES("{\"a\": \"\\\\u0000\"}"), &error);
    assert_non_null(rows);
    fl_json_rows_destroy(rows);
    fl_temporary_remove(folder);
}

static void test_text_methods_are_those_of_python(void **state) {
    (void)state;
    size_t start, length;
    fl_python_strip(BYTES(" \xC2\xA0\x1C"
                          "a b\xE3\x80\x80\n"),
                    &start, &length);
    assert_int_equal(start, 4);
    assert_int_equal(length, 3);
    fl_python_strip(BYTES(" \n"), &start, &length);
    assert_int_equal(length, 0);
    fl_python_strip(BYTES("\xE2\x80\x8Bx"), &start, &length);
    assert_int_equal(length, 4);
    assert_int_equal(fl_python_length(BYTES("na\xC3\xAFve \xF0\x9F\x98\x80")), 7);
    assert_int_equal(fl_python_split_count(BYTES(" a  b\n")), 4);
    assert_int_equal(fl_python_split_count(BYTES("")), 1);
    fl_text_buffer buffer = {0};
    assert_int_equal(fl_python_capitalize(BYTES("\xC3\xA9LAN Vital"), &buffer, NULL), FL_OK);
    assert_string_equal(buffer.text, "\xC3\x89lan vital");
    fl_text_buffer_clear(&buffer);
    assert_int_equal(fl_python_replace(BYTES("a   b    c"), "  ", " ", &buffer, NULL), FL_OK);
    assert_string_equal(buffer.text, "a  b  c");
    fl_text_buffer_release(&buffer);
}

static void test_readers_survive_every_failed_allocation(void **state) {
    (void)state;
    for (size_t n = 1; n < 6; n++) {
        fl_csv_table *table = NULL;
        fl_memory_fail_at(n);
        const fl_status status = fl_csv_parse(BYTES("a,b\nc,d"), "t.csv", &table, NULL);
        fl_memory_fail_at(0);
        assert_true(status == FL_OK || (status == FL_ERROR_MEMORY && table == NULL));
        fl_csv_destroy(table);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells_keep_commas_line_breaks_and_quotes),
        cmocka_unit_test(test_a_carriage_return_inside_quotes_stays),
        cmocka_unit_test(test_a_byte_order_mark_is_skipped_and_remembered),
        cmocka_unit_test(test_csv_faults_name_file_and_line),
        cmocka_unit_test(test_json_lines_and_arrays_give_rows_with_places),
        cmocka_unit_test(test_json_faults_name_file_and_line),
        cmocka_unit_test(test_text_methods_are_those_of_python),
        cmocka_unit_test(test_readers_survive_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
