/* Rules with a step of their own (fl_rule.own): a token at a time, forward and backward. Part of the mixer's insides. */
#ifndef FL_ATTN_VARIANTS_MIXER_OWN_H
#define FL_ATTN_VARIANTS_MIXER_OWN_H

#include <stddef.h>

#include "attn_variants/mixer_parts.h"
#include "harness/base/status.h"

/* Steps first .. first + count - 1 of the block: reads and, where wanted, norms into the scratch, the mixer's state moved on. */
void fl_mixer_own_advance(const fl_mixer_block *block, size_t first, size_t count);

/* What fl_mixer_own_backward takes and gives. */
typedef struct fl_mixer_own_gradients {
    const float *read;           /* [H][T][D] dLoss/d(reads) */
    float *query;                /* [H][T][D] overwritten */
    const fl_write_rows *stream; /* by step, as the block's stream; the rows of steps that write are overwritten */
    float *const *parameters;    /* in the rule's order, added to; NULL = not wanted */
} fl_mixer_own_gradients;

/* Backward over a whole sequence from the initial state. States are kept at about sqrt(T) steps and computed again between
 * them. FL_ERROR_UNSUPPORTED, naming the rule, when it has no derivative. */
fl_status fl_mixer_own_backward(const fl_mixer_block *block, const fl_mixer_own_gradients *gradients, fl_error *error);
/* Bytes it takes beside the arguments. */
size_t fl_mixer_own_backward_bytes(const fl_mixer_plan *plan, size_t tokens);

#endif
