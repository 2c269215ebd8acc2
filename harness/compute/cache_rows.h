/* Cache rows: what a routed cache asks about rows before it decides on the host, and what its decisions do to them. */
#ifndef FL_COMPUTE_CACHE_ROWS_H
#define FL_COMPUTE_CACHE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/shapes.h"
#include "harness/compute/array.h"
#include "harness/compute/rule_rows.h"
#include "harness/compute/write_rows.h"

/* Attention of one token's queries over the keys of each KV head that are alive, with the weights they get. A head that sees none:
 * output 0, log_sum_exp -inf. */
typedef struct fl_token_attention_call {
    fl_attention_shape shape;
    size_t position;           /* of the token; key i is alive while expiry[i] > position */
    fl_array query;        /* [H][D] */
    size_t keys;               /* S of each KV head */
    fl_array key, value;  /* [Hkv][S][D], stride of a head = key_head_stride */
    size_t key_head_stride;
    fl_array expiry;           /* int32 [Hkv][S], stride of a head = expiry_head_stride */
    size_t expiry_head_stride;
    fl_array weights;            /* [H][S] softmax weights, 0 where not alive */
    fl_array output;             /* [H][D] */
    fl_array log_sum_exp;        /* [H] */
} fl_token_attention_call;

/* What the state, as it stands, makes of its candidates: ||v - read(S, k)|| of each of the first rows of `cached`, the read divided
 * by its mass where there is a normaliser; the mean over micro steps, divided by the heads that share a KV head. */
typedef struct fl_recall_call {
    const fl_rule_layer *rule;
    bool own;                  /* read by the rule's own function */
    bool normaliser;
    size_t state_floats, kv_heads, candidates;
    fl_write_layout layout;
    fl_write_rows cached;
    fl_array state;        /* [H][state_floats] */
    fl_array read;               /* scratch [H][candidates*m][Dv] */
    fl_array errors;           /* float64 [H][candidates] */
} fl_recall_call;

/* Steps first_step .. first_step + steps - 1 in order: the row of a step and the cached row slots[step] change places (-1: the row
 * stays). A free slot holds the null write, which the step then writes. */
typedef struct fl_exchange_call {
    fl_write_layout layout;
    fl_write_rows stream, cached;
    size_t tokens, kv_heads, first_step, steps;
    fl_array slots;            /* int32 [kv_heads][tokens] */
} fl_exchange_call;

#endif
