/* Gates, betas and a rule's own factors: what every token projects from the block's input, forward and backward. Part of the
 * mixer's insides. */
#ifndef FL_ATTN_VARIANTS_MIXER_GATES_H
#define FL_ATTN_VARIANTS_MIXER_GATES_H

#include <stddef.h>

#include "attn_variants/mixer_parts.h"
#include "harness/compute/array.h"

/* Fills plan->projections; the plan's mechanism, layer and shape are set. */
void fl_mixer_projections_find(fl_mixer_plan *plan);
/* Whether anything is projected, and so an input needed. */
bool fl_mixer_projects(const fl_mixer_plan *plan);

/* scratch->projected of a block, activated. */
void fl_mixer_project(const fl_mixer_block *block);

/* gradients: one [T][H][width] a projection, with respect to the activated values; made raw in place. low [T][largest rank] is
 * scratch. parameters: the layer's gradient block, added to, or NULL. gradient_input [T][E] is added to, or NULL. */
void fl_mixer_projections_backward(const fl_mixer_block *block, const fl_array *gradients, fl_array low, fl_array parameters,
                                   fl_array gradient_input);
size_t fl_mixer_largest_rank(const fl_mixer_plan *plan);

#endif
