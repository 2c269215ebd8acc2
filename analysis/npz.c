#include "analysis/npz.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "harness/base/memory.h"

enum { HEADER_BYTES = 256, DATE_1980_01_01 = 33, VERSION = 20 };

static uint32_t crc32_add(uint32_t crc, const void *data, size_t bytes) {
    const unsigned char *byte = data;
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= byte[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1u)));
    }
    return ~crc;
}

static void put(FILE *stream, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++) fputc((int)(value >> (8 * i) & 0xFF), stream);
}

/* The .npy header (version 1.0), padded so that the data starts at a multiple of 64. Returns its length. */
static size_t npy_header(const fl_npz_array *array, char out[HEADER_BYTES]) {
    char shape[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < array->rank; i++) {
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%zu,%s", array->shape[i],
                                 i + 1 < array->rank ? " " : "");
    }
    memset(out, ' ', HEADER_BYTES);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    int text = snprintf(out + 10, HEADER_BYTES - 10,
                        "{'descr': '<f8', 'fortran_order': False, 'shape': (%s), }", shape);
    size_t length = ((size_t)(10 + text + 1) + 63) / 64 * 64;
    out[10 + text] = ' ';
    out[length - 1] = '\n';
    out[8] = (char)((length - 10) & 0xFF);
    out[9] = (char)((length - 10) >> 8);
    return length;
}

typedef struct entry {
    uint32_t crc, bytes, offset;
} entry;

static void put_entry(FILE *stream, const entry *e, const char *name, bool central) {
    put(stream, central ? 0x02014b50 : 0x04034b50, 4);
    if (central) put(stream, VERSION, 2);
    put(stream, VERSION, 2);
    put(stream, 0, 2); /* flags */
    put(stream, 0, 2); /* stored */
    put(stream, 0, 2); /* time */
    put(stream, DATE_1980_01_01, 2);
    put(stream, e->crc, 4);
    put(stream, e->bytes, 4);
    put(stream, e->bytes, 4);
    put(stream, (uint32_t)strlen(name) + 4, 2);
    put(stream, 0, 2); /* extra field */
    if (central) {
        put(stream, 0, 2); /* comment */
        put(stream, 0, 2); /* disk */
        put(stream, 0, 2); /* internal attributes */
        put(stream, 0, 4); /* external attributes */
        put(stream, e->offset, 4);
    }
    fputs(name, stream);
    fputs(".npy", stream);
}

static size_t elements(const fl_npz_array *array) {
    size_t count = 1;
    for (size_t i = 0; i < array->rank; i++) count *= array->shape[i];
    return count;
}

fl_status fl_npz_write(FILE *stream, const fl_npz_array *arrays, size_t count, fl_error *error) {
    entry *entries = NULL;
    uint64_t offset = 0;
    if (count > UINT16_MAX) return fl_error_set(error, FL_ERROR_UNSUPPORTED, "NPZ: more than 65535 arrays");
    FL_TRY(FL_ALLOCATE(&entries, count, error));
    for (size_t i = 0; i < count; i++) {
        char header[HEADER_BYTES];
        size_t head = npy_header(&arrays[i], header), data = elements(&arrays[i]) * sizeof(double);
        if (offset + head + data + 512 > UINT32_MAX) {
            fl_memory_free(entries);
            return fl_error_set(error, FL_ERROR_UNSUPPORTED, "NPZ: more than 4 GiB");
        }
        entries[i].offset = (uint32_t)offset;
        entries[i].bytes = (uint32_t)(head + data);
        entries[i].crc = crc32_add(crc32_add(0, header, head), arrays[i].data, data);
        put_entry(stream, &entries[i], arrays[i].name, false);
        fwrite(header, 1, head, stream);
        fwrite(arrays[i].data, 1, data, stream);
        offset += 30 + strlen(arrays[i].name) + 4 + head + data;
    }
    uint32_t start = (uint32_t)offset, size = 0;
    for (size_t i = 0; i < count; i++) {
        put_entry(stream, &entries[i], arrays[i].name, true);
        size += 46 + (uint32_t)strlen(arrays[i].name) + 4;
    }
    put(stream, 0x06054b50, 4);
    put(stream, 0, 4);
    put(stream, (uint32_t)count, 2);
    put(stream, (uint32_t)count, 2);
    put(stream, size, 4);
    put(stream, start, 4);
    put(stream, 0, 2);
    fl_memory_free(entries);
    return FL_OK;
}
