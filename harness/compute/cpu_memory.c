#include <assert.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/compute/cpu_backend.h"

/* Numbers an item should copy or set, so that waking a thread pays. */
enum { ITEM_NUMBERS = 1 << 16 };

fl_status fl_cpu_allocate(fl_compute *compute, size_t count, fl_number number, fl_array *out,
                          fl_error *error) {
    (void)compute;
    *out = (fl_array){NULL, number};
    return fl_memory_allocate(&out->at, count, fl_number_bytes(number), error);
}

void fl_cpu_release(fl_compute *compute, fl_array array) {
    (void)compute;
    fl_memory_free(array.at);
}

void fl_cpu_upload(fl_compute *compute, fl_array to, const void *from, size_t count) {
    (void)compute;
    if (count > 0) memcpy(to.at, from, count * fl_number_bytes(to.number));
}

fl_status fl_cpu_download(fl_compute *compute, void *to, fl_array from, size_t count, fl_error *error) {
    (void)compute;
    (void)error;
    if (count > 0) memcpy(to, from.at, count * fl_number_bytes(from.number));
    return FL_OK;
}

fl_status fl_cpu_settle(fl_compute *compute, fl_error *error) {
    (void)compute;
    (void)error;
    return FL_OK;
}

typedef struct {
    unsigned char *to;
    const unsigned char *from;
    size_t to_stride, from_stride, row_bytes; /* bytes */
    const int32_t *index;                     /* [rows], or NULL: row i comes from row i */
    size_t rows, per_item;
} copy_context;

static void copy_item(void *context, size_t item, size_t worker) {
    const copy_context *c = context;
    const size_t first = item * c->per_item;
    const size_t end = c->rows - first < c->per_item ? c->rows : first + c->per_item;
    (void)worker;
    for (size_t row = first; row < end; row++) {
        const size_t source = c->index == NULL ? row : (size_t)c->index[row];
        memcpy(c->to + row * c->to_stride, c->from + source * c->from_stride, c->row_bytes);
    }
}

static void copy(fl_compute *compute, copy_context *c, size_t row_count) {
    if (c->rows == 0 || row_count == 0) return;
    c->per_item = ITEM_NUMBERS / row_count + 1;
    fl_threads_for(compute->threads, (c->rows + c->per_item - 1) / c->per_item, copy_item, c);
}

void fl_cpu_copy_rows(fl_compute *compute, fl_array to, size_t to_stride, fl_array from, size_t from_stride,
                      size_t rows, size_t row_count) {
    const size_t bytes = fl_number_bytes(to.number);
    assert(to.number == from.number);
    copy_context c = {.to = to.at,
                      .from = from.at,
                      .to_stride = to_stride * bytes,
                      .from_stride = from_stride * bytes,
                      .row_bytes = row_count * bytes,
                      .rows = rows};
    copy(compute, &c, row_count);
}

void fl_cpu_gather_rows(fl_compute *compute, fl_array to, size_t to_stride, fl_array from, size_t from_stride,
                        fl_array index, size_t rows, size_t row_count) {
    const size_t bytes = fl_number_bytes(to.number);
    assert(to.number == from.number && index.number == FL_INT32);
    copy_context c = {.to = to.at,
                      .from = from.at,
                      .to_stride = to_stride * bytes,
                      .from_stride = from_stride * bytes,
                      .row_bytes = row_count * bytes,
                      .index = index.at,
                      .rows = rows};
    copy(compute, &c, row_count);
}

typedef struct {
    fl_array array;
    size_t count;
    double value;
} fill_context;

/* The nearest bfloat16, ties to even. */
static uint16_t bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40); /* stays a NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void fill_item(void *context, size_t item, size_t worker) {
    const fill_context *c = context;
    const size_t first = item * ITEM_NUMBERS;
    const size_t n = c->count - first < ITEM_NUMBERS ? c->count - first : ITEM_NUMBERS;
    void *at = fl_array_from(c->array, first).at;
    (void)worker;
    switch (c->array.number) {
    case FL_FLOAT32:
        for (size_t i = 0; i < n; i++) ((float *)at)[i] = (float)c->value;
        break;
    case FL_BFLOAT16:
        for (size_t i = 0; i < n; i++) ((uint16_t *)at)[i] = bfloat16((float)c->value);
        break;
    case FL_FLOAT64:
        for (size_t i = 0; i < n; i++) ((double *)at)[i] = c->value;
        break;
    case FL_INT32:
        for (size_t i = 0; i < n; i++) ((int32_t *)at)[i] = (int32_t)c->value;
        break;
    }
}

void fl_cpu_fill(fl_compute *compute, fl_array array, size_t count, double value) {
    fill_context c = {array, count, value};
    fl_threads_for(compute->threads, (count + ITEM_NUMBERS - 1) / ITEM_NUMBERS, fill_item, &c);
}

fl_status fl_cpu_borrow(fl_compute *compute, const void *from, size_t count, fl_number number,
                        uint64_t version, fl_array *out, fl_error *error) {
    (void)compute;
    (void)count;
    (void)version;
    (void)error;
    *out = (fl_array){(void *)(uintptr_t)from, number};
    return FL_OK;
}

void fl_cpu_forget(fl_compute *compute, const void *from) {
    (void)compute;
    (void)from;
}
