/* Pre-tokenizer patterns: how each family cuts text, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_pattern.h"
#include "harness/model/tokenizer_text.h"

static fl_pattern *compiled(const char *source) {
    fl_pattern *pattern;
    fl_error error;
    if (fl_pattern_compile(source, &pattern, &error) != FL_OK) fail_msg("%s", error.message);
    return pattern;
}

/* The pieces of text with "/" after each; text between matches is a piece too. */
static void assert_pieces(const char *source, const char *text, const char *wanted) {
    fl_pattern *pattern = compiled(source);
    fl_pattern_matcher *matcher;
    assert_int_equal(fl_pattern_matcher_create(&matcher, NULL), FL_OK);
    fl_text_buffer pieces = {0};
    fl_text_append(&pieces, "", 0, NULL);
    size_t bytes = strlen(text), from = 0, start, end;
    bool found = true;
    while (from < bytes) {
        assert_int_equal(fl_pattern_find(pattern, matcher, text, bytes, from, &start, &end, &found, NULL),
                         FL_OK);
        if (!found) start = end = bytes;
        assert_true(start >= from && (end > start || !found));
        if (start > from) {
            fl_text_append(&pieces, text + from, start - from, NULL);
            fl_text_append(&pieces, "/", 1, NULL);
        }
        if (end > start) {
            fl_text_append(&pieces, text + start, end - start, NULL);
            fl_text_append(&pieces, "/", 1, NULL);
        }
        from = end;
    }
    assert_string_equal(pieces.bytes, wanted);
    fl_text_release(&pieces);
    fl_pattern_matcher_destroy(matcher);
    fl_pattern_destroy(pattern);
}

static void test_contractions_digits_and_line_ends_split_as_each_family_does(void **state) {
    (void)state;
    const char *text = "I'm  can'T 12345\r\n\n x";
    assert_pieces(fl_pattern_known("gpt-2"), text, "I/'m/ / can/'/T/ 12345/\r\n\n/ x/");
    assert_pieces(fl_pattern_known("llama3"), text, "I/'m/ / can/'T/ /123/45/\r\n\n/ x/");
    assert_pieces(fl_pattern_known("qwen2"), text, "I/'m/ / can/'T/ /1/2/3/4/5/\r\n\n/ x/");
}

static void test_combining_marks_stay_or_part_as_each_family_does(void **state) {
    (void)state;
    const char *text = "a\xCC\x81"
                       "b  \t\nfoo";
    assert_pieces(fl_pattern_known("gpt-2"), text, "a/\xCC\x81/b/  \t/\n/foo/");
    assert_pieces(fl_pattern_known("llama3"), text,
                  "a/\xCC\x81"
                  "b/  \t\n/foo/");
    assert_pieces(fl_pattern_known("qwen2"), text,
                  "a/\xCC\x81"
                  "b/  \t\n/foo/");
    assert_pieces(fl_pattern_known("qwen35"), text,
                  "a\xCC\x81"
                  "b/  \t\n/foo/");
}

static void test_wide_spaces_are_white_space(void **state) {
    (void)state;
    const char *text = "x\xC2\xA0y \xE3\x80\x80z";
    assert_pieces(fl_pattern_known("llama3"), text, "x/\xC2\xA0y/ /\xE3\x80\x80z/");
    assert_pieces(fl_pattern_known("gpt-2"), text, "x/\xC2\xA0/y/ /\xE3\x80\x80/z/");
}

static void test_numbers_are_all_of_category_n(void **state) {
    (void)state;
    const char *text = "\xC2\xBD\xC2\xB2\xE2\x85\xA7\xD9\xA3"; /* half, squared, Roman eight, Arabic three */
    assert_pieces(fl_pattern_known("gpt-2"), text, "\xC2\xBD\xC2\xB2\xE2\x85\xA7\xD9\xA3/");
    assert_pieces(fl_pattern_known("llama3"), text, "\xC2\xBD\xC2\xB2\xE2\x85\xA7/\xD9\xA3/");
    assert_pieces(fl_pattern_known("qwen2"), text, "\xC2\xBD/\xC2\xB2/\xE2\x85\xA7/\xD9\xA3/");
}

static void test_line_ends_follow_punctuation_in_newer_families(void **state) {
    (void)state;
    assert_pieces(fl_pattern_known("llama3"), "!!\n\nHi", "!!\n\n/Hi/");
    assert_pieces(fl_pattern_known("qwen2"), "!!\n\nHi", "!!\n\n/Hi/");
    assert_pieces(fl_pattern_known("gpt-2"), "!!\n\nHi", "!!/\n/\n/Hi/");
    static const char *const all[] = {"gpt-2", "llama3", "qwen2", "qwen35", "tekken"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_pieces(fl_pattern_known(all[i]), "   lead", "  / lead/");
}

static void test_capitals_start_words_in_tekken(void **state) {
    (void)state;
    assert_pieces(fl_pattern_known("tekken"), "camelCaseHTML don't", "camel/Case/HTML/ don/'t/");
}

static void test_long_s_folds_to_s(void **state) {
    (void)state;
    assert_pieces(fl_pattern_known("llama3"),
                  "a'\xC5\xBF"
                  "b",
                  "a/'\xC5\xBF/b/");
    assert_pieces(fl_pattern_known("gpt-2"),
                  "a'\xC5\xBF"
                  "b",
                  "a/'/\xC5\xBF"
                  "b/");
}

static void test_white_space_is_unicode_white_space_exactly(void **state) {
    (void)state;
    fl_pattern *space = compiled("\\s"), *other = compiled("\\S"), *class = compiled("[\\S]");
    fl_pattern_matcher *matcher;
    fl_text_buffer text = {0};
    assert_int_equal(fl_pattern_matcher_create(&matcher, NULL), FL_OK);
    for (int32_t character = 0; character < 0x110000; character++) {
        if (character >= 0xD800 && character < 0xE000) continue;
        size_t start, end;
        bool is_space, is_other, in_class;
        text.count = 0;
        fl_text_append_character(&text, character, NULL);
        fl_pattern_find(space, matcher, text.bytes, text.count, 0, &start, &end, &is_space, NULL);
        fl_pattern_find(other, matcher, text.bytes, text.count, 0, &start, &end, &is_other, NULL);
        fl_pattern_find(class, matcher, text.bytes, text.count, 0, &start, &end, &in_class, NULL);
        if (is_space != fl_text_is_white_space(character) || is_other == is_space || in_class == is_space)
            fail_msg("U+%04X", (unsigned)character);
    }
    fl_pattern_matcher_destroy(matcher);
    fl_pattern_destroy(space);
    fl_pattern_destroy(other);
    fl_pattern_destroy(class);
    fl_text_release(&text);
}

static void test_braces_anchors_and_scripts_are_translated(void **state) {
    (void)state;
    assert_pieces("a{2}|{x}", "aaa{x}", "aa/a/{x}/");
    assert_pieces("^b", "a\nb", "a\n/b/");
    assert_pieces("(a|b)c", "acbcc", "ac/bc/c/");
    assert_pieces("\\p{Han}+", "a\xE4\xB8\xAD\xE3\x80\x81",
                  "a/\xE4\xB8\xAD/\xE3\x80\x81/"); /* the ideographic comma is Common */
    assert_pieces("[^\\d]+",
                  "ab1\xD9\xA3"
                  "c",
                  "ab/1\xD9\xA3/c/");
    assert_pieces("\\x{4e2d}|\\u0041|\\x2d", "-A\xE4\xB8\xAD", "-/A/\xE4\xB8\xAD/");
}

static void test_what_is_not_understood_is_refused_by_name(void **state) {
    (void)state;
    static const char *const refused[] = {
        "\\w+",          "a\\b",        "\\h",      "(?<name>a)", "(a)\\1",       "[a[b]]",
        "[a&&b]",        "[[:alpha:]]", "\\p{Foo}", "\\pL",       "(?i:\\p{Lu})", "(?i:ss)",
        "(?i:\xC3\xA9)", "a{1,2}+",     "a{2}?",    "a{,2}",      "[a-\\s]",      "[\\s-a]",
        "[]a]",          "(?x: a)",     "a)",       "(a",         "[a",           "\\",
        "\\xFF",         "\\x{110000}", "*a",       "(?<=a+)b",   "a\xFF",        "[a-z-9]",
        "\\p{L",         "\\G",         "\\R",      "\\x{d800}",
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        fl_pattern *pattern;
        fl_error error;
        if (fl_pattern_compile(refused[i], &pattern, &error) != FL_ERROR_UNSUPPORTED)
            fail_msg("%s", refused[i]);
        assert_null(pattern);
        if (strstr(error.message, refused[i]) == NULL)
            fail_msg("%s does not name %s", error.message, refused[i]);
    }
    assert_null(fl_pattern_known("no such family"));
}

static void test_deep_groups_are_refused(void **state) {
    (void)state;
    char source[2001];
    memset(source, '(', 1000);
    memset(source + 1000, ')', 1000);
    source[2000] = '\0';
    fl_pattern *pattern;
    assert_int_equal(fl_pattern_compile(source, &pattern, NULL), FL_ERROR_UNSUPPORTED);
}

static void test_long_runs_match_and_hopeless_ones_are_an_error(void **state) {
    (void)state;
    enum { LONG = 300000 };
    char *text;
    fl_pattern_matcher *matcher;
    fl_pattern *runs = compiled("(?:a|b)+"), *hopeless = compiled("(?:a+)+c");
    fl_error error;
    size_t start, end;
    bool found;
    assert_int_equal(FL_ALLOCATE(&text, LONG, NULL), FL_OK);
    assert_int_equal(fl_pattern_matcher_create(&matcher, NULL), FL_OK);
    memset(text, 'a', LONG);
    assert_int_equal(fl_pattern_find(runs, matcher, text, LONG, 0, &start, &end, &found, NULL), FL_OK);
    assert_true(found && start == 0 && end == LONG);
    text[40] = 'b';
    text[41] = 'c';
    assert_int_equal(fl_pattern_find(hopeless, matcher, text, 42, 0, &start, &end, &found, &error),
                     FL_ERROR_NUMERIC);
    assert_non_null(strstr(error.message, "(?:a+)+c"));
    fl_memory_free(text);
    fl_pattern_matcher_destroy(matcher);
    fl_pattern_destroy(runs);
    fl_pattern_destroy(hopeless);
}

/* Whether a pattern matches a character; the characters came with Unicode 15.0, 15.1 and 16.0. */
static void test_properties_are_those_of_unicode_16(void **state) {
    (void)state;
    enum {
        FACE = 0x1FAE8,
        BAGS = 0x1FAE9,
        HAN_H = 0x31350,
        HAN_I = 0x2EBF0,
        KAWI_DIGIT = 0x11F50,
        MARK = 0x897,
        CAPITAL = 0x1C89,
        OLD_HAN = 0x4E2D,
        NOT_THERE = 0x10FFF0
    };
    static const struct {
        const char *source;
        int32_t inside[5], outside[5]; /* closed by 0 */
    } cases[] = {
        {"\\p{S}", {FACE, BAGS, '+'}, {'a', HAN_H, KAWI_DIGIT, NOT_THERE}},
        {"\\P{S}", {'a', HAN_H, KAWI_DIGIT, NOT_THERE}, {FACE, BAGS, '+'}},
        {"[\\p{S}b]", {FACE, BAGS, 'b'}, {'a', HAN_H, NOT_THERE}},
        {"[^\\p{S}b]", {'a', HAN_H, NOT_THERE}, {FACE, BAGS, 'b'}},
        {"[\\P{S}+]", {'a', '+', HAN_I}, {FACE, BAGS}},
        {"[^\\P{S}+]", {FACE, BAGS}, {'a', '+', HAN_I}},
        {"[\\P{S}\\P{So}]", {'a', '+'}, {FACE, BAGS}},
        {"[^\\P{S}\\P{Sm}]", {'+'}, {FACE, BAGS, 'a'}},
        {"[^\\s\\p{L}\\p{N}]", {FACE, MARK, NOT_THERE}, {HAN_H, HAN_I, KAWI_DIGIT, CAPITAL}},
        {"\\p{Lu}", {CAPITAL, 'A'}, {'a', HAN_H}},
        {"\\p{M}|\\p{Nd}", {MARK, KAWI_DIGIT, '7'}, {FACE, 'a'}},
        {"\\d", {KAWI_DIGIT}, {FACE}},
        {"[\\D]", {FACE}, {KAWI_DIGIT, '1'}},
        {"\\p{Han}", {OLD_HAN, HAN_H, HAN_I}, {'a', FACE}},
        {"[^\\P{Han}]", {OLD_HAN, HAN_H, HAN_I}, {'a', FACE}},
        {"\\p{^Han}", {'a', FACE}, {OLD_HAN, HAN_I}},
    };
    fl_pattern_matcher *matcher;
    fl_text_buffer text = {0};
    assert_int_equal(fl_pattern_matcher_create(&matcher, NULL), FL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_pattern *pattern = compiled(cases[i].source);
        for (size_t c = 0; c < 10; c++) {
            const int32_t character = c < 5 ? cases[i].inside[c] : cases[i].outside[c - 5];
            size_t start, end;
            bool found;
            if (character == 0) continue;
            text.count = 0;
            fl_text_append_character(&text, character, NULL);
            assert_int_equal(
                fl_pattern_find(pattern, matcher, text.bytes, text.count, 0, &start, &end, &found, NULL),
                FL_OK);
            if (found != (c < 5)) fail_msg("%s: U+%04X", cases[i].source, (unsigned)character);
        }
        fl_pattern_destroy(pattern);
    }
    assert_true(fl_text_is_number(KAWI_DIGIT) && fl_text_is_number(0x10D40) && !fl_text_is_number(FACE));
    fl_pattern_matcher_destroy(matcher);
    fl_text_release(&text);
}

static void test_failed_allocations_leave_nothing_behind(void **state) {
    (void)state;
    for (size_t nth = 1; nth < 40; nth++) {
        fl_pattern *pattern;
        fl_memory_fail_at(nth);
        fl_status status = fl_pattern_compile(fl_pattern_known("qwen2"), &pattern, NULL);
        fl_memory_fail_at(0);
        fl_pattern_destroy(pattern);
        if (status == FL_OK) break;
        assert_int_equal(status, FL_ERROR_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contractions_digits_and_line_ends_split_as_each_family_does),
        cmocka_unit_test(test_combining_marks_stay_or_part_as_each_family_does),
        cmocka_unit_test(test_wide_spaces_are_white_space),
        cmocka_unit_test(test_numbers_are_all_of_category_n),
        cmocka_unit_test(test_line_ends_follow_punctuation_in_newer_families),
        cmocka_unit_test(test_capitals_start_words_in_tekken),
        cmocka_unit_test(test_long_s_folds_to_s),
        cmocka_unit_test(test_white_space_is_unicode_white_space_exactly),
        cmocka_unit_test(test_braces_anchors_and_scripts_are_translated),
        cmocka_unit_test(test_what_is_not_understood_is_refused_by_name),
        cmocka_unit_test(test_deep_groups_are_refused),
        cmocka_unit_test(test_long_runs_match_and_hopeless_ones_are_an_error),
        cmocka_unit_test(test_properties_are_those_of_unicode_16),
        cmocka_unit_test(test_failed_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
