/* GGUF files written in several parts, NAME-00001-of-00003.gguf: the first carries the metadata, each its own
 * tensors. Internal to harness/model. */
#ifndef FL_MODEL_GGUF_SPLIT_H
#define FL_MODEL_GGUF_SPLIT_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/model/gguf.h"

enum { FL_GGUF_MAX_PARTS = 99999 };

/* *count = parts the file says it belongs to (1 when it says nothing). FL_ERROR_FORMAT when `gguf` is not
 * part `part` (from 0) of `expected` parts; expected 0 = any number. */
fl_status fl_gguf_split_check(const fl_gguf *gguf, size_t part, size_t expected, size_t *count,
                              fl_error *error);

/* *out = path of part `part` (from 0), given the path of the first. */
fl_status fl_gguf_split_path(const char *first, size_t part, size_t count, char **out, fl_error *error);

#endif
