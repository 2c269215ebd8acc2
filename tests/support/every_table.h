/* A group of tests, run once with each table of vector kernels that this machine runs, the group named after
 * it. */
#ifndef FL_TESTS_SUPPORT_EVERY_TABLE_H
#define FL_TESTS_SUPPORT_EVERY_TABLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness/compute/cpu_kernels.h"

/* The number of tests that failed. */
#define FL_RUN_WITH_EVERY_TABLE(tests) fl_run_with_every_table(tests, sizeof(tests) / sizeof *(tests))

static inline int fl_run_with_every_table(const struct CMUnitTest *tests, size_t count) {
    int failed = 0;
    for (size_t i = 0; fl_kernels_at(i) != NULL; i++) {
        const char *name = fl_kernels_at(i)->name;
        if (fl_kernels_select(name, NULL) != FL_OK) return 1;
        failed += _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    }
    return failed;
}

#endif
