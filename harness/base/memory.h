/* Memory: the one allocator. 64-byte aligned, zeroed, overflow-checked, with a fail-on-nth hook for tests.
 * What is allocated here is released with fl_memory_free (NULL is fine). Thread-safe. */
#ifndef FL_BASE_MEMORY_H
#define FL_BASE_MEMORY_H

#include <stddef.h>

#include "harness/base/status.h"

enum { FL_MEMORY_ALIGNMENT = 64 };

/* *out = zeroed block of count * size bytes (a block of one byte when that is 0). On failure *out = NULL. */
fl_status fl_memory_allocate(void **out, size_t count, size_t size, fl_error *error);

/* Grows (or shrinks) *block from old_count to new_count elements, keeping what fits; new elements are zero.
 * On failure *block is unchanged. */
fl_status fl_memory_resize(void **block, size_t old_count, size_t new_count, size_t size, fl_error *error);

/* *out = copy of `text`. */
fl_status fl_memory_copy_string(char **out, const char *text, fl_error *error);

void fl_memory_free(void *block);

/* Tests only: the n-th allocation from now (1 = the next) fails once; 0 switches the hook off. */
void fl_memory_fail_at(size_t n);

/* a * b, or FL_ERROR_ARGUMENT naming `what` when it does not fit in size_t. */
fl_status fl_memory_multiply(size_t a, size_t b, size_t *product, const char *what, fl_error *error);

/* Typed: fl_status s = FL_ALLOCATE(&pointer, count, error); */
#define FL_ALLOCATE(pointer, count, error)                                                                             \
    fl_memory_allocate((void **)(pointer), (size_t)(count), sizeof **(pointer), (error))
#define FL_RESIZE(pointer, old_count, new_count, error)                                                                \
    fl_memory_resize((void **)(pointer), (size_t)(old_count), (size_t)(new_count), sizeof **(pointer), (error))

#endif
