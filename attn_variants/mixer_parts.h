/* The mixer's insides, shared by mixer.c (the timeline), mixer_prepare.c (from q, k, v, h to streams), mixer_route.c
 * (routed cache), mixer_forward.c (one block of tokens) and mixer_backward.c.
 * Not for anyone else. */
#ifndef FL_ATTN_VARIANTS_MIXER_PARTS_H
#define FL_ATTN_VARIANTS_MIXER_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "attn_variants/cache_routing.h"
#include "attn_variants/exact_set.h"
#include "attn_variants/mixer.h"
#include "attn_variants/write_layout.h"
#include "harness/compute/array.h"

/* Gate, beta, then the rule's factors. */
enum { FL_PROJECT_GATE = 0, FL_PROJECT_BETA, FL_PROJECT_FACTORS, FL_PROJECTIONS = FL_PROJECT_FACTORS + FL_RULE_MAX_FACTORS };

/* A tensor of the layer, found once; both members NULL: there is none. */
typedef struct fl_mixer_tensor {
    fl_array values;
    const fl_mechanism_tensor *entry;
} fl_mixer_tensor;

/* activation(h W + bias) or activation(f(h W1) W2 + bias), with the layer's tensors found once. */
typedef struct fl_mixer_projection {
    size_t width;               /* floats a head; 0: not in use */
    size_t rank;                /* 0: one matrix */
    fl_gate_activation activation;
    bool bounded;               /* f = tanh, else the identity */
    float maximum;              /* of a sigmoid: beta in (0, maximum) */
    bool projected;             /* else every value is `constant` */
    float constant;
    fl_mixer_tensor first, weight, bias; /* [E][rank], [E or rank][H*width], [H*width] */
    fl_mixer_tensor rate;       /* [H], or none: log a = -exp(rate) softplus(x) in place of log sigmoid(x) */
} fl_mixer_projection;

/* Everything that follows from mechanism and layer alone. */
typedef struct fl_mixer_plan {
    fl_compute *compute;
    const fl_mechanism *mechanism;
    const fl_variant *variant;
    const fl_rule *rule;
    size_t layer;
    fl_attention_shape shape;
    size_t group;               /* query heads a KV head */
    bool linear, own, exact;    /* a linear branch; own hooks; an exact set that can hold a key */
    fl_route route;             /* with what `none` makes of self_recall */
    size_t key_dim, value_dim, micro_steps; /* Dk, Dv with the normaliser's channel */
    size_t projection_count;
    fl_mixer_projection projections[FL_PROJECTIONS];
    size_t delay;               /* tokens between a token and its write: the window, or 1 where reads come before */
    size_t state_floats;        /* a head */
    fl_write_layout layout;
    fl_mixer_tensor rule_tensors[FL_RULE_MAX_PARAMETERS]; /* of the rule's own; none where it is not in use */
    fl_rule_layer rule_layer;   /* what operations are told of the rule in this layer */
    fl_mixer_tensor conv_weight[3], conv_bias[3];    /* of q, k, v */
    fl_mixer_tensor window_factor;
} fl_mixer_plan;

/* In mixer.c; also used by the backward pass. */
void fl_mixer_plan_make(fl_mixer_plan *plan, fl_compute *compute, const fl_mechanism *mechanism, size_t layer);
/* A tensor by its name in the layer's table. */
fl_mixer_tensor fl_mixer_tensor_find(const fl_mixer_plan *plan, const char *name);
/* Where its gradient lies in a block laid out as the layer's parameters; NULL without block or tensor. */
fl_array fl_mixer_tensor_gradient(fl_mixer_tensor tensor, fl_array parameters);
/* Starts a fresh timeline from a call's initial state, when it gives one. */
void fl_mixer_begin(fl_mixer *mixer, fl_array initial_state /* [H][state_floats] or NULL */);

struct fl_mixer {
    fl_mixer_plan plan;
    size_t position, tokens_written;
    fl_array state;               /* [H][state_floats] */
    fl_exact_set exact;
    fl_array pending_block, cached_block;
    fl_write_rows pending;      /* [delay] rows; the write of position p waits in row p % delay, zeros where there is none */
    fl_write_rows cached;       /* [budget] rows by slot, zeros where free, + 1 as scratch for the candidate that leaves */
    fl_routed_cache cache;
    fl_array history[3];          /* [kernel - 1][H or Hkv][D] of q, k, v */
};

/* Scratch of one call, sized for its largest block. */
typedef struct fl_mixer_scratch {
    size_t block;               /* tokens */
    fl_array projected[FL_PROJECTIONS];          /* [T][H][width], activated */
    fl_array low[FL_PROJECTIONS];                /* [T][rank] */
    fl_array bonus;                              /* [T][H][D], scaled, 0 where the token is exact */
    fl_array convolved[3], taps;                /* [T][H][D], [kernel][H*D] */
    fl_array query, read, norm;                /* [H][T*m][Dk], [H][T*m][Dv], [H][T*m] */
    fl_array stream_block;                       /* rows of the stream */
    fl_array exact, log_sum_exp, largest;      /* [T][H][D], [T][H], [T][H] */
    void *host;                                /* memory of the two below, an fl_memory block */
    fl_array decisions;                        /* int32 [2][Hkv][T], with a routed cache: the two below, as operations were told them */
    int32_t *slots;                            /* [Hkv][T] slot whose row a step exchanges, -1 = none */
    int32_t *written;                          /* [Hkv][T] position that each step writes, -1 where nothing is */
} fl_mixer_scratch;

/* One block of a call. */
typedef struct fl_mixer_block {
    fl_mixer *mixer;
    const fl_mixer_scratch *scratch;
    size_t tokens, first;       /* T, position of the first */
    fl_array query, key, value, input;
    fl_array initial_state; /* of the call */
    fl_array output;
    bool wants_norm;
    bool exact_known;           /* scratch->exact and log_sum_exp are filled already */
    fl_recurrence_mode mode;
    size_t margin;              /* min(delay, T): writes that have waited and those that go on waiting after this block */
    fl_write_rows stream;       /* margin + T rows: row s is what step s writes; token t fills row margin + t */
} fl_mixer_block;

/* The position that leaves the window at step `position`, or -1. */
int32_t fl_mixer_leaving(const fl_mixer_plan *plan, size_t position);

/* mixer_prepare.c: gates, convolution, prepare. Fills scratch->query and block->stream, of which what is to wait is kept. */
void fl_mixer_prepare(fl_mixer_block *block);
/* The call that fills the stream, and, of a rule with a step of its own, the one that reads it: steps first .. first + count - 1. */
fl_prepare_call fl_mixer_prepare_call(const fl_mixer_block *block);
fl_own_steps_call fl_mixer_own_steps_call(const fl_mixer_block *block, size_t first, size_t count);

/* mixer_route.c */
fl_status fl_mixer_route(fl_mixer_block *block, fl_error *error);

/* mixer_forward.c: the recurrence over steps first .. first + count - 1 of the block. */
fl_status fl_mixer_advance(fl_mixer_block *block, size_t first, size_t count, fl_error *error);

/* The whole sequence as one block, with everything that was computed on the way kept in the scratch: what the backward pass
 * starts from. The mixer must be fresh. results: also the softmax over the exact set and the reads (else only where routing
 * needs them; the softmax also where the call shares it). The scratch and *lent are the caller's to give back, also after a
 * failure. Nothing is merged. */
fl_status fl_mixer_replay(fl_mixer *mixer, const fl_mixer_call *call, bool results, fl_lent_memory *lent,
                          fl_mixer_scratch *scratch, fl_mixer_block *block, fl_error *error);
/* Gives the scratch of a call back. */
void fl_mixer_scratch_release(fl_compute *compute, fl_mixer_scratch *scratch, fl_lent_memory lent);
/* Bytes of the scratch of a replay. */
size_t fl_mixer_replay_bytes(const fl_mixer_plan *plan, size_t tokens);
/* The merge's inputs as they lie in the scratch. */
fl_merge_call fl_mixer_merge_call(const fl_mixer_block *block);
/* The attention call over the exact set. */
fl_attention_call fl_mixer_attention_call(const fl_mixer_block *block);

#endif
