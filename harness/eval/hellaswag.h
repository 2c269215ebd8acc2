/* HellaSwag's own cleaning of texts, as lm-evaluation-harness does it. */
#ifndef FL_EVAL_HELLASWAG_H
#define FL_EVAL_HELLASWAG_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/eval/text_buffer.h"

/* Appends text stripped, with " [title]" as ". ", without any shortest [...] on one line, two spaces made one
 * in a single pass. */
fl_status fl_hellaswag_preprocess(const char *text, size_t bytes, fl_text_buffer *out, fl_error *error);

/* Appends the cleaned `label: first Second`: the second part capitalised as Python's str.capitalize does. */
fl_status fl_hellaswag_query(const char *activity_label, const char *first, const char *second,
                             fl_text_buffer *out, fl_error *error);

#endif
