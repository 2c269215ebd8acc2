/* CSV: strict RFC 4180. Every cell is text, never a number or a missing value ("None" and "nan" are answers).
 *
 * Comma-separated, LF or CRLF or lone CR line ends, cells in double quotes may hold commas, line breaks and
 * doubled quotes. A byte-order mark at the start is skipped and remembered. NUL bytes, invalid UTF-8, text
 * after a closing quote, a quote inside an unquoted cell and a quote never closed are errors that name file
 * and line. Empty lines between rows are skipped. */
#ifndef FL_EVAL_CSV_H
#define FL_EVAL_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_csv_row {
    size_t line; /* from 1: where the row starts */
    size_t cells;
    char **cell; /* [cells] NUL-terminated, into the table's text */
} fl_csv_row;

typedef struct fl_csv_table {
    size_t count;
    fl_csv_row *rows;
    bool byte_order_mark;
    char *text;   /* storage behind the cells */
    char **cells; /* storage behind row.cell */
} fl_csv_table;

/* Takes a copy of text. name is for messages. */
fl_status fl_csv_parse(const char *text, size_t bytes, const char *name, fl_csv_table **out, fl_error *error);
fl_status fl_csv_read(const char *path, fl_csv_table **out, fl_error *error);
void fl_csv_destroy(fl_csv_table *table);

#endif
