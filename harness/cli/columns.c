#include "harness/cli/columns.h"

#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

static const char ellipsis[] = "\xe2\x80\xa6";

/* Bytes of the sign that text begins with, and its columns. */
static size_t next_sign(const char *text, size_t bytes, size_t *columns) {
    utf8proc_int32_t point = -1;
    utf8proc_ssize_t step = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &point);
    *columns = 1;
    if (step <= 0) return 1;
    int width = utf8proc_charwidth(point);
    *columns = width > 0 ? (size_t)width : 0;
    return (size_t)step;
}

size_t fl_columns_of(const char *text) {
    size_t bytes = strlen(text), total = 0, columns;
    for (size_t i = 0; i < bytes; total += columns) i += next_sign(text + i, bytes - i, &columns);
    return total;
}

void fl_columns_cut(const char *text, size_t columns, char *out, size_t bytes) {
    size_t length = strlen(text), used = 0, at = 0, width;
    if (fl_columns_of(text) <= columns && length < bytes) {
        memcpy(out, text, length + 1);
        return;
    }
    while (at < length) {
        size_t step = next_sign(text + at, length - at, &width);
        if (used + width + 1 > columns || at + step + sizeof ellipsis > bytes) break;
        memcpy(out + at, text + at, step);
        at += step;
        used += width;
    }
    bool room = columns > 0 && at + sizeof ellipsis <= bytes;
    if (room) memcpy(out + at, ellipsis, sizeof ellipsis);
    if (!room) out[at] = '\0';
}

void fl_columns_print(FILE *stream, const char *text, size_t columns) {
    size_t used = fl_columns_of(text);
    fputs(text, stream);
    for (; used < columns; used++) fputc(' ', stream);
}

size_t fl_columns_of_terminal(FILE *stream) {
    struct winsize size;
    if (isatty(fileno(stream)) != 1) return 0;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}
