/* JSON rows: the objects of a JSON Lines file, or of a file that is one JSON array, each with its place for
 * messages. The one reader of such files, for tasks and for text.
 *
 * Blank lines (white space of any kind that JSON knows) are skipped, CRLF and a byte-order mark accepted.
 * Broken JSON, two values on a line, a key twice in an object, NUL characters (also written \u0000) and
 * invalid UTF-8 are errors naming file, line and column or byte; rows that are not objects are errors naming
 * file and line (file and element for an array). */
#ifndef FL_MODEL_JSON_ROWS_H
#define FL_MODEL_JSON_ROWS_H

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

/* The values of JSON Lines one after another, as far as they are wanted. */
typedef struct fl_json_lines {
    const char *path, *text;
    size_t bytes;
    size_t at;   /* what was read so far; after fl_json_lines_start: the byte-order mark */
    size_t line; /* of the value read last, from 1 */
} fl_json_lines;

/* Checks that text is UTF-8; keeps path and text by address. */
fl_status fl_json_lines_start(fl_json_lines *lines, const char *path, const char *text, size_t bytes,
                              fl_error *error);
/* *out = the next value, to be released with cJSON_Delete; NULL behind the last. */
fl_status fl_json_lines_next(fl_json_lines *lines, cJSON **out, fl_error *error);

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
