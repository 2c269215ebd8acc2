/* Arrays that tests compute with: fl_memory blocks. A failing allocation fails the test. */
#ifndef FL_TESTS_SUPPORT_ARRAYS_H
#define FL_TESTS_SUPPORT_ARRAYS_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/random.h"
#include "harness/compute/array.h"

/* `count` zeroed elements. */
void *fl_test_block(size_t count, size_t size);
/* `count` normal numbers of that standard deviation. */
float *fl_test_normals(fl_random *random, size_t count, double scale);

/* Host memory as an array of the cpu backend, and the other way round. */
static inline fl_array fl_test_array(const float *values) {
    return (fl_array){(void *)(uintptr_t)values, FL_FLOAT32};
}
static inline fl_array fl_test_integers(const int32_t *values) {
    return (fl_array){(void *)(uintptr_t)values, FL_INT32};
}
static inline float *fl_test_floats(fl_array array) {
    return (float *)array.at;
}

#endif
