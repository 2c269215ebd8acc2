/* SHA-256 (FIPS 180-4): what manifests of public data sets state, and what the reference scores identify
 * contexts by. For our own identities use hash.h, which is faster. */
#ifndef FL_BASE_SHA256_H
#define FL_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

enum { FL_SHA256_TEXT_BYTES = 65 };

typedef struct fl_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} fl_sha256;

void fl_sha256_start(fl_sha256 *sha);
void fl_sha256_add(fl_sha256 *sha, const void *data, size_t bytes);
/* 64 lower-case hex digits and a NUL; the stream is finished by it. */
void fl_sha256_finish(fl_sha256 *sha, char text[FL_SHA256_TEXT_BYTES]);

void fl_sha256_bytes(const void *data, size_t bytes, char text[FL_SHA256_TEXT_BYTES]);
fl_status fl_sha256_file(const char *path, char text[FL_SHA256_TEXT_BYTES], fl_error *error);

#endif
