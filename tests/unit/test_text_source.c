/* Text sources: rows from ids files and from text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/measure/text_source.h"
#include "tests/support/fixture.h"
#include "tests/support/tokenizer_cases.h"

enum { VOCABULARY = 100 };

static const char *written(const char *text) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/ids.json", fl_temporary_directory());
    fl_write_file(path, text, strlen(text));
    return path;
}

static void clean(const char *path) {
    char directory[1024];
    snprintf(directory, sizeof directory, "%s", path);
    *strrchr(directory, '/') = '\0';
    fl_temporary_remove(directory);
}

static void assert_rows(const fl_text_source *source, const char *expected) {
    char text[512] = "";
    size_t used = 0;
    for (size_t s = 0; s < source->sequences.count; s++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "[");
        for (size_t t = 0; t < source->sequences.lengths[s]; t++) {
            used += (size_t)snprintf(text + used, sizeof text - used, t == 0 ? "%d" : " %d",
                                     source->sequences.ids[s][t]);
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "]");
    }
    assert_string_equal(text, expected);
}

static void check(const char *json, size_t sequence_length, size_t sequences, const char *expected) {
    const char *path = written(json);
    fl_text_source source;
    fl_error error = {0};
    if (fl_text_source_from_ids(path, VOCABULARY, sequence_length, sequences, &source, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    assert_rows(&source, expected);
    fl_text_source_release(&source);
    clean(path);
}

static void test_lists_are_taken_as_they_are_or_cut_into_rows(void **state) {
    (void)state;
    check("[[1,2,3],[4],[99,0]]", 0, 0, "[1 2 3][4][99 0]");
    check("[[1,2,3],[4],[99,0]]", 0, 2, "[1 2 3][4]");
    check("[[1,2,3,4,5,6,7,8],[9,10,11]]", 3, 0, "[1 2 3][4 5 6][7 8][9 10 11]");
    check("[[1,2,3,4,5,6,7],[9,10,11]]", 3, 0,
          "[1 2 3][4 5 6][9 10 11]"); /* a last row of one token scores nothing */
    check("[[1,2,3,4,5,6,7,8],[9,10,11]]", 3, 2, "[1 2 3][4 5 6]");
    check(" [ [ 1 , 2 ] ] \n", 0, 0, "[1 2]");
}

static void refuse(const char *json, const char *part) {
    const char *path = written(json);
    fl_text_source source;
    fl_error error = {0};
    assert_int_equal(fl_text_source_from_ids(path, VOCABULARY, 0, 0, &source, &error), FL_ERROR_FORMAT);
    if (strstr(error.message, part) == NULL || strstr(error.message, "ids.json") == NULL) {
        fail_msg("message \"%s\" lacks \"%s\"", error.message, part);
    }
    assert_null(source.sequences.ids);
    clean(path);
}

static void test_bad_ids_files_are_refused_with_their_place(void **state) {
    (void)state;
    refuse("", "JSON: ");
    refuse("[[1,2],\n [3,,4]]", ":2:");
    refuse("[[1,2]] x", ":1:9: JSON: text after");
    refuse("[[1,2], [NaN]]", "list 1, entry 0");
    refuse("[[1,01]]", ":1:5: JSON: ");
    refuse("{\"a\": 1}", "not a list of lists");
    refuse("[]", "not a list of lists");
    refuse("[[1,2], 3]", "entry 1 is not a list");
    refuse("[[1,2],[]]", "list 1 is empty");
    refuse("[[1,2],[3,100]]", "list 1, entry 1");
    refuse("[[1,-2]]", "list 0, entry 1");
    refuse("[[1,2.5]]", "list 0, entry 1");
    refuse("[[1,\"2\"]]", "list 0, entry 1");
    refuse("[[1,1e300]]", "list 0, entry 1");
    refuse("[[1,null]]", "list 0, entry 1");
}

static void test_a_missing_file_is_named(void **state) {
    (void)state;
    fl_text_source source;
    fl_error error = {0};
    assert_int_equal(fl_text_source_from_ids("no/such/file.json", VOCABULARY, 0, 0, &source, &error),
                     FL_ERROR_IO);
    assert_non_null(strstr(error.message, "no/such/file.json"));
}

static void test_hashes_tell_the_file_and_the_rows_apart(void **state) {
    (void)state;
    fl_text_source a, b, c;
    const char *path = written("[[1,2,3,4]]");
    assert_int_equal(fl_text_source_from_ids(path, VOCABULARY, 0, 0, &a, NULL), FL_OK);
    assert_int_equal(fl_text_source_from_ids(path, VOCABULARY, 2, 0, &b, NULL), FL_OK);
    clean(path);
    path = written("[[1, 2, 3, 4]]");
    assert_int_equal(fl_text_source_from_ids(path, VOCABULARY, 0, 0, &c, NULL), FL_OK);
    clean(path);
    assert_string_equal(a.content.text, b.content.text);
    assert_string_not_equal(a.rows.text, b.rows.text);
    assert_string_not_equal(a.content.text, c.content.text);
    assert_string_equal(a.rows.text, c.rows.text);
    assert_int_equal(a.tokens, 4);
    fl_text_source_release(&a);
    fl_text_source_release(&b);
    fl_text_source_release(&c);
}

static void test_a_training_keeps_whole_rows_only(void **state) {
    (void)state;
    static const struct {
        const char *json, *rows;
        size_t sequence_length, tokens;
    } cases[] = {{"[[1,2,3,4,5]]", "[1 2 3]", 3, 3},
                 {"[[1,2,3,4,5,6]]", "[1 2 3][4 5 6]", 3, 6},
                 {"[[1,2]]", "[1 2]", 3, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = written(cases[i].json);
        fl_text_source cut, exact;
        assert_int_equal(fl_text_source_from_ids(path, VOCABULARY, cases[i].sequence_length, 0, &cut, NULL),
                         FL_OK);
        assert_int_equal(fl_text_source_keep_whole_rows(&cut, cases[i].sequence_length, NULL), FL_OK);
        clean(path);
        assert_rows(&cut, cases[i].rows);
        assert_int_equal(cut.tokens, cases[i].tokens);
        path = written("[[1,2,3]]");
        assert_int_equal(fl_text_source_from_ids(path, VOCABULARY, 0, 0, &exact, NULL), FL_OK);
        clean(path);
        assert_int_equal(strcmp(cut.rows.text, exact.rows.text) == 0, i == 0);
        fl_text_source_release(&cut);
        fl_text_source_release(&exact);
    }
}

static void test_text_is_tokenised_once_and_cut(void **state) {
    (void)state;
    if (fl_default_model_path() == NULL) fl_fixture_skip(__func__, "models/smollm2-135m.gguf");
    const char *path =
        written("The quick brown fox jumps over the lazy dog. The quick brown fox jumps again.");
    fl_text_config config = {.path = (char *)(uintptr_t)path};
    fl_text_source whole, rows, two;
    fl_error error = {0};
    if (fl_text_source_load(&config, fl_default_model_path(), 49152, &whole, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    config.sequence_length = 6;
    assert_int_equal(fl_text_source_load(&config, fl_default_model_path(), 49152, &rows, &error), FL_OK);
    config.sequences = 2;
    assert_int_equal(fl_text_source_load(&config, fl_default_model_path(), 49152, &two, &error), FL_OK);
    assert_int_equal(whole.sequences.count, 1);
    assert_int_equal(two.sequences.count, 2);
    size_t at = 0;
    for (size_t s = 0; s < rows.sequences.count; s++) {
        for (size_t t = 0; t < rows.sequences.lengths[s]; t++) {
            assert_int_equal(rows.sequences.ids[s][t], whole.sequences.ids[0][at++]);
        }
    }
    assert_true(at + 1 >= whole.tokens && whole.tokens > 12);
    fl_text_source_release(&whole);
    fl_text_source_release(&rows);
    fl_text_source_release(&two);
    clean(path);
    path = written("");
    config.path = (char *)(uintptr_t)path;
    assert_int_equal(fl_text_source_load(&config, fl_default_model_path(), 49152, &whole, &error),
                     FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "at least 2"));
    clean(path);
}

static void write_in(const char *directory, const char *name, const char *text) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    fl_write_file(path, text, strlen(text));
}

/* Tokens of a text as the tokenizer sees it alone. */
static size_t expect(const fl_tokenizer *tokenizer, const char *text, const int32_t *ids) {
    int32_t *expected = NULL;
    size_t count = 0;
    assert_int_equal(fl_tokenizer_encode(tokenizer, text, strlen(text), false, &expected, &count, NULL),
                     FL_OK);
    assert_memory_equal(ids, expected, count * sizeof *ids);
    fl_memory_free(expected);
    return count;
}

static void test_documents_of_a_folder_are_joined_by_the_end_of_text_token(void **state) {
    (void)state;
    if (fl_default_model_path() == NULL) fl_fixture_skip(__func__, "models/smollm2-135m.gguf");
    fl_tokenizer *tokenizer = NULL;
    fl_error error = {0};
    assert_int_equal(fl_tokenizer_open(fl_default_model_path(), &tokenizer, NULL), FL_OK);
    const char *directory = fl_temporary_directory();
    write_in(directory, "b.txt", "Second file, one.\n<|endofdoc|>\nSecond file,\n\ntwo.");
    write_in(directory, "a.jsonl",
             "{\"text\": \"A line.\\nAnd more.\"}\n\n{\"id\": 3, \"text\": \"Another.\"}\n");
    write_in(directory, "notes.csv", "not a text");
    fl_text_source source;
    if (fl_text_source_from_text(directory, tokenizer, 49152, 0, 0, &source, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(source.documents, 4);
    assert_int_equal(source.sequences.count, 1);
    const char *const documents[] = {"A line.\nAnd more.", "Another.", "Second file, one.",
                                     "Second file,\n\ntwo."};
    const int32_t *ids = source.sequences.ids[0];
    size_t at = 0;
    for (size_t d = 0; d < 4; d++) {
        if (d > 0) assert_int_equal(ids[at++], 0); /* <|endoftext|> */
        at += expect(tokenizer, documents[d], ids + at);
    }
    assert_int_equal(at, source.tokens);
    fl_text_source_release(&source);

    assert_int_equal(fl_text_source_from_text(directory, tokenizer, 49152, 4, 1, &source, &error), FL_OK);
    assert_int_equal(source.documents, 1); /* enough after the first */
    assert_int_equal(source.tokens, 4);
    fl_text_source_release(&source);

    write_in(directory, "a.jsonl", "{\"text\": \"A line.\"}\n{\"body\": \"no text\"}\n");
    assert_int_equal(fl_text_source_from_text(directory, tokenizer, 49152, 0, 0, &source, &error),
                     FL_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "a.jsonl:2:"));
    fl_temporary_remove(directory);
    const char *empty = fl_temporary_directory();
    assert_int_equal(fl_text_source_from_text(empty, tokenizer, 49152, 0, 0, &source, &error),
                     FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "no .txt or .jsonl"));
    fl_temporary_remove(empty);
    fl_tokenizer_close(tokenizer);
}

/* Text read by path through a tokenizer whose tokens are bytes. */
static fl_status read_bytes(const char *name, const char *text, size_t bytes, fl_text_source *out,
                            fl_error *error) {
    char path[1024];
    fl_tokenizer *tokenizer = fl_open_tokenizer_parts(&(fl_tokenizer_parts){0});
    snprintf(path, sizeof path, "%s/%s", fl_test_folder(), name);
    fl_write_file(path, text, bytes);
    fl_status status =
        fl_text_source_from_text(path, tokenizer, fl_tokenizer_vocabulary(tokenizer), 0, 0, out, error);
    fl_tokenizer_close(tokenizer);
    return status;
}

#define BYTES(text) (text), sizeof(text) - 1

static void test_what_is_no_text_is_refused_with_line_and_byte(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
        size_t bytes;
        const char *message;
    } cases[] = {
        {"a.txt", BYTES("one\ncaf\xe9 two\n"), "a.txt:2: not valid UTF-8 (0xE9, byte 4 of the line)"},
        {"a.txt", BYTES("one\ntwo\xe2\x82"), "a.txt:2: not valid UTF-8 (0xE2, byte 4 of the line)"},
        {"a.txt", BYTES("a\0b"), "a.txt:1: a NUL byte in a text file (byte 2 of the line)"},
        {"a.txt",
         BYTES("\xff\xfe"
               "a\0b\0"),
         "a.txt:1: not valid UTF-8: the file is UTF-16"},
        {"a.txt", BYTES("\xfe\xff\0a\0b"), "a.txt:1: not valid UTF-8: the file is UTF-16"},
        {"a.jsonl", BYTES("{\"text\": \"caf\xe9\"}\n"),
         "a.jsonl:1: not valid UTF-8 (0xE9, byte 14 of the line)"},
        {"a.jsonl", BYTES("{\"text\": \"a\"}\n{\"text\": \"b\\u0000c\"}\n"),
         "a.jsonl:2:12: JSON: NUL in a string"},
        {"a.jsonl", BYTES("{\"text\": \"a\"}{\"text\": \"b\"}\n"), "a.jsonl:1:14: JSON: text after the end"},
        {"a.jsonl", BYTES("{\"text\": \"a\"}\n\n{\"text\": \"b\"} rest\n"),
         "a.jsonl:3:15: JSON: text after the end"},
        {"a.jsonl", BYTES("{\"text\": \"a\", \"text\": \"b\"}\n"), "a.jsonl:1: JSON: duplicate key \"text\""},
        {"a.jsonl", BYTES("{\"text\": \"a\"}\n{\"text\": 3}\n"),
         "a.jsonl:2: not a JSON object with a string"},
        {"a.jsonl", BYTES("{\"text\": \"a\"}\n[1]\n"), "a.jsonl:2: not a JSON object with a string"},
        {"a.jsonl", BYTES("{\"text\": \"a\nb\"}\n"), "a.jsonl:1:10: JSON: a string without its end"},
        {"a.jsonl", BYTES("{\"text\": \"\\ud800\"}\n"), "a.jsonl:1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_text_source source;
        fl_error error = {0};
        assert_int_equal(read_bytes(cases[i].name, cases[i].text, cases[i].bytes, &source, &error),
                         FL_ERROR_FORMAT);
        if (strstr(error.message, cases[i].message) == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, error.message, cases[i].message);
    }
}

static void assert_reads_as(const char *name, const char *text, size_t bytes,
                            const fl_text_source *expected) {
    fl_text_source source;
    fl_error error = {0};
    if (read_bytes(name, text, bytes, &source, &error) != FL_OK) fail_msg("%s", error.message);
    assert_int_equal(source.documents, expected->documents);
    assert_string_equal(source.rows.text, expected->rows.text);
    fl_text_source_release(&source);
}

static void test_line_ends_marks_and_empty_lines_change_no_document(void **state) {
    (void)state;
    fl_text_source expected;
    assert_int_equal(read_bytes("a.txt", BYTES("alpha\n<|endofdoc|>\nbeta"), &expected, NULL), FL_OK);
    assert_int_equal(expected.documents, 2);
    assert_reads_as("b.txt",
                    BYTES("\xEF\xBB\xBF"
                          "alpha\n<|endofdoc|>\nbeta"),
                    &expected);
    assert_reads_as("b.jsonl", BYTES("{\"text\": \"alpha\"}\n{\"text\": \"beta\"}"), &expected);
    assert_reads_as("b.jsonl", BYTES("{\"text\": \"alpha\"}\r\n\r\n{\"text\": \"beta\"}\r\n"), &expected);
    assert_reads_as("b.jsonl", BYTES("\n   \n{\"text\": \"alpha\"}\n \t \n {\"text\": \"beta\"} \n\n"),
                    &expected);
    assert_reads_as("b.jsonl", BYTES("\xEF\xBB\xBF{\"text\": \"alpha\"}\n{\"x\": NaN, \"text\": \"beta\"}\n"),
                    &expected);
    fl_text_source_release(&expected);
}

/* text.bos: before every row, and counted by sequence_length. */
static void test_rows_begin_with_the_bos_that_is_asked_for(void **state) {
    (void)state;
    static const char template[] = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
                                   "{\"id\": \"<s>\"}}, {\"Sequence\": "
                                   "{\"id\": \"A\"}}], \"special_tokens\": {\"<s>\": {\"ids\": [261]}}}";
    static const char added[] = "[{\"id\": 261, \"content\": \"<s>\", \"special\": true}]";
    static const struct {
        bool template, token;
        int bos;
        size_t length;
        const char *rows; /* NULL: refused */
    } cases[] = {
        {true, true, FL_TEXT_BOS_AUTO, 4, "[261 97 98 99][261 100 101 102]"},
        {true, true, FL_TEXT_BOS_TRUE, 0, "[261 97 98 99 100 101 102]"},
        {true, true, FL_TEXT_BOS_FALSE, 4, "[97 98 99 100][101 102]"},
        {false, true, FL_TEXT_BOS_AUTO, 4, "[97 98 99 100][101 102]"},
        {false, false, FL_TEXT_BOS_AUTO, 4, "[97 98 99 100][101 102]"},
        {false, true, FL_TEXT_BOS_TRUE, 5, "[261 97 98 99 100][261 101 102]"},
        {false, false, FL_TEXT_BOS_TRUE, 4, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[1100], text[1100];
        fl_tokenizer_parts parts = {.added_tokens = cases[i].token ? added : NULL,
                                    .post_processor = cases[i].template ? template : NULL};
        char *json = fl_tokenizer_json(&parts);
        write_in(fl_test_folder(), "tokenizer.json", json);
        write_in(fl_test_folder(), "tokenizer_config.json",
                 cases[i].token ? "{\"bos_token\": \"<s>\"}" : "{}");
        write_in(fl_test_folder(), "row.txt", "abcdef");
        snprintf(path, sizeof path, "%s/model.safetensors", fl_test_folder());
        snprintf(text, sizeof text, "%s/row.txt", fl_test_folder());
        const fl_text_config config = {.path = text, .sequence_length = cases[i].length, .bos = cases[i].bos};
        fl_text_source source;
        fl_error error = {0};
        fl_status status = fl_text_source_load(&config, path, 300, &source, &error);
        if (cases[i].rows != NULL) {
            if (status != FL_OK) fail_msg("case %zu: %s", i, error.message);
            assert_rows(&source, cases[i].rows);
            assert_int_equal(source.bos, strstr(cases[i].rows, "261") != NULL ? 261 : -1);
            fl_text_source_release(&source);
        } else {
            assert_int_equal(status, FL_ERROR_ARGUMENT);
            assert_non_null(strstr(error.message, "text.bos"));
        }
        fl_memory_free(json);
    }
}

static void test_a_weight_file_leads_to_the_tokenizer_beside_it(void **state) {
    (void)state;
    static const char *const pairs[][2] = {{"a/b/model.safetensors", "a/b"},
                                           {"model.safetensors", "."},
                                           {"/model.safetensors", "/"},
                                           {"a/model.gguf", "a/model.gguf"},
                                           {"a/b", "a/b"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char *path = NULL;
        assert_int_equal(fl_text_source_tokenizer_path(pairs[i][0], &path, NULL), FL_OK);
        assert_string_equal(path, pairs[i][1]);
        fl_memory_free(path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_are_taken_as_they_are_or_cut_into_rows),
        cmocka_unit_test(test_bad_ids_files_are_refused_with_their_place),
        cmocka_unit_test(test_a_missing_file_is_named),
        cmocka_unit_test(test_hashes_tell_the_file_and_the_rows_apart),
        cmocka_unit_test(test_a_training_keeps_whole_rows_only),
        cmocka_unit_test(test_text_is_tokenised_once_and_cut),
        cmocka_unit_test(test_documents_of_a_folder_are_joined_by_the_end_of_text_token),
        cmocka_unit_test(test_what_is_no_text_is_refused_with_line_and_byte),
        cmocka_unit_test(test_line_ends_marks_and_empty_lines_change_no_document),
        cmocka_unit_test(test_rows_begin_with_the_bos_that_is_asked_for),
        cmocka_unit_test(test_a_weight_file_leads_to_the_tokenizer_beside_it),
    };
    return cmocka_run_group_tests(tests, fl_test_folder_make, fl_test_folder_remove);
}
