/* Text file: a whole file of UTF-8 in memory; and the paths of files. */
#ifndef FL_BASE_TEXT_FILE_H
#define FL_BASE_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

/* *text = fl_memory block with a NUL behind it; any bytes. Regular files of at most 4 GiB (input_file.h). */
fl_status fl_text_file_read(const char *path, char **text, size_t *bytes, fl_error *error);

/* Fails, naming file, line and byte of the line, when text holds a NUL byte or is not valid UTF-8 (UTF-16 is named). */
fl_status fl_text_file_check(const char *path, const char *text, size_t bytes, fl_error *error);

/* Offset of the first byte that is not well-formed UTF-8 (or is NUL); `bytes` when all is well. */
size_t fl_utf8_first_fault(const char *text, size_t bytes);

/* Length of a UTF-8 byte-order mark at the start: 3 or 0. */
size_t fl_text_file_byte_order_mark(const char *text, size_t bytes);

bool fl_path_is_folder(const char *path);
bool fl_path_is_file(const char *path);

/* *out = "folder/name", an fl_memory block. */
fl_status fl_path_join(const char *folder, const char *name, char **out, fl_error *error);

#endif
