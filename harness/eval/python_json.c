#include "harness/eval/python_json.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 40 };

fl_status fl_python_json_string(const char *text, fl_text_buffer *out, fl_error *error) {
    static const char escaped[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    FL_TRY(fl_text_buffer_add(out, "\"", 1, error));
    while (*text != '\0') {
        size_t plain = 0;
        while ((unsigned char)text[plain] >= 0x20 && text[plain] != '"' && text[plain] != '\\') plain++;
        FL_TRY(fl_text_buffer_add(out, text, plain, error));
        text += plain;
        if (*text == '\0') break;
        char escape[8];
        const char *short_form = strchr(escaped, *text);
        if (short_form != NULL)
            snprintf(escape, sizeof escape, "\\%c", letters[short_form - escaped]);
        else
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)*text);
        FL_TRY(fl_text_buffer_add_string(out, escape, error));
        text++;
    }
    return fl_text_buffer_add(out, "\"", 1, error);
}

/* repr(float): the shortest digits that give the number back. */
static fl_status add_number(double number, fl_text_buffer *out, fl_error *error) {
    char text[NUMBER_BYTES];
    if (isnan(number) || isinf(number))
        return fl_text_buffer_add_string(out,
                                         isnan(number) ? "NaN"
                                         : number > 0  ? "Infinity"
                                                       : "-Infinity",
                                         error);
    if (number == floor(number) && fabs(number) < 1e15) {
        snprintf(text, sizeof text, "%.0f", number);
        return fl_text_buffer_add_string(out, text, error);
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    return fl_text_buffer_add_string(out, text, error);
}

typedef struct writer {
    size_t indent;
    fl_text_buffer *out;
} writer;

static fl_status add_break(const writer *w, size_t depth, fl_error *error) {
    if (w->indent == 0) return FL_OK;
    FL_TRY(fl_text_buffer_add(w->out, "\n", 1, error));
    for (size_t i = 0; i < w->indent * depth; i++) FL_TRY(fl_text_buffer_add(w->out, " ", 1, error));
    return FL_OK;
}

static fl_status add_value(const writer *w, const cJSON *value, size_t depth, fl_error *error);

static fl_status add_members(const writer *w, const cJSON *value, size_t depth, fl_error *error) {
    const bool object = cJSON_IsObject(value);
    FL_TRY(fl_text_buffer_add_string(w->out, object ? "{" : "[", error));
    for (const cJSON *member = value->child; member != NULL; member = member->next) {
        if (member != value->child)
            FL_TRY(fl_text_buffer_add_string(w->out, w->indent > 0 ? "," : ", ", error));
        FL_TRY(add_break(w, depth + 1, error));
        if (object) {
            FL_TRY(fl_python_json_string(member->string, w->out, error));
            FL_TRY(fl_text_buffer_add_string(w->out, ": ", error));
        }
        FL_TRY(add_value(w, member, depth + 1, error));
    }
    if (value->child != NULL) FL_TRY(add_break(w, depth, error));
    return fl_text_buffer_add_string(w->out, object ? "}" : "]", error);
}

/* As deep as cJSON parses (CJSON_NESTING_LIMIT). */
static fl_status add_value(const writer *w, const cJSON *value, size_t depth, fl_error *error) {
    if (cJSON_IsObject(value) || cJSON_IsArray(value)) return add_members(w, value, depth, error);
    if (cJSON_IsString(value)) return fl_python_json_string(value->valuestring, w->out, error);
    if (cJSON_IsNumber(value)) return add_number(value->valuedouble, w->out, error);
    const char *name = cJSON_IsTrue(value) ? "true" : cJSON_IsFalse(value) ? "false" : "null";
    return fl_text_buffer_add_string(w->out, name, error);
}

fl_status fl_python_json(const cJSON *value, size_t indent, fl_text_buffer *out, fl_error *error) {
    const writer w = {.indent = indent, .out = out};
    return add_value(&w, value, 0, error);
}
