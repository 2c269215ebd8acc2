/* Trial: one call of one operation of the compute table on one backend, with inputs drawn from a seed, and the same computed in
 * float64 from the operation's definition. How far the two are apart, and how long the call takes, come from the same trial
 * (operation_list.h lists the operations).
 *
 * An operation's `make` draws inputs, keeps what its `call` needs in trial->context and says what it expects; the call may be
 * repeated for timing, after the comparison. Everything made through the functions below belongs to the trial. */
#ifndef FL_BENCH_OPERATION_TRIAL_H
#define FL_BENCH_OPERATION_TRIAL_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/random.h"
#include "harness/base/status.h"
#include "harness/compute/compute.h"

enum { FL_TRIAL_ARRAYS = 64, FL_TRIAL_BLOCKS = 128, FL_TRIAL_EXPECTED = 16, FL_TRIAL_WEIGHTS = 2 };

/* Numbers on both sides: as the operation reads them, and the same as float64 on the host. */
typedef struct fl_trial_input {
    fl_array array;
    size_t count;
    double *wide;
} fl_trial_input;

/* What an array should hold after the call: all of it, or `samples` of its elements. */
typedef struct fl_trial_expected {
    const char *name; /* static */
    fl_array array;
    size_t count, samples;
    const size_t *at; /* [samples], NULL: element i */
    double *values;   /* [samples] */
    double scale;     /* what differences are measured by: root mean square of values, at least so much */
} fl_trial_expected;

typedef struct fl_trial {
    fl_compute *compute; /* borrowed */
    const size_t *sizes; /* in the order of the operation's size names */
    fl_random random;
    void *context;       /* of the operation */
    double flops, bytes; /* of one call: arithmetic, and what must be read and written at least; 0: not counted */
    size_t array_count, block_count, expected_count, weight_count;
    fl_array arrays[FL_TRIAL_ARRAYS];
    void *blocks[FL_TRIAL_BLOCKS];
    fl_trial_expected expected[FL_TRIAL_EXPECTED];
    fl_weight *weights[FL_TRIAL_WEIGHTS];
} fl_trial;

/* How far the worst array of a trial is from what it should be: its largest difference over the root mean square of what is
 * expected; infinite where one side is finite or a number and the other is not, or is another infinity. */
typedef struct fl_trial_verdict {
    double error;
    const char *name; /* of the array; NULL: there was nothing to compare */
} fl_trial_verdict;

/* Zeroed host memory, `count` elements of `bytes`. */
fl_status fl_trial_block(fl_trial *trial, size_t count, size_t bytes, void *out, fl_error *error);
/* Memory of the instance, full of NaN (or of the smallest int32), so that what an operation leaves out shows. */
fl_status fl_trial_array(fl_trial *trial, size_t count, fl_number number, fl_array *out, fl_error *error);
/* float32, drawn: normal with mean 0, or uniform. The float64 side holds the rounded numbers. */
fl_status fl_trial_normals(fl_trial *trial, size_t count, double scale, fl_trial_input *out, fl_error *error);
fl_status fl_trial_uniforms(fl_trial *trial, size_t count, double low, double high, fl_trial_input *out, fl_error *error);
/* `rows` rows of `width`, each of length 1. */
fl_status fl_trial_units(fl_trial *trial, size_t rows, size_t width, fl_trial_input *out, fl_error *error);
/* The host's numbers, rounded to float32 and uploaded; `wide` is rounded in place. */
fl_status fl_trial_upload(fl_trial *trial, size_t count, double *wide, fl_trial_input *out, fl_error *error);
fl_status fl_trial_integers(fl_trial *trial, size_t count, const int32_t *host, fl_array *out, fl_error *error);
/* A weight of a stored type, drawn; wide [rows][columns] what it means. */
fl_status fl_trial_weight(fl_trial *trial, fl_dtype type, size_t rows, size_t columns, fl_weight **out, double **wide,
                          fl_error *error);

/* Says that `array` should hold (*values) [count], which the caller fills. */
fl_status fl_trial_expect(fl_trial *trial, const char *name, fl_array array, size_t count, double **values,
                          fl_error *error);
/* Says that `array` should hold the gradient of `loss` with respect to x [count]: difference quotients in float64 at a few elements.
 * before [count], or NULL: what the array held, where the operation adds to it. least: the differences' least scale. */
typedef double (*fl_trial_loss)(const void *context);
fl_status fl_trial_expect_gradient(fl_trial *trial, const char *name, fl_array array, size_t count, double *x,
                                   fl_trial_loss loss, const void *context, const double *before, fl_error *error);

/* Waits for the call and compares. */
fl_status fl_trial_compare(fl_trial *trial, fl_trial_verdict *out, fl_error *error);
void fl_trial_release(fl_trial *trial);

#endif
