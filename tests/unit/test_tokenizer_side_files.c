/* What lies beside a tokenizer.json: the lists and maps of added and special tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "tests/support/fixture.h"
#include "tests/support/tokenizer_cases.h"

#define TOKEN(id, content, flags) "{\"id\": " #id ", \"content\": \"" content "\"" flags "}"

/* A tokenizer.json and what lies beside it (NULL: no such file). */
static fl_status open_beside(const char *added, const char *config, const char *map, const char *list,
                             fl_tokenizer **out, fl_error *error) {
    fl_tokenizer_parts parts = {.added_tokens = added};
    char *text = fl_tokenizer_json(&parts);
    const struct {
        const char *name, *text;
    } files[] = {{"tokenizer.json", text},
                 {"tokenizer_config.json", config},
                 {"special_tokens_map.json", map},
                 {"added_tokens.json", list}};
    const char *folder = fl_test_folder();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[1200];
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        remove(path);
        if (files[i].text != NULL) fl_write_file(path, files[i].text, strlen(files[i].text));
    }
    fl_status status = fl_tokenizer_open(folder, out, error);
    fl_memory_free(text);
    return status;
}

/* Ids, BOS and EOS as AutoTokenizer of Transformers 5.24 gives them (class PreTrainedTokenizerFast). */
static void test_files_beside_are_read_as_by_autotokenizer(void **state) {
    (void)state;
    static const char s[] = "[" TOKEN(261, "<s>", ", \"special\": true") "]";
    static const char plain[] = "[" TOKEN(261, "<s>", ", \"normalized\": false") "]";
    static const struct {
        const char *added, *config, *map, *list;
        const char *text;
        int32_t ids[8]; /* closed by 0 */
        int32_t bos, eos;
    } cases[] = {
        /* added_tokens_decoder adds tokens, behind the vocabulary whatever its key says, and changes flags.
         */
        {s,
         "{\"added_tokens_decoder\": {\"300\": {\"content\": \"<t>\", \"special\": true}}}",
         NULL,
         NULL,
         "a<t>b",
         {'a', 262, 'b'},
         -1,
         -1},
        {s,
         "{\"added_tokens_decoder\": {\"262\": {\"content\": \"<t>\"}, \"263\": {\"content\": \"<u>\"}}}",
         NULL,
         NULL,
         "<u><t>",
         {263, 262},
         -1,
         -1},
        {s,
         "{\"added_tokens_decoder\": {\"104\": {\"content\": \"h\", \"normalized\": false}}}",
         NULL,
         NULL,
         "hello",
         {'h', 'e', 257, 'o'},
         -1,
         -1},
        {s,
         "{\"added_tokens_decoder\": {\"261\": {\"content\": \"<s>\", \"lstrip\": true, \"rstrip\": true}}}",
         NULL,
         NULL,
         "a <s> b",
         {'a', 261, 'b'},
         -1,
         -1},
        {s,
         "{\"added_tokens_decoder\": {\"261\": {\"content\": \"<s>\", \"single_word\": true}}}",
         NULL,
         NULL,
         "a<s>",
         {'a', '<', 's', '>'},
         -1,
         -1},
        /* Named tokens that are none become some; there is no word of the map where tokens are listed by id.
         */
        {s, "{\"bos_token\": \"<b>\", \"eos_token\": \"<s>\"}", NULL, NULL, "<b>a", {262, 'a'}, 262, 261},
        {s, "{\"bos_token\": \"<s>\", \"pad_token\": \"<p>\"}", NULL, NULL, "<p>", {262}, 261, -1},
        {s,
         "{\"image_token\": \"<i>\", \"additional_special_tokens\": [\"<x>\"]}",
         NULL,
         NULL,
         "<x><i>",
         {263, 262},
         -1,
         -1},
        {s,
         "{\"extra_special_tokens\": [\"<x>\", {\"content\": \"<y>\", \"lstrip\": true}]}",
         NULL,
         NULL,
         "<x> <y>",
         {262, 263},
         -1,
         -1},
        {s, "{\"unk_token\": \"hello\"}", NULL, NULL, "xhellohell", {'x', 259, 258}, -1, -1},
        {s,
         "{\"bos_token\": null, \"eos_token\": {\"content\": \"<s>\"}, \"add_bos_token\": true}",
         "{\"bos_token\": \"<s>\"}",
         NULL,
         "a",
         {'a'},
         261,
         261},
        {s,
         "{\"bos_token\": null, \"added_tokens_decoder\": {}}",
         "{\"bos_token\": \"<s>\"}",
         NULL,
         "a",
         {'a'},
         -1,
         -1},
        {s,
         NULL,
         "{\"eos_token\": {\"content\": \"<e>\", \"lstrip\": true}}",
         NULL,
         "a <e>",
         {'a', 262},
         -1,
         262},
        {s,
         "{\"bos_token\": \"<s>\"}",
         "{\"additional_special_tokens\": [\"<x>\"]}",
         NULL,
         "<x>",
         {262},
         261,
         -1},
        /* added_tokens.json: where tokenizer.json's list does not have the id. */
        {s, NULL, NULL, "{\"<t>\": 270, \"<u>\": 261}", "<t><u>", {262, '<', 'u', '>'}, -1, -1},
        {s, "{\"added_tokens_decoder\": {}}", NULL, "{\"<t>\": 262}", "<t>", {'<', 't', '>'}, -1, -1},
        /* Special tokens as text. */
        {s, "{\"split_special_tokens\": true}", NULL, NULL, "a<s>", {'a', '<', 's', '>'}, -1, -1},
        {plain, "{\"split_special_tokens\": true}", NULL, NULL, "a<s>", {'a', 261}, -1, -1},
        {plain,
         "{\"split_special_tokens\": true, \"eos_token\": \"<s>\"}",
         NULL,
         NULL,
         "a<s>",
         {'a', '<', 's', '>'},
         -1,
         261},
        {s, "{\"split_special_tokens\": false}", NULL, NULL, "a<s>", {'a', 261}, -1, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_tokenizer *tokenizer;
        fl_error error = {0};
        if (open_beside(cases[i].added, cases[i].config, cases[i].map, cases[i].list, &tokenizer, &error) !=
            FL_OK)
            fail_msg("case %zu: %s", i, error.message);
        size_t count = 0;
        while (cases[i].ids[count] != 0) count++;
        fl_assert_encodes(tokenizer, cases[i].text, strlen(cases[i].text), cases[i].ids, count, NULL, 0);
        assert_int_equal(fl_tokenizer_bos(tokenizer), cases[i].bos);
        assert_int_equal(fl_tokenizer_eos(tokenizer), cases[i].eos);
        assert_false(fl_tokenizer_adds_bos(tokenizer));
        fl_tokenizer_close(tokenizer);
    }
}

static void test_damaged_files_beside_are_named(void **state) {
    (void)state;
    static const struct {
        const char *config, *list, *message;
    } cases[] = {
        {"[1]", NULL, "tokenizer_config.json: not a JSON object"},
        {"{\"a\": 1,}", NULL, "tokenizer_config.json:1:"},
        {"{\"bos_token\": 7}", NULL, "\"bos_token\" is missing or not a token"},
        {"{\"added_tokens_decoder\": [1]}", NULL, "\"added_tokens_decoder\" is missing or not an object"},
        {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"a\"}}}", NULL, "\"x\" is not a token id"},
        {"{\"added_tokens_decoder\": {\"7\": \"a\"}}", NULL, "\"content\" is missing or not a string"},
        {"{\"split_special_tokens\": \"yes\"}", NULL,
         "\"split_special_tokens\" is missing or not true or false"},
        {NULL, "{\"<t>\": -1}", "the id of \"<t>\" is not an integer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_tokenizer *tokenizer;
        fl_error error = {0};
        assert_int_equal(open_beside("[]", cases[i].config, NULL, cases[i].list, &tokenizer, &error),
                         FL_ERROR_FORMAT);
        if (strstr(error.message, cases[i].message) == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, error.message, cases[i].message);
    }
}

/* Steps that multiply a text, and ids far beyond the number of tokens, are refused before memory goes. */
static void test_growth_and_ids_are_bounded(void **state) {
    (void)state;
#define TEN "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aaaaaaaaaa\"}"
#define BYTES_AGAIN "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"
    static const fl_tokenizer_parts at_open[] = {
        {.normalizer = "{\"type\": \"Sequence\", \"normalizers\": [" TEN "," TEN "," TEN "," TEN "," TEN "]}",
         .added_tokens = "[" TOKEN(97, "a", ", \"normalized\": true") "]"},
        {.vocabulary = ", \"far\": 4000000"},
        {.added_tokens = "[" TOKEN(4000000, "<s>", "") "]"},
    };
    static const fl_tokenizer_parts at_encoding[] = {
        {.normalizer =
             "{\"type\": \"Sequence\", \"normalizers\": [" TEN "," TEN "," TEN "," TEN "," TEN "]}"},
        {.pre_tokenizer =
             "{\"type\": \"Sequence\", \"pretokenizers\": [" BYTES_AGAIN "," BYTES_AGAIN "," BYTES_AGAIN
             "," BYTES_AGAIN "," BYTES_AGAIN "," BYTES_AGAIN "," BYTES_AGAIN "," BYTES_AGAIN "," BYTES_AGAIN
             "," BYTES_AGAIN "," BYTES_AGAIN "," BYTES_AGAIN "]}"},
    };
    fl_tokenizer *tokenizer;
    fl_error error = {0};
    for (size_t i = 0; i < sizeof at_open / sizeof at_open[0]; i++) {
        char *text = fl_tokenizer_json(&at_open[i]);
        assert_int_not_equal(fl_open_tokenizer_text(text, &tokenizer, &error), FL_OK);
        if (strstr(error.message, i == 0 ? "make more than" : "has id 4000000, outside") == NULL)
            fail_msg("case %zu: %s", i, error.message);
        fl_memory_free(text);
    }
    for (size_t i = 0; i < sizeof at_encoding / sizeof at_encoding[0]; i++) {
        static const char text[] = "a\xC3\xA9 \xE4\xB8\xAD"
                                   "aaaaaaaaaaaaaaa";
        int32_t *ids;
        size_t count;
        tokenizer = fl_open_tokenizer_parts(&at_encoding[i]);
        assert_int_equal(fl_tokenizer_encode(tokenizer, text, sizeof text - 1, false, &ids, &count, &error),
                         FL_ERROR_UNSUPPORTED);
        assert_non_null(strstr(error.message, "make more than"));
        fl_tokenizer_close(tokenizer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_beside_are_read_as_by_autotokenizer),
        cmocka_unit_test(test_damaged_files_beside_are_named),
        cmocka_unit_test(test_growth_and_ids_are_bounded),
    };
    return cmocka_run_group_tests(tests, fl_test_folder_make, fl_test_folder_remove);
}
