/* Array: numbers in the memory of a compute instance. Host code carries arrays about, cuts them and hands them to operations
 * (compute.h); it never reads or writes through `at`, which is an address of the instance, not of the host. A structure and
 * not a pointer, so that x[i], memcpy and a host `float *` do not compile.
 *
 * Who allocates (compute.h: allocate) releases. A part of an array (fl_array_from) belongs to the whole. Copying the structure copies
 * the address, not the numbers. */
#ifndef FL_COMPUTE_ARRAY_H
#define FL_COMPUTE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum fl_number { FL_FLOAT32 = 0, FL_BFLOAT16, FL_FLOAT64, FL_INT32 } fl_number;

typedef struct fl_array {
    void *at; /* NULL: no array */
    fl_number number;
} fl_array;

/* The absent array: what an optional argument or result is when it is not given or wanted. */
static const fl_array fl_array_none = {NULL, FL_FLOAT32};

static inline bool fl_array_is(fl_array array) {
    return array.at != NULL;
}

/* Bytes of one element. */
static inline size_t fl_number_bytes(fl_number number) {
    return number == FL_FLOAT64 ? 8 : number == FL_BFLOAT16 ? 2 : 4;
}

/* The array that begins `elements` further on. Of no array: none. The only arithmetic on addresses outside backends. */
static inline fl_array fl_array_from(fl_array array, size_t elements) {
    if (array.at == NULL) return array;
    return (fl_array){(unsigned char *)array.at + elements * fl_number_bytes(array.number), array.number};
}

/* For host code that is not an operation yet: the numbers of an array of the cpu backend, and such an array. */
static inline float *fl_array_host(fl_array array) {
    return (float *)array.at;
}
static inline fl_array fl_array_of(const float *host) {
    return (fl_array){(void *)(uintptr_t)host, FL_FLOAT32};
}

#endif
