/* Scalar: what the text of a YAML scalar means, by the YAML 1.2 core schema made stricter, and how values are
 * written back.
 *
 * Numbers are decimal: [+-] digits [. digits] [e[+-]digits], no leading zeros (010 is a mistake, not eight),
 * no underscores, no hexadecimal. The whole text must be the number. */
#ifndef FL_CONFIG_SCALAR_H
#define FL_CONFIG_SCALAR_H

#include <stdbool.h>

#include "harness/base/status.h"
#include "harness/config/text_builder.h"

enum { FL_NUMBER_TEXT_BYTES = 32 };

/* "null", "Null", "NULL", "~" or empty. */
bool fl_scalar_is_null(const char *text);
bool fl_scalar_is_bool(const char *text, bool *value);
/* NULL and *value when `text` is a finite number; else why not, as the end of a sentence. */
const char *fl_scalar_number(const char *text, double *value);
/* NULL when `text` is an optionally signed decimal integer without leading zeros; else why not. */
const char *fl_scalar_integer(const char *text);

/* The shortest decimal that reads back as the same double. */
void fl_scalar_write_number(double value, char out[FL_NUMBER_TEXT_BYTES]);
/* Appends a string so that YAML reads it back as this string: plain when it is safe, in double quotes
 * otherwise. */
fl_status fl_scalar_write_string(fl_text_builder *buffer, const char *text, fl_error *error);

#endif
