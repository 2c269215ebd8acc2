/* Exact set: the keys and values a timeline holds exactly: sinks, window and routed cache, each with a lifetime.
 *
 * Entries are in order of position within a KV head. Token i is visible to the query at position p when
 * position <= p < expiry. Without a routed cache every KV head holds the same tokens and there is one list of lifetimes;
 * with one, every KV head has its own, and expiry is set when a token is evicted. All KV heads hold the same number of
 * living entries at any time. Expired entries are dropped in batches, so memory is bounded and an appended token costs O(1)
 * amortised copies. */
#ifndef FL_ATTN_VARIANTS_EXACT_SET_H
#define FL_ATTN_VARIANTS_EXACT_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/compute/key_value_rows.h"

typedef struct fl_exact_set {
    fl_key_value_rows rows; /* entry i is row i of every KV head */
    size_t sinks, window;
    bool per_head;          /* lifetimes of every KV head's own */
    bool weighs;            /* keeps the softmax probability every key has received */
    size_t count;
    int32_t *position;      /* [per_head ? Hkv : 1][capacity] */
    int32_t *expiry;        /* the same; FL_NEVER */
    double *mass;           /* [Hkv][capacity], or NULL */
    fl_array lifetimes;     /* int32 [2][lists][capacity]: positions and expiries, as attention was told them last */
} fl_exact_set;

typedef struct fl_exact_set_kind {
    size_t kv_heads, head_dim, sinks, window;
    bool per_head, weighs;
} fl_exact_set_kind;

void fl_exact_set_init(fl_exact_set *set, fl_compute *compute, const fl_exact_set_kind *kind);
void fl_exact_set_release(fl_exact_set *set);
/* Empties the set without giving memory back. */
void fl_exact_set_clear(fl_exact_set *set);

/* Room for `extra` more entries. Drops what has expired before `position` once that is much, by a rule that does not look at
 * the capacity: which entries a set holds follows from its history alone, so a fork computes bit for bit the same. */
fl_status fl_exact_set_reserve(fl_exact_set *set, size_t extra, size_t position, fl_error *error);

/* key, value [tokens][Hkv][D] of the tokens at `position` and after it. They live as long as sinks and window say, or, with lifetimes of
 * every KV head's own, until they are expired; what would never be seen is left out. Room must have been reserved. */
void fl_exact_set_append(fl_exact_set *set, size_t tokens, size_t position, fl_array key, fl_array value);

/* Index of the entry at `position` of a KV head; asserted to be there. */
size_t fl_exact_set_find(const fl_exact_set *set, size_t kv_head, size_t position);
/* The token at `position` is visible no more from step `step` on. */
void fl_exact_set_expire(fl_exact_set *set, size_t kv_head, size_t position, size_t step);

/* Brings the lifetimes to the instance: position [lists][count] and expiry, which stay until the set changes. */
void fl_exact_set_lifetimes(const fl_exact_set *set, fl_array *position, fl_array *expiry);
/* Fills the key side of an attention call. */
void fl_exact_set_describe(const fl_exact_set *set, fl_attention_call *call);

/* Makes *to equal to *from, reusing memory where it is large enough. */
fl_status fl_exact_set_copy(fl_exact_set *to, const fl_exact_set *from, fl_error *error);

#endif
