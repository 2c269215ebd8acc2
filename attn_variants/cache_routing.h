/* Cache routing: which token stays exact when the cache is full, per KV head (method.md section 4).
 *
 * A token that leaves the window is cached while there is room. Else the budget + 1 candidates (the cached ones and the
 * token that leaves) are scored, the lowest goes to the state, and equal scores send the oldest. A score that is not a
 * number counts as the lowest.
 *
 *   key_norm, value_norm, recency, random   belong to the token: a heap, O(log budget) a decision
 *   attention_mass                          changes at every step: one pass over the budget
 *   self_recall                             ||v - read(S, k)|| with the state before the write: one product of the cached keys
 *                                           with the state, budget x Dk x Dv a query head, at every decision
 *
 * This file decides from scores; the mixer computes them and moves the rows. Slots are the places of the cached rows. */
#ifndef FL_ATTN_VARIANTS_CACHE_ROUTING_H
#define FL_ATTN_VARIANTS_CACHE_ROUTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_variants/variant.h"
#include "harness/base/status.h"

#define FL_POSITION_NONE SIZE_MAX

typedef enum fl_route_action {
    FL_ROUTE_NOTHING = 0, /* no token left the window */
    FL_ROUTE_FILLED,      /* the token that left took a free slot; nothing is written */
    FL_ROUTE_PASSED,      /* the token that left is written itself */
    FL_ROUTE_REPLACED     /* it took the slot of a cached token, which is written */
} fl_route_action;

typedef struct fl_route_step {
    fl_route_action action;
    size_t slot;    /* FILLED, REPLACED */
    size_t written; /* position, FL_POSITION_NONE when nothing is */
} fl_route_step;

typedef struct fl_routed_cache {
    size_t budget, kv_heads;
    size_t *used;     /* [Hkv] */
    size_t *position; /* [Hkv][budget] of the token in each slot */
    double *score;    /* [Hkv][budget], for scores that belong to the token */
    size_t *heap;     /* [Hkv][budget] slots, lowest (score, position) first */
} fl_routed_cache;

fl_status fl_routed_cache_create(fl_routed_cache *cache, size_t budget, size_t kv_heads, fl_error *error);
void fl_routed_cache_release(fl_routed_cache *cache);
void fl_routed_cache_clear(fl_routed_cache *cache);
/* Same budget and heads. */
void fl_routed_cache_copy(fl_routed_cache *to, const fl_routed_cache *from);

bool fl_routed_cache_full(const fl_routed_cache *cache, size_t kv_head);

/* A token leaves; its score belongs to it. Fills or decides. */
fl_route_step fl_routed_cache_offer(fl_routed_cache *cache, size_t kv_head, size_t position, double score);
/* A token leaves while there is room. */
fl_route_step fl_routed_cache_fill(fl_routed_cache *cache, size_t kv_head, size_t position);
/* A token leaves a full cache; scores [budget] by slot are those of this moment. */
fl_route_step fl_routed_cache_choose(fl_routed_cache *cache, size_t kv_head, size_t position, const double *scores,
                                     double leaving_score);

/* A score that belongs to the token. length: of its key or value as the route says, as they stand after RoPE, before convolution
 * and unit length; other routes do not look at it. */
double fl_route_static_score(fl_route route, uint64_t seed, size_t layer, size_t kv_head, size_t position, double length);

#endif
