/* Strict YAML: what is read, what is refused, and where the error points. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/config/node.h"
#include "harness/config/text_builder.h"
#include "tests/support/fixture.h"

static fl_document *parse(const char *text) {
    fl_document *document = NULL;
    fl_error error = {0};
    if (fl_document_parse_text(text, strlen(text), "a.yaml", &document, &error) != FL_OK)
        fail_msg("%s", error.message);
    return document;
}

static void assert_canonical(const char *text, const char *expected) {
    fl_document *document = parse(text);
    char *canonical = NULL;
    assert_int_equal(fl_node_text(fl_document_root(document), &canonical, NULL), FL_OK);
    assert_string_equal(canonical, expected);
    fl_memory_free(canonical);
    fl_document_destroy(document);
}

static void assert_refused_bytes(const char *text, size_t bytes, const char *message_start,
                                 const char *part) {
    fl_document *document = NULL;
    fl_error error = {0};
    assert_int_equal(fl_document_parse_text(text, bytes, "a.yaml", &document, &error), FL_ERROR_FORMAT);
    assert_null(document);
    if (strncmp(error.message, message_start, strlen(message_start)) != 0 ||
        strstr(error.message, part) == NULL) {
        fail_msg("expected '%s ... %s', got '%s'", message_start, part, error.message);
    }
}

static void assert_refused(const char *text, const char *message_start, const char *part) {
    assert_refused_bytes(text, strlen(text), message_start, part);
}

static void test_every_node_remembers_its_place(void **state) {
    (void)state;
    fl_document *document = parse("name: x\nvariant:\n  rule: kda\n  sizes: [1,\n    22]\n  empty:\n");
    const fl_node *root = fl_document_root(document);
    const fl_node *rule = fl_node_find(root, "variant.rule");
    assert_int_equal(rule->line, 3);
    assert_int_equal(rule->column, 9);
    assert_int_equal(rule->key_line, 3);
    assert_int_equal(rule->key_column, 3);
    assert_string_equal(rule->file, "a.yaml");
    const fl_node *second = fl_node_find(root, "variant.sizes.1");
    assert_int_equal(second->line, 5);
    assert_int_equal(second->column, 5);
    const fl_node *empty = fl_node_find(root, "variant.empty");
    assert_int_equal(empty->kind, FL_NODE_NULL);
    assert_int_equal(empty->line, 6);
    assert_int_equal(empty->column, 3);
    assert_null(fl_node_find(root, "variant.sizes.2"));
    assert_null(fl_node_find(root, "variant.rule.deeper"));
    assert_null(fl_node_get(root, "absent"));
    assert_null(fl_node_get(NULL, "absent"));
    fl_document_destroy(document);
}

static void test_columns_count_characters_not_bytes(void **state) {
    (void)state;
    fl_document *document = parse("{größe: 1, b: 2}");
    assert_int_equal(fl_node_find(fl_document_root(document), "b")->column, 15);
    fl_document_destroy(document);
}

static void test_words_of_yaml_1_1_stay_words(void **state) {
    (void)state;
    assert_canonical("[no, on, y, off, yes, kda]", "[\"no\", \"on\", \"y\", \"off\", \"yes\", kda]");
    assert_canonical("[true, False, ~, null, '']", "[true, false, null, null, \"\"]");
}

static void test_equal_numbers_have_equal_canonical_text(void **state) {
    (void)state;
    assert_canonical("[1e-3, 0.001, 1.0e-3, 1E-03]", "[0.001, 0.001, 0.001, 0.001]");
    assert_canonical("[1, 1.0, +1, 1e0, -0, .5]", "[1, 1, 1, 1, 0, 0.5]");
    assert_canonical("[18446744073709551615, '1', 010, 0x10, 1_000]",
                     "[18446744073709551615, \"1\", \"010\", \"0x10\", \"1_000\"]");
}

static void test_mapping_order_does_not_matter_in_canonical_text(void **state) {
    (void)state;
    assert_canonical("b: 1\na: {d: 2, c: 3}\n", "{a: {c: 3, d: 2}, b: 1}");
}

static void test_canonical_text_reads_back_as_itself(void **state) {
    (void)state;
    static const char *const texts[] = {"\"a\\nb\\tc\\\"d\\\\e\\x01\"",
                                        "\"\\u2028\\u0085\\uFEFF\\uFFFE\"",
                                        "'# no comment'",
                                        "'- x'",
                                        "'a: b'",
                                        "\"größe 日本 \\U0001F600\"",
                                        "'~'",
                                        "[[], {}, '']",
                                        "{'a b': 1, 'true': 2, '1': 3}",
                                        "|\n line\n line two\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fl_document *document = parse(texts[i]);
        char *first = NULL;
        assert_int_equal(fl_node_text(fl_document_root(document), &first, NULL), FL_OK);
        fl_document *again = parse(first);
        const fl_node *a = fl_document_root(document), *b = fl_document_root(again);
        if (a->kind == FL_NODE_SCALAR) assert_string_equal(a->text, b->text);
        assert_canonical(first, first);
        fl_memory_free(first);
        fl_document_destroy(document);
        fl_document_destroy(again);
    }
}

static void test_duplicate_key_names_both_lines(void **state) {
    (void)state;
    assert_refused("a: 1\nb: 2\na: 3\n", "a.yaml:3:1: ", "key 'a' is given twice (first on line 1)");
    assert_refused("x: {b: 1, c: 2, b: 3}\n", "a.yaml:1:17: ", "'b'");
}

static void test_what_a_config_has_no_use_for_is_refused(void **state) {
    (void)state;
    assert_refused("a: &x 1\n", "a.yaml:1:4: ", "anchors");
    assert_refused("a: &x [1]\n", "a.yaml:1:4: ", "anchors");
    assert_refused("a: *x\n", "a.yaml:1:4: ", "aliases");
    assert_refused("<<: {a: 1}\n", "a.yaml:1:1: ", "merge keys");
    assert_refused("a: !!int 3\n", "a.yaml:1:4: ", "tag");
    assert_refused("a: !!python/object:os.system []\n", "a.yaml:1:4: ", "tag");
    assert_refused("? [1, 2]\n: 3\n", "a.yaml:1:3: ", "a key must be a single word");
    assert_refused("a: 1\n---\nb: 2\n", "a.yaml:2:1: ", "second document");
    assert_refused("'': 1\n", "a.yaml:1:1: ", "key is empty");
    assert_refused("a: \"x\\0y\"\n", "a.yaml:1:4: ", "NUL");
    assert_refused("a:\n\t- 1\n", "a.yaml:2:1: ", "tabs");
    assert_refused("a: [1, 2\nb: 3\n", "a.yaml:2:", "begun on line 1");
    assert_refused("a: 'x\n", "a.yaml:2:1: ", "end of stream");
    assert_refused("a: 1\n b: 2\n", "a.yaml:2:", "");
}

static void test_str_tag_makes_text(void **state) {
    (void)state;
    assert_canonical("a: !!str 12", "{a: \"12\"}");
}

static void test_billion_laughs_is_refused_at_once(void **state) {
    (void)state;
    assert_refused("a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n", "a.yaml:1:4: ", "anchors");
}

static void test_bad_bytes_are_refused_with_their_place(void **state) {
    (void)state;
    assert_refused("a: 1\nb: \xff\xfe\n", "a.yaml:2:4: ", "UTF-8");
    assert_refused("a: \xed\xa0\x80\n", "a.yaml:1:4: ", "UTF-8"); /* a surrogate */
    assert_refused_bytes("a: x\0y\n", 7, "a.yaml:1:5: ", "control");
    assert_refused("a: \x01\n", "a.yaml:1:4: ", "control");
}

static void test_deep_nesting_is_refused(void **state) {
    (void)state;
    char text[5000];
    memset(text, '[', sizeof text);
    assert_refused_bytes(text, sizeof text, "a.yaml:1:65: ", "nested too deeply");
}

static void test_a_huge_file_is_refused(void **state) {
    (void)state;
    size_t bytes = (size_t)FL_YAML_MAX_BYTES + 1;
    char *text = NULL;
    assert_int_equal(FL_ALLOCATE(&text, bytes, NULL), FL_OK);
    memset(text, '#', bytes);
    assert_refused_bytes(text, bytes, "a.yaml: ", "larger than 8 MiB");
    const char *directory = fl_temporary_directory();
    char path[512];
    snprintf(path, sizeof path, "%s/huge.yaml", directory);
    fl_write_file(path, text, bytes);
    fl_document *document = NULL;
    assert_int_equal(fl_document_parse_file(path, &document, NULL), FL_ERROR_FORMAT);
    fl_temporary_remove(directory);
    fl_memory_free(text);
}

static void test_a_hundred_thousand_keys_are_checked_quickly(void **state) {
    (void)state;
    fl_text_builder text = {0};
    for (int i = 0; i < 100000; i++)
        assert_int_equal(fl_text_builder_format(&text, NULL, "k%d: 1\n", i), FL_OK);
    fl_document *document = parse(text.text);
    assert_int_equal(fl_document_root(document)->count, 100000);
    fl_document_destroy(document);
    assert_int_equal(fl_text_builder_add(&text, "k77: 2\n", NULL), FL_OK);
    assert_refused(text.text, "a.yaml:100001:1: ", "first on line 78");
    fl_text_builder_release(&text);
}

static void test_a_missing_file_is_an_io_error_with_its_name(void **state) {
    (void)state;
    fl_document *document = NULL;
    fl_error error;
    assert_int_equal(fl_document_parse_file("no/such.yaml", &document, &error), FL_ERROR_IO);
    assert_non_null(strstr(error.message, "no/such.yaml"));
    assert_int_equal(fl_document_parse_file(".", &document, &error), FL_ERROR_ARGUMENT);
}

static void test_a_byte_order_mark_is_passed_over(void **state) {
    (void)state;
    assert_canonical("\xEF\xBB\xBF"
                     "a: 1\nb: 2\n",
                     "{a: 1, b: 2}");
    assert_canonical("\xEF\xBB\xBF# note\n{a: 1}", "{a: 1}");
    assert_canonical("\xEF\xBB\xBF", "null");
    assert_refused("\xEF\xBB\xBF"
                   "a: [",
                   "a.yaml:2:1: ", "");
    assert_refused("\xFF\xFE"
                   "a",
                   "a.yaml", "");
}

static void test_an_empty_file_is_null(void **state) {
    (void)state;
    assert_canonical("", "null");
    assert_canonical("# only a comment\n", "null");
    assert_canonical("---\n...\n", "null");
}

static void test_override_replaces_and_creates(void **state) {
    (void)state;
    fl_document *document = parse("variant: {rule: kda, sizes: [1, 2]}\ntrain:\n");
    fl_error error;
    static const char *const assignments[] = {"variant.rule=gla",
                                              "variant.sizes.1=5",
                                              "train.lr=1e-3",
                                              "new.a.b=[x, {k: 1}]",
                                              "variant.gate={source: constant}",
                                              "name=a=b",
                                              "empty="};
    for (size_t i = 0; i < sizeof assignments / sizeof assignments[0]; i++) {
        if (fl_document_override(document, assignments[i], &error) != FL_OK) fail_msg("%s", error.message);
    }
    char *text = NULL;
    assert_int_equal(fl_node_text(fl_document_root(document), &text, NULL), FL_OK);
    assert_string_equal(text, "{empty: null, name: \"a=b\", new: {a: {b: [x, {k: 1}]}}, train: {lr: 0.001}, "
                              "variant: {gate: {source: constant}, rule: gla, sizes: [1, 5]}}");
    const fl_node *rule = fl_node_find(fl_document_root(document), "variant.rule");
    assert_string_equal(rule->file, "command line");
    assert_int_equal(rule->column, strlen("variant.rule=") + 1);
    fl_memory_free(text);
    fl_document_destroy(document);
}

static void test_bad_overrides_change_nothing(void **state) {
    (void)state;
    fl_document *document = parse("variant: {rule: kda, sizes: [1, 2]}\n");
    static const struct {
        const char *assignment, *part;
    } bad[] = {{"variant.rule", "not key=value"},
               {"=3", "not key=value"},
               {"variant..rule=1", "not a key"},
               {".a=1", "not a key"},
               {"a.=1", "not a key"},
               {"variant.rule.x=1", "'variant.rule' is a single value"},
               {"variant.sizes.7=1", "is a list of 2"},
               {"variant.sizes.last=1", "is a list of 2"},
               {"variant.gate={a: 1, a: 2}", "command line:1:21: key 'a' is given twice"},
               {"variant.gate=[1", "while parsing a flow sequence"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fl_error error = {0};
        assert_int_not_equal(fl_document_override(document, bad[i].assignment, &error), FL_OK);
        if (strstr(error.message, bad[i].part) == NULL)
            fail_msg("expected '%s' in '%s'", bad[i].part, error.message);
    }
    char *text = NULL;
    assert_int_equal(fl_node_text(fl_document_root(document), &text, NULL), FL_OK);
    assert_string_equal(text, "{variant: {rule: kda, sizes: [1, 2]}}");
    fl_memory_free(text);
    fl_document_destroy(document);
}

static void test_overrides_cannot_nest_deeper_than_files(void **state) {
    (void)state;
    fl_document *document = parse("a: 1\n");
    fl_text_builder text = {0};
    for (int i = 0; i < 100; i++) fl_text_builder_add(&text, i == 0 ? "b" : ".b", NULL);
    fl_text_builder_add(&text, "=1", NULL);
    fl_error error;
    assert_int_equal(fl_document_override(document, text.text, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "nested too deeply"));
    fl_text_builder_release(&text);
    /* 63 lists are allowed in a file, but not three names further down. */
    char deep[160] = "x.y.z=";
    size_t used = strlen(deep);
    memset(deep + used, '[', 63);
    memset(deep + used + 63, ']', 63);
    assert_int_equal(fl_document_override(document, deep, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "nested too deeply"));
    fl_document_destroy(document);
}

static void test_remove_takes_a_key_away(void **state) {
    (void)state;
    fl_document *document = parse("a: {b: 1, c: 2}\nd: [1, 2, 3]\n");
    assert_int_equal(fl_document_remove(document, "a.b", NULL), FL_OK);
    assert_int_equal(fl_document_remove(document, "d.0", NULL), FL_OK);
    assert_int_equal(fl_document_remove(document, "not.there", NULL), FL_OK);
    char *text = NULL;
    assert_int_equal(fl_node_text(fl_document_root(document), &text, NULL), FL_OK);
    assert_string_equal(text, "{a: {c: 2}, d: [2, 3]}");
    fl_memory_free(text);
    fl_document_destroy(document);
}

/* Every allocation in turn fails: no leak (under the address sanitiser), no crash, and an honest status. */
static void test_no_allocation_failure_is_lost(void **state) {
    (void)state;
    static const char text[] = "a: {b: [1, two], c: 'x'}\nd: {e: {f: 1}}\n";
    bool finished = false;
    for (size_t n = 1; !finished && n < 500; n++) {
        fl_document *document = NULL, *copy = NULL;
        char *canonical = NULL;
        fl_memory_fail_at(n);
        fl_status status = fl_document_parse_text(text, strlen(text), "a.yaml", &document, NULL);
        if (status == FL_OK) status = fl_document_copy(document, &copy, NULL);
        if (status == FL_OK) status = fl_document_override(copy, "d.e.g.h=[1, 2]", NULL);
        if (status == FL_OK) status = fl_node_text(fl_document_root(copy), &canonical, NULL);
        fl_memory_fail_at(0);
        finished = status == FL_OK;
        if (!finished) assert_int_equal(status, FL_ERROR_MEMORY);
        fl_memory_free(canonical);
        fl_document_destroy(document);
        fl_document_destroy(copy);
    }
    assert_true(finished);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_node_remembers_its_place),
        cmocka_unit_test(test_columns_count_characters_not_bytes),
        cmocka_unit_test(test_words_of_yaml_1_1_stay_words),
        cmocka_unit_test(test_equal_numbers_have_equal_canonical_text),
        cmocka_unit_test(test_mapping_order_does_not_matter_in_canonical_text),
        cmocka_unit_test(test_canonical_text_reads_back_as_itself),
        cmocka_unit_test(test_duplicate_key_names_both_lines),
        cmocka_unit_test(test_what_a_config_has_no_use_for_is_refused),
        cmocka_unit_test(test_str_tag_makes_text),
        cmocka_unit_test(test_billion_laughs_is_refused_at_once),
        cmocka_unit_test(test_bad_bytes_are_refused_with_their_place),
        cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_a_huge_file_is_refused),
        cmocka_unit_test(test_a_hundred_thousand_keys_are_checked_quickly),
        cmocka_unit_test(test_a_missing_file_is_an_io_error_with_its_name),
        cmocka_unit_test(test_a_byte_order_mark_is_passed_over),
        cmocka_unit_test(test_an_empty_file_is_null),
        cmocka_unit_test(test_override_replaces_and_creates),
        cmocka_unit_test(test_bad_overrides_change_nothing),
        cmocka_unit_test(test_overrides_cannot_nest_deeper_than_files),
        cmocka_unit_test(test_remove_takes_a_key_away),
        cmocka_unit_test(test_no_allocation_failure_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
