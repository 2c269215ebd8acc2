#include "harness/model/tokenizer_text.h"

#include <string.h>
#include <utf8proc.h>

#include "harness/base/memory.h"
#include "harness/model/unicode_ranges.h"

enum { FIRST_BORROWED_CHARACTER = 0x100 };

fl_status fl_text_reserve(fl_text_buffer *buffer, size_t more, fl_error *error) {
    if (more >= SIZE_MAX / 4 || buffer->count >= SIZE_MAX / 4)
        return fl_error_set(error, FL_ERROR_MEMORY, "a text of more than %zu bytes", SIZE_MAX / 4);
    if (buffer->limit > 0 && buffer->count + more > buffer->limit)
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "the tokenizer's steps make more than %zu bytes of a text", buffer->limit);
    size_t needed = buffer->count + more + 1;
    if (needed <= buffer->capacity) return FL_OK;
    size_t capacity = buffer->capacity < 64 ? 64 : buffer->capacity;
    while (capacity < needed) capacity *= 2;
    FL_TRY(FL_RESIZE(&buffer->bytes, buffer->capacity, capacity, error));
    buffer->capacity = capacity;
    return FL_OK;
}

fl_status fl_text_append(fl_text_buffer *buffer, const char *text, size_t bytes, fl_error *error) {
    FL_TRY(fl_text_reserve(buffer, bytes, error));
    if (bytes > 0) memcpy(buffer->bytes + buffer->count, text, bytes);
    buffer->count += bytes;
    buffer->bytes[buffer->count] = '\0';
    return FL_OK;
}

fl_status fl_text_append_replaced(const char *text, size_t bytes, const char *from, const char *to,
                                  fl_text_buffer *out, fl_error *error) {
    size_t from_bytes = strlen(from), to_bytes = strlen(to), done = 0;
    for (size_t at = 0; at + from_bytes <= bytes;) {
        if (memcmp(text + at, from, from_bytes) != 0) {
            at++;
            continue;
        }
        FL_TRY(fl_text_append(out, text + done, at - done, error));
        FL_TRY(fl_text_append(out, to, to_bytes, error));
        at += from_bytes;
        done = at;
    }
    return fl_text_append(out, text + done, bytes - done, error);
}

fl_status fl_text_append_character(fl_text_buffer *buffer, int32_t character, fl_error *error) {
    utf8proc_uint8_t encoded[4];
    utf8proc_ssize_t bytes = utf8proc_encode_char(character, encoded);
    return fl_text_append(buffer, (const char *)encoded, (size_t)bytes, error);
}

void fl_text_release(fl_text_buffer *buffer) {
    fl_memory_free(buffer->bytes);
    *buffer = (fl_text_buffer){0};
}

/* Length of the well-formed sequence at text, or 0 with *bad = the length of the maximal ill-formed subpart
 * (Unicode 3.9, table 3-7). */
static size_t sequence_length(const uint8_t *text, size_t bytes, size_t *bad) {
    uint8_t lead = text[0];
    *bad = 1;
    if (lead < 0x80) return 1;
    size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                    : (lead & 0xF0) == 0xE0        ? 3
                    : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                   : 0;
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < length; i++) {
        if (i >= bytes || text[i] < low || text[i] > high) {
            *bad = i;
            return 0;
        }
        low = 0x80;
        high = 0xBF;
    }
    return length;
}

size_t fl_text_valid_prefix(const char *text, size_t bytes) {
    size_t position = 0, bad;
    while (position < bytes) {
        size_t length = sequence_length((const uint8_t *)text + position, bytes - position, &bad);
        if (length == 0) break;
        position += length;
    }
    return position;
}

fl_status fl_text_sanitise(const char *text, size_t bytes, fl_text_buffer *out, fl_error *error) {
    size_t position = 0;
    do {
        size_t valid = fl_text_valid_prefix(text + position, bytes - position);
        FL_TRY(fl_text_append(out, text + position, valid, error));
        position += valid;
        if (position < bytes) {
            size_t bad;
            sequence_length((const uint8_t *)text + position, bytes - position, &bad);
            FL_TRY(fl_text_append(out, "\xEF\xBF\xBD", 3, error));
            position += bad;
        }
    } while (position < bytes);
    return FL_OK;
}

int32_t fl_text_next(const char *text, size_t bytes, size_t *position) {
    const uint8_t *s = (const uint8_t *)text + *position;
    size_t bad, length = sequence_length(s, bytes - *position, &bad);
    static const uint8_t lead_bits[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    if (length == 0) {
        *position += bad;
        return 0xFFFD;
    }
    int32_t character = s[0] & lead_bits[length];
    for (size_t i = 1; i < length; i++) character = character << 6 | (s[i] & 0x3F);
    *position += length;
    return character;
}

int32_t fl_text_previous(const char *text, size_t *position) {
    size_t end = *position, start = end - 1;
    while (start > 0 && end - start < 4 && ((uint8_t)text[start] & 0xC0) == 0x80) start--;
    *position = start;
    size_t forward = start;
    return fl_text_next(text, end, &forward);
}

bool fl_text_is_white_space(int32_t c) {
    return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

/* Of characters that the library's Unicode does not have yet. */
static bool came_to_be_a_number(uint32_t character) {
    for (size_t i = 0; i < fl_unicode_change_count; i++) {
        const fl_unicode_change *change = &fl_unicode_changes[i];
        if (character >= change->first && character <= change->last) return change->now[0] == 'N';
    }
    return false;
}

bool fl_text_is_number(int32_t character) {
    if (character < 0x80) return character >= '0' && character <= '9';
    utf8proc_category_t category = utf8proc_category(character);
    if (category == UTF8PROC_CATEGORY_CN) return came_to_be_a_number((uint32_t)character);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool fl_text_is_punctuation(int32_t c) {
    if (c < 0x80)
        return (c > 32 && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 127);
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool fl_text_is_word(int32_t c) {
    utf8proc_category_t category = utf8proc_category(c);
    bool letter_or_mark = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL;
    bool circled_letter = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                          (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
    return letter_or_mark || category == UTF8PROC_CATEGORY_PC || circled_letter || c == 0x200C || c == 0x200D;
}

static bool is_ascii(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if ((uint8_t)text[i] >= 0x80) return false;
    return true;
}

fl_status fl_text_normalise(fl_text_form form, const char *text, size_t bytes, fl_text_buffer *out,
                            fl_error *error) {
    static const utf8proc_option_t options[] = {
        [FL_TEXT_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [FL_TEXT_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [FL_TEXT_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [FL_TEXT_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    if (is_ascii(text, bytes)) return fl_text_append(out, text, bytes, error);
    const utf8proc_uint8_t *source = (const utf8proc_uint8_t *)text;
    utf8proc_ssize_t count = utf8proc_decompose(source, (utf8proc_ssize_t)bytes, NULL, 0, options[form]);
    if (count < 0)
        return fl_error_set(error, FL_ERROR_FORMAT, "Unicode normalisation failed: %s",
                            utf8proc_errmsg(count));
    int32_t *characters = NULL;
    FL_TRY(FL_ALLOCATE(&characters, (size_t)count + 1, error));
    count = utf8proc_decompose(source, (utf8proc_ssize_t)bytes, characters, count, options[form]);
    if (count >= 0) count = utf8proc_normalize_utf32(characters, count, options[form]);
    fl_status status = FL_OK;
    if (count < 0)
        status =
            fl_error_set(error, FL_ERROR_FORMAT, "Unicode normalisation failed: %s", utf8proc_errmsg(count));
    for (utf8proc_ssize_t i = 0; i < count && status == FL_OK; i++)
        status = fl_text_append_character(out, characters[i], error);
    fl_memory_free(characters);
    return status;
}

fl_status fl_text_lower_case(const char *text, size_t bytes, fl_text_buffer *out, fl_error *error) {
    for (size_t position = 0; position < bytes;) {
        int32_t character = fl_text_next(text, bytes, &position);
        /* I with dot above is the one character whose lower case is two. */
        if (character == 0x130)
            FL_TRY(fl_text_append(out, "i\xCC\x87", 3, error));
        else
            FL_TRY(fl_text_append_character(out, utf8proc_tolower(character), error));
    }
    return FL_OK;
}

static bool stands_for_itself(int value) {
    return (value >= 33 && value <= 126) || (value >= 161 && value <= 172) || (value >= 174 && value <= 255);
}

int32_t fl_text_byte_character(uint8_t byte) {
    if (stands_for_itself(byte)) return byte;
    if (byte <= 32) return FIRST_BORROWED_CHARACTER + byte;
    if (byte == 173) return FIRST_BORROWED_CHARACTER + 67;
    return FIRST_BORROWED_CHARACTER + 33 + (byte - 127);
}

int fl_text_character_byte(int32_t character) {
    if (character >= 0 && character < FIRST_BORROWED_CHARACTER)
        return stands_for_itself(character) ? (int)character : -1;
    int32_t borrowed = character - FIRST_BORROWED_CHARACTER;
    if (borrowed < 0 || borrowed > 67) return -1;
    return borrowed <= 32 ? borrowed : borrowed == 67 ? 173 : borrowed - 33 + 127;
}

fl_status fl_text_append_byte_level(fl_text_buffer *out, const char *text, size_t bytes, fl_error *error) {
    FL_TRY(fl_text_reserve(out, 2 * bytes, error));
    for (size_t i = 0; i < bytes; i++) {
        int32_t character = fl_text_byte_character((uint8_t)text[i]);
        if (character < 0x80) {
            out->bytes[out->count++] = (char)character;
        } else {
            out->bytes[out->count++] = (char)(0xC0 | character >> 6);
            out->bytes[out->count++] = (char)(0x80 | (character & 0x3F));
        }
    }
    out->bytes[out->count] = '\0';
    return FL_OK;
}

fl_status fl_text_append_byte_level_undone(const char *text, size_t bytes, fl_text_buffer *out,
                                           fl_error *error) {
    FL_TRY(fl_text_reserve(out, bytes, error));
    size_t start = out->count;
    for (size_t position = 0; position < bytes;) {
        int byte = fl_text_character_byte(fl_text_next(text, bytes, &position));
        if (byte < 0) {
            out->count = start;
            return fl_text_append(out, text, bytes, error);
        }
        out->bytes[out->count++] = (char)byte;
    }
    out->bytes[out->count] = '\0';
    return FL_OK;
}
