/* Ablation: the same variant with one of its parts off, and the same parameters for everything that stays.
 *
 * "Linear off" is every report's baseline; the others say what the exact set, the convolution and the gate
 * contribute. */
#ifndef FL_ATTN_VARIANTS_ABLATION_H
#define FL_ATTN_VARIANTS_ABLATION_H

#include "attn_variants/mechanism.h"
#include "attn_variants/variant.h"
#include "harness/base/status.h"

typedef enum fl_branch {
    FL_BRANCH_LINEAR = 0,  /* rule none: the softmax over the exact set alone */
    FL_BRANCH_EXACT,       /* window, sinks and cache 0: the state alone */
    FL_BRANCH_CONVOLUTION, /* no short convolution */
    FL_BRANCH_GATE,        /* every gate 1: nothing is forgotten */
    FL_BRANCH_COUNT
} fl_branch;

/* "linear", "exact", "convolution", "gate"; NULL-terminated, in the order of fl_branch. */
extern const char *const fl_branch_names[];

/* *out = a fitted copy without that part, or NULL when `variant` has no such part (which is not an error). */
fl_status fl_variant_ablate(const fl_variant *variant, fl_branch branch, fl_variant **out, fl_error *error);

/* An independent copy. */
fl_status fl_variant_copy(const fl_variant *variant, fl_variant **out, fl_error *error);

/* Parameters for `variant` (fitted; borrowed by the result): those that `source` has under the same name and
 * shape are taken from it, the others are initialised. */
fl_status fl_mechanism_derive(const fl_mechanism *source, const fl_variant *variant, fl_mechanism **out,
                              fl_error *error);

#endif
