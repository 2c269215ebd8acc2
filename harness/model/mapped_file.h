/* Mapped file: a whole regular file mapped for reading.
 *
 * A file that another process shortens while it is mapped cannot be guarded against (reading past its new end
 * is a bus error); fl_mapped_file_check says whether that has happened yet. */
#ifndef FL_MODEL_MAPPED_FILE_H
#define FL_MODEL_MAPPED_FILE_H

#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_mapped_file {
    char *path;
    const unsigned char *data;
    size_t size; /* > 0 once open */
    int descriptor;
} fl_mapped_file;

/* FL_ERROR_IO when the system refuses, FL_ERROR_FORMAT for an empty file, FL_ERROR_ARGUMENT for a directory
 * or a device. */
fl_status fl_mapped_file_open(const char *path, fl_mapped_file *out, fl_error *error);

/* Zeroed structures are fine. */
void fl_mapped_file_close(fl_mapped_file *file);

/* FL_ERROR_IO when the file's size is no longer what was mapped. */
fl_status fl_mapped_file_check(const fl_mapped_file *file, fl_error *error);

#endif
