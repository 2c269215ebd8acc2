/* Scratch file: memory that lies in a file without a name, for numbers that are worth keeping but not worth RAM. The file is
 * gone when the process is, however it ends. Its blocks are written back and dropped by the kernel as memory gets short, so
 * they cost disk, not resident memory. Space is claimed when a block is made: a full disk is an error there and then. */
#ifndef FL_BASE_SCRATCH_FILE_H
#define FL_BASE_SCRATCH_FILE_H

#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_scratch_file fl_scratch_file;

/* folder NULL: $TMPDIR, else /tmp. FL_ERROR_IO, naming the folder, when no file can be made there. */
fl_status fl_scratch_file_create(const char *folder, fl_scratch_file **out, fl_error *error);
/* *block = zeroed bytes, page-aligned, valid until the file is destroyed. FL_ERROR_IO, naming folder and size, when the space
 * is not there; blocks made before stay as they are. */
fl_status fl_scratch_file_add(fl_scratch_file *file, size_t bytes, void **block, fl_error *error);
size_t fl_scratch_file_bytes(const fl_scratch_file *file);
void fl_scratch_file_destroy(fl_scratch_file *file);

#endif
