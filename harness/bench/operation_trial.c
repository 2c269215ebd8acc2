#include "harness/bench/operation_trial.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "harness/base/memory.h"

enum { GRADIENT_SAMPLES = 4 };

fl_status fl_trial_block(fl_trial *trial, size_t count, size_t bytes, void *out, fl_error *error) {
    void *block = NULL;
    assert(trial->block_count < FL_TRIAL_BLOCKS);
    FL_TRY(fl_memory_allocate(&block, count > 0 ? count : 1, bytes, error));
    trial->blocks[trial->block_count++] = block;
    memcpy(out, &block, sizeof block);
    return FL_OK;
}

fl_status fl_trial_array(fl_trial *trial, size_t count, fl_number number, fl_array *out, fl_error *error) {
    const fl_compute_ops *ops = trial->compute->ops;
    assert(trial->array_count < FL_TRIAL_ARRAYS);
    FL_TRY(ops->allocate(trial->compute, count > 0 ? count : 1, number, out, error));
    trial->arrays[trial->array_count++] = *out;
    ops->fill(trial->compute, *out, count, number == FL_INT32 ? (double)INT32_MIN : (double)NAN);
    return FL_OK;
}

fl_status fl_trial_upload(fl_trial *trial, size_t count, double *wide, fl_trial_input *out, fl_error *error) {
    float *narrow = NULL;
    FL_TRY(fl_trial_block(trial, count, sizeof *narrow, &narrow, error));
    for (size_t i = 0; i < count; i++) {
        narrow[i] = (float)wide[i];
        wide[i] = (double)narrow[i];
    }
    *out = (fl_trial_input){.count = count, .wide = wide};
    FL_TRY(fl_trial_array(trial, count, FL_FLOAT32, &out->array, error));
    trial->compute->ops->upload(trial->compute, out->array, narrow, count);
    return FL_OK;
}

fl_status fl_trial_normals(fl_trial *trial, size_t count, double scale, fl_trial_input *out,
                           fl_error *error) {
    double *wide = NULL;
    FL_TRY(fl_trial_block(trial, count, sizeof *wide, &wide, error));
    for (size_t i = 0; i < count; i++) wide[i] = scale * fl_random_normal(&trial->random);
    return fl_trial_upload(trial, count, wide, out, error);
}

fl_status fl_trial_uniforms(fl_trial *trial, size_t count, double low, double high, fl_trial_input *out,
                            fl_error *error) {
    double *wide = NULL;
    FL_TRY(fl_trial_block(trial, count, sizeof *wide, &wide, error));
    for (size_t i = 0; i < count; i++) wide[i] = low + (high - low) * fl_random_uniform(&trial->random);
    return fl_trial_upload(trial, count, wide, out, error);
}

fl_status fl_trial_units(fl_trial *trial, size_t rows, size_t width, fl_trial_input *out, fl_error *error) {
    double *wide = NULL;
    FL_TRY(fl_trial_block(trial, rows * width, sizeof *wide, &wide, error));
    for (size_t row = 0; row < rows; row++) {
        double square = 0.0, *x = wide + row * width;
        for (size_t i = 0; i < width; i++) {
            x[i] = fl_random_normal(&trial->random);
            square += x[i] * x[i];
        }
        for (size_t i = 0; i < width; i++) x[i] /= sqrt(square);
    }
    return fl_trial_upload(trial, rows * width, wide, out, error);
}

fl_status fl_trial_integers(fl_trial *trial, size_t count, const int32_t *host, fl_array *out,
                            fl_error *error) {
    FL_TRY(fl_trial_array(trial, count, FL_INT32, out, error));
    trial->compute->ops->upload(trial->compute, *out, host, count);
    return FL_OK;
}

/* Random stored bytes whose block scales (half-precision, at the block's start) are small numbers. */
static void draw_stored(fl_trial *trial, fl_dtype type, unsigned char *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)fl_random_below(&trial->random, 256);
    if (type == FL_DTYPE_BF16) { /* exponents near 2^-4 */
        for (size_t i = 1; i < bytes; i += 2) data[i] = (unsigned char)((data[i] & 0x80) | 0x3d);
    }
    if (type == FL_DTYPE_Q8_0) {
        for (size_t i = 1; i < bytes; i += fl_dtype_block_bytes(type))
            data[i] = (unsigned char)((data[i] & 0x83) | 0x20);
    }
    if (type != FL_DTYPE_F32) return;
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        const float value = (float)fl_random_normal(&trial->random);
        memcpy(data + i * sizeof value, &value, sizeof value);
    }
}

fl_status fl_trial_weight(fl_trial *trial, fl_dtype type, size_t rows, size_t columns, fl_weight **out,
                          double **wide, fl_error *error) {
    const size_t bytes = rows * fl_dtype_row_bytes(type, columns);
    unsigned char *data = NULL;
    float *values = NULL;
    assert(trial->weight_count < FL_TRIAL_WEIGHTS);
    FL_TRY(fl_trial_block(trial, bytes, 1, &data, error));
    FL_TRY(fl_trial_block(trial, rows * columns, sizeof *values, &values, error));
    FL_TRY(fl_trial_block(trial, rows * columns, sizeof **wide, wide, error));
    draw_stored(trial, type, data, bytes);
    const fl_tensor tensor = {.data = data,
                              .type = type,
                              .rank = 2,
                              .shape = {rows, columns},
                              .rows = rows,
                              .columns = columns,
                              .name = "trial"};
    fl_tensor_widen_rows(&tensor, 0, rows, values);
    for (size_t i = 0; i < rows * columns; i++) (*wide)[i] = (double)values[i];
    FL_TRY(trial->compute->ops->weight_create(trial->compute, &tensor, out, error));
    trial->weights[trial->weight_count++] = *out;
    return FL_OK;
}

fl_status fl_trial_expect(fl_trial *trial, const char *name, fl_array array, size_t count, double **values,
                          fl_error *error) {
    assert(trial->expected_count < FL_TRIAL_EXPECTED);
    FL_TRY(fl_trial_block(trial, count, sizeof **values, values, error));
    trial->expected[trial->expected_count++] = (fl_trial_expected){
        .name = name, .array = array, .count = count, .samples = count, .values = *values};
    return FL_OK;
}

static double quotient(double *x, fl_trial_loss loss, const void *context) {
    const double middle = *x, step = 1e-5;
    *x = middle + step;
    const double above = loss(context);
    *x = middle - step;
    const double below = loss(context);
    *x = middle;
    return (above - below) / (2.0 * step);
}

fl_status fl_trial_expect_gradient(fl_trial *trial, const char *name, fl_array array, size_t count, double *x,
                                   fl_trial_loss loss, const void *context, const double *before,
                                   fl_error *error) {
    const size_t samples = count < GRADIENT_SAMPLES ? count : GRADIENT_SAMPLES;
    size_t *at = NULL;
    double *values = NULL;
    assert(trial->expected_count < FL_TRIAL_EXPECTED);
    FL_TRY(fl_trial_block(trial, samples, sizeof *at, &at, error));
    FL_TRY(fl_trial_block(trial, samples, sizeof *values, &values, error));
    for (size_t i = 0; i < samples; i++) {
        at[i] = samples == count ? i : (size_t)fl_random_below(&trial->random, count);
        values[i] = quotient(&x[at[i]], loss, context) + (before != NULL ? before[at[i]] : 0.0);
    }
    trial->expected[trial->expected_count++] = (fl_trial_expected){
        .name = name, .array = array, .count = count, .samples = samples, .at = at, .values = values};
    return FL_OK;
}

/* The array's elements as float64. */
static fl_status bring(fl_trial *trial, const fl_trial_expected *expected, double *out, fl_error *error) {
    void *raw = NULL;
    const fl_number number = expected->array.number;
    FL_TRY(fl_memory_allocate(&raw, expected->count, fl_number_bytes(number), error));
    const fl_status status =
        trial->compute->ops->download(trial->compute, raw, expected->array, expected->count, error);
    for (size_t i = 0; status == FL_OK && i < expected->count; i++) {
        if (number == FL_FLOAT64) out[i] = ((const double *)raw)[i];
        if (number == FL_FLOAT32) out[i] = (double)((const float *)raw)[i];
        if (number == FL_INT32) out[i] = (double)((const int32_t *)raw)[i];
    }
    fl_memory_free(raw);
    return status;
}

static double difference(double x, double expected) {
    if (x == expected || (isnan(x) && isnan(expected))) return 0.0;
    return isfinite(x) && isfinite(expected) ? fabs(x - expected) : INFINITY;
}

static double error_of(const fl_trial_expected *expected, const double *x) {
    double square = 0.0, largest = 0.0;
    size_t finite = 0;
    for (size_t i = 0; i < expected->samples; i++) {
        const double value = expected->values[i];
        const double d = difference(x[expected->at != NULL ? expected->at[i] : i], value);
        if (d > largest) largest = d;
        if (!isfinite(value)) continue;
        square += value * value;
        finite++;
    }
    if (largest == 0.0) return 0.0;
    const double scale = sqrt(square / (double)(finite > 0 ? finite : 1));
    return largest / fmax(scale, expected->scale > 0.0 ? expected->scale : 1e-30);
}

fl_status fl_trial_compare(fl_trial *trial, fl_trial_verdict *out, fl_error *error) {
    *out = (fl_trial_verdict){0};
    FL_TRY(trial->compute->ops->settle(trial->compute, error));
    for (size_t i = 0; i < trial->expected_count; i++) {
        const fl_trial_expected *expected = &trial->expected[i];
        double *x = NULL;
        FL_TRY(FL_ALLOCATE(&x, expected->count > 0 ? expected->count : 1, error));
        const fl_status status = expected->count > 0 ? bring(trial, expected, x, error) : FL_OK;
        const double found = status == FL_OK ? error_of(expected, x) : 0.0;
        fl_memory_free(x);
        FL_TRY(status);
        if (out->name != NULL && !(found > out->error)) continue;
        *out = (fl_trial_verdict){found, expected->name};
    }
    return FL_OK;
}

void fl_trial_release(fl_trial *trial) {
    const fl_compute_ops *ops = trial->compute->ops;
    while (trial->weight_count > 0)
        ops->weight_destroy(trial->compute, trial->weights[--trial->weight_count]);
    while (trial->array_count > 0) ops->release(trial->compute, trial->arrays[--trial->array_count]);
    while (trial->block_count > 0) fl_memory_free(trial->blocks[--trial->block_count]);
    trial->expected_count = 0;
}
