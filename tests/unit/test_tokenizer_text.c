/* Text below the tokenizer: UTF-8, character classes, normal forms, the byte-level alphabet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_text.h"

#define BAD "\xEF\xBF\xBD"

static void assert_sanitised(const char *text, size_t bytes, const char *wanted) {
    fl_text_buffer out = {0};
    assert_int_equal(fl_text_sanitise(text, bytes, &out, NULL), FL_OK);
    assert_string_equal(out.bytes, wanted);
    assert_int_equal(out.count, strlen(wanted));
    fl_text_release(&out);
}

/* Python's bytes.decode("utf-8", "replace"). */
static void test_each_maximal_bad_sequence_becomes_one_replacement(void **state) {
    (void)state;
    assert_sanitised("", 0, "");
    assert_sanitised("plain \xC3\xA9\xF0\x9F\x98\x80", 12, "plain \xC3\xA9\xF0\x9F\x98\x80");
    assert_sanitised("\xFF", 1, BAD);
    assert_sanitised("a\x80"
                     "b",
                     3, "a" BAD "b");
    assert_sanitised("\xC0\xAF", 2, BAD BAD);
    assert_sanitised("\xE4\xB8", 2, BAD);
    assert_sanitised("\xE4\xB8z", 3, BAD "z");
    assert_sanitised("\xF0\x9F\x98", 3, BAD);
    assert_sanitised("\xF0\x80\x80\x80", 4, BAD BAD BAD BAD);
    assert_sanitised("\xF4\x90\x80\x80", 4, BAD BAD BAD BAD);
    assert_sanitised("\xED\xA0\x80", 3, BAD BAD BAD);
    assert_sanitised("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                     "A",
                     9, BAD BAD BAD BAD "A");
}

static void test_characters_are_read_forwards_and_backwards(void **state) {
    (void)state;
    static const char text[] = "a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80";
    static const int32_t wanted[] = {'a', 0xE9, 0x4E2D, 0x1F600};
    size_t position = 0, bytes = sizeof text - 1;
    for (int i = 0; i < 4; i++) assert_int_equal(fl_text_next(text, bytes, &position), wanted[i]);
    assert_int_equal(position, bytes);
    for (int i = 3; i >= 0; i--) assert_int_equal(fl_text_previous(text, &position), wanted[i]);
    assert_int_equal(position, 0);
}

static void test_classes_follow_unicode(void **state) {
    (void)state;
    assert_true(fl_text_is_white_space(0x85) && fl_text_is_white_space(0x3000) &&
                fl_text_is_white_space('\v'));
    assert_false(fl_text_is_white_space(0x1C) || fl_text_is_white_space(0x180E) ||
                 fl_text_is_white_space(0x200B));
    assert_true(fl_text_is_number('7') && fl_text_is_number(0xBD) && fl_text_is_number(0x2167) &&
                fl_text_is_number(0x0663));
    assert_false(fl_text_is_number('a') || fl_text_is_number(0x4E00));
    assert_true(fl_text_is_punctuation('$') && fl_text_is_punctuation('~') && fl_text_is_punctuation(0x3001));
    assert_false(fl_text_is_punctuation('a') || fl_text_is_punctuation(0x20AC) ||
                 fl_text_is_punctuation(127));
    assert_true(fl_text_is_word('_') && fl_text_is_word(0x301) && fl_text_is_word(0x200D) &&
                fl_text_is_word(0x24D0) && fl_text_is_word('3') && fl_text_is_word(0x2167));
    assert_false(fl_text_is_word('-') || fl_text_is_word(0xBD) || fl_text_is_word(' ') ||
                 fl_text_is_word(0x1F600));
}

static void assert_form(fl_text_form form, const char *text, const char *wanted) {
    fl_text_buffer out = {0};
    assert_int_equal(fl_text_normalise(form, text, strlen(text), &out, NULL), FL_OK);
    assert_string_equal(out.bytes, wanted);
    fl_text_release(&out);
}

static void test_normal_forms_compose_and_decompose(void **state) {
    (void)state;
    assert_form(FL_TEXT_NFC, "a\xCC\x81", "\xC3\xA1");
    assert_form(FL_TEXT_NFD, "\xC3\xA1", "a\xCC\x81");
    assert_form(FL_TEXT_NFC, "q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87");   /* marks in canonical order */
    assert_form(FL_TEXT_NFC, "\xEA\xB0\x80\xE1\x86\xA8", "\xEA\xB0\x81"); /* Hangul */
    assert_form(FL_TEXT_NFC, "\xE0\xA4\x95\xE0\xA4\xBC",
                "\xE0\xA4\x95\xE0\xA4\xBC"); /* a composition exclusion */
    assert_form(FL_TEXT_NFC, "\xEF\xAC\x81", "\xEF\xAC\x81");
    assert_form(FL_TEXT_NFKC, "\xEF\xAC\x81", "fi");
    assert_form(FL_TEXT_NFKD, "\xC2\xBD",
                "1\xE2\x81\x84"
                "2");
    assert_form(FL_TEXT_NFC, "", "");
}

static void test_lower_case_maps_characters_one_by_one(void **state) {
    (void)state;
    fl_text_buffer out = {0};
    static const char text[] = "A\xC3\x89\xC4\xB0\xCE\xA3";
    assert_int_equal(fl_text_lower_case(text, sizeof text - 1, &out, NULL), FL_OK);
    assert_string_equal(out.bytes, "a\xC3\xA9i\xCC\x87\xCF\x83");
    fl_text_release(&out);
}

static void test_byte_alphabet_is_a_bijection_without_blanks(void **state) {
    (void)state;
    bool used[0x144] = {false};
    for (int byte = 0; byte < 256; byte++) {
        int32_t character = fl_text_byte_character((uint8_t)byte);
        assert_true(character > 32 && character < 0x144 && !used[character]);
        used[character] = true;
        assert_int_equal(fl_text_character_byte(character), byte);
    }
    assert_int_equal(fl_text_byte_character(' '), 0x120);
    assert_int_equal(fl_text_byte_character('\n'), 0x10A);
    assert_int_equal(fl_text_byte_character(173), 0x143);
    assert_int_equal(fl_text_character_byte(' '), -1);
    assert_int_equal(fl_text_character_byte(0x144), -1);
    assert_int_equal(fl_text_character_byte(0x10FFFF), -1);
}

static void test_buffer_refuses_what_cannot_fit(void **state) {
    (void)state;
    fl_text_buffer out = {0};
    assert_int_equal(fl_text_append(&out, "kept", 4, NULL), FL_OK);
    assert_int_equal(fl_text_reserve(&out, SIZE_MAX - 2, NULL), FL_ERROR_MEMORY);
    fl_memory_fail_at(1);
    assert_int_equal(fl_text_reserve(&out, 100000, NULL), FL_ERROR_MEMORY);
    fl_memory_fail_at(0);
    assert_string_equal(out.bytes, "kept");
    fl_text_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_maximal_bad_sequence_becomes_one_replacement),
        cmocka_unit_test(test_characters_are_read_forwards_and_backwards),
        cmocka_unit_test(test_classes_follow_unicode),
        cmocka_unit_test(test_normal_forms_compose_and_decompose),
        cmocka_unit_test(test_lower_case_maps_characters_one_by_one),
        cmocka_unit_test(test_byte_alphabet_is_a_bijection_without_blanks),
        cmocka_unit_test(test_buffer_refuses_what_cannot_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
