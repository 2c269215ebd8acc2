/* Exact attention, a block of queries against a block of keys at a time, with the softmax's maximum and sum
 * carried along. */
#include "harness/compute/cpu_attention.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { FEW_ROWS = 8 /* up to here packing the keys for sgemm does not pay */ };

static size_t at_most(size_t a, size_t b) {
    return a < b ? a : b;
}
static size_t pieces(size_t n, size_t piece) {
    return (n + piece - 1) / piece;
}

size_t fl_attention_block_tokens(size_t group) {
    return group >= FL_ATTENTION_ROWS ? 1 : at_most(FL_ATTENTION_ROWS / group, 128);
}

fl_key_block fl_attention_key_block(const fl_attention_call *call, size_t kv_head, size_t first, size_t end,
                                    size_t low, size_t high) {
    const int32_t *position = fl_attention_positions(call, kv_head),
                  *expiry = fl_attention_expiries(call, kv_head);
    fl_key_block block = {first, 0, true, false};
    if (first >= end || (size_t)position[first] > high) {
        block.last = true;
        return block;
    }
    while (end > first && (size_t)position[end - 1] > high) {
        end--;
        block.last = true;
    }
    if ((size_t)position[end - 1] > low) block.all_visible = false;
    if (expiry != NULL) {
        while (first < end && (size_t)expiry[first] <= low) first++;
        while (end > first && (size_t)expiry[end - 1] <= low) end--;
        for (size_t i = first; i < end && block.all_visible; i++)
            block.all_visible = (size_t)expiry[i] > high;
    }
    block.first = first;
    block.count = end - first;
    return block;
}

void fl_attention_mask(const fl_attention_call *call, size_t kv_head, const fl_key_block *block,
                       size_t first_token, size_t tokens, size_t group, float *scores, size_t stride) {
    if (block->all_visible) return;
    const int32_t *position = fl_attention_positions(call, kv_head) + block->first;
    const int32_t *expiry = fl_attention_expiries(call, kv_head);
    if (expiry != NULL) expiry += block->first;
    size_t arrived = 0; /* keys of the block that have arrived: positions ascend */
    for (size_t t = 0; t < tokens; t++) {
        size_t now = call->first_position + first_token + t;
        while (arrived < block->count && (size_t)position[arrived] <= now) arrived++;
        for (size_t g = 0; g < group; g++) {
            float *row = scores + (t * group + g) * stride;
            for (size_t i = arrived; i < block->count; i++) row[i] = -INFINITY;
            if (expiry == NULL) continue;
            for (size_t i = 0; i < arrived; i++) {
                if ((size_t)expiry[i] <= now) row[i] = -INFINITY;
            }
        }
    }
}

fl_attention_context fl_attention_context_of(fl_compute *compute, const fl_attention_call *call) {
    const fl_attention_shape *shape = &call->shape;
    assert(shape->kv_heads > 0 && shape->query_heads % shape->kv_heads == 0);
    fl_attention_context c = {
        .cpu = fl_cpu_of(compute), .call = call, .group = shape->query_heads / shape->kv_heads};
    c.block_tokens = fl_attention_block_tokens(c.group);
    c.token_blocks = pieces(call->tokens, c.block_tokens);
    return c;
}

/* Folds a block's scores into the running maximum and sum; scores become weights, earlier output is scaled to
 * match. */
static void fold_scores(const fl_kernels *kernels, fl_softmax_rows *rows, size_t keys, size_t dim) {
    for (size_t r = 0; r < rows->rows; r++) {
        float *scores = rows->scores + r * FL_ATTENTION_KEY_BLOCK;
        float highest = kernels->maximum(keys, scores), before = rows->maximum[r];
        float maximum = highest > before ? highest : before;
        if (maximum == -INFINITY) {
            bool poisoned = false; /* NaN is no maximum, but must not vanish */
            for (size_t i = 0; i < keys; i++) poisoned |= isnan(scores[i]);
            if (!poisoned) {
                memset(scores, 0, keys * sizeof *scores);
                continue;
            }
        }
        float block_sum = kernels->exp_sum(keys, maximum, scores, scores);
        if (maximum != before) {
            float correction = expf(before - maximum);
            kernels->scale(dim, correction, rows->output + r * dim, rows->output + r * dim);
            rows->sum[r] *= correction;
            rows->maximum[r] = maximum;
        }
        rows->sum[r] += block_sum;
    }
}

void fl_softmax_rows_attend(const fl_attention_context *c, fl_softmax_rows *rows, size_t kv_head,
                            size_t first_token, size_t tokens, size_t first, size_t end) {
    const fl_attention_call *call = c->call;
    const fl_kernels *kernels = c->cpu->kernels;
    size_t dim = call->shape.head_dim, low = call->first_position + first_token, high = low + tokens - 1;
    for (size_t j = first; j < end; j += FL_ATTENTION_KEY_BLOCK) {
        fl_key_block block =
            fl_attention_key_block(call, kv_head, j, at_most(j + FL_ATTENTION_KEY_BLOCK, end), low, high);
        if (block.count > 0) {
            const float *key = fl_cpu_floats(call->key) + kv_head * call->key_head_stride + block.first * dim;
            const float *value =
                fl_cpu_floats(call->value) + kv_head * call->key_head_stride + block.first * dim;
            if (rows->rows <= FEW_ROWS) {
                kernels->rows_times_tokens(block.count, dim, key, rows->rows, rows->query, rows->scores,
                                           FL_ATTENTION_KEY_BLOCK);
            } else {
                fl_cpu_block_product(kernels, FL_WHOLE, false, true, rows->rows, block.count, dim, 1.0f,
                                     rows->query, dim, key, dim, false, rows->scores, FL_ATTENTION_KEY_BLOCK);
            }
            fl_attention_mask(call, kv_head, &block, first_token, tokens, c->group, rows->scores,
                              FL_ATTENTION_KEY_BLOCK);
            fold_scores(kernels, rows, block.count, dim);
            if (rows->rows <= FEW_ROWS) {
                kernels->tokens_times_rows(rows->rows, block.count, dim, rows->scores, FL_ATTENTION_KEY_BLOCK,
                                           value, rows->output);
            } else {
                fl_cpu_block_product(kernels, FL_WHOLE, false, false, rows->rows, dim, block.count, 1.0f,
                                     rows->scores, FL_ATTENTION_KEY_BLOCK, value, dim, true, rows->output,
                                     dim);
            }
        }
        if (block.last) break;
    }
}

fl_softmax_rows fl_softmax_rows_begin(const fl_attention_context *c, float *scratch, size_t kv_head,
                                      size_t first_token, size_t tokens) {
    const fl_attention_shape *shape = &c->call->shape;
    size_t dim = shape->head_dim, count = tokens * c->group;
    fl_softmax_rows rows = {.rows = count, .query = scratch, .output = scratch + count * dim};
    rows.scores = rows.output + count * dim;
    rows.maximum = rows.scores + count * FL_ATTENTION_KEY_BLOCK;
    rows.sum = rows.maximum + count;
    for (size_t t = 0; t < tokens; t++) {
        const float *query = fl_cpu_floats(c->call->query) +
                             ((first_token + t) * shape->query_heads + kv_head * c->group) * dim;
        c->cpu->kernels->scale(c->group * dim, shape->scale, query, rows.query + t * c->group * dim);
    }
    memset(rows.output, 0, count * dim * sizeof(float));
    for (size_t r = 0; r < count; r++) rows.maximum[r] = -INFINITY;
    memset(rows.sum, 0, count * sizeof(float));
    return rows;
}

static void rows_finish(const fl_attention_context *c, const fl_softmax_rows *rows, size_t kv_head,
                        size_t first_token, size_t tokens) {
    const fl_attention_shape *shape = &c->call->shape;
    size_t dim = shape->head_dim;
    for (size_t r = 0; r < tokens * c->group; r++) {
        size_t token = first_token + r / c->group, head = kv_head * c->group + r % c->group;
        size_t at = token * shape->query_heads + head;
        float sum = rows->sum[r];
        if (fl_array_is(c->call->output)) {
            c->cpu->kernels->scale(dim, sum == 0.0f ? 0.0f : 1.0f / sum, rows->output + r * dim,
                                   fl_cpu_floats(c->call->output) + at * dim);
        }
        if (fl_array_is(c->call->log_sum_exp)) {
            fl_cpu_floats(c->call->log_sum_exp)[at] = sum == 0.0f ? -INFINITY : rows->maximum[r] + logf(sum);
        }
        if (fl_array_is(c->call->largest)) fl_cpu_floats(c->call->largest)[at] = rows->maximum[r];
    }
}

static void attention_item(void *context, size_t item, size_t worker) {
    const fl_attention_context *c = context;
    /* Late blocks see the most keys: they go first, so that no thread is left with a long one at the end. */
    size_t block = c->token_blocks - 1 - item / c->call->shape.kv_heads,
           kv_head = item % c->call->shape.kv_heads;
    size_t first_token = block * c->block_tokens,
           tokens = at_most(c->block_tokens, c->call->tokens - first_token);
    fl_softmax_rows rows =
        fl_softmax_rows_begin(c, fl_cpu_scratch(c->cpu, worker), kv_head, first_token, tokens);
    fl_softmax_rows_attend(c, &rows, kv_head, first_token, tokens, 0, c->call->keys);
    rows_finish(c, &rows, kv_head, first_token, tokens);
}

void fl_cpu_attention(fl_compute *compute, const fl_attention_call *call) {
    if (call->tokens == 0) return;
    fl_attention_context c = fl_attention_context_of(compute, call);
    assert(fl_softmax_rows_floats(c.block_tokens * c.group, call->shape.head_dim) <= FL_CPU_FIXED_SCRATCH);
    fl_threads_for(compute->threads, c.token_blocks * call->shape.kv_heads, attention_item, &c);
}
