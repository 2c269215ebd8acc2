#include "harness/model/json_rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/text_file.h"
#include "harness/model/json_text.h"

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

static fl_status add_row(fl_json_rows *rows, const cJSON *object, size_t line, fl_error *error) {
    rows->rows[rows->count++] = (fl_json_row){.object = object, .line = line};
    if (cJSON_IsObject(object)) return FL_OK;
    return fl_json_rows_fault(rows, rows->count - 1, error, "not a JSON object");
}

static fl_status read_array(fl_json_rows *rows, const char *text, size_t bytes, fl_error *error) {
    rows->array = true;
    FL_TRY(FL_ALLOCATE(&rows->roots, 1, error));
    FL_TRY(fl_json_parse_piece(text, bytes, rows->path, 1, FL_JSON_MAX_VALUES, &rows->roots[0], error));
    rows->root_count = 1;
    const cJSON *root = rows->roots[0];
    FL_TRY(FL_ALLOCATE(&rows->rows, cJSON_GetArraySize(root), error));
    size_t number = 0;
    for (const cJSON *element = root->child; element != NULL; element = element->next) {
        FL_TRY(add_row(rows, element, ++number, error));
    }
    return FL_OK;
}

static fl_status read_lines(fl_json_rows *rows, fl_json_lines *lines, fl_error *error) {
    const size_t most = count_lines(lines->text, lines->bytes);
    FL_TRY(FL_ALLOCATE(&rows->roots, most, error));
    FL_TRY(FL_ALLOCATE(&rows->rows, most, error));
    for (;;) {
        cJSON *root;
        FL_TRY(fl_json_lines_next(lines, &root, error));
        if (root == NULL) return FL_OK;
        rows->roots[rows->root_count++] = root;
        FL_TRY(add_row(rows, root, lines->line, error));
    }
}

static fl_status read_rows(fl_json_rows *rows, const char *text, size_t bytes, fl_error *error) {
    fl_json_lines lines;
    FL_TRY(fl_json_lines_start(&lines, rows->path, text, bytes, error));
    rows->byte_order_mark = lines.at > 0;
    size_t first = lines.at;
    while (first < bytes && is_blank(text + first, 1)) first++;
    if (first < bytes && text[first] == '[')
        return read_array(rows, text + lines.at, bytes - lines.at, error);
    return read_lines(rows, &lines, error);
}

fl_status fl_json_lines_start(fl_json_lines *lines, const char *path, const char *text, size_t bytes,
                              fl_error *error) {
    *lines = (fl_json_lines){path, text, bytes, fl_text_file_byte_order_mark(text, bytes), 0};
    return fl_text_file_check(path, text, bytes, error);
}

fl_status fl_json_lines_next(fl_json_lines *lines, cJSON **out, fl_error *error) {
    *out = NULL;
    while (lines->at < lines->bytes) {
        const char *line = lines->text + lines->at;
        const char *end = memchr(line, '\n', lines->bytes - lines->at);
        const size_t length = end == NULL ? lines->bytes - lines->at : (size_t)(end - line);
        lines->line++;
        lines->at += length + (end != NULL);
        if (!is_blank(line, length))
            return fl_json_parse_piece(line, length, lines->path, lines->line, FL_JSON_MAX_VALUES, out,
                                       error);
    }
    return FL_OK;
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
