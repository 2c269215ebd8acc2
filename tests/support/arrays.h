/* Arrays that tests compute with: fl_memory blocks. A failing allocation fails the test. */
#ifndef FL_TESTS_SUPPORT_ARRAYS_H
#define FL_TESTS_SUPPORT_ARRAYS_H

#include <stddef.h>

#include "harness/base/random.h"

/* `count` zeroed elements. */
void *fl_test_block(size_t count, size_t size);
/* `count` normal numbers of that standard deviation. */
float *fl_test_normals(fl_random *random, size_t count, double scale);

#endif
