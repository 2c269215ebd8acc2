#include "harness/cli/json_string.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "harness/base/memory.h"

enum { REPLACEMENT = 0xFFFD };

typedef struct cursor {
    const char *line;
    size_t at, bytes;
    char *out;
    size_t used;
} cursor;

static fl_status refuse(const cursor *c, fl_error *error, const char *what) {
    return fl_error_set(error, FL_ERROR_FORMAT, "column %zu: %s", c->at + 1, what);
}

static void skip_space(cursor *c) {
    static const char spaces[] = {' ', '\t', '\r', '\n'};
    while (c->at < c->bytes && memchr(spaces, c->line[c->at], sizeof spaces) != NULL) c->at++;
}

static void put_utf8(cursor *c, uint32_t point) {
    if (point < 0x80) {
        c->out[c->used++] = (char)point;
        return;
    }
    int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
    c->out[c->used++] = (char)(lead[more] | point >> (6 * more));
    for (int i = more - 1; i >= 0; i--) c->out[c->used++] = (char)(0x80 | (point >> (6 * i) & 0x3F));
}

/* Four hex digits at the cursor. */
static bool take_hex(cursor *c, uint32_t *value) {
    if (c->bytes - c->at < 4) return false;
    *value = 0;
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *found = memchr(digits, c->line[c->at + (size_t)i], sizeof digits - 1);
        if (found == NULL) return false;
        *value = *value << 4 | (uint32_t)((found - digits) & 15);
    }
    c->at += 4;
    return true;
}

static fl_status take_unicode(cursor *c, fl_error *error) {
    uint32_t unit = 0, low = 0;
    if (!take_hex(c, &unit)) return refuse(c, error, "\\u needs four hex digits");
    if (unit >= 0xD800 && unit < 0xDC00 && c->bytes - c->at >= 6 && memcmp(c->line + c->at, "\\u", 2) == 0) {
        size_t before = c->at;
        c->at += 2;
        if (!take_hex(c, &low)) return refuse(c, error, "\\u needs four hex digits");
        if (low >= 0xDC00 && low < 0xE000) {
            put_utf8(c, 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
            return FL_OK;
        }
        c->at = before;
    }
    put_utf8(c, unit >= 0xD800 && unit < 0xE000 ? REPLACEMENT : unit);
    return FL_OK;
}

static fl_status take_escape(cursor *c, fl_error *error) {
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    c->at++;
    if (c->at == c->bytes) return refuse(c, error, "the string does not end");
    char name = c->line[c->at];
    if (name == 'u') {
        c->at++;
        return take_unicode(c, error);
    }
    const char *found = memchr(names, name, sizeof names - 1);
    if (found == NULL) return refuse(c, error, "not an escape of JSON");
    c->out[c->used++] = meanings[found - names];
    c->at++;
    return FL_OK;
}

static fl_status take_string(cursor *c, fl_error *error) {
    skip_space(c);
    if (c->at == c->bytes || c->line[c->at] != '"') return refuse(c, error, "a JSON string must start here");
    c->at++;
    while (c->at < c->bytes && c->line[c->at] != '"') {
        if (c->line[c->at] == '\\') {
            FL_TRY(take_escape(c, error));
        } else if ((unsigned char)c->line[c->at] < 0x20) {
            return refuse(c, error, "control characters must be escaped in JSON");
        } else {
            c->out[c->used++] = c->line[c->at++];
        }
    }
    if (c->at == c->bytes) return refuse(c, error, "the string does not end");
    c->at++;
    skip_space(c);
    return c->at == c->bytes ? FL_OK : refuse(c, error, "nothing may follow the string");
}

fl_status fl_json_string_decode(const char *line, size_t bytes, char **text, size_t *text_bytes,
                                fl_error *error) {
    cursor c = {.line = line, .bytes = bytes};
    /* No escape is shorter than what it stands for. */
    FL_TRY(FL_ALLOCATE(&c.out, bytes + 1, error));
    fl_status status = take_string(&c, error);
    if (status != FL_OK) {
        fl_memory_free(c.out);
        return status;
    }
    *text = c.out;
    *text_bytes = c.used;
    return FL_OK;
}
