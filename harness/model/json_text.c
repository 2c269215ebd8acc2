#include "harness/model/json_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "harness/base/memory.h"
#include "harness/model/mapped_file.h"

typedef struct json_source {
    const char *text, *path;
    size_t bytes, offset;
} json_source;

static fl_status refuse(const json_source *source, size_t at, const char *what, fl_error *error) {
    if (source->offset > 0) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: byte %zu: JSON: %s", source->path,
                            source->offset + at, what);
    }
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < source->bytes; i++) {
        column = source->text[i] == '\n' ? 1 : column + 1;
        line += source->text[i] == '\n';
    }
    return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu:%zu: JSON: %s", source->path, line, column, what);
}

static bool is_escaped_nul(const char *text, size_t left) {
    return left >= 6 && memcmp(text, "\\u0000", 6) == 0;
}

/* One pass over the bytes before cJSON sees them. */
static fl_status check_text(const json_source *source, fl_error *error) {
    size_t depth = 0, values = 1;
    bool in_string = false;
    for (size_t i = 0; i < source->bytes; i++) {
        unsigned char byte = (unsigned char)source->text[i];
        bool white = byte == '\n' || byte == '\r' || byte == '\t';
        if (byte < 0x20 && (in_string || !white)) {
            return refuse(source, i, "NUL or control byte", error);
        }
        if (byte >= 0x80) {
            utf8proc_int32_t point;
            utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)source->text + i,
                                                     (utf8proc_ssize_t)(source->bytes - i), &point);
            if (used <= 0) return refuse(source, i, "invalid UTF-8", error);
            i += (size_t)used - 1;
        } else if (in_string && byte == '\\') {
            if (is_escaped_nul(source->text + i, source->bytes - i)) {
                return refuse(source, i, "NUL in a string", error);
            }
            i++;
        } else if (byte == '"') {
            in_string = !in_string;
        } else if (!in_string && (byte == '{' || byte == '[')) {
            values++;
            if (++depth > FL_JSON_MAX_DEPTH) return refuse(source, i, "nested too deeply", error);
        } else if (!in_string && (byte == '}' || byte == ']')) {
            if (depth > 0) depth--;
        } else if (!in_string && byte == ',') {
            values++;
        }
        if (values > FL_JSON_MAX_VALUES) return refuse(source, i, "too many values", error);
    }
    return FL_OK;
}

static int compare_keys(const void *a, const void *b) {
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

static fl_status check_object(const json_source *source, const cJSON *object, fl_error *error) {
    size_t count = 0, filled = 0;
    for (const cJSON *child = object->child; child != NULL; child = child->next) count++;
    const cJSON **sorted = NULL;
    FL_TRY(FL_ALLOCATE(&sorted, count, error));
    for (const cJSON *child = object->child; child != NULL; child = child->next) sorted[filled++] = child;
    if (count > 1) qsort(sorted, count, sizeof *sorted, compare_keys);
    fl_status status = FL_OK;
    for (size_t i = 1; i < count && status == FL_OK; i++) {
        if (strcmp(sorted[i - 1]->string, sorted[i]->string) != 0) continue;
        status = fl_error_set(error, FL_ERROR_FORMAT, "%s: JSON: duplicate key \"%s\"", source->path,
                              sorted[i]->string);
    }
    fl_memory_free(sorted);
    return status;
}

/* Recursion is bounded by FL_JSON_MAX_DEPTH. */
static fl_status check_keys(const json_source *source, const cJSON *item, fl_error *error) {
    if (cJSON_IsObject(item)) FL_TRY(check_object(source, item, error));
    for (const cJSON *child = item->child; child != NULL; child = child->next) {
        if (child->child != NULL) FL_TRY(check_keys(source, child, error));
    }
    return FL_OK;
}

fl_status fl_json_parse(const char *text, size_t bytes, const char *path, size_t offset, cJSON **out,
                        fl_error *error) {
    *out = NULL;
    json_source source = {text, path, bytes, offset};
    if (bytes > FL_JSON_MAX_BYTES) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: JSON of %zu bytes (at most %d are read)", path,
                            bytes, FL_JSON_MAX_BYTES);
    }
    FL_TRY(check_text(&source, error));
    const char *end = NULL;
    cJSON *document = cJSON_ParseWithLengthOpts(text, bytes, &end, false);
    if (document == NULL) {
        size_t at = end != NULL && end >= text && end <= text + bytes ? (size_t)(end - text) : 0;
        return refuse(&source, at, "syntax error", error);
    }
    fl_status status = FL_OK;
    for (const char *rest = end; rest < text + bytes; rest++) {
        if (strchr(" \t\r\n", *rest) != NULL) continue;
        status = refuse(&source, (size_t)(rest - text), "text after the end of the document", error);
        break;
    }
    if (status == FL_OK) status = check_keys(&source, document, error);
    if (status == FL_OK) {
        *out = document;
    } else {
        cJSON_Delete(document);
    }
    return status;
}

fl_status fl_json_read_file(const char *path, cJSON **out, fl_error *error) {
    *out = NULL;
    fl_mapped_file file;
    FL_TRY(fl_mapped_file_open(path, &file, error));
    fl_status status = fl_json_parse((const char *)file.data, file.size, path, 0, out, error);
    fl_mapped_file_close(&file);
    return status;
}

bool fl_json_size(const cJSON *item, size_t *out) {
    const double limit = 9007199254740992.0;
    if (!cJSON_IsNumber(item)) return false;
    double value = item->valuedouble;
    if (!(value >= 0.0 && value < limit) || value != floor(value)) return false;
    *out = (size_t)value;
    return true;
}

const cJSON *fl_json_member(const cJSON *object, const char *key) {
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, key) : NULL;
}
