/* Tables for readers (declared in table.h): LaTeX, Markdown and text, which differ in how they write a few
 * signs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "analysis/table.h"
#include "harness/base/memory.h"

enum { VALUE_BYTES = 96 };

typedef struct page_style {
    const char *plus_minus, *infinity, *minus_infinity, *missing;
    bool is_latex;
} page_style;

static const page_style latex = {" $\\pm$ ", "$\\infty$", "$-\\infty$", "--", true};
static const page_style plain = {" \xC2\xB1 ", "inf", "-inf", "-", false};

/* Digits behind the point that show two digits of an error: 9.97 rounds to 10, of which none is behind it. */
static int decimals_of(double error) {
    char rounded[FL_NUMBER_BYTES];
    snprintf(rounded, sizeof rounded, "%.1e", error);
    int decimals = 1 - (int)strtol(strchr(rounded, 'e') + 1, NULL, 10);
    return decimals < 0 ? 0 : decimals > 9 ? 9 : decimals;
}

/* "2.98e+06" as LaTeX has it. */
static void format_exponent(const page_style *style, const char *text, char out[VALUE_BYTES]) {
    const char *exponent = strchr(text, 'e');
    if (exponent == NULL || !style->is_latex)
        snprintf(out, VALUE_BYTES, style->is_latex && text[0] == '-' ? "$%s$" : "%s", text);
    else
        snprintf(out, VALUE_BYTES, "$%.*s \\times 10^{%ld}$", (int)(exponent - text), text,
                 strtol(exponent + 1, NULL, 10));
}

static void format_number(const page_style *style, double number, double error, char out[VALUE_BYTES]) {
    char text[FL_NUMBER_BYTES * 2];
    bool measured = isfinite(error) && error > 0 && error < 1e9 && fabs(number) < 1e9;
    if (isnan(number)) {
        snprintf(out, VALUE_BYTES, "nan");
    } else if (isinf(number)) {
        snprintf(out, VALUE_BYTES, "%s", number > 0 ? style->infinity : style->minus_infinity);
    } else if (measured) {
        int decimals = decimals_of(error);
        snprintf(text, sizeof text, "%.*f", decimals, number);
        format_exponent(style, text, out);
        size_t used = strlen(out);
        snprintf(out + used, VALUE_BYTES - used, "%s%.*f", style->plus_minus, decimals, error);
    } else {
        bool whole = number == floor(number) && fabs(number) < 1e12;
        snprintf(text, sizeof text, whole ? "%.0f" : fabs(number) < 1e-4 ? "%.3g" : "%.4g", number);
        format_exponent(style, text, out);
    }
}

/* A text as the format has it. */
typedef void (*text_writer)(FILE *stream, const char *text);

static void write_latex_text(FILE *stream, const char *text) {
    static const char special[] = "&%$#_{}";
    for (; *text != '\0'; text++) {
        if (strchr(special, *text) != NULL) {
            fprintf(stream, "\\%c", *text);
        } else if (*text == '\\') {
            fputs("\\textbackslash{}", stream);
        } else if (*text == '~' || *text == '^') {
            fprintf(stream, "\\%c{}", *text);
        } else if (*text == '<' || *text == '>' || *text == '|') {
            fprintf(stream, "$%c$", *text);
        } else {
            fputc(*text == '\n' || *text == '\r' ? ' ' : *text, stream);
        }
    }
}

static void write_markdown_text(FILE *stream, const char *text) {
    for (; *text != '\0'; text++) {
        if (strchr("|\\*_`<[", *text) != NULL) fputc('\\', stream);
        fputc(*text == '\n' || *text == '\r' ? ' ' : *text, stream);
    }
}

static const char *heading_of(const fl_table_column *column) {
    return column->heading[0] != '\0' ? column->heading : column->name;
}

static bool has_units(const fl_table_column *column) {
    return column->units[0] != '\0' && strcmp(column->units, "1") != 0;
}

static void write_heading(const fl_table_column *column, text_writer write, FILE *stream) {
    write(stream, heading_of(column));
    if (!has_units(column)) return;
    fputs(" (", stream);
    write(stream, column->units);
    fputc(')', stream);
}

static void write_value(const fl_table_column *column, size_t row, const page_style *style, text_writer write,
                        FILE *stream) {
    char text[VALUE_BYTES];
    if (column->is_text ? column->texts[row] == NULL : column->missing[row]) {
        fputs(style->missing, stream);
    } else if (column->is_text) {
        write(stream, column->texts[row]);
    } else {
        format_number(style, column->numbers[row], column->errors != NULL ? column->errors[row] : (double)NAN,
                      text);
        fputs(text, stream);
    }
}

void fl_table_write_latex(const fl_table *table, FILE *stream) {
    fputs("\\begin{tabular}{", stream);
    for (size_t c = 0; c < table->column_count; c++) fputc(table->columns[c].is_text ? 'l' : 'r', stream);
    fputs("}\n\\toprule\n", stream);
    for (size_t c = 0; c < table->column_count; c++) {
        if (c > 0) fputs(" & ", stream);
        write_heading(&table->columns[c], write_latex_text, stream);
    }
    fputs(" \\\\\n\\midrule\n", stream);
    for (size_t row = 0; row < table->rows; row++) {
        for (size_t c = 0; c < table->column_count; c++) {
            if (c > 0) fputs(" & ", stream);
            write_value(&table->columns[c], row, &latex, write_latex_text, stream);
        }
        fputs(" \\\\\n", stream);
    }
    fputs("\\bottomrule\n\\end{tabular}\n", stream);
}

void fl_table_write_markdown(const fl_table *table, FILE *stream) {
    for (size_t c = 0; c < table->column_count; c++) {
        fputs("| ", stream);
        write_heading(&table->columns[c], write_markdown_text, stream);
        fputc(' ', stream);
    }
    fputs("|\n", stream);
    for (size_t c = 0; c < table->column_count; c++)
        fputs(table->columns[c].is_text ? "| --- " : "| ---: ", stream);
    fputs("|\n", stream);
    for (size_t row = 0; row < table->rows; row++) {
        for (size_t c = 0; c < table->column_count; c++) {
            fputs("| ", stream);
            write_value(&table->columns[c], row, &plain, write_markdown_text, stream);
            fputc(' ', stream);
        }
        fputs("|\n", stream);
    }
}

static size_t width_of(const char *text) {
    size_t width = 0;
    utf8proc_int32_t code = 0;
    for (utf8proc_ssize_t bytes; *text != '\0'; text += bytes > 0 ? bytes : 1) {
        bytes = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &code);
        width += bytes > 0 ? (size_t)utf8proc_charwidth(code) : 1;
    }
    return width;
}

static const char *value_text(const fl_table_column *column, size_t row, char out[VALUE_BYTES]) {
    if (column->is_text) return column->texts[row] != NULL ? column->texts[row] : plain.missing;
    if (column->missing[row]) return plain.missing;
    format_number(&plain, column->numbers[row], column->errors != NULL ? column->errors[row] : (double)NAN,
                  out);
    return out;
}

static void write_padded(FILE *stream, const char *text, size_t width, bool right, bool last) {
    size_t own = width_of(text), room = width > own ? width - own : 0;
    if (right) fprintf(stream, "%*s", (int)room, "");
    fputs(text, stream);
    if (!right && !last) fprintf(stream, "%*s", (int)room, "");
    fputs(last ? "\n" : "  ", stream);
}

/* A heading for a terminal stands in two lines: "nMSE, linear off", and "state" with its units. */
typedef struct two_lines {
    char first[VALUE_BYTES], second[VALUE_BYTES];
} two_lines;

static void split_heading(const fl_table_column *column, two_lines *out) {
    const char *heading = heading_of(column), *comma = strstr(heading, ", ");
    int first = comma != NULL ? (int)(comma - heading) : (int)strlen(heading);
    snprintf(out->first, sizeof out->first, "%.*s", first, heading);
    snprintf(out->second, sizeof out->second, "%s%s%s", comma != NULL ? comma + 2 : "",
             comma != NULL && has_units(column) ? ", " : "", has_units(column) ? column->units : "");
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t column_width(const fl_table *table, const fl_table_column *column) {
    char text[VALUE_BYTES];
    two_lines heading = {.first = ""};
    split_heading(column, &heading);
    size_t width = larger(width_of(heading.first), width_of(heading.second));
    for (size_t row = 0; row < table->rows; row++)
        width = larger(width, width_of(value_text(column, row, text)));
    return width;
}

static void write_line(const fl_table *table, size_t line, const size_t *widths, size_t shown, FILE *stream) {
    char text[VALUE_BYTES];
    two_lines heading = {.first = ""};
    for (size_t c = 0; c < shown; c++) {
        const fl_table_column *column = &table->columns[c];
        split_heading(column, &heading);
        const char *value = line == 0   ? heading.first
                            : line == 1 ? heading.second
                                        : value_text(column, line - 2, text);
        write_padded(stream, value, widths[c], !column->is_text, c + 1 == shown);
    }
}

fl_status fl_table_write_text(const fl_table *table, FILE *stream, size_t width, size_t *shown,
                              fl_error *error) {
    size_t *widths = NULL, used = 0;
    bool second = false;
    *shown = 0;
    FL_TRY(FL_ALLOCATE(&widths, table->column_count, error));
    for (size_t c = 0; c < table->column_count; c++) {
        two_lines heading = {.first = ""};
        split_heading(&table->columns[c], &heading);
        widths[c] = column_width(table, &table->columns[c]);
        used += widths[c] + (c > 0 ? 2 : 0);
        if (c > 0 && width > 0 && used > width) break;
        second = second || heading.second[0] != '\0';
        (*shown)++;
    }
    for (size_t line = 0; line < table->rows + 2; line++) {
        if (line != 1 || second) write_line(table, line, widths, *shown, stream);
    }
    fl_memory_free(widths);
    return FL_OK;
}
