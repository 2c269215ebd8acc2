/* JSON text from outside, made safe to hand to cJSON: bounded size, depth and value count, valid UTF-8, no
 * NUL or control bytes (cJSON would cut strings there), numbers as RFC 8259 writes them, no duplicate key in
 * any object (cJSON would keep both).
 *
 * Beyond the RFC the three literals that Python's json module writes and reads are numbers: NaN, Infinity and
 * -Infinity (so that a configuration that holds one is read; who needs a finite number refuses them by key).
 * A UTF-8 byte-order mark is passed over. */
#ifndef FL_MODEL_JSON_TEXT_H
#define FL_MODEL_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <cjson/cJSON.h>

#include "harness/base/status.h"

enum { FL_JSON_MAX_DEPTH = 64, FL_JSON_MAX_VALUES = 8000000, FL_JSON_MAX_BYTES = 100000000 };

/* *out = the document, released with cJSON_Delete; nothing but white space may follow it. `path` is named in
 * errors, with line and column when offset is 0, else with the byte position in the file (offset + position
 * in text). */
fl_status fl_json_parse(const char *text, size_t bytes, const char *path, size_t offset, cJSON **out,
                        fl_error *error);

/* The same of a piece of a file that begins with line `line` (from 1), with at most `most_values` values:
 * errors are "path:line:column: ...". */
fl_status fl_json_parse_piece(const char *text, size_t bytes, const char *path, size_t line,
                              size_t most_values, cJSON **out, fl_error *error);

/* Reads and parses a whole file of at most FL_JSON_MAX_BYTES. */
fl_status fl_json_read_file(const char *path, cJSON **out, fl_error *error);

/* *out = the number when it is an integer in [0, 2^53). */
bool fl_json_size(const cJSON *item, size_t *out);

/* Member `key` of an object (case-sensitive), or NULL. For small objects: the search is linear. */
const cJSON *fl_json_member(const cJSON *object, const char *key);

#endif
