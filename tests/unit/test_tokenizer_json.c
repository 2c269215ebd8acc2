/* tokenizer.json: every part on a small tokenizer, and files that are damaged or not understood. The ids are
 * those of Hugging Face `tokenizers` 0.23.3 on the same files. */
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

#define IDEOGRAPHIC_SPACE "\xE3\x80\x80"
#define E_ACUTE "\xC3\xA9"
#define TOKEN(id, content, flags) "{\"id\": " #id ", \"content\": \"" content "\"" flags "}"

static fl_tokenizer *with(fl_tokenizer_parts parts) {
    return fl_open_tokenizer_parts(&parts);
}

static void test_merges_run_by_rank_over_bytes(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = with((fl_tokenizer_parts){0});
    FL_ASSERT_IDS(tokenizer, "hello hello", 259, 260);
    FL_ASSERT_IDS(tokenizer, "hellll" E_ACUTE "\x04", 258, 257, 0xC3, 0xA9, 4);
    FL_ASSERT_IDS(tokenizer, "he's", 256, '\'', 's');
    int32_t *ids;
    size_t count;
    assert_int_equal(fl_tokenizer_encode(tokenizer, NULL, 0, true, &ids, &count, NULL), FL_OK);
    assert_int_equal(count, 0);
    fl_memory_free(ids);
    assert_int_equal(fl_tokenizer_vocabulary(tokenizer), 261);
    assert_int_equal(fl_tokenizer_bos(tokenizer), -1);
    size_t bytes;
    assert_memory_equal(fl_tokenizer_token(tokenizer, 260, &bytes), " hello", 6);
    assert_int_equal(bytes, 6);
    assert_null(fl_tokenizer_token(tokenizer, 261, &bytes));
    assert_null(fl_tokenizer_token(tokenizer, -1, &bytes));
    fl_tokenizer_close(tokenizer);
}

static void test_bytes_without_a_token_vanish_before_merging(void **state) {
    (void)state;
    /* Only h, e and l exist: what stands between them is gone before "hell" is put together. */
    fl_tokenizer *tokenizer;
    fl_error error;
    const char *text =
        "{\"model\": {\"vocab\": {\"h\": 0, \"e\": 1, \"l\": 2, \"he\": 3, \"ll\": 4, \"hell\": 5}, "
        "\"merges\": "
        "[\"h e\", \"l l\", \"he ll\"]}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
        "false}, \"decoder\": {\"type\": \"ByteLevel\"}}";
    assert_int_equal(fl_open_tokenizer_text(text, &tokenizer, &error), FL_OK);
    FL_ASSERT_IDS(tokenizer, "hxeyllo", 5);
    fl_assert_encodes(tokenizer, "123", 3, NULL, 0, "", 0);
    fl_tokenizer_close(tokenizer);
}

static void test_invalid_text_is_read_as_replacement_characters(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = with((fl_tokenizer_parts){0});
    FL_ASSERT_IDS(tokenizer,
                  "a\xFF"
                  "b\xE4\xB8",
                  'a', 0xEF, 0xBF, 0xBD, 'b', 0xEF, 0xBF, 0xBD);
    static const int32_t halves[] = {'a', 0xE4, 0xB8, 'b', 0xFF};
    char *text;
    size_t bytes;
    assert_int_equal(fl_tokenizer_decode(tokenizer, halves, 5, false, &text, &bytes, NULL), FL_OK);
    assert_string_equal(text, "a\xEF\xBF\xBD"
                              "b\xEF\xBF\xBD");
    fl_memory_free(text);
    fl_tokenizer_close(tokenizer);
}

static void test_added_tokens_match_plainly(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = with((fl_tokenizer_parts){.added_tokens = "[" TOKEN(261, "<m>", "") "]"});
    FL_ASSERT_IDS(tokenizer, "a <m> b", 'a', ' ', 261, ' ', 'b');
    FL_ASSERT_IDS(tokenizer, "a<m>b", 'a', 261, 'b');
    FL_ASSERT_IDS(tokenizer, "<m>  <m>", 261, ' ', ' ', 261);
    FL_ASSERT_IDS(tokenizer, "<m><m", 261, '<', 'm');
    fl_tokenizer_close(tokenizer);
}

static void test_lstrip_takes_the_space_before(void **state) {
    (void)state;
    fl_tokenizer *tokenizer =
        with((fl_tokenizer_parts){.added_tokens = "[" TOKEN(261, "<m>", ", \"lstrip\": true") "]"});
    FL_ASSERT_IDS(tokenizer, "a <m> b", 'a', 261, ' ', 'b');
    FL_ASSERT_IDS(tokenizer, "<m>  <m>", 261, 261);
    FL_ASSERT_IDS(tokenizer, "a \n" IDEOGRAPHIC_SPACE "<m>\t b", 'a', 261, '\t', ' ', 'b');
    fl_tokenizer_close(tokenizer);
}

static void test_rstrip_takes_the_space_behind(void **state) {
    (void)state;
    fl_tokenizer *tokenizer =
        with((fl_tokenizer_parts){.added_tokens = "[" TOKEN(261, "<m>", ", \"rstrip\": true") "]"});
    FL_ASSERT_IDS(tokenizer, "a <m> b", 'a', ' ', 261, 'b');
    FL_ASSERT_IDS(tokenizer, "<m>  <m>", 261, 261);
    FL_ASSERT_IDS(tokenizer, "a<m>\t b\n", 'a', 261, 'b', '\n');
    fl_tokenizer_close(tokenizer);
}

static void test_a_token_swallowed_as_space_is_not_found_again(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = with((fl_tokenizer_parts){
        .added_tokens = "[" TOKEN(261, "\\n", ", \"lstrip\": true, \"rstrip\": true") "]"});
    FL_ASSERT_IDS(tokenizer, "a\n\n\nb", 'a', 261, 'b');
    fl_tokenizer_close(tokenizer);
}

static void test_single_word_wants_no_word_character_beside_it(void **state) {
    (void)state;
    fl_tokenizer *tokenizer =
        with((fl_tokenizer_parts){.added_tokens = "[" TOKEN(261, "<m>", ", \"single_word\": true") "]"});
    FL_ASSERT_IDS(tokenizer, "a <m> b", 'a', ' ', 261, ' ', 'b');
    FL_ASSERT_IDS(tokenizer, "a<m>b", 'a', '<', 'm', '>', 'b');
    FL_ASSERT_IDS(tokenizer, E_ACUTE "<m>!", 0xC3, 0xA9, '<', 'm', '>', '!');
    FL_ASSERT_IDS(tokenizer, "-<m>!", '-', 261, '!');
    fl_tokenizer_close(tokenizer);
}

static void test_normalized_says_in_which_text_a_token_is_looked_for(void **state) {
    (void)state;
    const char *lower = "{\"type\": \"Lowercase\"}";
    fl_tokenizer *raw = with((fl_tokenizer_parts){
        .normalizer = lower, .added_tokens = "[" TOKEN(261, "<M>", ", \"normalized\": false") "]"});
    FL_ASSERT_IDS(raw, "A<M>a<m>", 'a', 261, 'a', '<', 'm', '>');
    fl_tokenizer_close(raw);
    fl_tokenizer *normalised = with((fl_tokenizer_parts){
        .normalizer = lower, .added_tokens = "[" TOKEN(261, "<M>", ", \"normalized\": true") "]"});
    FL_ASSERT_IDS(normalised, "A<M>a<m>", 'a', 261, 'a', 261);
    fl_tokenizer_close(normalised);
    /* The raw pass comes first, so "b" breaks up every "ab". */
    fl_tokenizer *both =
        with((fl_tokenizer_parts){.added_tokens = "[" TOKEN(261, "ab", ", \"normalized\": true") ", " TOKEN(
                                      98, "b", ", \"normalized\": false") "]"});
    FL_ASSERT_IDS(both, "ab", 'a', 98);
    fl_tokenizer_close(both);
}

static void test_the_longest_added_token_wins(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = with((fl_tokenizer_parts){
        .added_tokens = "[" TOKEN(261, "<m>", "") ", " TOKEN(262, "<m>>", "") ", " TOKEN(60, "<", "") "]"});
    FL_ASSERT_IDS(tokenizer, "<m>>", 262);
    FL_ASSERT_IDS(tokenizer, "<m> <", 261, ' ', 60);
    FL_ASSERT_IDS(tokenizer, "<<m>>>", 60, 262, '>');
    fl_tokenizer_close(tokenizer);
}

static void test_special_tokens_are_left_out_of_decoded_text_on_request(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = with((fl_tokenizer_parts){
        .added_tokens = "[" TOKEN(261, "<m>", ", \"special\": true") ", " TOKEN(262, "<n> ", "") "]"});
    static const int32_t ids[] = {261, 259, 262, 'a', 99999};
    char *text;
    size_t bytes;
    assert_int_equal(fl_tokenizer_decode(tokenizer, ids, 5, false, &text, &bytes, NULL), FL_OK);
    assert_string_equal(text, "<m>hello<n> a");
    fl_memory_free(text);
    assert_int_equal(fl_tokenizer_decode(tokenizer, ids, 5, true, &text, &bytes, NULL), FL_OK);
    assert_string_equal(text, "hello<n> a");
    fl_memory_free(text);
    static const int32_t negative[] = {-5};
    assert_int_equal(fl_tokenizer_decode(tokenizer, negative, 1, true, &text, &bytes, NULL),
                     FL_ERROR_ARGUMENT);
    fl_tokenizer_close(tokenizer);
}

static void test_without_a_decoder_tokens_are_joined_by_spaces(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = with((fl_tokenizer_parts){.decoder = "null"});
    static const int32_t ids[] = {260, 'a'};
    char *text;
    size_t bytes;
    assert_int_equal(fl_tokenizer_decode(tokenizer, ids, 2, false, &text, &bytes, NULL), FL_OK);
    assert_string_equal(text, "\xC4\xA0hello a");
    fl_memory_free(text);
    fl_tokenizer_close(tokenizer);
}

static void test_composed_and_decomposed_text_agree_only_under_nfc(void **state) {
    (void)state;
    fl_tokenizer *nfc = with((fl_tokenizer_parts){
        .normalizer = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}"});
    FL_ASSERT_IDS(nfc, "a\xCC\x81", 0xC3, 0xA1);
    FL_ASSERT_IDS(nfc, "\xC3\xA1", 0xC3, 0xA1);
    fl_tokenizer_close(nfc);
    fl_tokenizer *plain = with((fl_tokenizer_parts){0});
    FL_ASSERT_IDS(plain, "a\xCC\x81", 'a', 0xCC, 0x81);
    fl_tokenizer_close(plain);
}

static void test_other_normalizers_change_the_text(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = with((fl_tokenizer_parts){
        .normalizer =
            "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Strip\", \"strip_left\": true, "
            "\"strip_right\": true}, {\"type\": \"Replace\", \"pattern\": {\"String\": \"ab\"}, \"content\": "
            "\"c\"}, {\"type\": \"Prepend\", \"prepend\": \">\"}, {\"type\": \"NFKC\"}]}"});
    FL_ASSERT_IDS(tokenizer, " aabab\xEF\xAC\x81 \n", '>', 'a', 'c', 'c', 'f', 'i');
    fl_assert_encodes(tokenizer, " \n", 2, NULL, 0, NULL, 0);
    fl_tokenizer_close(tokenizer);
}

static void test_split_behaviours_join_matches_as_named(void **state) {
    (void)state;
    static const struct {
        const char *behaviour;
        const char *invert;
        int32_t ids[16];
        size_t count;
    } cases[] = {
        {"Isolated", "false", {32, 256, 32, 108, 32, 108, 32, 111, 32, 108, 32, 32, 108}, 13},
        {"Isolated", "true", {32, 256, 32, 108, 32, 108, 32, 111, 32, 108, 32, 32, 108}, 13},
        {"Removed", "false", {32, 256, 32, 111, 32}, 5},
        {"Removed", "true", {32, 108, 32, 108, 32, 108, 32, 108}, 8},
        {"Contiguous", "false", {32, 256, 32, 257, 32, 111, 32, 108, 32, 32, 108}, 11},
        {"Contiguous", "true", {32, 256, 32, 257, 32, 111, 32, 108, 32, 32, 108}, 11},
        {"MergedWithPrevious", "false", {32, 256, 108, 32, 108, 32, 111, 108, 32, 108}, 10},
        {"MergedWithPrevious", "true", {32, 256, 32, 108, 32, 108, 111, 32, 108, 32, 32, 108}, 12},
        {"MergedWithNext", "false", {32, 256, 32, 108, 32, 108, 111, 32, 108, 32, 32, 108}, 12},
        {"MergedWithNext", "true", {32, 256, 108, 32, 108, 32, 111, 108, 32, 108}, 10},
    };
    static const char *const patterns[] = {"{\"String\": \"l\"}", "{\"Regex\": \"l\"}"};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        char steps[512];
        size_t c = i / 2;
        snprintf(steps, sizeof steps,
                 "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": %s, "
                 "\"behavior\": "
                 "\"%s\", \"invert\": %s}, {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                 "\"use_regex\": false}]}",
                 patterns[i % 2], cases[c].behaviour, cases[c].invert);
        fl_tokenizer *tokenizer = with((fl_tokenizer_parts){.pre_tokenizer = steps});
        fl_assert_encodes(tokenizer, "hellol l", 8, cases[c].ids, cases[c].count, NULL, 0);
        fl_tokenizer_close(tokenizer);
    }
}

static void test_digits_are_cut_before_the_pattern_runs(void **state) {
    (void)state;
    /* "a  1": the spaces before a digit stay together, and the pattern never sees " 1". */
    const char *vocabulary = ", \"\xC4\xA0\xC4\xA0\": 261, \"12\": 262, \"\xC4\xA0"
                             "1\": 263";
    const char *merges = "[\"\xC4\xA0 \xC4\xA0\", \"1 2\", \"\xC4\xA0 1\"]";
    char steps[300];
    const char *format =
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", \"individual_digits\": %s}, "
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}]}";
    snprintf(steps, sizeof steps, format, "true");
    fl_tokenizer *one =
        with((fl_tokenizer_parts){.pre_tokenizer = steps, .vocabulary = vocabulary, .merges = merges});
    FL_ASSERT_IDS(one, "a  12", 'a', 261, '1', '2');
    fl_tokenizer_close(one);
    snprintf(steps, sizeof steps, format, "false");
    fl_tokenizer *runs =
        with((fl_tokenizer_parts){.pre_tokenizer = steps, .vocabulary = vocabulary, .merges = merges});
    FL_ASSERT_IDS(runs, "a  12", 'a', 261, 262);
    fl_tokenizer_close(runs);
    fl_tokenizer *none = with((fl_tokenizer_parts){.vocabulary = vocabulary, .merges = merges});
    FL_ASSERT_IDS(none, "a  12", 'a', ' ', ' ', 262);
    fl_tokenizer_close(none);
}

static void test_ignore_merges_takes_whole_words(void **state) {
    (void)state;
    fl_tokenizer *tokenizer =
        with((fl_tokenizer_parts){.merges = "[]", .model = ", \"ignore_merges\": true"});
    FL_ASSERT_IDS(tokenizer, "hello hello hellos", 259, 260, ' ', 'h', 'e', 'l', 'l', 'o', 's');
    fl_tokenizer_close(tokenizer);
    tokenizer = with((fl_tokenizer_parts){.merges = "[]"});
    FL_ASSERT_IDS(tokenizer, "hello", 'h', 'e', 'l', 'l', 'o');
    fl_tokenizer_close(tokenizer);
}

static void test_unknown_characters_follow_the_flags(void **state) {
    (void)state;
    /* Without ByteLevel the ideographs have no token; the y with dots is the character of byte 255. */
    const char *text = "h\xC3\xBF\xE4\xB8\xAD\xE4\xB8\xADhello";
    fl_tokenizer *tokenizer =
        with((fl_tokenizer_parts){.pre_tokenizer = "null", .model = ", \"unk_token\": \"he\""});
    FL_ASSERT_IDS(tokenizer, text, 'h', 255, 256, 256, 259);
    fl_tokenizer_close(tokenizer);
    tokenizer = with((fl_tokenizer_parts){.pre_tokenizer = "null",
                                          .model = ", \"unk_token\": \"he\", \"fuse_unk\": true"});
    FL_ASSERT_IDS(tokenizer, text, 'h', 255, 256, 259);
    fl_tokenizer_close(tokenizer);
    tokenizer = with((fl_tokenizer_parts){.pre_tokenizer = "null",
                                          .vocabulary = ", \"<0xE4>\": 261, \"<0xB8>\": 262, \"<0xAD>\": 263",
                                          .model = ", \"unk_token\": \"he\", \"byte_fallback\": true"});
    FL_ASSERT_IDS(tokenizer, text, 'h', 255, 261, 262, 263, 261, 262, 263, 259);
    FL_ASSERT_IDS(tokenizer, "\xE4\xB8\xAF", 256);
    fl_tokenizer_close(tokenizer);
    tokenizer = with((fl_tokenizer_parts){.pre_tokenizer = "null"});
    FL_ASSERT_IDS(tokenizer, text, 'h', 255, 259);
    fl_tokenizer_close(tokenizer);
}

static void test_affixes_mark_where_a_character_stands(void **state) {
    (void)state;
    fl_tokenizer *tokenizer = with((fl_tokenizer_parts){
        .vocabulary = ", \"##b\": 261, \"##c</w>\": 262, \"ab\": 263, \"abc</w>\": 264",
        .merges = "[[\"a\", \"##b\"], [\"ab\", \"##c</w>\"]]",
        .model = ", \"continuing_subword_prefix\": \"##\", \"end_of_word_suffix\": \"</w>\""});
    FL_ASSERT_IDS(tokenizer, "abc", 264);
    FL_ASSERT_IDS(tokenizer, "abb", 263);
    fl_tokenizer_close(tokenizer);
}

static void test_templates_add_special_tokens(void **state) {
    (void)state;
    const char *added =
        "[" TOKEN(261, "<s>", ", \"special\": true") ", " TOKEN(262, "</s>", ", \"special\": true") "]";
    const char *template = "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, {\"type\": "
                           "\"TemplateProcessing\", "
                           "\"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "
                           "{\"Sequence\": {\"id\": \"A\"}}, "
                           "{\"SpecialToken\": {\"id\": \"</s>\"}}], \"special_tokens\": {\"<s>\": {\"ids\": "
                           "[261]}, \"</s>\": {\"ids\": "
                           "[262]}}}]}";
    const char *roberta = "{\"type\": \"RobertaProcessing\", \"sep\": [\"</s>\", 262], \"cls\": [\"<s>\", "
                          "261], \"trim_offsets\": true}";
    const char *both[] = {template, roberta};
    for (int i = 0; i < 2; i++) {
        fl_tokenizer *tokenizer =
            with((fl_tokenizer_parts){.added_tokens = added, .post_processor = both[i]});
        int32_t *ids;
        size_t count;
        assert_int_equal(fl_tokenizer_encode(tokenizer, "hello", 5, true, &ids, &count, NULL), FL_OK);
        assert_int_equal(count, 3);
        assert_int_equal(ids[0], 261);
        assert_int_equal(ids[1], 259);
        assert_int_equal(ids[2], 262);
        fl_memory_free(ids);
        FL_ASSERT_IDS(tokenizer, "hello", 259);
        assert_true(fl_tokenizer_adds_bos(tokenizer));
        assert_int_equal(fl_tokenizer_bos(tokenizer), 261);
        assert_int_equal(fl_tokenizer_eos(tokenizer), 262);
        fl_tokenizer_close(tokenizer);
    }
}

static void test_metaspace_marks_spaces_and_beginnings(void **state) {
    (void)state;
    static const struct {
        const char *scheme;
        int32_t start[5], behind[5], spaced[3]; /* "a b", "<m>a b", " a", closed by 0 */
    } cases[] = {
        {"\"prepend_scheme\": \"always\", \"split\": true",
         {95, 97, 95, 98},
         {261, 95, 97, 95, 98},
         {95, 97}},
        {"\"prepend_scheme\": \"first\", \"split\": false", {95, 97, 95, 98}, {261, 97, 95, 98}, {95, 97}},
        {"\"prepend_scheme\": \"never\"", {97, 95, 98}, {261, 97, 95, 98}, {95, 97}},
        {"\"add_prefix_space\": true", {95, 97, 95, 98}, {261, 95, 97, 95, 98}, {95, 97}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char step[200];
        snprintf(step, sizeof step, "{\"type\": \"Metaspace\", \"replacement\": \"_\", %s}", cases[i].scheme);
        fl_tokenizer *tokenizer =
            with((fl_tokenizer_parts){.pre_tokenizer = step, .added_tokens = "[" TOKEN(261, "<m>", "") "]"});
        size_t start = cases[i].start[3] != 0 ? 4 : 3, behind = cases[i].behind[4] != 0 ? 5 : 4;
        fl_assert_encodes(tokenizer, "a b", 3, cases[i].start, start, NULL, 0);
        fl_assert_encodes(tokenizer, "<m>a b", 6, cases[i].behind, behind, NULL, 0);
        fl_assert_encodes(tokenizer, " a", 2, cases[i].spaced, 2, NULL, 0);
        fl_tokenizer_close(tokenizer);
    }
}

static void assert_decodes(const char *decoder, const char *wanted) {
    /* _hello, <0xC3>, <0xA9>, hell, <0xFF>, _ */
    fl_tokenizer *tokenizer = with((fl_tokenizer_parts){
        .decoder = decoder,
        .vocabulary = ", \"_hello\": 261, \"<0xC3>\": 262, \"<0xA9>\": 263, \"<0xFF>\": 264"});
    static const int32_t ids[] = {261, 262, 263, 258, 264, 95};
    char *text;
    size_t bytes;
    assert_int_equal(fl_tokenizer_decode(tokenizer, ids, 6, false, &text, &bytes, NULL), FL_OK);
    assert_string_equal(text, wanted);
    fl_memory_free(text);
    fl_tokenizer_close(tokenizer);
}

static void test_decoders_run_one_after_another(void **state) {
    (void)state;
#define REPLACE "{\"type\": \"Replace\", \"pattern\": {\"String\": \"_\"}, \"content\": \" \"}"
#define FALLBACK "{\"type\": \"ByteFallback\"}"
#define SEQUENCE(members) "{\"type\": \"Sequence\", \"decoders\": [" members "]}"
    assert_decodes(SEQUENCE(REPLACE), " hello<0xC3><0xA9>hell<0xFF> ");
    assert_decodes(SEQUENCE(REPLACE ", " FALLBACK), " hello\xC3\xA9hell\xEF\xBF\xBD ");
    assert_decodes(SEQUENCE(REPLACE ", " FALLBACK
                                    ", {\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": \" \", "
                                    "\"start\": 1, \"stop\": 1}"),
                   "hello\xC3\xA9hell\xEF\xBF\xBD");
    assert_decodes(SEQUENCE("{\"type\": \"Strip\", \"content\": \"h\", \"start\": 2}"),
                   "_hello<0xC3><0xA9>ell<0xFF>_");
    assert_decodes("{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\"}",
                   "hello<0xC3><0xA9>hell<0xFF> ");
    assert_decodes("{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"never\"}",
                   " hello<0xC3><0xA9>hell<0xFF> ");
}

static void test_the_hash_tells_tokenizers_apart(void **state) {
    (void)state;
    fl_tokenizer *a = with((fl_tokenizer_parts){0}), *same = with((fl_tokenizer_parts){0});
    fl_tokenizer *merges = with((fl_tokenizer_parts){.merges = "[\"l l\", \"h e\"]"});
    fl_tokenizer *steps = with((fl_tokenizer_parts){.normalizer = "{\"type\": \"NFC\"}"});
    assert_string_equal(fl_tokenizer_hash(a).text, fl_tokenizer_hash(same).text);
    assert_string_not_equal(fl_tokenizer_hash(a).text, fl_tokenizer_hash(merges).text);
    assert_string_not_equal(fl_tokenizer_hash(a).text, fl_tokenizer_hash(steps).text);
    fl_tokenizer_close(a);
    fl_tokenizer_close(same);
    fl_tokenizer_close(merges);
    fl_tokenizer_close(steps);
}

static void test_a_document_of_one_word_is_merged_in_time(void **state) {
    (void)state;
    enum { PAIRS = 400000 };
    fl_tokenizer *tokenizer = with((fl_tokenizer_parts){.pre_tokenizer = "null"});
    char *text;
    int32_t *ids;
    size_t count;
    assert_int_equal(FL_ALLOCATE(&text, 5 * PAIRS, NULL), FL_OK);
    for (size_t i = 0; i < PAIRS; i++) memcpy(text + 5 * i, "hello", 5);
    assert_int_equal(fl_tokenizer_encode(tokenizer, text, 5 * PAIRS, false, &ids, &count, NULL), FL_OK);
    assert_int_equal(count, PAIRS);
    for (size_t i = 0; i < PAIRS; i++) assert_int_equal(ids[i], 259);
    fl_memory_free(ids);
    fl_memory_free(text);
    fl_tokenizer_close(tokenizer);
}

typedef struct hostile {
    const char *what;
    fl_tokenizer_parts parts;
    fl_status status;
    const char *named;
} hostile;

static void test_damaged_and_unknown_parts_are_named(void **state) {
    (void)state;
    static const hostile cases[] = {
        {"merge of unknown part", {.merges = "[\"h zz\"]"}, FL_ERROR_FORMAT, "zz"},
        {"merge into nothing", {.merges = "[\"h l\"]"}, FL_ERROR_FORMAT, "hl"},
        {"merge of three", {.merges = "[\"h e l\"]"}, FL_ERROR_FORMAT, "merge 0"},
        {"merge of one", {.merges = "[\"he\"]"}, FL_ERROR_FORMAT, "merge 0"},
        {"merge that is a number", {.merges = "[\"h e\", 5]"}, FL_ERROR_FORMAT, "merge 1"},
        {"triple", {.merges = "[[\"h\", \"e\", \"l\"]]"}, FL_ERROR_FORMAT, "merge 0"},
        {"merges that are no list", {.merges = "{}"}, FL_ERROR_FORMAT, "merges"},
        {"merges null", {.merges = "null"}, FL_ERROR_FORMAT, "merges"},
        {"negative id", {.vocabulary = ", \"x1\": -1"}, FL_ERROR_FORMAT, "x1"},
        {"fractional id", {.vocabulary = ", \"x1\": 0.5"}, FL_ERROR_FORMAT, "x1"},
        {"huge id", {.vocabulary = ", \"x1\": 4000000000"}, FL_ERROR_FORMAT, "x1"},
        {"huge id in an exponent", {.vocabulary = ", \"x1\": 1e300"}, FL_ERROR_FORMAT, "x1"},
        {"id that is a string", {.vocabulary = ", \"x1\": \"7\""}, FL_ERROR_FORMAT, "x1"},
        {"two tokens, one id", {.vocabulary = ", \"x1\": 259"}, FL_ERROR_FORMAT, "x1"},
        {"one token, two ids", {.vocabulary = ", \"hello\": 270"}, FL_ERROR_FORMAT, "hello"},
        {"NUL in a token", {.vocabulary = ", \"a\\u0000b\": 270"}, FL_ERROR_FORMAT, "NUL"},
        {"lone surrogate", {.vocabulary = ", \"\\ud800\": 270"}, FL_ERROR_FORMAT, "tokenizer.json"},
        {"added token elsewhere",
         {.added_tokens = "[" TOKEN(300, "hello", "") "]"},
         FL_ERROR_FORMAT,
         "hello"},
        {"added id taken", {.added_tokens = "[" TOKEN(5, "<m>", "") "]"}, FL_ERROR_FORMAT, "<m>"},
        {"added twice",
         {.added_tokens = "[" TOKEN(261, "<m>", "") ", " TOKEN(262, "<m>", "") "]"},
         FL_ERROR_FORMAT,
         "<m>"},
        {"added huge", {.added_tokens = "[" TOKEN(2147483648, "<m>", "") "]"}, FL_ERROR_FORMAT, "<m>"},
        {"added without id", {.added_tokens = "[{\"content\": \"<m>\"}]"}, FL_ERROR_FORMAT, "<m>"},
        {"added without content", {.added_tokens = "[{\"id\": 261}]"}, FL_ERROR_FORMAT, "content"},
        {"added flag",
         {.added_tokens = "[" TOKEN(261, "<m>", ", \"lstrip\": 1") "]"},
         FL_ERROR_FORMAT,
         "lstrip"},
        {"added is no list", {.added_tokens = "{}"}, FL_ERROR_FORMAT, "added_tokens"},
        {"added is a number", {.added_tokens = "[3]"}, FL_ERROR_FORMAT, "content"},
        {"unknown normalizer", {.normalizer = "{\"type\": \"Nmt\"}"}, FL_ERROR_UNSUPPORTED, "Nmt"},
        {"normalizer without type", {.normalizer = "{}"}, FL_ERROR_FORMAT, "type"},
        {"normalizer that is a string", {.normalizer = "\"NFC\""}, FL_ERROR_FORMAT, "normalizer"},
        {"sequence of null",
         {.normalizer = "{\"type\": \"Sequence\", \"normalizers\": [null]}"},
         FL_ERROR_FORMAT,
         "normalizers"},
        {"sequence without members",
         {.pre_tokenizer = "{\"type\": \"Sequence\"}"},
         FL_ERROR_FORMAT,
         "pretokenizers"},
        {"replace by regex",
         {.normalizer = "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"b\"}"},
         FL_ERROR_UNSUPPORTED,
         "Replace"},
        {"unknown pre-tokenizer",
         {.pre_tokenizer = "{\"type\": \"UnicodeScripts\"}"},
         FL_ERROR_UNSUPPORTED,
         "UnicodeScripts"},
        {"unknown pattern",
         {.pre_tokenizer =
              "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\w+\"}, \"behavior\": \"Isolated\"}"},
         FL_ERROR_UNSUPPORTED,
         "\\w+"},
        {"empty pattern",
         {.pre_tokenizer =
              "{\"type\": \"Split\", \"pattern\": {\"String\": \"\"}, \"behavior\": \"Isolated\"}"},
         FL_ERROR_UNSUPPORTED,
         "empty"},
        {"unknown behaviour",
         {.pre_tokenizer =
              "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Sideways\"}"},
         FL_ERROR_UNSUPPORTED,
         "Sideways"},
        {"unknown post-processor",
         {.post_processor = "{\"type\": \"Other\"}"},
         FL_ERROR_UNSUPPORTED,
         "Other"},
        {"template without text",
         {.post_processor = "{\"type\": \"TemplateProcessing\", \"single\": []}"},
         FL_ERROR_UNSUPPORTED,
         "single"},
        {"template of an unknown token",
         {.post_processor =
              "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<q>\"}}], "
              "\"special_tokens\": {}}"},
         FL_ERROR_FORMAT,
         "<q>"},
        {"template of a missing id",
         {.post_processor = "{\"type\": \"BertProcessing\", \"sep\": [\"a\", 97], \"cls\": [\"b\", 9999]}"},
         FL_ERROR_FORMAT,
         "9999"},
        {"metaspace without a mark",
         {.pre_tokenizer = "{\"type\": \"Metaspace\"}"},
         FL_ERROR_FORMAT,
         "replacement"},
        {"metaspace with an empty mark",
         {.pre_tokenizer = "{\"type\": \"Metaspace\", \"replacement\": \"\"}"},
         FL_ERROR_FORMAT,
         "replacement"},
        {"metaspace scheme",
         {.pre_tokenizer =
              "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"often\"}"},
         FL_ERROR_UNSUPPORTED,
         "often"},
        {"metaspace first, but second",
         {.pre_tokenizer = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": "
                           "\"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\"}]}"},
         FL_ERROR_UNSUPPORTED,
         "first"},
        {"strip of nothing",
         {.decoder = "{\"type\": \"Strip\", \"content\": \"\"}"},
         FL_ERROR_FORMAT,
         "content"},
        {"strip of minus one",
         {.decoder = "{\"type\": \"Strip\", \"content\": \" \", \"start\": -1}"},
         FL_ERROR_FORMAT,
         "start"},
        {"unknown decoder", {.decoder = "{\"type\": \"CTC\"}"}, FL_ERROR_UNSUPPORTED, "CTC"},
        {"other model", {.model = ", \"type\": \"Unigram\""}, FL_ERROR_FORMAT, "type"},
        {"flag of the model", {.model = ", \"fuse_unk\": \"yes\""}, FL_ERROR_FORMAT, "fuse_unk"},
        {"unknown token missing", {.model = ", \"unk_token\": \"<unk>\""}, FL_ERROR_FORMAT, "<unk>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_tokenizer *tokenizer;
        fl_error error = {.message = ""};
        char *text = fl_tokenizer_json(&cases[i].parts);
        fl_status status = fl_open_tokenizer_text(text, &tokenizer, &error);
        if (status != cases[i].status)
            fail_msg("%s: %s (%s)", cases[i].what, fl_status_name(status), error.message);
        assert_null(tokenizer);
        if (strstr(error.message, cases[i].named) == NULL || strstr(error.message, "frostline-test") == NULL)
            fail_msg("%s: \"%s\" does not name %s and the place", cases[i].what, error.message,
                     cases[i].named);
        fl_memory_free(text);
    }
}

static void test_other_models_are_refused_by_name(void **state) {
    (void)state;
    fl_tokenizer *tokenizer;
    fl_error error;
    assert_int_equal(
        fl_open_tokenizer_text("{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", &tokenizer, &error),
        FL_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "Unigram"));
    assert_int_equal(fl_open_tokenizer_text("{}", &tokenizer, &error), FL_ERROR_FORMAT);
    assert_int_equal(fl_open_tokenizer_text("[1]", &tokenizer, &error), FL_ERROR_FORMAT);
    assert_int_equal(fl_tokenizer_open("no/such/tokenizer.json", &tokenizer, &error), FL_ERROR_IO);
    assert_non_null(strstr(error.message, "no/such/tokenizer.json"));
}

static void test_every_truncation_is_an_error(void **state) {
    (void)state;
    fl_tokenizer_parts parts = {.added_tokens = "[" TOKEN(261, "<m>", "") "]"};
    char *text = fl_tokenizer_json(&parts);
    size_t bytes = strlen(text);
    const char *folder = fl_temporary_directory();
    char path[1200];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    for (size_t kept = 1; kept < bytes; kept += 37) {
        fl_tokenizer *tokenizer;
        fl_error error;
        fl_write_file(path, text, kept);
        assert_int_equal(fl_tokenizer_open(path, &tokenizer, &error), FL_ERROR_FORMAT);
        assert_null(tokenizer);
    }
    fl_temporary_remove(folder);
    fl_memory_free(text);
}

static void test_deep_nesting_is_an_error(void **state) {
    (void)state;
    enum { DEPTH = 100000 };
    char *text;
    fl_tokenizer *tokenizer;
    assert_int_equal(FL_ALLOCATE(&text, DEPTH + 1, NULL), FL_OK);
    memset(text, '[', DEPTH);
    assert_int_equal(fl_open_tokenizer_text(text, &tokenizer, NULL), FL_ERROR_FORMAT);
    fl_memory_free(text);
}

static void test_failed_allocations_are_reported_and_leave_nothing_behind(void **state) {
    (void)state;
    fl_tokenizer_parts parts = {.added_tokens = "[" TOKEN(261, "<m>", "") "]",
                                .normalizer = "{\"type\": \"NFC\"}"};
    char *text = fl_tokenizer_json(&parts);
    const char *folder = fl_temporary_directory();
    char path[1200];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    fl_write_file(path, text, strlen(text));
    fl_memory_free(text);
    fl_tokenizer *tokenizer = NULL;
    for (size_t nth = 1; nth < 2000 && tokenizer == NULL; nth++) {
        fl_memory_fail_at(nth);
        fl_status status = fl_tokenizer_open(path, &tokenizer, NULL);
        fl_memory_fail_at(0);
        assert_true(status == FL_OK ? tokenizer != NULL : status == FL_ERROR_MEMORY && tokenizer == NULL);
    }
    fl_temporary_remove(folder);
    assert_non_null(tokenizer);
    static const char sample[] = "a\xCC\x81 <m> hello\xFF";
    bool done = false;
    for (size_t nth = 1; nth < 200 && !done; nth++) {
        int32_t *ids;
        size_t count;
        fl_memory_fail_at(nth);
        fl_status status =
            fl_tokenizer_encode(tokenizer, sample, sizeof sample - 1, true, &ids, &count, NULL);
        fl_memory_fail_at(0);
        done = status == FL_OK;
        if (done)
            fl_memory_free(ids);
        else
            assert_int_equal(status, FL_ERROR_MEMORY);
    }
    assert_true(done);
    fl_tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_run_by_rank_over_bytes),
        cmocka_unit_test(test_bytes_without_a_token_vanish_before_merging),
        cmocka_unit_test(test_invalid_text_is_read_as_replacement_characters),
        cmocka_unit_test(test_added_tokens_match_plainly),
        cmocka_unit_test(test_lstrip_takes_the_space_before),
        cmocka_unit_test(test_rstrip_takes_the_space_behind),
        cmocka_unit_test(test_a_token_swallowed_as_space_is_not_found_again),
        cmocka_unit_test(test_single_word_wants_no_word_character_beside_it),
        cmocka_unit_test(test_normalized_says_in_which_text_a_token_is_looked_for),
        cmocka_unit_test(test_the_longest_added_token_wins),
        cmocka_unit_test(test_special_tokens_are_left_out_of_decoded_text_on_request),
        cmocka_unit_test(test_without_a_decoder_tokens_are_joined_by_spaces),
        cmocka_unit_test(test_composed_and_decomposed_text_agree_only_under_nfc),
        cmocka_unit_test(test_other_normalizers_change_the_text),
        cmocka_unit_test(test_split_behaviours_join_matches_as_named),
        cmocka_unit_test(test_digits_are_cut_before_the_pattern_runs),
        cmocka_unit_test(test_ignore_merges_takes_whole_words),
        cmocka_unit_test(test_unknown_characters_follow_the_flags),
        cmocka_unit_test(test_affixes_mark_where_a_character_stands),
        cmocka_unit_test(test_templates_add_special_tokens),
        cmocka_unit_test(test_metaspace_marks_spaces_and_beginnings),
        cmocka_unit_test(test_decoders_run_one_after_another),
        cmocka_unit_test(test_the_hash_tells_tokenizers_apart),
        cmocka_unit_test(test_a_document_of_one_word_is_merged_in_time),
        cmocka_unit_test(test_damaged_and_unknown_parts_are_named),
        cmocka_unit_test(test_other_models_are_refused_by_name),
        cmocka_unit_test(test_every_truncation_is_an_error),
        cmocka_unit_test(test_deep_nesting_is_an_error),
        cmocka_unit_test(test_failed_allocations_are_reported_and_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
