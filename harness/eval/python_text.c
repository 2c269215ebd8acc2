#include "harness/eval/python_text.h"

#include <string.h>
#include <utf8proc.h>

/* The code point at `text` (at least one byte left) and its length; a broken byte is a code point of its own,
 * -1. */
static int next_code_point(const char *text, size_t bytes, size_t *length) {
    utf8proc_int32_t code = -1;
    const utf8proc_ssize_t limit = bytes < 4 ? (utf8proc_ssize_t)bytes : 4;
    const utf8proc_ssize_t got = utf8proc_iterate((const utf8proc_uint8_t *)text, limit, &code);
    *length = got > 0 ? (size_t)got : 1;
    return got > 0 ? (int)code : -1;
}

size_t fl_python_length(const char *text, size_t bytes) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

bool fl_python_is_space(int code_point) {
    static const int others[] = {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
    if ((code_point >= 0x09 && code_point <= 0x0D) || (code_point >= 0x1C && code_point <= 0x1F)) return true;
    if (code_point >= 0x2000 && code_point <= 0x200A) return true;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (code_point == others[i]) return true;
    }
    return false;
}

void fl_python_strip(const char *text, size_t bytes, size_t *start, size_t *length) {
    size_t at = 0, first = bytes, end = 0;
    while (at < bytes) {
        size_t step;
        const bool space = fl_python_is_space(next_code_point(text + at, bytes - at, &step));
        if (!space) {
            if (first == bytes) first = at;
            end = at + step;
        }
        at += step;
    }
    *start = end == 0 ? 0 : first;
    *length = end == 0 ? 0 : end - first;
}

size_t fl_python_split_count(const char *text, size_t bytes) {
    size_t pieces = 1;
    bool in_space = false;
    for (size_t at = 0, step; at < bytes; at += step) {
        const bool space = fl_python_is_space(next_code_point(text + at, bytes - at, &step));
        pieces += space && !in_space;
        in_space = space;
    }
    return pieces;
}

fl_status fl_python_capitalize(const char *text, size_t bytes, fl_text_buffer *out, fl_error *error) {
    for (size_t at = 0, step; at < bytes; at += step) {
        const int code = next_code_point(text + at, bytes - at, &step);
        if (code < 0) {
            FL_TRY(fl_text_buffer_add(out, text + at, step, error));
            continue;
        }
        utf8proc_uint8_t encoded[4];
        const utf8proc_int32_t mapped = at == 0 ? utf8proc_totitle(code) : utf8proc_tolower(code);
        const utf8proc_ssize_t length = utf8proc_encode_char(mapped, encoded);
        FL_TRY(fl_text_buffer_add(out, (const char *)encoded, (size_t)length, error));
    }
    return FL_OK;
}

fl_status fl_python_replace(const char *text, size_t bytes, const char *from, const char *to,
                            fl_text_buffer *out, fl_error *error) {
    const size_t from_bytes = strlen(from);
    size_t kept = 0, at = 0;
    while (at + from_bytes <= bytes) {
        if (memcmp(text + at, from, from_bytes) != 0) {
            at++;
            continue;
        }
        FL_TRY(fl_text_buffer_add(out, text + kept, at - kept, error));
        FL_TRY(fl_text_buffer_add_string(out, to, error));
        at += from_bytes;
        kept = at;
    }
    return fl_text_buffer_add(out, text + kept, bytes - kept, error);
}
