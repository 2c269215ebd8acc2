/* Python's string methods, where the definition of a task rests on them. Texts are valid UTF-8 of stated
 * length. */
#ifndef FL_EVAL_PYTHON_TEXT_H
#define FL_EVAL_PYTHON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"
#include "harness/eval/text_buffer.h"

/* len(text): code points. */
size_t fl_python_length(const char *text, size_t bytes);

/* str.isspace() of one code point: Unicode's White_Space and U+001C..U+001F. */
bool fl_python_is_space(int code_point);

/* text.strip(): [*start, *start + *length). */
void fl_python_strip(const char *text, size_t bytes, size_t *start, size_t *length);

/* len(re.split(r"\s+", text)): leading or trailing whitespace makes an empty piece, which counts. */
size_t fl_python_split_count(const char *text, size_t bytes);

/* text.capitalize(): first character in title case, all the rest in lower case (simple case mappings). */
fl_status fl_python_capitalize(const char *text, size_t bytes, fl_text_buffer *out, fl_error *error);

/* text.replace(from, to), a single pass from the left, appended to out. from is not empty. */
fl_status fl_python_replace(const char *text, size_t bytes, const char *from, const char *to,
                            fl_text_buffer *out, fl_error *error);

#endif
