/* Gradients of exact attention. With P the softmax weights (made again from log_sum_exp), g the gradient of
 * the output and l that of log_sum_exp:   dV = P^T g,   dS = P (g V^T - g . output + l),   dQ = scale dS K,
 * dK = scale dS^T Q. With m the gradient of the largest score, of key j:   dQ += scale m k_j,   dk_j += scale
 * m q. A KV head is an item, so that its gradients have one writer. */
#include "harness/compute/cpu_attention.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static size_t at_most(size_t a, size_t b) {
    return a < b ? a : b;
}

typedef struct {
    fl_attention_context base;
    const fl_attention_gradients *out;
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
    float *largest;        /* [rows] so far, */
    int32_t *largest_key;  /* [rows] and the first key that has it */
} backward_rows;

static size_t backward_floats(size_t rows, size_t dim) {
    return fl_softmax_rows_floats(rows, dim) + rows * (2 * dim + FL_ATTENTION_KEY_BLOCK + 4);
}

static bool results_given(const fl_attention_call *call) {
    return fl_array_is(call->output) && fl_array_is(call->log_sum_exp);
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
            b->log_sum_exp[r] = fl_cpu_floats(call->log_sum_exp)[at];
            along = kernels->dot(dim, b->gradient + r * dim, fl_cpu_floats(call->output) + at * dim);
        } else {
            b->log_sum_exp[r] = sum == 0.0f ? -INFINITY : b->rows.maximum[r] + logf(sum);
            if (sum != 0.0f) along = kernels->dot(dim, b->gradient + r * dim, b->rows.output + r * dim) / sum;
        }
        b->shift[r] =
            (fl_array_is(c->out->log_sum_exp) ? fl_cpu_floats(c->out->log_sum_exp)[at] : 0.0f) - along;
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
    b.largest = b.shift + count;
    b.largest_key = (int32_t *)(void *)(b.largest + count);
    for (size_t r = 0; r < count; r++) b.largest[r] = -INFINITY;
    memset(b.gradient_query, 0, count * dim * sizeof(float));
    for (size_t t = 0; t < tokens; t++) {
        float *gradient = b.gradient + t * c->base.group * dim;
        size_t at = ((first_token + t) * shape->query_heads + kv_head * c->base.group) * dim;
        if (!fl_array_is(c->out->output)) {
            memset(gradient, 0, c->base.group * dim * sizeof *gradient);
        } else {
            memcpy(gradient, fl_cpu_floats(c->out->output) + at, c->base.group * dim * sizeof *gradient);
        }
    }
    find_shifts(c, &b);
    return b;
}

/* Keeps what the block's masked scores have that is higher than any before. */
static void note_largest(backward_rows *b, const fl_key_block *block, const float *scores, size_t stride) {
    for (size_t r = 0; r < b->rows.rows; r++) {
        for (size_t i = 0; i < block->count; i++) {
            if (!(scores[r * stride + i] > b->largest[r])) continue;
            b->largest[r] = scores[r * stride + i];
            b->largest_key[r] = (int32_t)(block->first + i);
        }
    }
}

static void spread_largest(const backward_context *c, backward_rows *b) {
    const fl_attention_call *call = c->base.call;
    const fl_kernels *kernels = c->base.cpu->kernels;
    size_t dim = call->shape.head_dim;
    for (size_t r = 0; r < b->rows.rows; r++) {
        if (b->largest[r] == -INFINITY) continue;
        size_t at = row_at(&c->base, b, r);
        size_t of_key = b->kv_head * call->key_head_stride + (size_t)b->largest_key[r] * dim;
        float slope = fl_cpu_floats(c->out->largest)[at] * call->shape.scale;
        kernels->axpy(dim, slope, fl_cpu_floats(call->key) + of_key, b->gradient_query + r * dim);
        if (fl_array_is(c->out->key))
            kernels->axpy(dim, slope, fl_cpu_floats(call->query) + at * dim,
                          fl_cpu_floats(c->out->key) + of_key);
    }
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
                         fl_cpu_floats(call->key) + at, dim, false, weights, stride);
    fl_attention_mask(call, b->kv_head, block, b->first_token, b->tokens, c->base.group, weights, stride);
    if (fl_array_is(c->out->largest)) note_largest(b, block, weights, stride);
    for (size_t r = 0; r < rows; r++) {
        float *row = weights + r * stride;
        if (b->log_sum_exp[r] == -INFINITY) {
            memset(row, 0, keys * sizeof *row);
        } else {
            kernels->exp_sum(keys, b->log_sum_exp[r], row, row);
        }
    }
    if (fl_array_is(c->out->value)) {
        fl_cpu_block_product(kernels, FL_WHOLE, true, false, keys, dim, rows, 1.0f, weights, stride,
                             b->gradient, dim, true, fl_cpu_floats(c->out->value) + at, dim);
    }
    fl_cpu_block_product(kernels, FL_WHOLE, false, true, rows, keys, dim, 1.0f, b->gradient, dim,
                         fl_cpu_floats(call->value) + at, dim, false, slopes, stride);
    for (size_t r = 0; r < rows; r++) {
        kernels->shift_multiply(keys, weights + r * stride, slopes + r * stride, b->shift[r],
                                slopes + r * stride);
    }
    fl_cpu_block_product(kernels, FL_WHOLE, false, false, rows, dim, keys, call->shape.scale, slopes, stride,
                         fl_cpu_floats(call->key) + at, dim, true, b->gradient_query, dim);
    if (fl_array_is(c->out->key)) {
        fl_cpu_block_product(kernels, FL_WHOLE, true, false, keys, dim, rows, 1.0f, slopes, stride,
                             b->rows.query, dim, true, fl_cpu_floats(c->out->key) + at, dim);
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
        if (fl_array_is(c->out->largest)) spread_largest(c, &b);
        for (size_t r = 0; fl_array_is(c->out->query) && r < b.rows.rows; r++) {
            memcpy(fl_cpu_floats(c->out->query) + row_at(&c->base, &b, r) * dim, b.gradient_query + r * dim,
                   dim * sizeof(float));
        }
    }
}

void fl_cpu_attention_backward(fl_compute *compute, const fl_attention_call *call,
                               const fl_attention_gradients *gradients) {
    if (call->tokens == 0) return;
    backward_context c = {fl_attention_context_of(compute, call), gradients};
    assert(backward_floats(c.base.block_tokens * c.base.group, call->shape.head_dim) <= FL_CPU_FIXED_SCRATCH);
    fl_threads_for(compute->threads, call->shape.kv_heads, backward_item, &c);
}
