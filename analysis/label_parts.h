/* Label parts: what the labels of runs have in common. "kda, 8 + 56, conv 4" has three parts; a comma inside
 * brackets ("[1, 5]") parts nothing. */
#ifndef FL_ANALYSIS_LABEL_PARTS_H
#define FL_ANALYSIS_LABEL_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

/* The parts of the first label that all `count` labels have, in its order, as one label; "" without any.
 * *out = fl_memory string. */
fl_status fl_label_parts_common(const char *const *labels, size_t count, char **out, fl_error *error);
/* `label` without the parts that are in `taken`; may be "". *out = fl_memory string. */
fl_status fl_label_parts_without(const char *label, const char *taken, char **out, fl_error *error);
/* Bytes of the first part of a label. */
size_t fl_label_part_bytes(const char *label);

#endif
