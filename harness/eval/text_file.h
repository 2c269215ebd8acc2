/* Text file: a whole file in memory. */
#ifndef FL_EVAL_TEXT_FILE_H
#define FL_EVAL_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

/* *text = fl_memory block with a NUL behind it. Folders, pipes that fail and files over 1 GiB are refused. */
fl_status fl_text_file_read(const char *path, char **text, size_t *bytes, fl_error *error);

/* Fails, naming file and line, when text holds a NUL byte or is not valid UTF-8. */
fl_status fl_text_file_check(const char *path, const char *text, size_t bytes, fl_error *error);

/* Length of a UTF-8 byte-order mark at the start: 3 or 0. */
size_t fl_text_file_byte_order_mark(const char *text, size_t bytes);

bool fl_path_is_folder(const char *path);
bool fl_path_is_file(const char *path);

/* *out = "folder/name", an fl_memory block. */
fl_status fl_path_join(const char *folder, const char *name, char **out, fl_error *error);

#endif
