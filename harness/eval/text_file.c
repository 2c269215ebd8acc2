#include "harness/eval/text_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/base/memory.h"
#include "harness/eval/python_text.h"

enum { LARGEST_BYTES = 1 << 30 };

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

static fl_status read_open_file(FILE *file, const char *path, char **text, size_t *bytes, fl_error *error) {
    struct stat status;
    if (fstat(fileno(file), &status) != 0 || !S_ISREG(status.st_mode)) {
        return fl_error_set(error, FL_ERROR_IO, "%s: not a regular file", path);
    }
    if (status.st_size > LARGEST_BYTES) {
        return fl_error_set(error, FL_ERROR_IO, "%s: %lld bytes is more than is read at once", path,
                            (long long)status.st_size);
    }
    const size_t size = (size_t)status.st_size;
    FL_TRY(FL_ALLOCATE(text, size + 1, error));
    *bytes = fread(*text, 1, size, file);
    if (*bytes == size) return FL_OK;
    fl_memory_free(*text);
    *text = NULL;
    return fl_error_set(error, FL_ERROR_IO, "%s: cannot read", path);
}

fl_status fl_text_file_read(const char *path, char **text, size_t *bytes, fl_error *error) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return fl_error_set(error, FL_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    fl_status status = read_open_file(file, path, text, bytes, error);
    fclose(file);
    return status;
}

fl_status fl_text_file_check(const char *path, const char *text, size_t bytes, fl_error *error) {
    const size_t fault = fl_utf8_first_fault(text, bytes);
    if (fault == bytes) return FL_OK;
    size_t line = 1;
    for (size_t i = 0; i < fault; i++) line += text[i] == '\n';
    return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: %s", path, line,
                        text[fault] == '\0' ? "a NUL byte in a text file" : "not valid UTF-8");
}

size_t fl_text_file_byte_order_mark(const char *text, size_t bytes) {
    return bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}
