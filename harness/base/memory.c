#include "harness/base/memory.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_size_t fail_countdown;

void fl_memory_fail_at(size_t n) {
    atomic_store(&fail_countdown, n);
}

static int hook_says_fail(void) {
    size_t left = atomic_load(&fail_countdown);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1)) return left == 1;
    }
    return 0;
}

fl_status fl_memory_multiply(size_t a, size_t b, size_t *product, const char *what, fl_error *error) {
    if (b != 0 && a > SIZE_MAX / b) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: size %zu x %zu overflows", what, a, b);
    }
    *product = a * b;
    return FL_OK;
}

fl_status fl_memory_allocate(void **out, size_t count, size_t size, fl_error *error) {
    *out = NULL;
    size_t bytes = 0;
    FL_TRY(fl_memory_multiply(count, size, &bytes, "allocation", error));
    if (bytes > SIZE_MAX - FL_MEMORY_ALIGNMENT) {
        return fl_error_set(error, FL_ERROR_MEMORY, "allocation of %zu bytes is too large", bytes);
    }
    size_t rounded = (bytes + FL_MEMORY_ALIGNMENT - 1) / FL_MEMORY_ALIGNMENT * FL_MEMORY_ALIGNMENT;
    if (rounded == 0) rounded = FL_MEMORY_ALIGNMENT;
    void *block = hook_says_fail() ? NULL : aligned_alloc(FL_MEMORY_ALIGNMENT, rounded);
    if (block == NULL) return fl_error_set(error, FL_ERROR_MEMORY, "out of memory: %zu bytes", bytes);
    memset(block, 0, rounded);
    *out = block;
    return FL_OK;
}

fl_status fl_memory_resize(void **block, size_t old_count, size_t new_count, size_t size, fl_error *error) {
    void *fresh = NULL;
    FL_TRY(fl_memory_allocate(&fresh, new_count, size, error));
    size_t kept = old_count < new_count ? old_count : new_count;
    if (*block != NULL && kept > 0) memcpy(fresh, *block, kept * size);
    fl_memory_free(*block);
    *block = fresh;
    return FL_OK;
}

fl_status fl_memory_copy_string(char **out, const char *text, fl_error *error) {
    size_t bytes = strlen(text) + 1;
    FL_TRY(fl_memory_allocate((void **)out, bytes, 1, error));
    memcpy(*out, text, bytes);
    return FL_OK;
}

void fl_memory_free(void *block) {
    free(block);
}
