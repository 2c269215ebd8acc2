#include "harness/model/json_text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"

typedef struct json_source {
    const char *text, *path;
    size_t bytes;
    size_t offset; /* of the text in its file, when errors name bytes; else 0 */
    size_t line;   /* of the text's first byte */
    size_t most_values;
    size_t literals; /* NaN and infinities in it */
} json_source;

static fl_status refuse(const json_source *source, size_t at, const char *what, fl_error *error) {
    if (source->offset > 0) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: byte %zu: JSON: %s", source->path,
                            source->offset + at, what);
    }
    const char *kind = source->line == 1 ? fl_input_foreign_kind(source->text, source->bytes) : NULL;
    if (kind != NULL) return fl_error_set(error, FL_ERROR_FORMAT, "%s: is %s, not JSON", source->path, kind);
    size_t line = source->line, column = 1;
    for (size_t i = 0; i < at && i < source->bytes; i++) {
        column = source->text[i] == '\n' ? 1 : column + 1;
        line += source->text[i] == '\n';
    }
    return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu:%zu: JSON: %s", source->path, line, column, what);
}

static bool is_escaped_nul(const char *text, size_t left) {
    return left >= 6 && memcmp(text, "\\u0000", 6) == 0;
}

static size_t digits_at(const json_source *source, size_t at) {
    size_t count = 0;
    while (at + count < source->bytes && source->text[at + count] >= '0' && source->text[at + count] <= '9')
        count++;
    return count;
}

static char byte_at(const json_source *source, size_t at) {
    return at < source->bytes ? source->text[at] : '\0';
}

/* Bytes of the number at `at`, as RFC 8259 writes it; 0: none. cJSON would take 01, 1. and 1.e5 too. */
static size_t number_at(const json_source *source, size_t at) {
    size_t start = at;
    if (byte_at(source, at) == '-') at++;
    size_t digits = digits_at(source, at);
    if (digits == 0 || (digits > 1 && source->text[at] == '0')) return 0;
    at += digits;
    if (byte_at(source, at) == '.') {
        digits = digits_at(source, at + 1);
        if (digits == 0) return 0;
        at += 1 + digits;
    }
    if (byte_at(source, at) == 'e' || byte_at(source, at) == 'E') {
        at++;
        if (byte_at(source, at) == '+' || byte_at(source, at) == '-') at++;
        digits = digits_at(source, at);
        if (digits == 0) return 0;
        at += digits;
    }
    return at - start;
}

/* Python's literals, and what is put in their place for cJSON: the same number of bytes. */
static const struct {
    const char *literal, *stand_in;
    double value;
} literals[] = {
    {"NaN", "0e0", NAN}, {"Infinity", "0e000000", INFINITY}, {"-Infinity", "-0e000000", -INFINITY}};
enum { LITERALS = sizeof literals / sizeof literals[0] };

/* LITERALS: none is there. */
static size_t literal_at(const json_source *source, size_t at) {
    size_t i = 0;
    for (; i < LITERALS; i++) {
        size_t length = strlen(literals[i].literal);
        if (source->bytes - at >= length && memcmp(source->text + at, literals[i].literal, length) == 0)
            break;
    }
    return i;
}

static bool begins_number(char byte) {
    return byte == '-' || (byte >= '0' && byte <= '9');
}

/* A value that is neither a string nor a container; *end is behind it when it is understood here. */
static fl_status check_plain(json_source *source, size_t at, size_t *end, fl_error *error) {
    size_t literal = literal_at(source, at);
    *end = at + 1;
    if (literal < LITERALS) {
        source->literals++;
        *end = at + strlen(literals[literal].literal);
        if (isalnum((unsigned char)byte_at(source, *end))) return refuse(source, at, "syntax error", error);
    } else if (begins_number(source->text[at])) {
        size_t length = number_at(source, at);
        char next = length > 0 ? byte_at(source, at + length) : '\0';
        if (length == 0 || begins_number(next) || next == '.')
            return refuse(source, at, "this number is not written as JSON wants it", error);
        *end = at + length;
    }
    return FL_OK;
}

static fl_status check_string(const json_source *source, size_t *at, fl_error *error) {
    const char *text = source->text;
    for (size_t i = *at + 1; i < source->bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < 0x20) return refuse(source, i, "NUL or control byte", error);
        if (byte >= 0x80) {
            utf8proc_int32_t point;
            utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)text + i,
                                                     (utf8proc_ssize_t)(source->bytes - i), &point);
            if (used <= 0) return refuse(source, i, "invalid UTF-8", error);
            i += (size_t)used - 1;
        } else if (byte == '\\') {
            if (is_escaped_nul(text + i, source->bytes - i))
                return refuse(source, i, "NUL in a string", error);
            i++;
        } else if (byte == '"') {
            *at = i + 1;
            return FL_OK;
        }
    }
    return refuse(source, *at, "a string without its end", error);
}

/* One pass over the bytes before cJSON sees them. */
static fl_status check_text(json_source *source, fl_error *error) {
    size_t depth = 0, values = 1;
    for (size_t i = 0; i < source->bytes;) {
        unsigned char byte = (unsigned char)source->text[i];
        if (byte == '"') {
            FL_TRY(check_string(source, &i, error));
            continue;
        }
        if (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t')
            return refuse(source, i, "NUL or control byte", error);
        if (byte >= 0x80) return refuse(source, i, "syntax error", error);
        if (byte == '{' || byte == '[') {
            values++;
            if (++depth > FL_JSON_MAX_DEPTH) return refuse(source, i, "nested too deeply", error);
        }
        if ((byte == '}' || byte == ']') && depth > 0) depth--;
        values += byte == ',';
        if (values > source->most_values) return refuse(source, i, "too many values", error);
        FL_TRY(check_plain(source, i, &i, error));
    }
    return FL_OK;
}

/* *out = a copy with stand-ins, and *places = the literals in their order, each with its number's ordinal. */
typedef struct literal_place {
    size_t number; /* how many numbers stand before it */
    size_t literal;
} literal_place;

static fl_status replace_literals(const json_source *source, char **out, literal_place **places,
                                  fl_error *error) {
    FL_TRY(FL_ALLOCATE(out, source->bytes + 1, error));
    FL_TRY(FL_ALLOCATE(places, source->literals, error));
    memcpy(*out, source->text, source->bytes);
    size_t numbers = 0, found = 0;
    for (size_t i = 0; i < source->bytes;) {
        if (source->text[i] == '"') {
            FL_TRY(check_string(source, &i, error));
            continue;
        }
        size_t literal = literal_at(source, i), length = literal == LITERALS ? number_at(source, i) : 0;
        if (literal < LITERALS) {
            length = strlen(literals[literal].literal);
            memcpy(*out + i, literals[literal].stand_in, length);
            (*places)[found++] = (literal_place){numbers, literal};
        }
        numbers += length > 0;
        i += length > 0 ? length : 1;
    }
    return FL_OK;
}

/* Numbers in document order; recursion is bounded by FL_JSON_MAX_DEPTH. */
static void put_literals(cJSON *item, const literal_place **next, const literal_place *end, size_t *numbers) {
    if (cJSON_IsNumber(item)) {
        if (*next < end && (*next)->number == *numbers)
            item->valuedouble = literals[(*next)++->literal].value;
        ++*numbers;
    }
    for (cJSON *child = item->child; child != NULL; child = child->next)
        put_literals(child, next, end, numbers);
}

static int compare_keys(const void *a, const void *b) {
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

static fl_status duplicate(const json_source *source, const char *key, fl_error *error) {
    /* cJSON does not keep places: the line is known when there is one only. */
    if (memchr(source->text, '\n', source->bytes) != NULL || source->offset > 0)
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: JSON: duplicate key \"%s\"", source->path, key);
    return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: JSON: duplicate key \"%s\"", source->path,
                        source->line, key);
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
        status = duplicate(source, sorted[i]->string, error);
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

/* text: the source's, or that with stand-ins for its literals. */
static fl_status parse_checked(const json_source *source, const char *text, cJSON **out, fl_error *error) {
    const char *end = NULL;
    cJSON *document = cJSON_ParseWithLengthOpts(text, source->bytes, &end, false);
    if (document == NULL) {
        size_t at = end != NULL && end >= text && end <= text + source->bytes ? (size_t)(end - text) : 0;
        return refuse(source, at, "syntax error", error);
    }
    fl_status status = FL_OK;
    for (const char *rest = end; rest < text + source->bytes; rest++) {
        if (strchr(" \t\r\n", *rest) != NULL) continue;
        status = refuse(source, (size_t)(rest - text), "text after the end of the document", error);
        break;
    }
    if (status == FL_OK) status = check_keys(source, document, error);
    if (status == FL_OK)
        *out = document;
    else
        cJSON_Delete(document);
    return status;
}

static fl_status parse_with_literals(const json_source *source, cJSON **out, fl_error *error) {
    char *text = NULL;
    literal_place *places = NULL;
    fl_status status;
    FL_TRY_DONE(status, replace_literals(source, &text, &places, error));
    FL_TRY_DONE(status, parse_checked(source, text, out, error));
    const literal_place *next = places;
    size_t numbers = 0;
    put_literals(*out, &next, places + source->literals, &numbers);
done:
    fl_memory_free(places);
    fl_memory_free(text);
    return status;
}

static fl_status parse(json_source source, cJSON **out, fl_error *error) {
    *out = NULL;
    const bool mark = source.bytes >= 3 && memcmp(source.text, "\xEF\xBB\xBF", 3) == 0;
    if (mark && source.offset == 0 && source.line == 1) {
        source.text += 3;
        source.bytes -= 3;
    }
    FL_TRY(check_text(&source, error));
    return source.literals > 0 ? parse_with_literals(&source, out, error)
                               : parse_checked(&source, source.text, out, error);
}

fl_status fl_json_parse(const char *text, size_t bytes, const char *path, size_t offset, cJSON **out,
                        fl_error *error) {
    *out = NULL;
    if (bytes > FL_JSON_MAX_BYTES) {
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: JSON of %zu bytes (at most %d are read)", path,
                            bytes, FL_JSON_MAX_BYTES);
    }
    json_source source = {text, path, bytes, offset, 1, FL_JSON_MAX_VALUES, 0};
    return parse(source, out, error);
}

fl_status fl_json_parse_piece(const char *text, size_t bytes, const char *path, size_t line,
                              size_t most_values, cJSON **out, fl_error *error) {
    json_source source = {text, path, bytes, 0, line, most_values, 0};
    return parse(source, out, error);
}

fl_status fl_json_read_file(const char *path, cJSON **out, fl_error *error) {
    *out = NULL;
    char *text = NULL;
    size_t bytes = 0;
    FL_TRY(fl_input_read(path, FL_JSON_MAX_BYTES, &text, &bytes, error));
    fl_status status = bytes > 0 ? fl_json_parse(text, bytes, path, 0, out, error)
                                 : fl_error_set(error, FL_ERROR_FORMAT, "%s: the file is empty", path);
    fl_memory_free(text);
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
