/* Text as the tokenizers see it: valid UTF-8, code points, the character classes that their rules name,
 * Unicode normal forms, and the byte-level alphabet of GPT-2.
 *
 * Classes follow the Rust definitions that Hugging Face's rules rest on: white space is White_Space, a number
 * is any of Nd, Nl, No. Every function but fl_text_sanitise wants valid UTF-8. */
#ifndef FL_MODEL_TOKENIZER_TEXT_H
#define FL_MODEL_TOKENIZER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

/* A growing run of bytes, NUL-terminated once something was appended. Starts as {0}. */
typedef struct fl_text_buffer {
    char *bytes; /* fl_memory block */
    size_t count;
    size_t capacity;
    size_t limit; /* bytes it may come to hold, beyond which growing it is FL_ERROR_UNSUPPORTED; 0: any number */
} fl_text_buffer;

fl_status fl_text_reserve(fl_text_buffer *buffer, size_t more, fl_error *error);
fl_status fl_text_append(fl_text_buffer *buffer, const char *text, size_t bytes, fl_error *error);
/* Appends text with every `from` (not empty; leftmost first) replaced by `to`. */
fl_status fl_text_append_replaced(const char *text, size_t bytes, const char *from, const char *to,
                                  fl_text_buffer *out, fl_error *error);
fl_status fl_text_append_character(fl_text_buffer *buffer, int32_t character, fl_error *error);
void fl_text_release(fl_text_buffer *buffer);

/* Bytes of the valid prefix of `text`; equal to `bytes` when all of it is valid UTF-8. */
size_t fl_text_valid_prefix(const char *text, size_t bytes);
/* Appends text with every maximal ill-formed subpart replaced by one U+FFFD. */
fl_status fl_text_sanitise(const char *text, size_t bytes, fl_text_buffer *out, fl_error *error);

/* The character at *position, which moves behind it. Needs *position < bytes. */
int32_t fl_text_next(const char *text, size_t bytes, size_t *position);
/* The character that ends at *position, which moves to its first byte. Needs *position > 0. */
int32_t fl_text_previous(const char *text, size_t *position);

bool fl_text_is_white_space(int32_t character);
bool fl_text_is_number(int32_t character);
bool fl_text_is_punctuation(int32_t character); /* ASCII punctuation and symbols, and category P */
bool fl_text_is_word(
    int32_t character); /* \w of UTS 18: alphabetic, mark, decimal digit, connector, joiner */

typedef enum fl_text_form { FL_TEXT_NFC, FL_TEXT_NFD, FL_TEXT_NFKC, FL_TEXT_NFKD } fl_text_form;

/* Appends the normal form of text. */
fl_status fl_text_normalise(fl_text_form form, const char *text, size_t bytes, fl_text_buffer *out,
                            fl_error *error);
/* Appends text with every character mapped to lower case by itself (no final-sigma rule). */
fl_status fl_text_lower_case(const char *text, size_t bytes, fl_text_buffer *out, fl_error *error);

/* The printable character that stands for a byte in byte-level vocabularies, and back (-1: stands for none).
 */
int32_t fl_text_byte_character(uint8_t byte);
int fl_text_character_byte(int32_t character);
/* Appends the stand-in of every byte. */
fl_status fl_text_append_byte_level(fl_text_buffer *out, const char *text, size_t bytes, fl_error *error);

/* Appends the bytes that a token in byte-level form stands for, or the token as it is when a character of it
 * stands for none. */
fl_status fl_text_append_byte_level_undone(const char *text, size_t bytes, fl_text_buffer *out,
                                           fl_error *error);

#endif
