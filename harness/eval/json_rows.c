#include "harness/eval/json_rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/eval/text_file.h"

enum { NAME_BYTES = 64, MESSAGE_BYTES = 512 };

fl_status fl_json_rows_fault(const fl_json_rows *rows, size_t row, fl_error *error, const char *format, ...) {
    char message[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return fl_error_set(error, FL_ERROR_FORMAT, "%s:%s%zu: %s", rows->path, rows->array ? " element " : "",
                        rows->rows[row].line, message);
}

const cJSON *fl_json_rows_member(const fl_json_rows *rows, size_t row, const char *name) {
    const cJSON *object = rows->rows[row].object;
    const char *dot;
    while (object != NULL && (dot = strchr(name, '.')) != NULL) {
        char part[NAME_BYTES];
        snprintf(part, sizeof part, "%.*s", (int)(dot - name), name);
        object = cJSON_GetObjectItemCaseSensitive(object, part);
        name = dot + 1;
    }
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, name) : NULL;
}

fl_status fl_json_rows_text(const fl_json_rows *rows, size_t row, const char *name, const char **out,
                            fl_error *error) {
    const cJSON *member = fl_json_rows_member(rows, row, name);
    if (member == NULL) return fl_json_rows_fault(rows, row, error, "no \"%s\"", name);
    if (!cJSON_IsString(member)) return fl_json_rows_fault(rows, row, error, "\"%s\" is not a string", name);
    *out = member->valuestring;
    return FL_OK;
}

fl_status fl_json_rows_array(const fl_json_rows *rows, size_t row, const char *name, const cJSON **out,
                             fl_error *error) {
    const cJSON *member = fl_json_rows_member(rows, row, name);
    if (member == NULL) return fl_json_rows_fault(rows, row, error, "no \"%s\"", name);
    if (!cJSON_IsArray(member)) return fl_json_rows_fault(rows, row, error, "\"%s\" is not a list", name);
    *out = member;
    return FL_OK;
}

/* cJSON would cut a string at an escaped NUL without a word. */
static bool has_escaped_nul(const char *text, size_t bytes) {
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (text[i] != '\\') continue;
        if (i + 6 <= bytes && memcmp(text + i + 1, "u0000", 5) == 0) return true;
        i++;
    }
    return false;
}

static bool is_blank(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (strchr(" \t\r\n", text[i]) == NULL) return false;
    }
    return true;
}

static size_t count_lines(const char *text, size_t bytes) {
    size_t lines = 1;
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    return lines;
}

static fl_status parse_value(const char *path, size_t line, const char *text, size_t bytes, cJSON **out,
                             fl_error *error) {
    if (has_escaped_nul(text, bytes)) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: a NUL character in a string", path, line);
    }
    const char *end = NULL;
    cJSON *value = cJSON_ParseWithLengthOpts(text, bytes, &end, 0);
    if (value != NULL && is_blank(end, bytes - (size_t)(end - text))) {
        *out = value;
        return FL_OK;
    }
    const bool trailing = value != NULL;
    cJSON_Delete(value);
    const size_t offset = end != NULL && end >= text ? (size_t)(end - text) : 0;
    return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: %s at byte %zu of this %s", path,
                        line + count_lines(text, offset < bytes ? offset : bytes) - 1,
                        trailing ? "text after the value" : "not valid JSON", offset + 1,
                        line == 1 ? "text" : "line");
}

static fl_status add_row(fl_json_rows *rows, const cJSON *object, size_t line, fl_error *error) {
    rows->rows[rows->count++] = (fl_json_row){.object = object, .line = line};
    if (cJSON_IsObject(object)) return FL_OK;
    return fl_json_rows_fault(rows, rows->count - 1, error, "not a JSON object");
}

static fl_status read_array(fl_json_rows *rows, const char *text, size_t bytes, fl_error *error) {
    rows->array = true;
    FL_TRY(FL_ALLOCATE(&rows->roots, 1, error));
    FL_TRY(parse_value(rows->path, 1, text, bytes, &rows->roots[0], error));
    rows->root_count = 1;
    const cJSON *root = rows->roots[0];
    FL_TRY(FL_ALLOCATE(&rows->rows, cJSON_GetArraySize(root), error));
    size_t number = 0;
    for (const cJSON *element = root->child; element != NULL; element = element->next) {
        FL_TRY(add_row(rows, element, ++number, error));
    }
    return FL_OK;
}

static fl_status read_lines(fl_json_rows *rows, const char *text, size_t bytes, fl_error *error) {
    const size_t lines = count_lines(text, bytes);
    FL_TRY(FL_ALLOCATE(&rows->roots, lines, error));
    FL_TRY(FL_ALLOCATE(&rows->rows, lines, error));
    size_t line = 0;
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t length = end == NULL ? bytes - at : (size_t)(end - text) - at;
        line++;
        if (!is_blank(text + at, length)) {
            FL_TRY(parse_value(rows->path, line, text + at, length, &rows->roots[rows->root_count], error));
            rows->root_count++;
            FL_TRY(add_row(rows, rows->roots[rows->root_count - 1], line, error));
        }
        at += length + 1;
    }
    return FL_OK;
}

static fl_status read_rows(fl_json_rows *rows, const char *text, size_t bytes, fl_error *error) {
    FL_TRY(fl_text_file_check(rows->path, text, bytes, error));
    const size_t mark = fl_text_file_byte_order_mark(text, bytes);
    rows->byte_order_mark = mark > 0;
    size_t first = mark;
    while (first < bytes && is_blank(text + first, 1)) first++;
    if (first < bytes && text[first] == '[') return read_array(rows, text + mark, bytes - mark, error);
    return read_lines(rows, text + mark, bytes - mark, error);
}

fl_status fl_json_rows_read(const char *path, fl_json_rows **out, fl_error *error) {
    char *text = NULL;
    size_t bytes = 0;
    FL_TRY(fl_text_file_read(path, &text, &bytes, error));
    fl_json_rows *rows = NULL;
    fl_status status;
    FL_TRY_DONE(status, FL_ALLOCATE(&rows, 1, error));
    FL_TRY_DONE(status, fl_memory_copy_string(&rows->path, path, error));
    FL_TRY_DONE(status, read_rows(rows, text, bytes, error));
    *out = rows;
    rows = NULL;
done:
    fl_memory_free(text);
    fl_json_rows_destroy(rows);
    return status;
}

void fl_json_rows_destroy(fl_json_rows *rows) {
    if (rows == NULL) return;
    for (size_t i = 0; i < rows->root_count; i++) cJSON_Delete(rows->roots[i]);
    fl_memory_free(rows->roots);
    fl_memory_free(rows->rows);
    fl_memory_free(rows->path);
    fl_memory_free(rows);
}
