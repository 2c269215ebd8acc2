/* Text builder: a string that grows. Zero-initialise it; `text` is an fl_memory block (NULL while nothing was
 * added) with a NUL behind it, owned by whoever holds the buffer. After a failed call the buffer holds what
 * it held before. */
#ifndef FL_CONFIG_TEXT_BUILDER_H
#define FL_CONFIG_TEXT_BUILDER_H

#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_text_builder {
    char *text;
    size_t length; /* bytes, without the NUL */
    size_t room;
} fl_text_builder;

fl_status fl_text_builder_add(fl_text_builder *buffer, const char *text, fl_error *error);
fl_status fl_text_builder_add_bytes(fl_text_builder *buffer, const char *bytes, size_t count, fl_error *error);
fl_status fl_text_builder_format(fl_text_builder *buffer, fl_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void fl_text_builder_release(fl_text_builder *buffer);

#endif
