#include "harness/config/scalar.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_one_of(const char *text, const char *const *words) {
    for (; *words != NULL; words++) {
        if (strcmp(text, *words) == 0) return true;
    }
    return false;
}

bool fl_scalar_is_null(const char *text) {
    static const char *const words[] = {"", "~", "null", "Null", "NULL", NULL};
    return is_one_of(text, words);
}

bool fl_scalar_is_bool(const char *text, bool *value) {
    static const char *const yes[] = {"true", "True", "TRUE", NULL};
    static const char *const no[] = {"false", "False", "FALSE", NULL};
    *value = is_one_of(text, yes);
    return *value || is_one_of(text, no);
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static const char *skip_digits(const char *text) {
    while (is_digit(*text)) text++;
    return text;
}

static const char *skip_sign(const char *text) {
    return *text == '+' || *text == '-' ? text + 1 : text;
}

static const char *const leading_zero = "has a leading zero; write it without";

const char *fl_scalar_integer(const char *text) {
    const char *digits = skip_sign(text);
    const char *end = skip_digits(digits);
    if (end == digits || *end != '\0') return "is not a whole number";
    if (digits[0] == '0' && end - digits > 1) return leading_zero;
    return NULL;
}

/* Whether `text` has the form of a number; *why says what is wrong otherwise. */
static bool has_number_form(const char *text, const char **why) {
    *why = "is not a number";
    const char *whole = skip_sign(text);
    const char *at = skip_digits(whole);
    size_t digits = (size_t)(at - whole);
    if (*at == '.') {
        const char *fraction = at + 1;
        at = skip_digits(fraction);
        if (digits + (size_t)(at - fraction) == 0) return false;
    } else if (digits == 0) {
        return false;
    }
    if (*at == 'e' || *at == 'E') {
        const char *exponent = skip_sign(at + 1);
        at = skip_digits(exponent);
        if (at == exponent) return false;
    }
    if (*at == '_') *why = "is not a number (no underscores between digits)";
    if (*at != '\0') return false;
    if (digits > 1 && whole[0] == '0') {
        *why = leading_zero;
        return false;
    }
    return true;
}

static bool has_non_zero_digit(const char *text) {
    for (; *text != '\0' && *text != 'e' && *text != 'E'; text++) {
        if (*text >= '1' && *text <= '9') return true;
    }
    return false;
}

const char *fl_scalar_number(const char *text, double *value) {
    static const char *const not_finite[] = {".inf",  ".Inf",  ".INF",  "-.inf", "-.Inf", "-.INF",
                                             "+.inf", "+.Inf", "+.INF", ".nan",  ".NaN",  ".NAN",
                                             "inf",   "-inf",  "nan",   NULL};
    if (is_one_of(text, not_finite)) return "is not finite";
    const char *why = NULL;
    if (!has_number_form(text, &why)) return why;
    char *end = NULL;
    double number = strtod(text, &end);
    if (*end != '\0') return "is not a number";
    if (!isfinite(number)) return "is too large for a double";
    if (number == 0.0 && has_non_zero_digit(text)) return "is too small for a double";
    *value = number == 0.0 ? 0.0 : number;
    return NULL;
}

void fl_scalar_write_number(double value, char out[FL_NUMBER_TEXT_BYTES]) {
    if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(out, FL_NUMBER_TEXT_BYTES, "%.0f", value == 0.0 ? 0.0 : value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, FL_NUMBER_TEXT_BYTES, "%.*g", digits, value);
        if (strtod(out, NULL) == value) return;
    }
}

/* Words that YAML 1.1 readers (PyYAML) take for booleans: quoted on output so that every reader sees a
 * string. */
static bool reads_as_other_type(const char *text) {
    static const char *const words[] = {"y",  "Y",  "yes", "Yes", "YES", "n",   "N",   "no", "No",
                                        "NO", "on", "On",  "ON",  "off", "Off", "OFF", NULL};
    bool truth = false;
    return fl_scalar_is_null(text) || fl_scalar_is_bool(text, &truth) || is_one_of(text, words);
}

/* Letters first, then letters, digits and a few signs: never special anywhere in YAML. */
static bool is_plain(const char *text) {
    if (reads_as_other_type(text)) return false;
    bool letter = (text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z') ||
                  text[0] == '_' || text[0] == '/';
    if (!letter) return false;
    for (const char *c = text; *c != '\0'; c++) {
        bool safe = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || is_digit(*c) ||
                    strchr("_-./+@", *c) != NULL;
        if (!safe) return false;
    }
    return true;
}

/* Code point at `text` (valid UTF-8, above ASCII) and its number of bytes. */
static unsigned decode(const unsigned char *text, size_t *bytes) {
    *bytes = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    unsigned point = text[0] & (0xffu >> (*bytes + 1));
    for (size_t i = 1; i < *bytes; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            *bytes = i;
            break;
        }
        point = point << 6 | (text[i] & 0x3fu);
    }
    return point;
}

/* Line breaks of YAML 1.1 and what YAML calls not printable must be escaped even inside quotes. */
static bool needs_escape(unsigned point) {
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x2028 || point == 0x2029 ||
           point == 0xfeff || point == 0xfffe || point == 0xffff;
}

static fl_status write_quoted(fl_text_builder *buffer, const char *text, fl_error *error) {
    FL_TRY(fl_text_builder_add(buffer, "\"", error));
    for (const char *at = text; *at != '\0';) {
        size_t bytes = 1;
        unsigned point = (unsigned char)*at;
        if (point >= 0x80) point = decode((const unsigned char *)at, &bytes);
        if (point == '"' || point == '\\') FL_TRY(fl_text_builder_add(buffer, "\\", error));
        if (point == '\n') {
            FL_TRY(fl_text_builder_add(buffer, "\\n", error));
        } else if (needs_escape(point)) {
            FL_TRY(fl_text_builder_format(buffer, error, point < 0x100 ? "\\x%02x" : "\\u%04x", point));
        } else {
            FL_TRY(fl_text_builder_add_bytes(buffer, at, bytes, error));
        }
        at += bytes;
    }
    return fl_text_builder_add(buffer, "\"", error);
}

fl_status fl_scalar_write_string(fl_text_builder *buffer, const char *text, fl_error *error) {
    return is_plain(text) ? fl_text_builder_add(buffer, text, error) : write_quoted(buffer, text, error);
}
