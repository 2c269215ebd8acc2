/* Table: named columns of texts or numbers, and the formats it can be written in.
 *
 * A value is there, is NaN or infinite (values like any other), or is missing. The same table gives the same bytes.
 *
 * Formats for programs (CSV, JSON) hold every digit and call a column by its name. Formats for readers (LaTeX, Markdown, text)
 * call it by its heading with the units behind, and round: a number with an error to two digits of the error
 * ("0.589 +- 0.012"), others to four significant digits; missing is a dash. */
#ifndef FL_ANALYSIS_TABLE_H
#define FL_ANALYSIS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "harness/base/status.h"

typedef struct fl_table_column {
    char *name;
    char *heading; /* "" = the name */
    char *units;   /* "" or "1" without */
    bool is_text;
    const char **texts; /* [rows] borrowed or adopted by the table; NULL: missing */
    double *numbers;    /* [rows] */
    bool *missing;      /* [rows] of a number column */
    double *errors;     /* [rows] of a number column, or NULL; NaN: none. CSV and JSON do not show them */
} fl_table_column;

typedef struct fl_table {
    size_t rows, column_count;
    fl_table_column *columns;
    size_t adopted_count;
    char **adopted; /* texts that live as long as the table */
} fl_table;

/* Zero-initialise a table, set `rows`, then add columns: every value is missing at first. *out is the
 * column's index. */
fl_status fl_table_add(fl_table *table, const char *name, const char *units, bool is_text, size_t *out,
                       fl_error *error);
fl_status fl_table_set_heading(fl_table *table, size_t column, const char *heading, fl_error *error);
/* For columns added above. */
void fl_table_set_text(fl_table *table, size_t row, size_t column, const char *text);
void fl_table_set_number(fl_table *table, size_t row, size_t column, double number);
/* With its error: `error_of_it` NaN = none. */
fl_status fl_table_set_measured(fl_table *table, size_t row, size_t column, double number, double error_of_it,
                                fl_error *error);
/* The table owns `text` (an fl_memory block) from now on, also on failure. */
fl_status fl_table_adopt(fl_table *table, char *text, fl_error *error);
/* The column of that name, or column_count. */
size_t fl_table_find(const fl_table *table, const char *name);
/* Rows by a column, equal ones in the order they had; NaN, then missing values last. */
fl_status fl_table_sort(fl_table *table, size_t column, bool descending, fl_error *error);
void fl_table_release(fl_table *table);

/* RFC 4180 with a header line. Numbers are the shortest that read back the same; NaN, inf and -inf are
 * written so; missing is empty. */
void fl_table_write_csv(const fl_table *table, FILE *stream);
/* A list of records, [{"name": value, ...}, ...], as pandas.read_json takes it. Missing and NaN are null, infinities 1e999 and
 * -1e999: JSON that readers of float64 take for infinite. */
void fl_table_write_json(const fl_table *table, FILE *stream);
/* A tabular for the booktabs package. */
void fl_table_write_latex(const fl_table *table, FILE *stream);
/* A pipe table. */
void fl_table_write_markdown(const fl_table *table, FILE *stream);
/* Aligned columns for a terminal, numbers to the right; a heading "nMSE, linear off" stands in two lines. Columns from the
 * first that a line of `width` characters (0: any length) has no room for are left out, never the first: *shown of them
 * are there. */
fl_status fl_table_write_text(const fl_table *table, FILE *stream, size_t width, size_t *shown, fl_error *error);

/* A number as the shortest text that reads back the same; "nan", "inf", "-inf". */
enum { FL_NUMBER_BYTES = 32 };
const char *fl_table_number_text(double number, char out[FL_NUMBER_BYTES]);
/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void fl_table_json_text(FILE *stream, const char *text);

#endif
