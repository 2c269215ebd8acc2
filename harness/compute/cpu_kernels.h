/* Vector kernels: the loops that are not matrix products, written once (cpu_kernels.inc) and compiled for the
 * baseline, AVX2 and AVX-512; which table is used is a matter of run time. A kernel works in the calling
 * thread.
 *
 * Lengths are any number; nothing needs alignment. Arrays may be the same array where the text says "in
 * place", and do not overlap otherwise. NaN passes through. */
#ifndef FL_COMPUTE_CPU_KERNELS_H
#define FL_COMPUTE_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

/* One token of the recurrence for one head; absent members are NULL. `decay` is the factor itself, not its
 * logarithm. */
typedef struct fl_step_inputs {
    const float *query;       /* [Dk] or NULL: no output wanted */
    const float *key;         /* [Dk] */
    const float *value;       /* [Dv] */
    const float *decay;       /* [Dk] or NULL: 1 */
    const float *erase_read;  /* [Dk] or NULL: nothing is erased */
    const float *erase_write; /* [Dk] */
    float erase_strength;
    float write;
} fl_step_inputs;

/* What a product may leave out. */
typedef enum fl_product_shape {
    FL_WHOLE = 0,
    FL_LOWER_OUTPUT, /* entries of C above the diagonal are not wanted and hold anything */
    FL_LOWER_LEFT,   /* op(A) is 0 above its diagonal */
    FL_UPPER_LEFT    /* op(A) is 0 below its diagonal */
} fl_product_shape;

/* C [m][n] (+)= alpha op(A) op(B). */
typedef struct fl_small_product {
    fl_product_shape shape;
    bool transpose_a, transpose_b, accumulate;
    size_t m, n, k;
    float alpha;
    const float *a, *b;
    float *c;
    size_t stride_a, stride_b, stride_c;
} fl_small_product;

typedef struct fl_kernels {
    const char *name; /* "baseline", "avx2", "avx512" */
    size_t large_depth; /* up to this k `product` is ahead of sgemm on weights too, whatever the number of tokens */

    /* Elementwise, in place allowed. */
    void (*exp)(size_t n, const float *x, float *y);
    void (*sigmoid)(size_t n, const float *x, float *y);
    void (*silu)(size_t n, const float *x, float *y);
    void (*log_sigmoid)(size_t n, const float *x, float *y);
    void (*softplus)(size_t n, const float *x, float *y);
    /* y = 2^(a - b), the difference taken in float64; 0 below 2^-126. */
    void (*exp2_difference)(size_t n, const double *a, const double *b, float *y);
    /* y = 2^(a - b) for one b. */
    void (*exp2_shifted)(size_t n, const double *a, double b, float *y);
    /* y = exp(x - shift) in float64, within two units in its last place; x - shift <= 709; 0 below -708. */
    void (*exp_wide)(size_t n, const float *x, double shift, double *y);

    /* output = activation(gate) * up; and its gradients. */
    void (*silu_gate)(size_t n, const float *gate, const float *up, float *output);
    void (*silu_gate_backward)(size_t n, const float *gate, const float *up, const float *gradient_output,
                               float *gradient_gate, float *gradient_up);
    void (*gelu_tanh_gate)(size_t n, const float *gate, const float *up, float *output);
    void (*gelu_tanh_gate_backward)(size_t n, const float *gate, const float *up,
                                    const float *gradient_output, float *gradient_gate, float *gradient_up);

    float (*dot)(size_t n, const float *x, const float *y);
    double (*sum_of_squares)(size_t n, const float *x); /* summed in float64 */
    /* sum [n] += sign x y, in float64. */
    void (*accumulate_products)(size_t n, double sign, const float *x, const float *y, double *sum);
    /* (low, high) = (low cosine - high sine, high cosine + low sine); with the sine's sign changed when back.
     */
    void (*rotate)(size_t n, const float *cosine, const float *sine, bool back, float *low, float *high);
    void (*axpy)(size_t n, float alpha, const float *x, float *y);            /* y += alpha x */
    void (*scale)(size_t n, float alpha, const float *x, float *y);           /* y = alpha x, in place */
    void (*multiply)(size_t n, const float *x, const float *y, float *z);     /* z = x y, in place */
    void (*reciprocal)(size_t n, const float *x, float *y);                   /* y = 1 / x, in place */
    void (*multiply_add)(size_t n, const float *x, const float *y, float *z); /* z += x y */
    void (*scale_multiply)(size_t n, float alpha, const float *x, const float *y,
                           float *z); /* z = (alpha x) y */

    /* z = x (y + c), in place. */
    void (*shift_multiply)(size_t n, const float *x, const float *y, float c, float *z);

    float (*maximum)(size_t n, const float *x); /* -inf for n = 0; NaN entries are passed over */
    /* y = exp(x - shift) in place; returns the sum. */
    float (*exp_sum)(size_t n, float shift, const float *x, float *y);

    /* output [tokens][row_stride] at columns 0 .. rows - 1 = input [tokens][columns] . weight
     * [rows][columns]: for few tokens, when packing the weight would cost more than using it. */
    void (*rows_times_tokens)(size_t rows, size_t columns, const float *weight, size_t tokens,
                              const float *input, float *output, size_t output_stride);

    /* output [tokens][columns] += weight [tokens][rows] . values [rows][columns], for few tokens. */
    void (*tokens_times_rows)(size_t tokens, size_t rows, size_t columns, const float *weight, size_t stride,
                              const float *values, float *output);

    /* A product whose operands lie in the caches: no packing of A, B a panel at a time. k > 0. */
    void (*product)(const fl_small_product *product);

    /* Solves (I + A) X = B in place for X [n][columns], n <= 256, A [n][n] strictly lower triangular (what is
     * on and above the diagonal is not read); or (I + A)^T X = B. */
    void (*solve_unit_lower)(size_t n, size_t columns, const float *a, size_t stride_a, float *x,
                             size_t stride_x);
    void (*solve_unit_lower_transposed)(size_t n, size_t columns, const float *a, size_t stride_a, float *x,
                                        size_t stride_x);

    /* sum [n] = before [n] (NULL: 0) + log2(e) max(log_decay, -300); returns the largest start - sum (start
     * NULL: 0). */
    double (*accumulate_decay)(size_t n, const float *log_decay, const double *before, const double *start,
                               double *sum);

    /* One step of the recurrence: state [Dv][Dk] in place, output [Dv] (unless query is NULL). */
    void (*recurrence_step)(size_t value_dim, size_t key_dim, const fl_step_inputs *inputs, float *state,
                            float *output);
} fl_kernels;

extern const fl_kernels fl_kernels_baseline;
extern const fl_kernels fl_kernels_avx2;
extern const fl_kernels fl_kernels_avx512;

/* The step of the AVX2 table, which the AVX-512 table has too. */
void fl_recurrence_step_avx2(size_t value_dim, size_t key_dim, const fl_step_inputs *inputs, float *state,
                             float *output);

/* The tables that this machine runs, widest first; NULL past the last. */
const fl_kernels *fl_kernels_at(size_t index);

/* The table in use: the selected one, else the widest. */
const fl_kernels *fl_kernels_current(void);

/* Uses the table of this name from now on, in every thread (NULL: the widest again); a backend keeps the one
 * it was created with. A name that is none, or of a table that this machine does not run, is
 * FL_ERROR_ARGUMENT. */
fl_status fl_kernels_select(const char *name, fl_error *error);

#endif
