/* Input file: the one way in which a file that somebody else wrote is opened for reading.
 *
 * Only regular files are read: a folder, a device, a socket or a pipe is refused at once (never waited for, never read
 * without end), by name. So is what was never meant to be read by anybody: the text that Git leaves in the place of a large
 * file when git-lfs is not installed. `make lint` finds files opened for reading elsewhere. */
#ifndef FL_BASE_INPUT_FILE_H
#define FL_BASE_INPUT_FILE_H

#include <stddef.h>

#include "harness/base/status.h"

/* *descriptor is the caller's to close; *size as the system states it (0 for files that the kernel makes up). FL_ERROR_IO
 * when the system refuses (errno says why), FL_ERROR_ARGUMENT for what is not a regular file, FL_ERROR_FORMAT for a Git LFS pointer. */
fl_status fl_input_open(const char *path, int *descriptor, size_t *size, fl_error *error);

/* The next bytes of an open file; *got < bytes only at its end. */
fl_status fl_input_next(int descriptor, const char *path, void *buffer, size_t bytes, size_t *got, fl_error *error);

/* The first bytes of a file, for a look at what it is; *got < bytes when it is shorter. */
fl_status fl_input_start(const char *path, void *buffer, size_t bytes, size_t *got, fl_error *error);

/* Whole file as an fl_memory block with a NUL behind it. More than `most` bytes: FL_ERROR_FORMAT. */
fl_status fl_input_read(const char *path, size_t most, char **text, size_t *bytes, fl_error *error);

/* What the first bytes of a file belong to when it is something that is often found where a model, a tokenizer or a
 * configuration should be: "an HTML page", "a gzip archive", ...; NULL: nothing of the kind. */
const char *fl_input_foreign_kind(const void *start, size_t bytes);

#endif
