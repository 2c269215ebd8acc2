/* JSON rows: the objects of a JSON Lines file, or of a file that is one JSON array, each with its place for
 * messages.
 *
 * Blank lines are skipped, CRLF and a byte-order mark accepted. Broken JSON, rows that are not objects, NUL
 * characters (also written \u0000) and invalid UTF-8 are errors naming file and line (file and element for an
 * array). */
#ifndef FL_EVAL_JSON_ROWS_H
#define FL_EVAL_JSON_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

#include "harness/base/status.h"

typedef struct fl_json_row {
    const cJSON *object;
    size_t line; /* from 1; of an array: the element's number from 1 */
} fl_json_row;

typedef struct fl_json_rows {
    char *path;
    bool array;
    bool byte_order_mark;
    size_t count;
    fl_json_row *rows;
    cJSON **roots; /* owned: one a row, or one for the array */
    size_t root_count;
} fl_json_rows;

fl_status fl_json_rows_read(const char *path, fl_json_rows **out, fl_error *error);
void fl_json_rows_destroy(fl_json_rows *rows);

/* An error of FL_ERROR_FORMAT at a row: "path:12: message" or "path: element 12: message". */
fl_status fl_json_rows_fault(const fl_json_rows *rows, size_t row, fl_error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Members by name, "a.b" for one inside an object. A missing or mistyped one is an error at the row. */
fl_status fl_json_rows_text(const fl_json_rows *rows, size_t row, const char *name, const char **out,
                            fl_error *error);
fl_status fl_json_rows_array(const fl_json_rows *rows, size_t row, const char *name, const cJSON **out,
                             fl_error *error);
/* NULL when absent. */
const cJSON *fl_json_rows_member(const fl_json_rows *rows, size_t row, const char *name);

#endif
