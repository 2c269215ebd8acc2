#include "analysis/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "analysis/npz.h"
#include "analysis/output_file.h"
#include "harness/base/memory.h"

fl_status fl_table_add(fl_table *table, const char *name, const char *units, bool is_text, size_t *out,
                       fl_error *error) {
    FL_TRY(FL_RESIZE(&table->columns, table->column_count, table->column_count + 1, error));
    fl_table_column *column = &table->columns[table->column_count++];
    column->is_text = is_text;
    FL_TRY(fl_memory_copy_string(&column->name, name, error));
    FL_TRY(fl_memory_copy_string(&column->units, units, error));
    if (out != NULL) *out = table->column_count - 1;
    if (is_text) return FL_ALLOCATE(&column->texts, table->rows, error);
    FL_TRY(FL_ALLOCATE(&column->numbers, table->rows, error));
    FL_TRY(FL_ALLOCATE(&column->missing, table->rows, error));
    memset(column->missing, true, table->rows * sizeof column->missing[0]);
    return FL_OK;
}

void fl_table_set_text(fl_table *table, size_t row, size_t column, const char *text) {
    table->columns[column].texts[row] = text;
}

void fl_table_set_number(fl_table *table, size_t row, size_t column, double number) {
    table->columns[column].numbers[row] = number;
    table->columns[column].missing[row] = false;
}

fl_status fl_table_adopt(fl_table *table, char *text, fl_error *error) {
    fl_status status = FL_RESIZE(&table->adopted, table->adopted_count, table->adopted_count + 1, error);
    if (status != FL_OK) {
        fl_memory_free(text);
        return status;
    }
    table->adopted[table->adopted_count++] = text;
    return FL_OK;
}

void fl_table_release(fl_table *table) {
    for (size_t c = 0; c < table->column_count; c++) {
        fl_table_column *column = &table->columns[c];
        fl_memory_free(column->name);
        fl_memory_free(column->units);
        fl_memory_free(column->texts);
        fl_memory_free(column->numbers);
        fl_memory_free(column->missing);
    }
    for (size_t i = 0; i < table->adopted_count; i++) fl_memory_free(table->adopted[i]);
    fl_memory_free(table->adopted);
    fl_memory_free(table->columns);
    *table = (fl_table){0};
}

const char *fl_table_number_text(double number, char out[FL_NUMBER_BYTES]) {
    if (isnan(number)) {
        snprintf(out, FL_NUMBER_BYTES, "nan");
    } else if (isinf(number)) {
        snprintf(out, FL_NUMBER_BYTES, "%s", number > 0 ? "inf" : "-inf");
    } else {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(out, FL_NUMBER_BYTES, "%.*g", digits, number);
            if (strtod(out, NULL) == number) break;
        }
    }
    return out;
}

void fl_table_write_csv(const fl_table *table, FILE *stream) {
    char text[FL_NUMBER_BYTES];
    for (size_t c = 0; c < table->column_count; c++) {
        if (c > 0) fputc(',', stream);
        fl_output_csv_text(stream, table->columns[c].name);
    }
    fputc('\n', stream);
    for (size_t row = 0; row < table->rows; row++) {
        for (size_t c = 0; c < table->column_count; c++) {
            const fl_table_column *column = &table->columns[c];
            if (c > 0) fputc(',', stream);
            if (column->is_text && column->texts[row] != NULL) fl_output_csv_text(stream, column->texts[row]);
            if (!column->is_text && !column->missing[row])
                fputs(fl_table_number_text(column->numbers[row], text), stream);
        }
        fputc('\n', stream);
    }
}

void fl_table_json_text(FILE *stream, const char *text) {
    const utf8proc_uint8_t *at = (const utf8proc_uint8_t *)text;
    fputc('"', stream);
    while (*at != '\0') {
        utf8proc_int32_t code = -1;
        utf8proc_ssize_t bytes = utf8proc_iterate(at, -1, &code);
        if (bytes < 1) {
            fputs("\\ufffd", stream);
            at++;
            continue;
        }
        if (code == '"' || code == '\\') {
            fprintf(stream, "\\%c", (int)code);
        } else if (code < 0x20 || code == 0x7F) {
            fprintf(stream, "\\u%04x", (unsigned)code);
        } else {
            fwrite(at, 1, (size_t)bytes, stream);
        }
        at += bytes;
    }
    fputc('"', stream);
}

static void write_json_value(const fl_table_column *column, size_t row, FILE *stream) {
    char text[FL_NUMBER_BYTES];
    bool missing = column->is_text ? column->texts[row] == NULL : column->missing[row];
    if (missing) {
        fputs("null", stream);
    } else if (column->is_text) {
        fl_table_json_text(stream, column->texts[row]);
    } else if (isfinite(column->numbers[row])) {
        fputs(fl_table_number_text(column->numbers[row], text), stream);
    } else {
        fprintf(stream, "\"%s\"", fl_table_number_text(column->numbers[row], text));
    }
}

void fl_table_write_json(const fl_table *table, FILE *stream) {
    fputs("{\"columns\": [", stream);
    for (size_t c = 0; c < table->column_count; c++) {
        fputs(c > 0 ? ",\n  {\"name\": " : "\n  {\"name\": ", stream);
        fl_table_json_text(stream, table->columns[c].name);
        fputs(", \"units\": ", stream);
        fl_table_json_text(stream, table->columns[c].units);
        fputc('}', stream);
    }
    fputs("\n],\n\"rows\": [", stream);
    for (size_t row = 0; row < table->rows; row++) {
        fputs(row > 0 ? ",\n  [" : "\n  [", stream);
        for (size_t c = 0; c < table->column_count; c++) {
            if (c > 0) fputs(", ", stream);
            write_json_value(&table->columns[c], row, stream);
        }
        fputc(']', stream);
    }
    fputs("\n]}\n", stream);
}

static void write_latex_text(FILE *stream, const char *text) {
    static const char special[] = "&%$#_{}";
    for (; *text != '\0'; text++) {
        if (strchr(special, *text) != NULL) {
            fprintf(stream, "\\%c", *text);
        } else if (*text == '\\') {
            fputs("\\textbackslash{}", stream);
        } else if (*text == '~' || *text == '^') {
            fprintf(stream, "\\%c{}", *text);
        } else {
            fputc(*text == '\n' || *text == '\r' ? ' ' : *text, stream);
        }
    }
}

static void write_latex_number(FILE *stream, double number) {
    char text[FL_NUMBER_BYTES];
    if (isnan(number)) {
        fputs("nan", stream);
        return;
    }
    if (isinf(number)) {
        fputs(number > 0 ? "$\\infty$" : "$-\\infty$", stream);
        return;
    }
    bool whole = number == floor(number) && fabs(number) < 1e12;
    snprintf(text, sizeof text, whole ? "%.0f" : "%.4g", number);
    char *exponent = strchr(text, 'e');
    if (exponent == NULL) {
        fprintf(stream, text[0] == '-' ? "$%s$" : "%s", text);
        return;
    }
    *exponent = '\0';
    fprintf(stream, "$%s \\times 10^{%ld}$", text, strtol(exponent + 1, NULL, 10));
}

void fl_table_write_latex(const fl_table *table, FILE *stream) {
    fputs("\\begin{tabular}{", stream);
    for (size_t c = 0; c < table->column_count; c++) fputc(table->columns[c].is_text ? 'l' : 'r', stream);
    fputs("}\n\\toprule\n", stream);
    for (size_t c = 0; c < table->column_count; c++) {
        if (c > 0) fputs(" & ", stream);
        write_latex_text(stream, table->columns[c].name);
    }
    fputs(" \\\\\n\\midrule\n", stream);
    for (size_t row = 0; row < table->rows; row++) {
        for (size_t c = 0; c < table->column_count; c++) {
            const fl_table_column *column = &table->columns[c];
            bool missing = column->is_text ? column->texts[row] == NULL : column->missing[row];
            if (c > 0) fputs(" & ", stream);
            if (missing) {
                fputs("--", stream);
            } else if (column->is_text) {
                write_latex_text(stream, column->texts[row]);
            } else {
                write_latex_number(stream, column->numbers[row]);
            }
        }
        fputs(" \\\\\n", stream);
    }
    fputs("\\bottomrule\n\\end{tabular}\n", stream);
}

static fl_status add_column(fl_npz *npz, const fl_table *table, const fl_table_column *column,
                            fl_error *error) {
    if (column->is_text)
        return fl_npz_add_texts(npz, column->name, table->rows, (const char *const *)column->texts, error);
    for (size_t row = 0; row < table->rows; row++) {
        if (column->missing[row]) column->numbers[row] = (double)NAN;
    }
    return fl_npz_add_doubles(npz, column->name, 1, &table->rows, column->numbers, error);
}

fl_status fl_table_write_npz(const fl_table *table, const char *path, fl_error *error) {
    fl_npz *npz = NULL;
    FL_TRY(fl_npz_open(path, &npz, error));
    for (size_t c = 0; c < table->column_count; c++) {
        fl_status status = add_column(npz, table, &table->columns[c], error);
        if (status == FL_OK) continue;
        fl_npz_discard(npz);
        return status;
    }
    return fl_npz_close(npz, error);
}
