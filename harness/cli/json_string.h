/* JSON strings, decoded one by one: escapes, surrogate pairs, and embedded NUL, which cJSON cannot hold. */
#ifndef FL_CLI_JSON_STRING_H
#define FL_CLI_JSON_STRING_H

#include <stddef.h>

#include "harness/base/status.h"

/* `line` [bytes]: one JSON string with optional white space around it. *text = fl_memory block of *text_bytes
 * UTF-8 bytes (a lone surrogate becomes U+FFFD), NUL-terminated behind them. Errors name the column, from 1.
 */
fl_status fl_json_string_decode(const char *line, size_t bytes, char **text, size_t *text_bytes,
                                fl_error *error);

#endif
