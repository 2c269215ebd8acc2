/* Compute: the tensor operations, behind one table of functions per backend.
 *
 * A backend instance owns threads and scratch memory; it serves one caller at a time (calls are not re-entrant, except
 * that const tensors may be shared). All arguments are host float32 arrays in this header's layouts; reductions that end in
 * a reported number are made elsewhere in float64. Operations cannot fail except where they say so: sizes are the caller's
 * duty and asserted. Overflow and NaN pass through as IEEE values; nobody clamps.
 *
 * Results are bit-identical for equal thread counts, and equal to about 1e-6 relative across thread counts. */
#ifndef FL_COMPUTE_COMPUTE_H
#define FL_COMPUTE_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/shapes.h"
#include "harness/base/status.h"
#include "harness/base/threads.h"
#include "harness/compute/array.h"
#include "harness/compute/cache_rows.h"
#include "harness/compute/gates.h"
#include "harness/compute/logits.h"
#include "harness/compute/merge.h"
#include "harness/compute/own_steps.h"
#include "harness/compute/prepare.h"
#include "harness/compute/recurrence.h"
#include "harness/compute/short_conv.h"
#include "harness/compute/statistics.h"
#include "harness/model/model_config.h"
#include "harness/model/tensor.h"

typedef struct fl_compute fl_compute;
typedef struct fl_weight fl_weight; /* a matrix prepared by a backend: widened, packed, or still in its stored type */

enum { FL_NEVER = INT32_MAX };

/* Exact softmax attention over a set of keys in which each key has a lifetime: the query at position p sees key i when
 * position[i] <= p < expiry[i]. Full causal attention: expiry FL_NEVER. Sliding window w: expiry = position + w. Sinks:
 * FL_NEVER. Routed cache: the step at which it is evicted. One form for all of them. A query that sees no key gets
 * output 0 and log_sum_exp -inf. */
typedef struct fl_attention_call {
    fl_attention_shape shape;
    size_t tokens;            /* T queries, at positions first_position .. first_position + T - 1 */
    size_t first_position;
    fl_array query;       /* [T][H][D] */
    size_t keys;              /* S, per KV head */
    fl_array key;         /* [Hkv][S][D], stride of a head = key_head_stride floats */
    fl_array value;       /* [Hkv][S][D] */
    size_t key_head_stride;   /* >= S * D */
    fl_array position;        /* int32 [S] (lifetimes_per_head false) or [Hkv][S]; ascending within a head */
    fl_array expiry;          /* same shape; none = never */
    bool lifetimes_per_head;
    fl_array output;            /* [T][H][D], normalised by the softmax over the visible keys; this and the next two: NULL = not wanted */
    fl_array log_sum_exp;       /* [T][H] natural log of the sum of exp(scale q.k) */
    fl_array largest;           /* [T][H] max of scale q.k over the visible keys, -inf without any */
} fl_attention_call;

/* Gradients of the call's results, given (NULL = 0), and of its inputs (NULL = not wanted). The largest score's goes to the first
 * key that has it. */
typedef struct fl_attention_gradients {
    fl_array output, log_sum_exp, largest;
    fl_array query;       /* [T][H][D], overwritten */
    fl_array key, value; /* layout of call->key; added to */
} fl_attention_gradients;

typedef struct fl_compute_ops {
    const char *name; /* "cpu" */

    /* Memory. An instance's operations happen in the order of the calls; only `download` and `settle` wait for them.
     *
     * allocate: `count` elements, FL_ERROR_MEMORY when there is no room. Their content is undefined. release: none is fine;
     * in the order of calls, so right after the last operation that uses the array. */
    fl_status (*allocate)(fl_compute *, size_t count, fl_number, fl_array *out, fl_error *);
    void (*release)(fl_compute *, fl_array);
    /* Host to instance; `from` may be changed or freed on return. */
    void (*upload)(fl_compute *, fl_array to, const void *from, size_t count);
    /* Instance to host, waiting for what was called before; fails with what failed there. */
    fl_status (*download)(fl_compute *, void *to, fl_array from, size_t count, fl_error *);
    /* Waits for everything called before, and fails with what failed there. */
    fl_status (*settle)(fl_compute *, fl_error *);
    /* Row i of `to` = row i of `from`: `rows` rows of `row_count` elements that begin every `stride` elements. One number type; the
     * two must not overlap. A stride of `from` of 0 repeats a row. */
    void (*copy_rows)(fl_compute *, fl_array to, size_t to_stride, fl_array from, size_t from_stride, size_t rows,
                      size_t row_count);
    /* Row i of `to` = row index[i] of `from`; index [rows] int32, >= 0. */
    void (*gather_rows)(fl_compute *, fl_array to, size_t to_stride, fl_array from, size_t from_stride, fl_array index,
                        size_t rows, size_t row_count);
    /* Every element = value, rounded to the array's type. */
    void (*fill)(fl_compute *, fl_array, size_t count, double value);
    /* `count` numbers of the host, for operations to read: small things that live long, such as the weights of norms and a
     * mechanism's parameters. The cpu backend reads them where they lie. Others keep a copy by host address and copy again when
     * `version` is not that of their copy, so whoever changes the numbers must change it. What is borrowed is not released; `forget`
     * comes before the host memory is freed. */
    fl_status (*borrow)(fl_compute *, const void *from, size_t count, fl_number, uint64_t version, fl_array *out,
                        fl_error *);
    void (*forget)(fl_compute *, const void *from);

    /* Prepares a [rows][columns] tensor for `linear` and `embed`. The tensor's data must outlive the weight. Widening to
     * float32 happens here while the backend's budget lasts, else panel by panel in each call. */
    fl_status (*weight_create)(fl_compute *, const fl_tensor *, fl_weight **out, fl_error *);
    void (*weight_destroy)(fl_compute *, fl_weight *);

    /* output [T][rows] = input [T][columns] W^T (+ bias [rows] or NULL). */
    void (*linear)(fl_compute *, const fl_weight *, fl_array bias, size_t tokens, fl_array input, fl_array output);
    /* gradient_input [T][columns] (+)= gradient_output [T][rows] W. accumulate: add to what is there. */
    void (*linear_backward)(fl_compute *, const fl_weight *, size_t tokens, fl_array gradient_output,
                            fl_array gradient_input, bool accumulate);
    /* output [T][columns] = row ids[t] of the weight; ids int32. */
    void (*embed)(fl_compute *, const fl_weight *, size_t tokens, fl_array ids, fl_array output);

    /* C [m][n] = alpha op(A) op(B) + beta C, row-major, plain float32; parallel over the whole product. */
    void (*matmul)(fl_compute *, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha,
                   fl_array a, size_t stride_a, fl_array b, size_t stride_b, float beta, fl_array c,
                   size_t stride_c);

    /* output = input / sqrt(mean(input^2) + epsilon) * weight, over `rows` rows of `columns`; in place allowed. */
    void (*rms_norm)(fl_compute *, size_t rows, size_t columns, fl_array input, fl_array weight, double epsilon,
                     fl_array output);
    /* gradient_input (+)= d/d input. */
    void (*rms_norm_backward)(fl_compute *, size_t rows, size_t columns, fl_array input, fl_array weight,
                              double epsilon, fl_array gradient_output, fl_array gradient_input, bool accumulate);

    /* Half-split RoPE in place on [T][heads][D], positions first .. first + T - 1; angles, cos and sin in float32 as
     * Hugging Face has them. direction +1 rotates, -1 rotates back (the backward pass). */
    void (*rope)(fl_compute *, size_t tokens, size_t heads, size_t head_dim, size_t first_position, size_t rotary_dim,
                 fl_array inverse_frequencies, float attention_factor, int direction, fl_array x);

    /* output = activation(gate) * up, `count` elements; output may be gate. */
    void (*gated_activation)(fl_compute *, fl_activation, size_t count, fl_array gate, fl_array up,
                             fl_array output);
    void (*gated_activation_backward)(fl_compute *, fl_activation, size_t count, fl_array gate, fl_array up,
                                      fl_array gradient_output, fl_array gradient_gate, fl_array gradient_up);

    /* x += y. */
    void (*add)(fl_compute *, size_t count, fl_array x, fl_array y);

    void (*attention)(fl_compute *, const fl_attention_call *);
    /* When call->output and call->log_sum_exp are both given they hold the forward pass's results, which are used; else they
     * are not touched and what is needed is computed again. call->largest is not used. */
    void (*attention_backward)(fl_compute *, const fl_attention_call *, const fl_attention_gradients *);

    /* The recurrence (recurrence.h). */
    fl_status (*recurrence)(fl_compute *, const fl_recurrence_call *, fl_error *);
    fl_status (*recurrence_backward)(fl_compute *, const fl_recurrence_backward_call *, fl_error *);

    /* Gates, betas and factors, and what lies between two factors (gates.h). */
    void (*gates)(fl_compute *, const fl_gates_call *);
    void (*gates_backward)(fl_compute *, const fl_gates_call *, const fl_gates_gradients *);

    /* From q, k, v and gates to rows (prepare.h), and what reads lack of their own tokens. */
    void (*prepare)(fl_compute *, const fl_prepare_call *);
    void (*prepare_backward)(fl_compute *, const fl_prepare_call *, const fl_prepare_gradients *);
    void (*add_bonus)(fl_compute *, const fl_bonus_call *);

    /* Rules with a step of their own (own_steps.h). init: the states [H][state_floats] of a fresh timeline. backward_bytes: what
     * the backward pass over `tokens` tokens takes beside its arguments. */
    void (*own_init)(fl_compute *, const fl_rule_layer *, size_t state_floats, fl_array state);
    void (*own_steps)(fl_compute *, const fl_own_steps_call *);
    fl_status (*own_steps_backward)(fl_compute *, const fl_own_steps_call *, const fl_own_steps_gradients *, fl_error *);
    size_t (*own_steps_backward_bytes)(fl_compute *, size_t tokens, size_t state_floats);

    /* Heads that share a source: to [T][sources][D] += the sum, in order, of its heads' x [T][H][D]. */
    void (*add_heads)(fl_compute *, size_t tokens, size_t heads, size_t sources, size_t head_dim, fl_array x, fl_array to);

    /* A routed cache's rows (cache_rows.h). row_lengths: lengths [heads][rows] float64 = ||x||, x [heads][rows][dim], of which a head
     * begins every head_stride numbers. */
    void (*row_lengths)(fl_compute *, size_t heads, size_t rows, size_t dim, fl_array x, size_t head_stride,
                        fl_array lengths);
    void (*token_attention)(fl_compute *, const fl_token_attention_call *);
    void (*recall_errors)(fl_compute *, const fl_recall_call *);
    void (*exchange_rows)(fl_compute *, const fl_exchange_call *);

    /* The short convolution (short_conv.h). remember: moves the last kernel - 1 tokens of history and input into history.
     * backward: over one whole sequence. */
    void (*short_conv)(fl_compute *, const fl_short_conv_call *);
    void (*short_conv_remember)(fl_compute *, const fl_short_conv_call *, fl_array history);
    void (*short_conv_backward)(fl_compute *, const fl_short_conv_call *, const fl_short_conv_gradients *);

    /* The merge (merge.h). backward: the call's `output` is not used. */
    void (*merge)(fl_compute *, const fl_merge_call *);
    void (*merge_backward)(fl_compute *, const fl_merge_call *, const fl_merge_gradients *);

    /* Measuring: float64, every sum in one fixed order.
     *
     * Rows [rows][columns]: squared [rows] = |other - reference|^2; cosine [rows] of the angle between the two, 0 when either is 0. */
    void (*row_errors)(fl_compute *, size_t rows, size_t columns, fl_array reference, fl_array other,
                       fl_array squared, fl_array cosine);
    /* sum and sum_squares [rows] of the entries of each row and of their squares. */
    void (*row_moments)(fl_compute *, size_t rows, size_t columns, fl_array x, fl_array sum, fl_array sum_squares);
    /* first [1] int32: index of the first of `count` numbers that is NaN or infinite, or `count`; count <= INT32_MAX. */
    void (*first_not_finite)(fl_compute *, size_t count, fl_array x, fl_array first);
    /* x -= y, and squares [1] = the sum of the squares of that (before it is rounded). */
    void (*subtract_squares)(fl_compute *, size_t count, fl_array y, fl_array x, fl_array squares);
    /* x *= factor. */
    void (*scale)(fl_compute *, size_t count, float factor, fl_array x);
    void (*key_geometry)(fl_compute *, const fl_key_geometry_call *); /* statistics.h */
    /* rank [H] float64 of state [H][Dv][Dk]: exp(entropy) of the singular values over their sum (Roy & Vetterli 2007); 0 for a zero
     * state, NaN when it is not finite. */
    fl_status (*effective_rank)(fl_compute *, size_t heads, size_t value_dim, size_t key_dim, fl_array state,
                                fl_array rank, fl_error *);

    /* Rows of logits (logits.h). */
    void (*logit_rows)(fl_compute *, const fl_logit_rows_call *);
    void (*logit_divergence)(fl_compute *, const fl_logit_divergence_call *);
    void (*logit_gradient)(fl_compute *, const fl_logit_gradient_call *);

    void (*destroy)(fl_compute *);
} fl_compute_ops;

typedef struct fl_lent_memory {
    fl_array memory;
    size_t count; /* numbers */
} fl_lent_memory;

struct fl_compute {
    const fl_compute_ops *ops;
    fl_threads *threads; /* the instance's pool; elementwise code above may use it */
    fl_lent_memory spare; /* what fl_compute_lend keeps between borrowers; empty while it is lent */
    /* backend's own members follow in its private struct */
};

typedef struct fl_compute_options {
    size_t threads;             /* 0 = processors this process may run on */
    size_t widen_budget_bytes;  /* how much memory widened weights may take together; SIZE_MAX = no limit */
} fl_compute_options;

/* Bytes that widened weights may take where there is so much memory (base/memory_limit.h): half of it, or less where the file itself is large:
 * widened weights and the part of the file that every product still reads should not take more than four fifths together, or
 * it is read from the disk each time. */
size_t fl_compute_widen_budget(size_t memory, size_t file_bytes, size_t parameters);

fl_status fl_compute_create_cpu(const fl_compute_options *options, fl_compute **out, fl_error *error);
void fl_compute_destroy(fl_compute *compute);

/* The memory slots for float32: an array of `count` numbers, which is released here too (none is fine, and then compute may be
 * NULL); `count` numbers copied; rows copied; `count` numbers set. */
fl_status fl_compute_floats(fl_compute *compute, size_t count, fl_array *out, fl_error *error);
void fl_compute_release(fl_compute *compute, fl_array array);
void fl_compute_copy(fl_compute *compute, fl_array to, fl_array from, size_t count);
void fl_compute_copy_rows(fl_compute *compute, fl_array to, size_t to_stride, fl_array from, size_t from_stride, size_t rows,
                          size_t row_count);
void fl_compute_gather_rows(fl_compute *compute, fl_array to, size_t to_stride, fl_array from, size_t from_stride,
                            fl_array index, size_t rows, size_t row_count);
void fl_compute_upload(fl_compute *compute, fl_array to, const float *host, size_t count);
fl_status fl_compute_download(fl_compute *compute, float *host, fl_array from, size_t count, fl_error *error);
void fl_compute_fill(fl_compute *compute, fl_array array, size_t count, double value);

/* Scratch memory of at least `count` numbers, whose content is undefined, for the length of one call of the code above: the
 * instance keeps the block for the next borrower, so that pages are not fetched from the system and cleared each time. It is
 * kept until the instance is destroyed. A borrower inside another's call gets a block of its own. */
fl_status fl_compute_lend(fl_compute *compute, size_t count, fl_lent_memory *out, fl_error *error);
void fl_compute_take_back(fl_compute *compute, fl_lent_memory lent);

#endif
