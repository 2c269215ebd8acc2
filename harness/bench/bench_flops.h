/* FLOPs: how much arithmetic a piece of work is, counted on its own algorithm; a multiplication and an
 * addition are two. Only products are counted: exponentials, norms, rotations, gates' activations and the
 * like are overhead, and show as a smaller fraction of the peak.
 *
 *   projections      2 T W for the W weights of all layers' q, k, v, o, gate, up, down; 2 E V a row of logits
 *   exact softmax    4 D a visible pair of query and key and query head: q.k and the weighted sum of v.
 *                    T queries after none: T (T + 1) / 2 pairs; backward: 10 D a pair (five products)
 *   recurrence       the chunk form of cpu_recurrence.h with chunks of FL_CHUNK_TOKENS = c, a token and head:
 *                        no erase          4 Dk Dv +  c (Dk + Dv)
 *                        erase by the key  6 Dk Dv + 2c (Dk + Dv)
 *                        own directions    8 Dk Dv + 4c (Dk + Dv)
 *                    products with the state, and triangles of c x c counted as half a square, the solve
 * included; every micro step is a token. Backward: three times as many gates, beta      2 T numbers of their
 * projections; feature maps: 2 T numbers of the rule's [D][D] matrices
 *
 * What a rule of its own (without the recurrence) does to its state is not counted. */
#ifndef FL_BENCH_FLOPS_H
#define FL_BENCH_FLOPS_H

#include <stddef.h>

#include "attn_variants/mechanism.h"
#include "harness/compute/recurrence.h"
#include "harness/engine/network.h"

double fl_bench_projection_flops(const fl_network *network, size_t tokens);
double fl_bench_logit_flops(const fl_network *network, size_t rows);
/* One layer's softmax; `pairs`: of query and key, in one head. */
double fl_bench_softmax_flops(const fl_attention_shape *shape, double pairs);
/* Pairs of T queries with the keys up to their own that sinks and a window hold; window SIZE_MAX: all of
 * them. */
double fl_bench_pairs(size_t tokens, size_t sinks, size_t window);
double fl_bench_recurrence_flops(fl_transition transition, size_t heads, size_t steps, size_t key_dim,
                                 size_t value_dim);
/* A pass over `tokens` tokens with logits of the last, for which alone the last layer goes on after its
 * mixing: the frozen model's (mechanism NULL) or a variant's. */
double fl_bench_prefill_flops(const fl_network *network, const fl_mechanism *mechanism, size_t tokens);

#endif
