/* The cpu backend's private parts: what its files share. Products with weights and small ones go to a kernel of
 * our own (cpu_kernels.h), as does everything elementwise; other matrix products, and without wide vectors those
 * with weights too, to OpenBLAS, one thread a call. Work is cut into items by shape and number of threads, never
 * by who is free. */
#ifndef FL_COMPUTE_CPU_BACKEND_H
#define FL_COMPUTE_CPU_BACKEND_H

#include <assert.h>

#include "harness/compute/compute.h"
#include "harness/compute/cpu_kernels.h"

enum {
    /* Scratch of a worker that operations without a status may count on, in floats. */
    FL_CPU_FIXED_SCRATCH = 1 << 20,
    /* Numbers in the table of rotation cosines and sines. */
    FL_CPU_ROTATION_TABLE = 1 << 19,
    FL_CPU_MAX_ROTARY_PAIRS = 1024
};

/* Cosines and sines of consecutive positions, kept from call to call: query and key of every layer share
 * them. */
typedef struct fl_rotation_table {
    size_t pairs, first_position, positions; /* pairs = rotary_dim / 2 */
    float attention_factor;
    float *inverse_frequencies; /* [FL_CPU_MAX_ROTARY_PAIRS] */
    float *values;              /* [positions][2][pairs]: cosines, then sines */
} fl_rotation_table;

typedef struct fl_cpu {
    fl_compute base;
    const fl_kernels *kernels;
    size_t workers;
    float *scratch;        /* [workers][scratch_stride] */
    size_t scratch_stride; /* >= FL_CPU_FIXED_SCRATCH */
    size_t widen_left;     /* bytes of the widening budget not yet used */
    fl_rotation_table rotation;
} fl_cpu;

struct fl_weight {
    fl_tensor tensor;
    const float *values; /* [rows][columns], or NULL: widened panel by panel in each call */
    float *owned;        /* what `values` points to when it is a widened copy */
};

static inline fl_cpu *fl_cpu_of(fl_compute *compute) {
    return (fl_cpu *)compute;
}

/* What an array of the instance is to its own operations: host memory. NULL: no array. */
static inline float *fl_cpu_floats(fl_array array) {
    assert(array.at == NULL || array.number == FL_FLOAT32);
    return (float *)array.at;
}

static inline int32_t *fl_cpu_integers(fl_array array) {
    assert(array.at == NULL || array.number == FL_INT32);
    return (int32_t *)array.at;
}
static inline double *fl_cpu_doubles(fl_array array) {
    assert(array.at == NULL || array.number == FL_FLOAT64);
    return (double *)array.at;
}

/* The other way round, for parts of the backend that call each other. */
static inline fl_array fl_cpu_array(const float *values) {
    return (fl_array){(void *)(uintptr_t)values, FL_FLOAT32};
}

static inline float *fl_cpu_scratch(const fl_cpu *cpu, size_t worker) {
    return cpu->scratch + worker * cpu->scratch_stride;
}

/* Makes every worker's scratch at least `floats` long. Its content is lost. */
fl_status fl_cpu_reserve_scratch(fl_cpu *cpu, size_t floats, fl_error *error);

/* C [m][n] = alpha op(A) op(B) + beta C in the calling thread. Zero-sized products are allowed. */
void fl_cpu_product(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha,
                    const float *a, size_t stride_a, const float *b, size_t stride_b, float beta, float *c,
                    size_t stride_c);

/* The same for operands that lie in the caches: C (+)= alpha op(A) op(B). */
static inline void fl_cpu_block_product(const fl_kernels *kernels, fl_product_shape shape, bool transpose_a,
                                        bool transpose_b, size_t m, size_t n, size_t k, float alpha,
                                        const float *a, size_t stride_a, const float *b, size_t stride_b,
                                        bool accumulate, float *c, size_t stride_c) {
    kernels->product(&(fl_small_product){.shape = shape,
                                         .transpose_a = transpose_a,
                                         .transpose_b = transpose_b,
                                         .accumulate = accumulate,
                                         .m = m,
                                         .n = n,
                                         .k = k,
                                         .alpha = alpha,
                                         .a = a,
                                         .b = b,
                                         .c = c,
                                         .stride_a = stride_a,
                                         .stride_b = stride_b,
                                         .stride_c = stride_c});
}

fl_status fl_cpu_allocate(fl_compute *, size_t count, fl_number, fl_array *out, fl_error *);
void fl_cpu_release(fl_compute *, fl_array);
void fl_cpu_upload(fl_compute *, fl_array to, const void *from, size_t count);
fl_status fl_cpu_download(fl_compute *, void *to, fl_array from, size_t count, fl_error *);
fl_status fl_cpu_settle(fl_compute *, fl_error *);
void fl_cpu_copy_rows(fl_compute *, fl_array to, size_t to_stride, fl_array from, size_t from_stride,
                      size_t rows, size_t row_count);
void fl_cpu_gather_rows(fl_compute *, fl_array to, size_t to_stride, fl_array from, size_t from_stride,
                        fl_array index, size_t rows, size_t row_count);
void fl_cpu_fill(fl_compute *, fl_array, size_t count, double value);
fl_status fl_cpu_borrow(fl_compute *, const void *from, size_t count, fl_number, uint64_t version, fl_array *out,
                        fl_error *);
void fl_cpu_forget(fl_compute *, const void *from);

fl_status fl_cpu_weight_create(fl_compute *, const fl_tensor *, fl_weight **, fl_error *);
void fl_cpu_weight_destroy(fl_compute *, fl_weight *);
void fl_cpu_linear(fl_compute *, const fl_weight *, fl_array bias, size_t tokens, fl_array input,
                   fl_array output);
void fl_cpu_linear_backward(fl_compute *, const fl_weight *, size_t tokens, fl_array gradient_output,
                            fl_array gradient_input, bool accumulate);
void fl_cpu_embed(fl_compute *, const fl_weight *, size_t tokens, fl_array ids, fl_array output);
void fl_cpu_matmul(fl_compute *, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
                   float alpha, fl_array a, size_t stride_a, fl_array b, size_t stride_b, float beta,
                   fl_array c, size_t stride_c);

void fl_cpu_rms_norm(fl_compute *, size_t rows, size_t columns, fl_array input, fl_array weight,
                     double epsilon, fl_array output);
void fl_cpu_rms_norm_backward(fl_compute *, size_t rows, size_t columns, fl_array input,
                              fl_array weight, double epsilon, fl_array gradient_output,
                              fl_array gradient_input, bool accumulate);
void fl_cpu_rope(fl_compute *, size_t tokens, size_t heads, size_t head_dim, size_t first_position,
                 size_t rotary_dim, fl_array inverse_frequencies, float attention_factor, int direction,
                 fl_array x);
void fl_cpu_gated_activation(fl_compute *, fl_activation, size_t count, fl_array gate, fl_array up,
                             fl_array output);
void fl_cpu_gated_activation_backward(fl_compute *, fl_activation, size_t count, fl_array gate,
                                      fl_array up, fl_array gradient_output, fl_array gradient_gate,
                                      fl_array gradient_up);
void fl_cpu_add(fl_compute *, size_t count, fl_array x, fl_array y);

void fl_cpu_attention(fl_compute *, const fl_attention_call *);
void fl_cpu_attention_backward(fl_compute *, const fl_attention_call *, const fl_attention_gradients *);

void fl_cpu_row_errors(fl_compute *, size_t rows, size_t columns, fl_array reference, fl_array other,
                       fl_array squared, fl_array cosine);
void fl_cpu_row_moments(fl_compute *, size_t rows, size_t columns, fl_array x, fl_array sum,
                        fl_array sum_squares);
void fl_cpu_first_not_finite(fl_compute *, size_t count, fl_array x, fl_array first);
void fl_cpu_subtract_squares(fl_compute *, size_t count, fl_array y, fl_array x, fl_array squares);
void fl_cpu_scale(fl_compute *, size_t count, float factor, fl_array x);
void fl_cpu_key_geometry(fl_compute *, const fl_key_geometry_call *);
fl_status fl_cpu_effective_rank(fl_compute *, size_t heads, size_t value_dim, size_t key_dim,
                                fl_array state, fl_array rank, fl_error *);

void fl_cpu_logit_rows(fl_compute *, const fl_logit_rows_call *);
void fl_cpu_logit_divergence(fl_compute *, const fl_logit_divergence_call *);
void fl_cpu_logit_gradient(fl_compute *, const fl_logit_gradient_call *);

fl_status fl_cpu_recurrence(fl_compute *, const fl_recurrence_call *, fl_error *);
fl_status fl_cpu_recurrence_backward(fl_compute *, const fl_recurrence_backward_call *, fl_error *);

void fl_cpu_gates(fl_compute *, const fl_gates_call *);
void fl_cpu_gates_backward(fl_compute *, const fl_gates_call *, const fl_gates_gradients *);

void fl_cpu_prepare(fl_compute *, const fl_prepare_call *);
void fl_cpu_prepare_backward(fl_compute *, const fl_prepare_call *, const fl_prepare_gradients *);
void fl_cpu_add_bonus(fl_compute *, const fl_bonus_call *);

void fl_cpu_own_init(fl_compute *, const fl_rule_layer *, size_t state_floats, fl_array state);
void fl_cpu_own_steps(fl_compute *, const fl_own_steps_call *);
fl_status fl_cpu_own_steps_backward(fl_compute *, const fl_own_steps_call *, const fl_own_steps_gradients *,
                                    fl_error *);
size_t fl_cpu_own_steps_backward_bytes(fl_compute *, size_t tokens, size_t state_floats);

void fl_cpu_add_heads(fl_compute *, size_t tokens, size_t heads, size_t sources, size_t head_dim,
                      fl_array x, fl_array to);

void fl_cpu_row_lengths(fl_compute *, size_t heads, size_t rows, size_t dim, fl_array x,
                        size_t head_stride, fl_array lengths);
void fl_cpu_token_attention(fl_compute *, const fl_token_attention_call *);
void fl_cpu_recall_errors(fl_compute *, const fl_recall_call *);
void fl_cpu_exchange_rows(fl_compute *, const fl_exchange_call *);

void fl_cpu_short_conv(fl_compute *, const fl_short_conv_call *);
void fl_cpu_short_conv_remember(fl_compute *, const fl_short_conv_call *, fl_array history);
void fl_cpu_short_conv_backward(fl_compute *, const fl_short_conv_call *, const fl_short_conv_gradients *);

void fl_cpu_merge(fl_compute *, const fl_merge_call *);
void fl_cpu_merge_backward(fl_compute *, const fl_merge_call *, const fl_merge_gradients *);

#endif
