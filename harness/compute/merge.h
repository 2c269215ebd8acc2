/* Merge: one output from the softmax over the exact set and the read of the state.
 *
 * a = softmax output over the exact set, L = log of its sum of exp(scale q.k), c = the largest scale q.k in it;
 * y = S q, z = the kernel's mass z.q (the extra value channel); gamma = sigmoid(merge.window_factor) of the head.
 *
 *   sum                 a + y                                        (y divided by z where the variant has the normaliser)
 *   half                0.5 a + 0.5 y, literally also while the state is empty; just y when there can be no exact set
 *   shared_normaliser   (e^L a + y) / (e^L + z)                      LoLA, arXiv 2505.23666 eq. 14, and the house's default form
 *   lolcats             (gamma e^(L-c) a + y) / (gamma e^(L-c) + z)  LoLCATs as published, arXiv 2410.10254 eq. 7: the kernel
 *                                                                    part is not scaled, so the value of c matters
 *   lolcats_invariant   (gamma e^L a + y) / (gamma e^L + z)          the same with one maximum on both sides: c cancels
 *
 * Computed as p a + (1 - p) y / z with 1 / p = 1 + z e^-L in float64, which neither overflows nor needs a maximum. A kernel
 * mass of 0 (an empty state) reads as 0 and leaves p = 1. */
#ifndef FL_COMPUTE_MERGE_H
#define FL_COMPUTE_MERGE_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/compute/array.h"

typedef enum fl_merge {
    FL_MERGE_SUM = 0,
    FL_MERGE_HALF,
    FL_MERGE_SHARED_NORMALISER,
    FL_MERGE_LOLCATS,          /* gamma, the exact part's maximum subtracted from its own exponents only */
    FL_MERGE_LOLCATS_INVARIANT /* gamma, the maximum subtracted on both sides: its value does not matter */
} fl_merge;

/* LoLCATs' initial window factor: sigmoid(-2.197) = 0.1. */
#define FL_MERGE_WINDOW_FACTOR (-2.197)

bool fl_merge_has_gamma(fl_merge merge);
bool fl_merge_shares_normaliser(fl_merge merge);

typedef struct fl_merge_call {
    fl_merge merge;
    bool normaliser;            /* the read's last value channel is its mass */
    size_t tokens, heads, head_dim;
    size_t value_dim;           /* Dv of the read: D, + 1 with the normaliser */
    size_t read_stride;         /* floats from one token's read to the next */
    size_t read_head_stride;    /* from one head's to the next */
    fl_array read;          /* NULL: no linear branch */
    fl_array exact;         /* [T][H][D], NULL: there can be no exact set */
    fl_array log_sum_exp;   /* [T][H] */
    fl_array largest;       /* [T][H] c, for lolcats only */
    fl_array window_factor; /* [H], for the two with gamma */
    fl_array output;              /* [T][H][D] */
} fl_merge_call;

typedef struct fl_merge_gradients {
    fl_array output;   /* [T][H][D], given; the rest is overwritten */
    fl_array read;           /* strides of the call's read; other places are left alone. NULL without a linear branch */
    fl_array exact;          /* [T][H][D]; this and the next two are NULL without an exact set and when not wanted */
    fl_array log_sum_exp;    /* [T][H]; 0 in merges that do not look at it */
    fl_array largest;        /* [T][H], for lolcats only */
    fl_array window_factor;  /* [H], added to; NULL when not wanted */
} fl_merge_gradients;

#endif
