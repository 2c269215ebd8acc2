/* Table: named columns of texts or numbers, and the formats it can be written in.
 *
 * A value is there, is NaN or infinite (values like any other, kept in every format), or is missing. The same
 * table gives the same bytes. */
#ifndef FL_ANALYSIS_TABLE_H
#define FL_ANALYSIS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "harness/base/status.h"

typedef struct fl_table_column {
    char *name;
    char *units; /* "" without */
    bool is_text;
    const char **texts; /* [rows] borrowed or adopted by the table; NULL: missing */
    double *numbers;    /* [rows] */
    bool *missing;      /* [rows] of a number column */
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
/* For columns added above. */
void fl_table_set_text(fl_table *table, size_t row, size_t column, const char *text);
void fl_table_set_number(fl_table *table, size_t row, size_t column, double number);
/* The table owns `text` (an fl_memory block) from now on, also on failure. */
fl_status fl_table_adopt(fl_table *table, char *text, fl_error *error);
void fl_table_release(fl_table *table);

/* RFC 4180 with a header line. Numbers are the shortest that read back the same; NaN, inf and -inf are
 * written so; missing is empty. */
void fl_table_write_csv(const fl_table *table, FILE *stream);
/* {"columns": [{"name", "units"}], "rows": [[...]]}; NaN and infinities, which JSON lacks, are the strings
 * "nan", "inf" and
 * "-inf"; missing is null. */
void fl_table_write_json(const fl_table *table, FILE *stream);
/* A tabular for the booktabs package, numbers with four significant digits; missing is a dash. */
void fl_table_write_latex(const fl_table *table, FILE *stream);
/* One array a column: float64 with NaN for missing, or text with "" for missing. Whole or not at all. */
fl_status fl_table_write_npz(const fl_table *table, const char *path, fl_error *error);

/* A number as the shortest text that reads back the same; "nan", "inf", "-inf". */
enum { FL_NUMBER_BYTES = 32 };
const char *fl_table_number_text(double number, char out[FL_NUMBER_BYTES]);
/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void fl_table_json_text(FILE *stream, const char *text);

#endif
