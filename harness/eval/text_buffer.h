/* Text buffer: a growing, NUL-terminated string; what prompts are put together in. Zero-initialise it. */
#ifndef FL_EVAL_TEXT_BUFFER_H
#define FL_EVAL_TEXT_BUFFER_H

#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_text_buffer {
    char *text; /* fl_memory block, NULL while nothing was ever added */
    size_t bytes, capacity;
} fl_text_buffer;

fl_status fl_text_buffer_add(fl_text_buffer *buffer, const char *text, size_t bytes, fl_error *error);
fl_status fl_text_buffer_add_string(fl_text_buffer *buffer, const char *text, fl_error *error);
/* All of `count` strings, in order. */
fl_status fl_text_buffer_add_strings(fl_text_buffer *buffer, fl_error *error, size_t count,
                                     const char *const *strings);
void fl_text_buffer_clear(fl_text_buffer *buffer); /* empty, memory kept */
void fl_text_buffer_release(fl_text_buffer *buffer);
/* The string as an fl_memory block of its own ("" when empty); the buffer is zero again. */
fl_status fl_text_buffer_take(fl_text_buffer *buffer, char **text, fl_error *error);

/* fl_status s = FL_TEXT_ADD(&buffer, error, "a", name, "b"); */
#define FL_TEXT_ADD(buffer, error, ...)                                                                      \
    fl_text_buffer_add_strings((buffer), (error), sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),    \
                               (const char *const[]){__VA_ARGS__})

#endif
