#include "harness/base/sha256.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/input_file.h"

/* First 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate_right(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void compress(uint32_t state[8], const unsigned char block[64]) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t v[8];
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate_right(v[4], 6) ^ rotate_right(v[4], 11) ^ rotate_right(v[4], 25);
        uint32_t choose = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t t1 = v[7] + s1 + choose + round_constants[i] + w[i];
        uint32_t s0 = rotate_right(v[0], 2) ^ rotate_right(v[0], 13) ^ rotate_right(v[0], 22);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + s0 + majority;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

void fl_sha256_start(fl_sha256 *sha) {
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->state, initial, sizeof initial);
    sha->bytes = 0;
}

void fl_sha256_add(fl_sha256 *sha, const void *data, size_t bytes) {
    const unsigned char *next = data;
    while (bytes > 0) {
        size_t filled = (size_t)(sha->bytes % 64);
        size_t taken = bytes < 64 - filled ? bytes : 64 - filled;
        memcpy(sha->block + filled, next, taken);
        if (filled + taken == 64) compress(sha->state, sha->block);
        sha->bytes += taken;
        next += taken;
        bytes -= taken;
    }
}

void fl_sha256_finish(fl_sha256 *sha, char text[FL_SHA256_TEXT_BYTES]) {
    uint64_t bits = sha->bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    fl_sha256_add(sha, "\x80", 1);
    while (sha->bytes % 64 != 56) fl_sha256_add(sha, "", 1);
    fl_sha256_add(sha, length, sizeof length);
    for (int i = 0; i < 8; i++) snprintf(text + 8 * i, 9, "%08x", (unsigned)sha->state[i]);
}

void fl_sha256_bytes(const void *data, size_t bytes, char text[FL_SHA256_TEXT_BYTES]) {
    fl_sha256 sha;
    fl_sha256_start(&sha);
    fl_sha256_add(&sha, data, bytes);
    fl_sha256_finish(&sha, text);
}

fl_status fl_sha256_file(const char *path, char text[FL_SHA256_TEXT_BYTES], fl_error *error) {
    int descriptor;
    size_t size, got;
    FL_TRY(fl_input_open(path, &descriptor, &size, error));
    fl_sha256 sha;
    fl_sha256_start(&sha);
    unsigned char buffer[16384];
    fl_status status;
    do {
        status = fl_input_next(descriptor, path, buffer, sizeof buffer, &got, error);
        fl_sha256_add(&sha, buffer, got);
    } while (status == FL_OK && got == sizeof buffer);
    close(descriptor);
    if (status == FL_OK) fl_sha256_finish(&sha, text);
    return status;
}
