/* Mixer: the token mixing of one linearised layer over one timeline.
 *
 * Order inside a layer (house plan): frozen q, k, v after the model's q/k norm and RoPE -> [linear branch: short
 * convolution -> prepare] -> split of past tokens into exact set (sinks, window, routed cache) and state writes ->
 * recurrence -> merge. The output goes to the frozen output projection.
 *
 * A mixer holds everything its past left behind: position, sinks, window, cache, pending writes, convolution history and
 * state, in flat memory, so it can be forked. Tokens are appended with fl_mixer_forward in calls of any length, including 0;
 * how a sequence is cut changes nothing but rounding. Memory does not grow with the number of tokens once window, sinks and
 * cache are full: long calls are worked through in blocks, with scratch that the compute instance lends. A failed call
 * (memory) leaves the timeline unusable until it is reset or copied over. */
#ifndef FL_ATTN_VARIANTS_MIXER_H
#define FL_ATTN_VARIANTS_MIXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"
#include "attn_variants/variant.h"
#include "harness/base/status.h"
#include "harness/compute/compute.h"

typedef struct fl_mixer fl_mixer;

/* The softmax over the exact set, which mixers of variants that agree (fl_variant_shares_exact_set) have in common on the same
 * queries, keys and values: the first call that is handed it fills it, the next ones read it. The arrays are the caller's. */
typedef struct fl_exact_share {
    bool filled;
    fl_array output;       /* [T][H][D] */
    fl_array log_sum_exp;  /* [T][H] */
} fl_exact_share;

typedef struct fl_mixer_call {
    size_t tokens;       /* T new tokens; their positions follow those already seen */
    fl_array query;  /* [T][H][D]  after q/k norm and RoPE */
    fl_array key;    /* [T][Hkv][D] */
    fl_array value;  /* [T][Hkv][D] */
    fl_array input;  /* [T][E]  the attention block's input after the input norm: gates and beta come from it; may be
                          * NULL when nothing is projected */
    fl_array output;       /* [T][H][D] */
    /* optional, NULL = not wanted */
    fl_array state_norm;   /* [H][T] Frobenius norm of S_t */
    int32_t *written;    /* [Hkv][T] position written to the state at that step, -1 = none */
    fl_array gate;         /* [T][H][1 or D] every token's gate as the rule sees it (log a for most), when the rule takes one */
    fl_array beta;         /* [T][H] likewise */
    fl_exact_share *exact; /* of exactly these tokens */
    fl_array initial_state; /* as fl_mixer_state_floats says: instead of the rule's own, which is zeros for most. Of a fresh
                            * mixer's first call only; constant for the backward pass */
    fl_recurrence_mode mode; /* for tests; FL_RECURRENCE_AUTO otherwise */
} fl_mixer_call;

/* mechanism, its variant and compute are borrowed and must outlive the mixer. `layer` must not be a softmax layer. */
fl_status fl_mixer_create(fl_compute *compute, const fl_mechanism *mechanism, size_t layer, fl_mixer **out,
                          fl_error *error);
void fl_mixer_destroy(fl_mixer *mixer);
void fl_mixer_reset(fl_mixer *mixer); /* back to position 0 */

fl_status fl_mixer_forward(fl_mixer *mixer, const fl_mixer_call *call, fl_error *error);

/* An independent copy of the timeline so far. */
fl_status fl_mixer_fork(const fl_mixer *mixer, fl_mixer **out, fl_error *error);
/* Makes *mixer equal to *source (same mechanism and layer) without allocating where sizes agree. */
fl_status fl_mixer_copy(fl_mixer *mixer, const fl_mixer *source, fl_error *error);

size_t fl_mixer_position(const fl_mixer *mixer);
/* Bytes per sequence: the recurrent state (with the rule's own), and the exact set (sinks, window, cache) at full size. */
size_t fl_mixer_state_bytes(const fl_mixer *mixer);
size_t fl_mixer_exact_bytes(const fl_mixer *mixer);
/* [H][Dv][Dk], for logs and tests; NULL for rules without a state. */
fl_array fl_mixer_state(const fl_mixer *mixer, size_t *value_dim, size_t *key_dim);
/* Floats of a head's state: Dv x Dk (Dv with the normaliser's channel), or what the rule's own step keeps; 0 without a state. */
size_t fl_mixer_state_floats(const fl_mixer *mixer);
/* [H][fl_mixer_state_floats], of any rule; NULL without a state. */
fl_array fl_mixer_state_block(const fl_mixer *mixer);
/* Number of tokens the state has received so far (of KV head 0), for the "context reached the state" share. */
size_t fl_mixer_tokens_written(const fl_mixer *mixer);

#endif
