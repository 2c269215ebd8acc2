#define _DEFAULT_SOURCE /* scandir, alphasort */
#include "harness/measure/text_documents.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/base/data_path.h"
#include "harness/base/memory.h"
#include "harness/base/text_file.h"
#include "harness/model/json_rows.h"
#include "harness/model/json_text.h"

static const char SEPARATOR[] = "<|endofdoc|>";
enum { SEPARATOR_BYTES = sizeof SEPARATOR - 1 };

typedef struct {
    const fl_document_visitor *visitor;
    fl_hash_stream *hash;
    bool wanted;
} fl_reading;

static fl_status visit(fl_reading *reading, const char *text, size_t bytes, fl_error *error) {
    if (!reading->wanted || bytes == 0) return FL_OK;
    return reading->visitor->document(reading->visitor->context, text, bytes, &reading->wanted, error);
}

static bool is_separator(const char *line, const char *end) {
    if (end > line && end[-1] == '\r') end--;
    return end - line == SEPARATOR_BYTES && memcmp(line, SEPARATOR, SEPARATOR_BYTES) == 0;
}

static const char *line_end(const char *line, const char *end) {
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    return newline != NULL ? newline : end;
}

/* The newline before a separator line belongs to the separator. */
static fl_status visit_text(fl_reading *reading, const char *text, size_t bytes, fl_error *error) {
    const char *end = text + bytes, *start = text;
    for (const char *line = text; line < end && reading->wanted;) {
        const char *stop = line_end(line, end), *next = stop < end ? stop + 1 : end;
        if (is_separator(line, stop)) {
            size_t length = (size_t)(line - start);
            FL_TRY(visit(reading, start, length > 0 ? length - 1 : 0, error));
            start = next;
        }
        line = next;
    }
    return visit(reading, start, (size_t)(end - start), error);
}

static fl_status visit_plain_text(fl_reading *reading, const char *path, const char *text, size_t bytes,
                                  fl_error *error) {
    FL_TRY(fl_text_file_check(path, text, bytes, error));
    const size_t mark = fl_text_file_byte_order_mark(text, bytes);
    return visit_text(reading, text + mark, bytes - mark, error);
}

static fl_status visit_object(fl_reading *reading, const fl_json_lines *lines, const cJSON *object,
                              fl_error *error) {
    const cJSON *document = fl_json_member(object, "text");
    if (cJSON_IsString(document))
        return visit(reading, document->valuestring, strlen(document->valuestring), error);
    return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: not a JSON object with a string \"text\"",
                        lines->path, lines->line);
}

static fl_status visit_json_lines(fl_reading *reading, const char *path, const char *text, size_t bytes,
                                  fl_error *error) {
    fl_json_lines lines;
    FL_TRY(fl_json_lines_start(&lines, path, text, bytes, error));
    while (reading->wanted) {
        cJSON *object;
        FL_TRY(fl_json_lines_next(&lines, &object, error));
        if (object == NULL) break;
        fl_status status = visit_object(reading, &lines, object, error);
        cJSON_Delete(object);
        FL_TRY(status);
    }
    return FL_OK;
}

static bool ends_in(const char *name, const char *suffix) {
    size_t length = strlen(name), suffix_length = strlen(suffix);
    return length > suffix_length && strcmp(name + length - suffix_length, suffix) == 0;
}

static fl_status visit_file(fl_reading *reading, const char *path, fl_error *error) {
    char *text = NULL;
    size_t bytes = 0;
    FL_TRY(fl_text_file_read(path, &text, &bytes, error));
    fl_hash_stream_add(reading->hash, text, bytes);
    fl_status status = ends_in(path, ".jsonl") ? visit_json_lines(reading, path, text, bytes, error)
                                               : visit_plain_text(reading, path, text, bytes, error);
    fl_memory_free(text);
    return status;
}

static int is_text_name(const struct dirent *entry) {
    return entry->d_name[0] != '.' && (ends_in(entry->d_name, ".txt") || ends_in(entry->d_name, ".jsonl"));
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static fl_status visit_folder(fl_reading *reading, const char *path, fl_error *error) {
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, is_text_name, by_name);
    if (count < 0) return fl_error_set(error, FL_ERROR_IO, "%s: cannot list: %s", path, strerror(errno));
    fl_status status = FL_OK;
    if (count == 0) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s: the folder holds no .txt or .jsonl file", path);
    }
    for (int i = 0; i < count && status == FL_OK; i++) {
        char *file = NULL;
        size_t room = strlen(path) + strlen(entries[i]->d_name) + 2;
        status = FL_ALLOCATE(&file, room, error);
        if (status == FL_OK) {
            snprintf(file, room, "%s/%s", path, entries[i]->d_name);
            status = visit_file(reading, file, error);
        }
        fl_memory_free(file);
    }
    for (int i = 0; i < count; i++) free(entries[i]);
    free(entries);
    return status;
}

fl_status fl_text_documents_read(const char *path, const fl_document_visitor *visitor, fl_hash *content,
                                 fl_error *error) {
    struct stat info;
    if (stat(path, &info) != 0) {
        return fl_data_path_error(path, "open", errno, error);
    }
    fl_reading reading = {.visitor = visitor, .wanted = true};
    FL_TRY(fl_hash_stream_create(&reading.hash, error));
    fl_status status =
        S_ISDIR(info.st_mode) ? visit_folder(&reading, path, error) : visit_file(&reading, path, error);
    *content = fl_hash_stream_value(reading.hash);
    fl_hash_stream_destroy(reading.hash);
    return status;
}
