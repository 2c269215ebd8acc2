/* What the forward and the backward pass of exact attention share: queries of one KV head in blocks of rows
 * (token major, the group's query heads side by side, as they lie in memory), keys in blocks, and which keys
 * of a block a query sees. */
#ifndef FL_COMPUTE_CPU_ATTENTION_H
#define FL_COMPUTE_CPU_ATTENTION_H

#include "harness/compute/cpu_backend.h"

enum { FL_ATTENTION_KEY_BLOCK = 128, FL_ATTENTION_ROWS = 192 };

typedef struct fl_key_block {
    size_t first, count; /* keys some query of the block may see; count 0 = none */
    bool all_visible;    /* every query of the block sees every one of them */
    bool last;           /* no later key is visible either */
} fl_key_block;

static inline const int32_t *fl_attention_positions(const fl_attention_call *call, size_t kv_head) {
    return fl_cpu_integers(call->position) + (call->lifetimes_per_head ? kv_head * call->keys : 0);
}

static inline const int32_t *fl_attention_expiries(const fl_attention_call *call, size_t kv_head) {
    if (!fl_array_is(call->expiry)) return NULL;
    return fl_cpu_integers(call->expiry) + (call->lifetimes_per_head ? kv_head * call->keys : 0);
}

/* The part of keys [first, end) that queries at positions low .. high can see, without its invisible ends. */
fl_key_block fl_attention_key_block(const fl_attention_call *call, size_t kv_head, size_t first, size_t end,
                                    size_t low, size_t high);

/* scores [tokens * group][stride]: -inf where the query of that row does not see the key. */
void fl_attention_mask(const fl_attention_call *call, size_t kv_head, const fl_key_block *block,
                       size_t first_token, size_t tokens, size_t group, float *scores, size_t stride);

/* Tokens in a block of queries. */
size_t fl_attention_block_tokens(size_t group);

typedef struct fl_attention_context {
    fl_cpu *cpu;
    const fl_attention_call *call;
    size_t group, block_tokens, token_blocks;
} fl_attention_context;

fl_attention_context fl_attention_context_of(fl_compute *compute, const fl_attention_call *call);

/* Running softmax of a block of rows. */
typedef struct fl_softmax_rows {
    size_t rows;
    float *query;   /* [rows][D], scaled */
    float *output;  /* [rows][D], not yet divided by the sum */
    float *scores;  /* [rows][key block] */
    float *maximum; /* [rows] */
    float *sum;     /* [rows] */
} fl_softmax_rows;

/* Floats that a block of rows takes. */
static inline size_t fl_softmax_rows_floats(size_t rows, size_t dim) {
    return rows * (2 * dim + FL_ATTENTION_KEY_BLOCK + 2);
}

/* Gathers and scales the queries and clears the sums. */
fl_softmax_rows fl_softmax_rows_begin(const fl_attention_context *context, float *scratch, size_t kv_head,
                                      size_t first_token, size_t tokens);

/* Attends to keys [first, end) of a KV head. */
void fl_softmax_rows_attend(const fl_attention_context *context, fl_softmax_rows *rows, size_t kv_head,
                            size_t first_token, size_t tokens, size_t first, size_t end);

#endif
