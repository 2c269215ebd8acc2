/* Python's json.dumps(value, ensure_ascii=False), whose bytes lm-evaluation-harness hashes. */
#ifndef FL_EVAL_PYTHON_JSON_H
#define FL_EVAL_PYTHON_JSON_H

#include <cjson/cJSON.h>

#include "harness/base/status.h"
#include "harness/eval/text_buffer.h"

/* Appends the value; indent 0: on one line with ", " and ": ", else json.dumps's indent. Whole numbers are
 * written without a point: 1.0 and 1 are the same to cJSON. */
fl_status fl_python_json(const cJSON *value, size_t indent, fl_text_buffer *out, fl_error *error);

/* Appends a string with its quotes. */
fl_status fl_python_json_string(const char *text, fl_text_buffer *out, fl_error *error);

#endif
