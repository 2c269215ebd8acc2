#include "harness/base/text_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <utf8proc.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"

static const size_t LARGEST_BYTES = (size_t)1 << 32;

bool fl_path_is_folder(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

bool fl_path_is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

fl_status fl_path_join(const char *folder, const char *name, char **out, fl_error *error) {
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    FL_TRY(FL_ALLOCATE(out, bytes, error));
    snprintf(*out, bytes, "%s/%s", folder, name);
    return FL_OK;
}

fl_status fl_text_file_read(const char *path, char **text, size_t *bytes, fl_error *error) {
    return fl_input_read(path, LARGEST_BYTES, text, bytes, error);
}

size_t fl_utf8_first_fault(const char *text, size_t bytes) {
    size_t at = 0;
    while (at < bytes) {
        utf8proc_int32_t point;
        utf8proc_ssize_t length = 1;
        const unsigned char first = (unsigned char)text[at];
        if (first == 0) return at;
        if (first >= 0x80) {
            const utf8proc_ssize_t left = bytes - at < 4 ? (utf8proc_ssize_t)(bytes - at) : 4;
            length = utf8proc_iterate((const utf8proc_uint8_t *)text + at, left, &point);
            if (length <= 0) return at;
        }
        at += (size_t)length;
    }
    return bytes;
}

static bool is_utf16(const char *text, size_t bytes) {
    return bytes >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0);
}

fl_status fl_text_file_check(const char *path, const char *text, size_t bytes, fl_error *error) {
    const size_t fault = fl_utf8_first_fault(text, bytes);
    if (fault == bytes) return FL_OK;
    if (is_utf16(text, bytes))
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s:1: not valid UTF-8: the file is UTF-16 (convert it, e.g. with "
                            "iconv -f UTF-16 -t UTF-8)",
                            path);
    size_t line = 1, start = 0;
    for (size_t i = 0; i < fault; i++) {
        line += text[i] == '\n';
        if (text[i] == '\n') start = i + 1;
    }
    if (text[fault] == '\0')
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "%s:%zu: a NUL byte in a text file (byte %zu of the line)", path, line,
                            fault - start + 1);
    return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: not valid UTF-8 (0x%02X, byte %zu of the line)",
                        path, line, (unsigned)(unsigned char)text[fault], fault - start + 1);
}

size_t fl_text_file_byte_order_mark(const char *text, size_t bytes) {
    return bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}
