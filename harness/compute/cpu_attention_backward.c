/* Gradients of exact attention. With P the softmax weights (made again from log_sum_exp), g the gradient of
 * the output and l that of log_sum_exp:   dV = P^T g,   dS = P (g V^T - g . output + l),   dQ = scale dS K,
 * dK = scale dS^T Q. A KV head is an item, so that its gradients have one writer. */
#include "harness/compute/cpu_attention.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static size_t at_most(size_t a, size_t b) {
    return a < b ? a : b;
}

typedef struct {
    fl_attention_context base;
    const float *gradient_output, *gradient_log_sum_exp;
    float *gradient_query, *gradient_key, *gradient_value;
} backward_context;

/* A block of rows on its way back. */
typedef struct {
    fl_softmax_rows rows;
    size_t kv_head, first_token, tokens;
    float *gradient;       /* [rows][D] of the output */
    float *gradient_query; /* [rows][D] */
    float *slopes;         /* [rows][key block] */
    float *log_sum_exp;    /* [rows] */
    float *shift;          /* [rows] l - g . output */
} backward_rows;

static size_t backward_floats(size_t rows, size_t dim) {
    return fl_softmax_rows_floats(rows, dim) + rows * (2 * dim + FL_ATTENTION_KEY_BLOCK + 2);
}

static bool results_given(const fl_attention_call *call) {
    return call->output != NULL && call->log_sum_exp != NULL;
}

/* Where row r's numbers lie in arrays [T][H]. */
static size_t row_at(const fl_attention_context *c, const backward_rows *b, size_t r) {
    return (b->first_token + r / c->group) * c->call->shape.query_heads + b->kv_head * c->group +
           r % c->group;
}

/* log_sum_exp and the products of gradient and output of the block's rows. */
static void find_shifts(const backward_context *c, backward_rows *b) {
    const fl_attention_call *call = c->base.call;
    const fl_kernels *kernels = c->base.cpu->kernels;
    size_t dim = call->shape.head_dim;
    bool given = results_given(call);
    if (!given)
        fl_softmax_rows_attend(&c->base, &b->rows, b->kv_head, b->first_token, b->tokens, 0, call->keys);
    for (size_t r = 0; r < b->rows.rows; r++) {
        size_t at = row_at(&c->base, b, r);
        float sum = b->rows.sum[r], along = 0.0f;
        if (given) {
            b->log_sum_exp[r] = call->log_sum_exp[at];
            along = kernels->dot(dim, b->gradient + r * dim, call->output + at * dim);
        } else {
            b->log_sum_exp[r] = sum == 0.0f ? -INFINITY : b->rows.maximum[r] + logf(sum);
            if (sum != 0.0f) along = kernels->dot(dim, b->gradient + r * dim, b->rows.output + r * dim) / sum;
        }
        b->shift[r] = (c->gradient_log_sum_exp != NULL ? c->gradient_log_sum_exp[at] : 0.0f) - along;
    }
}

static backward_rows begin(const backward_context *c, float *scratch, size_t kv_head, size_t first_token,
                           size_t tokens) {
    const fl_attention_shape *shape = &c->base.call->shape;
    size_t dim = shape->head_dim, count = tokens * c->base.group;
    backward_rows b = {.kv_head = kv_head, .first_token = first_token, .tokens = tokens};
    b.rows = fl_softmax_rows_begin(&c->base, scratch, kv_head, first_token, tokens);
    b.gradient = scratch + fl_softmax_rows_floats(count, dim);
    b.gradient_query = b.gradient + count * dim;
    b.slopes = b.gradient_query + count * dim;
    b.log_sum_exp = b.slopes + count * FL_ATTENTION_KEY_BLOCK;
    b.shift = b.log_sum_exp + count;
    memset(b.gradient_query, 0, count * dim * sizeof(float));
    for (size_t t = 0; t < tokens; t++) {
        float *gradient = b.gradient + t * c->base.group * dim;
        size_t at = ((first_token + t) * shape->query_heads + kv_head * c->base.group) * dim;
        if (c->gradient_output == NULL) {
            memset(gradient, 0, c->base.group * dim * sizeof *gradient);
        } else {
            memcpy(gradient, c->gradient_output + at, c->base.group * dim * sizeof *gradient);
        }
    }
    find_shifts(c, &b);
    return b;
}

/* One block of keys against one block of rows. */
static void pass_back(const backward_context *c, backward_rows *b, const fl_key_block *block) {
    const fl_attention_call *call = c->base.call;
    const fl_kernels *kernels = c->base.cpu->kernels;
    size_t dim = call->shape.head_dim, rows = b->rows.rows, keys = block->count,
           stride = FL_ATTENTION_KEY_BLOCK;
    size_t at = b->kv_head * call->key_head_stride + block->first * dim;
    float *weights = b->rows.scores, *slopes = b->slopes;
    fl_cpu_block_product(kernels, FL_WHOLE, false, true, rows, keys, dim, 1.0f, b->rows.query, dim,
                         call->key + at, dim, false, weights, stride);
    fl_attention_mask(call, b->kv_head, block, b->first_token, b->tokens, c->base.group, weights, stride);
    for (size_t r = 0; r < rows; r++) {
        float *row = weights + r * stride;
        if (b->log_sum_exp[r] == -INFINITY) {
            memset(row, 0, keys * sizeof *row);
        } else {
            kernels->exp_sum(keys, b->log_sum_exp[r], row, row);
        }
    }
    if (c->gradient_value != NULL) {
        fl_cpu_block_product(kernels, FL_WHOLE, true, false, keys, dim, rows, 1.0f, weights, stride,
                             b->gradient, dim, true, c->gradient_value + at, dim);
    }
    fl_cpu_block_product(kernels, FL_WHOLE, false, true, rows, keys, dim, 1.0f, b->gradient, dim,
                         call->value + at, dim, false, slopes, stride);
    for (size_t r = 0; r < rows; r++) {
        kernels->shift_multiply(keys, weights + r * stride, slopes + r * stride, b->shift[r],
                                slopes + r * stride);
    }
    fl_cpu_block_product(kernels, FL_WHOLE, false, false, rows, dim, keys, call->shape.scale, slopes, stride,
                         call->key + at, dim, true, b->gradient_query, dim);
    if (c->gradient_key != NULL) {
        fl_cpu_block_product(kernels, FL_WHOLE, true, false, keys, dim, rows, 1.0f, slopes, stride,
                             b->rows.query, dim, true, c->gradient_key + at, dim);
    }
}

static void backward_item(void *context, size_t kv_head, size_t worker) {
    const backward_context *c = context;
    const fl_attention_call *call = c->base.call;
    size_t dim = call->shape.head_dim;
    for (size_t first = 0; first < call->tokens; first += c->base.block_tokens) {
        size_t tokens = at_most(c->base.block_tokens, call->tokens - first);
        size_t low = call->first_position + first, high = low + tokens - 1;
        backward_rows b = begin(c, fl_cpu_scratch(c->base.cpu, worker), kv_head, first, tokens);
        for (size_t j = 0; j < call->keys; j += FL_ATTENTION_KEY_BLOCK) {
            size_t end = at_most(j + FL_ATTENTION_KEY_BLOCK, call->keys);
            fl_key_block block = fl_attention_key_block(call, kv_head, j, end, low, high);
            if (block.count > 0) pass_back(c, &b, &block);
            if (block.last) break;
        }
        for (size_t r = 0; c->gradient_query != NULL && r < b.rows.rows; r++) {
            memcpy(c->gradient_query + row_at(&c->base, &b, r) * dim, b.gradient_query + r * dim,
                   dim * sizeof(float));
        }
    }
}

void fl_cpu_attention_backward(fl_compute *compute, const fl_attention_call *call,
                               const float *gradient_output, const float *gradient_log_sum_exp,
                               float *gradient_query, float *gradient_key, float *gradient_value) {
    if (call->tokens == 0) return;
    backward_context c = {fl_attention_context_of(compute, call),
                          gradient_output,
                          gradient_log_sum_exp,
                          gradient_query,
                          gradient_key,
                          gradient_value};
    assert(backward_floats(c.base.block_tokens * c.base.group, call->shape.head_dim) <= FL_CPU_FIXED_SCRATCH);
    fl_threads_for(compute->threads, call->shape.kv_heads, backward_item, &c);
}
