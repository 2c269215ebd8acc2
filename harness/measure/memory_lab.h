/* Memory lab: what a rule's state can hold, without any model.
 *
 * n random unit keys with n random unit values are written one after another; then, if asked, a new value under each of the
 * same keys; then every key is read. Plain accumulation recalls a blend of old and new, the delta rule the new value; beyond
 * n = Dk neither escapes the fixed size of the state. Trials are independent draws; figures are means over trials with the
 * standard error over trials. Keys can share a direction (concentration c: k = unit(c u + sqrt(1 - c^2) x)), as the keys
 * of pretrained models do (method.md section 6).
 *
 * Rules run through the same prepare and recurrence as in a model, with constant gate and beta. */
#ifndef FL_MEASURE_MEMORY_LAB_H
#define FL_MEASURE_MEMORY_LAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_variants/variant.h"
#include "harness/base/status.h"
#include "harness/compute/compute.h"

typedef struct fl_memory_lab_options {
    size_t dimension;      /* of keys and values, >= 1 */
    size_t trials;         /* >= 1 */
    bool overwrite;        /* write a second value under every key */
    double concentration;  /* 0 (isotropic keys) to < 1 */
    uint64_t seed;
} fl_memory_lab_options;

typedef struct fl_memory_lab_row {
    size_t pairs;
    double recall_error, recall_error_stderr; /* mean of |y - v|^2, v the newest value (|v| = 1) */
    double cosine, cosine_old;                /* of y with the newest value, and with the overwritten one (NaN without) */
    double accuracy;                          /* share of reads whose nearest newest value is the right one */
    double state_norm;                        /* Frobenius, mean over trials, after the last write */
    double form_difference;                   /* largest |step - chunk| over all reads */
} fl_memory_lab_row;

/* One trial's draws: the shared direction [D], then for every pair its key, the value that is overwritten and the newest one
 * [pairs][D], each of length 1 in float32. */
void fl_memory_lab_draw(const fl_memory_lab_options *options, size_t pairs, size_t trial, float *shared, float *keys,
                        float *replaced, float *values);

/* rows [count] for pairs [count]. The variant's gate and beta must be constant where the rule takes them; window, sinks, cache
 * and convolution play no part. FL_ERROR_UNSUPPORTED for rules without a matrix state. */
fl_status fl_memory_lab_run(fl_compute *compute, const fl_variant *variant, const fl_memory_lab_options *options,
                            const size_t *pairs, size_t count, fl_memory_lab_row *rows, fl_error *error);

#endif
