#include "harness/eval/csv.h"

#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/text_file.h"

/* Cells are unescaped in place: the write position never passes the read position. */
typedef struct csv_scan {
    const char *name;
    char *text;
    size_t bytes, at, line;
    char *write;
} csv_scan;

static fl_status fault(const csv_scan *scan, size_t line, const char *what, fl_error *error) {
    return fl_error_set(error, FL_ERROR_FORMAT, "%s:%zu: %s", scan->name, line, what);
}

static bool at_line_end(const csv_scan *scan) {
    return scan->at >= scan->bytes || scan->text[scan->at] == '\n' || scan->text[scan->at] == '\r';
}

static void skip_line_end(csv_scan *scan) {
    if (scan->at >= scan->bytes) return;
    if (scan->text[scan->at] == '\r' && scan->at + 1 < scan->bytes && scan->text[scan->at + 1] == '\n')
        scan->at++;
    scan->at++;
    scan->line++;
}

static fl_status quoted_cell(csv_scan *scan, fl_error *error) {
    const size_t opened = scan->line;
    for (scan->at++; scan->at < scan->bytes; scan->at++) {
        const char c = scan->text[scan->at];
        if (c == '"') {
            if (scan->at + 1 >= scan->bytes || scan->text[scan->at + 1] != '"') {
                scan->at++;
                if (!at_line_end(scan) && scan->text[scan->at] != ',') {
                    return fault(scan, scan->line, "text after a closing quote", error);
                }
                return FL_OK;
            }
            scan->at++;
        }
        if (c == '\n') scan->line++;
        *scan->write++ = c;
    }
    return fault(scan, opened, "a quoted cell that starts here is never closed", error);
}

static fl_status plain_cell(csv_scan *scan, fl_error *error) {
    for (; !at_line_end(scan) && scan->text[scan->at] != ','; scan->at++) {
        if (scan->text[scan->at] == '"')
            return fault(scan, scan->line, "a quote inside an unquoted cell", error);
        *scan->write++ = scan->text[scan->at];
    }
    return FL_OK;
}

static fl_status next_row(csv_scan *scan, char **cells, size_t *count, fl_error *error) {
    *count = 0;
    for (;;) {
        cells[(*count)++] = scan->write;
        const bool quoted = scan->at < scan->bytes && scan->text[scan->at] == '"';
        FL_TRY(quoted ? quoted_cell(scan, error) : plain_cell(scan, error));
        const bool more = !at_line_end(scan);
        if (more) {
            scan->at++;
        } else {
            skip_line_end(scan);
        }
        *scan->write++ = '\0';
        if (!more) return FL_OK;
    }
}

static fl_status scan_table(fl_csv_table *table, csv_scan *scan, fl_error *error) {
    size_t most_rows = 2, most_cells = 2;
    for (size_t i = 0; i < scan->bytes; i++) {
        const char c = scan->text[i];
        most_rows += c == '\n' || c == '\r';
        most_cells += c == '\n' || c == '\r' || c == ',';
    }
    FL_TRY(FL_ALLOCATE(&table->rows, most_rows, error));
    FL_TRY(FL_ALLOCATE(&table->cells, most_cells, error));
    size_t cells = 0;
    while (scan->at < scan->bytes) {
        if (at_line_end(scan)) {
            skip_line_end(scan);
            continue;
        }
        fl_csv_row *row = &table->rows[table->count];
        *row = (fl_csv_row){.line = scan->line, .cell = table->cells + cells};
        FL_TRY(next_row(scan, row->cell, &row->cells, error));
        cells += row->cells;
        table->count++;
    }
    return FL_OK;
}

fl_status fl_csv_parse(const char *text, size_t bytes, const char *name, fl_csv_table **out,
                       fl_error *error) {
    FL_TRY(fl_text_file_check(name, text, bytes, error));
    fl_csv_table *table = NULL;
    FL_TRY(FL_ALLOCATE(&table, 1, error));
    const size_t mark = fl_text_file_byte_order_mark(text, bytes);
    table->byte_order_mark = mark > 0;
    fl_status status;
    /* Each cell gains a NUL in place of its separator; the last one may need a byte more. */
    FL_TRY_DONE(status, FL_ALLOCATE(&table->text, bytes + 2, error));
    memcpy(table->text, text, bytes);
    csv_scan scan = {
        .name = name, .text = table->text, .bytes = bytes, .at = mark, .line = 1, .write = table->text};
    FL_TRY_DONE(status, scan_table(table, &scan, error));
    *out = table;
    return FL_OK;
done:
    fl_csv_destroy(table);
    return status;
}

fl_status fl_csv_read(const char *path, fl_csv_table **out, fl_error *error) {
    char *text = NULL;
    size_t bytes = 0;
    FL_TRY(fl_text_file_read(path, &text, &bytes, error));
    fl_status status = fl_csv_parse(text, bytes, path, out, error);
    fl_memory_free(text);
    return status;
}

void fl_csv_destroy(fl_csv_table *table) {
    if (table == NULL) return;
    fl_memory_free(table->rows);
    fl_memory_free(table->cells);
    fl_memory_free(table->text);
    fl_memory_free(table);
}
