/* Hash: XXH3-128 (libxxhash) of weights, texts and canonical configs; printed as 32 lower-case hex digits.
 * Not cryptographic: it proves that a file did not change by accident, which is what "frozen" needs. */
#ifndef FL_BASE_HASH_H
#define FL_BASE_HASH_H

#include <stddef.h>

#include "harness/base/status.h"

enum { FL_HASH_TEXT_BYTES = 33 };

typedef struct fl_hash {
    char text[FL_HASH_TEXT_BYTES];
} fl_hash;

typedef struct fl_hash_stream fl_hash_stream;

fl_hash fl_hash_bytes(const void *data, size_t bytes);

/* Several pieces hashed as if they were one. */
fl_status fl_hash_stream_create(fl_hash_stream **out, fl_error *error);
void fl_hash_stream_add(fl_hash_stream *stream, const void *data, size_t bytes);
fl_hash fl_hash_stream_value(const fl_hash_stream *stream);
void fl_hash_stream_destroy(fl_hash_stream *stream);

/* Hash of a whole file's bytes. */
fl_status fl_hash_file(const char *path, fl_hash *out, fl_error *error);

/* The same of a file, or of a folder: the relative names and contents of all regular files below it, in name order. Hidden
 * files are passed over. At most FL_HASH_FOLDER_DEPTH folders deep. */
enum { FL_HASH_FOLDER_DEPTH = 8 };
fl_status fl_hash_path(const char *path, fl_hash *out, fl_error *error);

#endif
