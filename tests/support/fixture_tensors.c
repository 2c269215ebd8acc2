#include "tests/support/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"

bool fl_fixture_has(const fl_checkpoint *checkpoint, const char *name) {
    return fl_checkpoint_lookup(checkpoint, name) != NULL;
}

double *fl_fixture_doubles(const fl_checkpoint *checkpoint, const char *name, size_t *count,
                           size_t shape[4]) {
    const fl_checkpoint_entry *entry = fl_checkpoint_lookup(checkpoint, name);
    if (entry == NULL) fail_msg("fixture has no tensor %s", name);
    size_t n = 1;
    for (size_t i = 0; i < entry->tensor.rank; i++) n *= entry->tensor.shape[i];
    double *out = NULL;
    assert_int_equal(FL_ALLOCATE(&out, n, NULL), FL_OK);
    const char *type = entry->type_name;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(type, "F64") == 0) {
            memcpy(&out[i], entry->bytes + 8 * i, 8);
        } else if (strcmp(type, "F32") == 0) {
            float x;
            memcpy(&x, entry->bytes + 4 * i, 4);
            out[i] = (double)x;
        } else if (strcmp(type, "I32") == 0) {
            int32_t x;
            memcpy(&x, entry->bytes + 4 * i, 4);
            out[i] = x;
        } else if (strcmp(type, "I64") == 0) {
            int64_t x;
            memcpy(&x, entry->bytes + 8 * i, 8);
            out[i] = (double)x;
        } else if (strcmp(type, "U8") == 0 || strcmp(type, "BOOL") == 0) {
            out[i] = entry->bytes[i];
        } else {
            fail_msg("fixture tensor %s has type %s, which tests do not read", name, type);
        }
    }
    if (count != NULL) *count = n;
    if (shape != NULL) memcpy(shape, entry->tensor.shape, 4 * sizeof shape[0]);
    return out;
}

float *fl_fixture_floats(const fl_checkpoint *checkpoint, const char *name, size_t *count, size_t shape[4]) {
    size_t n = 0;
    double *wide = fl_fixture_doubles(checkpoint, name, &n, shape);
    float *out = NULL;
    assert_int_equal(FL_ALLOCATE(&out, n, NULL), FL_OK);
    for (size_t i = 0; i < n; i++) out[i] = (float)wide[i];
    fl_memory_free(wide);
    if (count != NULL) *count = n;
    return out;
}

int32_t *fl_fixture_integers(const fl_checkpoint *checkpoint, const char *name, size_t *count) {
    size_t n = 0;
    double *wide = fl_fixture_doubles(checkpoint, name, &n, NULL);
    int32_t *out = NULL;
    assert_int_equal(FL_ALLOCATE(&out, n, NULL), FL_OK);
    for (size_t i = 0; i < n; i++) out[i] = (int32_t)wide[i];
    fl_memory_free(wide);
    if (count != NULL) *count = n;
    return out;
}
