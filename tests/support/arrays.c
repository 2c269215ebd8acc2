#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "tests/support/arrays.h"

void *fl_test_block(size_t count, size_t size) {
    void *memory = NULL;
    assert_int_equal(fl_memory_allocate(&memory, count, size, NULL), FL_OK);
    return memory;
}

float *fl_test_normals(fl_random *random, size_t count, double scale) {
    float *x = fl_test_block(count, sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = (float)(scale * fl_random_normal(random));
    return x;
}
