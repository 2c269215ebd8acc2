/* The operations' launchers: device pointers in compute.h's layouts, in the order of the instance's stream. Each says in its file
 * how it computes; what it computes is said in compute.h. False: the shape is beyond what the kernels hold. */
#ifndef FL_COMPUTE_CUDA_OPERATIONS_H
#define FL_COMPUTE_CUDA_OPERATIONS_H

#include "harness/compute/cuda/device.h"

/* device.cu: the memory slots of compute.h, and an instance's life. check: the error that sticks, FL_OK without one. */
fl_status fl_cuda_check(fl_cuda *, fl_error *);
fl_status fl_cuda_allocate(fl_compute *, size_t count, fl_number, fl_array *out, fl_error *);
void fl_cuda_release(fl_compute *, fl_array);
void fl_cuda_upload(fl_compute *, fl_array to, const void *from, size_t count);
fl_status fl_cuda_download(fl_compute *, void *to, fl_array from, size_t count, fl_error *);
fl_status fl_cuda_settle(fl_compute *, fl_error *);
fl_status fl_cuda_borrow(fl_compute *, const void *from, size_t count, fl_number, uint64_t version, fl_array *out, fl_error *);
void fl_cuda_forget(fl_compute *, const void *from);
fl_status fl_cuda_create(const fl_compute_ops *, const fl_backend_options *, const fl_backend_services *, fl_compute **out,
                         fl_error *);
void fl_cuda_destroy(fl_compute *);

/* step.cu, step_backward.cu */
bool fl_cuda_step(fl_cuda *, const fl_recurrence_call *);
bool fl_cuda_step_backward(fl_cuda *, const fl_recurrence_backward_call *);

/* elementwise.cu. Strides in elements; element 1 to 8 bytes. */
void fl_cuda_copy_rows(fl_cuda *, void *to, size_t to_stride, const void *from, size_t from_stride, size_t rows, size_t row_count,
                       size_t element_bytes);
void fl_cuda_gather_rows(fl_cuda *, void *to, size_t to_stride, const void *from, size_t from_stride, const int32_t *index,
                         size_t rows, size_t row_count, size_t element_bytes);
void fl_cuda_fill(fl_cuda *, void *at, fl_number, size_t count, double value);
void fl_cuda_add(fl_cuda *, size_t count, float *x, const float *y);
void fl_cuda_add_bias(fl_cuda *, size_t rows, size_t columns, const float *bias, float *x);
void fl_cuda_rms_norm(fl_cuda *, size_t rows, size_t columns, const float *input, const float *weight, double epsilon, float *output);
void fl_cuda_rms_norm_backward(fl_cuda *, size_t rows, size_t columns, const float *input, const float *weight, double epsilon,
                               const float *gradient_output, float *gradient_input, bool accumulate);
void fl_cuda_rope(fl_cuda *, size_t tokens, size_t heads, size_t head_dim, size_t first_position, size_t rotary_dim,
                  const float *inverse_frequencies, float attention_factor, int direction, float *x);
void fl_cuda_gated_activation(fl_cuda *, fl_activation, size_t count, const float *gate, const float *up, float *output);
void fl_cuda_gated_activation_backward(fl_cuda *, fl_activation, size_t count, const float *gate, const float *up,
                                       const float *gradient_output, float *gradient_gate, float *gradient_up);

/* mixing.cu; the structures hold device pointers */
void fl_cuda_gates(fl_cuda *, const fl_gates_call *);
void fl_cuda_gates_backward(fl_cuda *, const fl_gates_call *, const fl_gates_gradients *);
void fl_cuda_short_conv(fl_cuda *, const fl_short_conv_call *);
void fl_cuda_short_conv_remember(fl_cuda *, const fl_short_conv_call *, float *history);
void fl_cuda_short_conv_backward(fl_cuda *, const fl_short_conv_call *, const fl_short_conv_gradients *);
void fl_cuda_add_bonus(fl_cuda *, const fl_bonus_call *);
void fl_cuda_add_heads(fl_cuda *, size_t tokens, size_t heads, size_t sources, size_t head_dim, const float *x, float *to);
void fl_cuda_merge(fl_cuda *, const fl_merge_call *);
void fl_cuda_merge_backward(fl_cuda *, const fl_merge_call *, const fl_merge_gradients *);

/* attention.cu, attention_backward.cu: lifetimes are int32, expiry INT32_MAX = never. */
struct fl_cuda_attention {
    fl_attention_shape shape;
    size_t tokens, first_position, keys, key_head_stride;
    const float *query, *key, *value;
    const int32_t *position, *expiry; /* [S], or [Hkv][S] with lifetimes_per_head; expiry NULL = never */
    bool lifetimes_per_head;
    float *output, *log_sum_exp; /* log_sum_exp NULL = not wanted */
    float *largest;              /* [T][H] the largest logit seen, -inf without one; NULL = not wanted */
};
bool fl_cuda_attention_forward(fl_cuda *, const fl_cuda_attention *);
/* As fl_attention_gradients (compute.h). */
struct fl_cuda_attention_gradients {
    const float *output, *log_sum_exp, *largest;
    float *query, *key, *value;
};
/* call->output and call->log_sum_exp hold the forward pass's results. */
bool fl_cuda_attention_backward(fl_cuda *, const fl_cuda_attention *, const fl_cuda_attention_gradients *);

/* measure.cu */
void fl_cuda_row_errors(fl_cuda *, size_t rows, size_t columns, const float *reference, const float *other, double *squared,
                        double *cosine);
void fl_cuda_row_moments(fl_cuda *, size_t rows, size_t columns, const float *x, double *sum, double *sum_squares);
void fl_cuda_first_not_finite(fl_cuda *, size_t count, const float *x, int32_t *first);
void fl_cuda_subtract_squares(fl_cuda *, size_t count, const float *y, float *x, double *squares);
void fl_cuda_scale(fl_cuda *, size_t count, float factor, float *x);
void fl_cuda_key_geometry(fl_cuda *, const fl_key_geometry_call *);
void fl_cuda_logit_rows(fl_cuda *, const fl_logit_rows_call *);
void fl_cuda_logit_divergence(fl_cuda *, const fl_logit_divergence_call *);
void fl_cuda_logit_gradient(fl_cuda *, const fl_logit_gradient_call *);

/* cache_rows.cu */
void fl_cuda_row_lengths(fl_cuda *, size_t heads, size_t rows, size_t dim, const float *x, size_t head_stride, double *lengths);
void fl_cuda_exchange_rows(fl_cuda *, const fl_exchange_call *);

/* host.cu: by the cpu, on copies */
void fl_cuda_host_prepare(fl_cuda *, const fl_prepare_call *);
void fl_cuda_host_prepare_backward(fl_cuda *, const fl_prepare_call *, const fl_prepare_gradients *);
void fl_cuda_host_own_init(fl_cuda *, const fl_rule_layer *, size_t state_floats, fl_array state);
void fl_cuda_host_own_steps(fl_cuda *, const fl_own_steps_call *);
fl_status fl_cuda_host_own_steps_backward(fl_cuda *, const fl_own_steps_call *, const fl_own_steps_gradients *, fl_error *);
size_t fl_cuda_host_own_steps_backward_bytes(fl_cuda *, size_t tokens, size_t state_floats);
void fl_cuda_host_token_attention(fl_cuda *, const fl_token_attention_call *);
void fl_cuda_host_recall_errors(fl_cuda *, const fl_recall_call *);
fl_status fl_cuda_host_effective_rank(fl_cuda *, size_t heads, size_t value_dim, size_t key_dim, fl_array state, fl_array rank,
                                      fl_error *);

/* linear.cu: C [m][n] = alpha op(A) op(B) + beta C, row-major. */
void fl_cuda_matmul(fl_cuda *, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha, const float *a,
                    size_t stride_a, const float *b, size_t stride_b, float beta, float *c, size_t stride_c);
fl_status fl_cuda_products_open(fl_cuda *, fl_error *);
void fl_cuda_products_close(fl_cuda *);

#endif
