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
#include "harness/compute/compute.h"

typedef struct fl_exact_set {
    fl_compute *compute; /* borrowed */
    size_t kv_heads, head_dim;
    bool per_head;       /* lifetimes of every KV head's own */
    bool weighs;         /* keeps the softmax probability every key has received */
    size_t count, capacity;
    fl_array key, value;  /* [Hkv][capacity][D] */
    size_t *position;    /* [per_head ? Hkv : 1][capacity] */
    size_t *expiry;      /* the same */
    double *mass;        /* [Hkv][capacity], or NULL */
} fl_exact_set;

void fl_exact_set_init(fl_exact_set *set, fl_compute *compute, size_t kv_heads, size_t head_dim, bool per_head,
                       bool weighs);
void fl_exact_set_release(fl_exact_set *set);
/* Empties the set without giving memory back. */
void fl_exact_set_clear(fl_exact_set *set);

/* Room for `extra` more entries. Drops what has expired before `position` once that is much, by a rule that does not look at
 * the capacity: which entries a set holds follows from its history alone, so a fork computes bit for bit the same. */
fl_status fl_exact_set_reserve(fl_exact_set *set, size_t extra, size_t position, fl_error *error);

/* key, value [Hkv][D]. Room must have been reserved. */
void fl_exact_set_append(fl_exact_set *set, const float *key, const float *value, size_t position, size_t expiry);

/* Index of the entry at `position` of a KV head; asserted to be there. */
size_t fl_exact_set_find(const fl_exact_set *set, size_t kv_head, size_t position);
fl_array fl_exact_set_key(const fl_exact_set *set, size_t kv_head, size_t index);
fl_array fl_exact_set_value(const fl_exact_set *set, size_t kv_head, size_t index);
/* The token at `position` is visible no more from step `step` on. */
void fl_exact_set_expire(fl_exact_set *set, size_t kv_head, size_t position, size_t step);

/* Floats of scratch that fl_exact_set_attend needs (lifetimes packed as fl_attention_call wants them). */
size_t fl_exact_set_lifetimes(const fl_exact_set *set);
/* Fills the key side of an attention call. `lifetimes` holds 2 * fl_exact_set_lifetimes entries, used when per_head. */
void fl_exact_set_describe(const fl_exact_set *set, size_t *lifetimes, fl_attention_call *call);

/* Makes *to equal to *from, reusing memory where it is large enough. */
fl_status fl_exact_set_copy(fl_exact_set *to, const fl_exact_set *from, fl_error *error);

#endif
