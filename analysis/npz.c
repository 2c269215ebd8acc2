#include "analysis/npz.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "analysis/output_file.h"
#include "harness/base/memory.h"

/* Layouts: PKWARE's APPNOTE 4.3.7, 4.3.12, 4.3.16; numpy.lib.format version 1.0. */
enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    NPY_ALIGNMENT = 64,
    NPY_HEAD_BYTES = 10,
    NPY_HEADER_LIMIT = 512,
    MOST_MEMBERS = 65535,
    DOS_DATE = 33 /* 1 January 1980, ZIP's first day */
};
static const uint64_t most_bytes = 0xFFFFFFFFu;

typedef struct member {
    char *name; /* with ".npy" */
    uint32_t checksum, bytes, offset;
} member;

struct fl_npz {
    fl_output_file file;
    uint64_t written;
    size_t count;
    member *members;
    uint32_t table[256]; /* of CRC-32 */
};

fl_status fl_npz_open(const char *path, fl_npz **out, fl_error *error) {
    fl_npz *npz = NULL;
    FL_TRY(FL_ALLOCATE(&npz, 1, error));
    fl_status status = fl_output_file_open(path, &npz->file, error);
    if (status != FL_OK) {
        fl_memory_free(npz);
        return status;
    }
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0);
        npz->table[i] = value;
    }
    *out = npz;
    return FL_OK;
}

static uint32_t add_checksum(const fl_npz *npz, uint32_t checksum, const void *data, size_t bytes) {
    const unsigned char *at = data;
    checksum = ~checksum;
    for (size_t i = 0; i < bytes; i++) checksum = (checksum >> 8) ^ npz->table[(checksum ^ at[i]) & 0xFF];
    return ~checksum;
}

static void put16(unsigned char *out, unsigned value) {
    out[0] = (unsigned char)(value & 0xFF);
    out[1] = (unsigned char)((value >> 8) & 0xFF);
}

static void put32(unsigned char *out, uint32_t value) {
    put16(out, value & 0xFFFF);
    put16(out + 2, value >> 16);
}

/* From "general purpose flags" to "file name length" both headers agree. Flag 11: names are UTF-8. */
static void put_common(unsigned char *out, const member *m) {
    put16(out, 1 << 11);
    put16(out + 2, 0);
    put16(out + 4, 0);
    put16(out + 6, DOS_DATE);
    put32(out + 8, m->checksum);
    put32(out + 12, m->bytes);
    put32(out + 16, m->bytes);
    put16(out + 20, (unsigned)strlen(m->name));
}

static void write_bytes(fl_npz *npz, const void *data, size_t bytes) {
    fwrite(data, 1, bytes, npz->file.stream);
    npz->written += bytes;
}

/* The .npy header with its padding; returns its length. */
static size_t make_header(char out[NPY_HEADER_LIMIT], const char *type, size_t rank, const size_t *shape) {
    char text[NPY_HEADER_LIMIT - NPY_HEAD_BYTES];
    size_t used =
        (size_t)snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (", type);
    for (size_t i = 0; i < rank; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 rank == 1 ? "%zu,"
                                 : i > 0   ? ", %zu"
                                           : "%zu",
                                 shape[i]);
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "), }");
    size_t total = NPY_HEAD_BYTES + used + 1;
    size_t padded = (total + NPY_ALIGNMENT - 1) / NPY_ALIGNMENT * NPY_ALIGNMENT;
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    put16((unsigned char *)out + 8, (unsigned)(padded - NPY_HEAD_BYTES));
    memcpy(out + NPY_HEAD_BYTES, text, used);
    memset(out + NPY_HEAD_BYTES + used, ' ', padded - NPY_HEAD_BYTES - used);
    out[padded - 1] = '\n';
    return padded;
}

static fl_status refuse(const fl_npz *npz, const char *name, const char *what, fl_error *error) {
    return fl_error_set(error, FL_ERROR_UNSUPPORTED, "%s: %.200s: %s", npz->file.path, name, what);
}

static fl_status add_member(fl_npz *npz, const char *name, const char *type, size_t rank, const size_t *shape,
                            const void *data, size_t bytes, fl_error *error) {
    char header[NPY_HEADER_LIMIT];
    size_t name_bytes = strlen(name) + sizeof ".npy";
    if (rank > 4) return refuse(npz, name, "more than 4 axes", error);
    size_t header_bytes = make_header(header, type, rank, shape);
    if (name_bytes > 60000) return refuse(npz, name, "the name is too long", error);
    if (npz->count == MOST_MEMBERS || bytes > most_bytes || npz->written + bytes + (1 << 20) > most_bytes)
        return refuse(npz, name, "the archive would be larger than 4 GiB", error);
    FL_TRY(FL_RESIZE(&npz->members, npz->count, npz->count + 1, error));
    member *m = &npz->members[npz->count];
    FL_TRY(FL_ALLOCATE(&m->name, name_bytes, error));
    npz->count++;
    snprintf(m->name, name_bytes, "%s.npy", name);
    m->offset = (uint32_t)npz->written;
    m->bytes = (uint32_t)(header_bytes + bytes);
    m->checksum = add_checksum(npz, add_checksum(npz, 0, header, header_bytes), data, bytes);
    unsigned char local[LOCAL_BYTES] = {'P', 'K', 3, 4, 20, 0};
    put_common(local + 6, m);
    write_bytes(npz, local, sizeof local);
    write_bytes(npz, m->name, strlen(m->name));
    write_bytes(npz, header, header_bytes);
    write_bytes(npz, data, bytes);
    return FL_OK;
}

fl_status fl_npz_add_doubles(fl_npz *npz, const char *name, size_t rank, const size_t *shape,
                             const double *data, fl_error *error) {
    size_t elements = 1;
    for (size_t i = 0; i < rank; i++) elements *= shape[i];
    return add_member(npz, name, "<f8", rank, shape, data, elements * sizeof data[0], error);
}

static size_t count_characters(const char *text) {
    size_t count = 0;
    for (; *text != '\0'; text++) count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

static void put_characters(const char *text, utf8proc_int32_t *out, size_t room) {
    const utf8proc_uint8_t *at = (const utf8proc_uint8_t *)text;
    for (size_t i = 0; i < room && *at != '\0'; i++) {
        utf8proc_int32_t code = -1;
        utf8proc_ssize_t bytes = utf8proc_iterate(at, -1, &code);
        out[i] = bytes > 0 ? code : 0xFFFD;
        at += bytes > 0 ? bytes : 1;
    }
}

fl_status fl_npz_add_texts(fl_npz *npz, const char *name, size_t count, const char *const *texts,
                           fl_error *error) {
    size_t width = 1, cells = 0;
    char type[32];
    utf8proc_int32_t *data = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t characters = texts[i] != NULL ? count_characters(texts[i]) : 0;
        if (characters > width) width = characters;
    }
    FL_TRY(fl_memory_multiply(count, width, &cells, name, error));
    FL_TRY(FL_ALLOCATE(&data, cells, error));
    for (size_t i = 0; i < count; i++) {
        if (texts[i] != NULL) put_characters(texts[i], data + i * width, width);
    }
    snprintf(type, sizeof type, "<U%zu", width);
    fl_status status = add_member(npz, name, type, 1, &count, data, cells * sizeof data[0], error);
    fl_memory_free(data);
    return status;
}

static void write_directory(fl_npz *npz) {
    uint32_t start = (uint32_t)npz->written;
    for (size_t i = 0; i < npz->count; i++) {
        unsigned char central[CENTRAL_BYTES] = {'P', 'K', 1, 2, 20, 0, 20, 0};
        put_common(central + 8, &npz->members[i]);
        put32(central + 42, npz->members[i].offset);
        write_bytes(npz, central, sizeof central);
        write_bytes(npz, npz->members[i].name, strlen(npz->members[i].name));
    }
    unsigned char end[END_BYTES] = {'P', 'K', 5, 6};
    put16(end + 8, (unsigned)npz->count);
    put16(end + 10, (unsigned)npz->count);
    put32(end + 12, (uint32_t)npz->written - start);
    put32(end + 16, start);
    write_bytes(npz, end, sizeof end);
}

static void release(fl_npz *npz) {
    for (size_t i = 0; i < npz->count; i++) fl_memory_free(npz->members[i].name);
    fl_memory_free(npz->members);
    fl_memory_free(npz);
}

fl_status fl_npz_close(fl_npz *npz, fl_error *error) {
    write_directory(npz);
    fl_status status = fl_output_file_close(&npz->file, error);
    release(npz);
    return status;
}

void fl_npz_discard(fl_npz *npz) {
    if (npz == NULL) return;
    fl_output_file_discard(&npz->file);
    release(npz);
}
