#include "analysis/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "analysis/output_file.h"
#include "harness/base/memory.h"

fl_status fl_table_add(fl_table *table, const char *name, const char *units, bool is_text, size_t *out,
                       fl_error *error) {
    FL_TRY(FL_RESIZE(&table->columns, table->column_count, table->column_count + 1, error));
    fl_table_column *column = &table->columns[table->column_count++];
    column->is_text = is_text;
    FL_TRY(fl_memory_copy_string(&column->name, name, error));
    FL_TRY(fl_memory_copy_string(&column->units, units, error));
    FL_TRY(fl_memory_copy_string(&column->heading, "", error));
    if (out != NULL) *out = table->column_count - 1;
    if (is_text) return FL_ALLOCATE(&column->texts, table->rows, error);
    FL_TRY(FL_ALLOCATE(&column->numbers, table->rows, error));
    FL_TRY(FL_ALLOCATE(&column->missing, table->rows, error));
    memset(column->missing, true, table->rows * sizeof column->missing[0]);
    return FL_OK;
}

fl_status fl_table_set_heading(fl_table *table, size_t column, const char *heading, fl_error *error) {
    fl_memory_free(table->columns[column].heading);
    return fl_memory_copy_string(&table->columns[column].heading, heading, error);
}

void fl_table_set_text(fl_table *table, size_t row, size_t column, const char *text) {
    table->columns[column].texts[row] = text;
}

void fl_table_set_number(fl_table *table, size_t row, size_t column, double number) {
    table->columns[column].numbers[row] = number;
    table->columns[column].missing[row] = false;
}

fl_status fl_table_set_measured(fl_table *table, size_t row, size_t column, double number, double error_of_it,
                                fl_error *error) {
    fl_table_column *c = &table->columns[column];
    if (c->errors == NULL) {
        FL_TRY(FL_ALLOCATE(&c->errors, table->rows, error));
        for (size_t i = 0; i < table->rows; i++) c->errors[i] = (double)NAN;
    }
    c->errors[row] = error_of_it;
    fl_table_set_number(table, row, column, number);
    return FL_OK;
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
        fl_memory_free(column->heading);
        fl_memory_free(column->errors);
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

static bool is_missing(const fl_table_column *column, size_t row) {
    return column->is_text ? column->texts[row] == NULL : column->missing[row];
}

static void write_json_value(const fl_table_column *column, size_t row, FILE *stream) {
    char text[FL_NUMBER_BYTES];
    if (is_missing(column, row) || (!column->is_text && isnan(column->numbers[row]))) {
        fputs("null", stream);
    } else if (column->is_text) {
        fl_table_json_text(stream, column->texts[row]);
    } else if (isfinite(column->numbers[row])) {
        fputs(fl_table_number_text(column->numbers[row], text), stream);
    } else {
        fputs(column->numbers[row] > 0 ? "1e999" : "-1e999", stream);
    }
}

void fl_table_write_json(const fl_table *table, FILE *stream) {
    fputc('[', stream);
    for (size_t row = 0; row < table->rows; row++) {
        fputs(row > 0 ? ",\n {" : "\n {", stream);
        for (size_t c = 0; c < table->column_count; c++) {
            if (c > 0) fputs(", ", stream);
            fl_table_json_text(stream, table->columns[c].name);
            fputs(": ", stream);
            write_json_value(&table->columns[c], row, stream);
        }
        fputc('}', stream);
    }
    fputs("\n]\n", stream);
}

size_t fl_table_find(const fl_table *table, const char *name) {
    size_t column = 0;
    while (column < table->column_count && strcmp(table->columns[column].name, name) != 0) column++;
    return column;
}

typedef struct sort_key {
    const fl_table_column *column;
    bool descending;
    size_t row;
} sort_key;

static int rank_of(const sort_key *key) {
    if (is_missing(key->column, key->row)) return 2;
    return !key->column->is_text && isnan(key->column->numbers[key->row]);
}

static int compare_keys(const void *a, const void *b) {
    const sort_key *x = a, *y = b;
    int order = rank_of(x) - rank_of(y);
    if (order == 0 && rank_of(x) == 0) {
        const fl_table_column *c = x->column;
        order = c->is_text
                    ? strcmp(c->texts[x->row], c->texts[y->row])
                    : (c->numbers[x->row] > c->numbers[y->row]) - (c->numbers[x->row] < c->numbers[y->row]);
        if (x->descending) order = -order;
    }
    return order != 0 ? order : (x->row > y->row) - (x->row < y->row);
}

/* `values` in the order of the keys; NULL is fine. */
static void permute(void *values, size_t size, const sort_key *keys, size_t rows, void *scratch) {
    if (values == NULL) return;
    for (size_t i = 0; i < rows; i++)
        memcpy((char *)scratch + i * size, (char *)values + keys[i].row * size, size);
    memcpy(values, scratch, rows * size);
}

fl_status fl_table_sort(fl_table *table, size_t column, bool descending, fl_error *error) {
    sort_key *keys = NULL;
    double *scratch = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&keys, table->rows, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&scratch, table->rows, error));
    for (size_t i = 0; i < table->rows; i++) keys[i] = (sort_key){&table->columns[column], descending, i};
    if (table->rows > 0) qsort(keys, table->rows, sizeof keys[0], compare_keys);
    for (size_t c = 0; c < table->column_count; c++) {
        fl_table_column *own = &table->columns[c];
        permute(own->texts, sizeof own->texts[0], keys, table->rows, scratch);
        permute(own->numbers, sizeof own->numbers[0], keys, table->rows, scratch);
        permute(own->missing, sizeof own->missing[0], keys, table->rows, scratch);
        permute(own->errors, sizeof own->errors[0], keys, table->rows, scratch);
    }
done:
    fl_memory_free(scratch);
    fl_memory_free(keys);
    return status;
}
