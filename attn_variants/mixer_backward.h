/* Backward pass of a mixer over one whole sequence, from position 0: what training needs of a linearised layer.
 *
 * A tape holds what the forward pass computed on the way; fl_mixer_backward records one itself and drops it. Memory grows with
 * tokens, not with their square.
 * Routing decisions are constants. Everything else is differentiated: prepare, recurrence, normaliser, softmax over the exact
 * set, every merge (gamma, and in the published form its maximum), short convolution, gates and beta. */
#ifndef FL_ATTN_VARIANTS_MIXER_BACKWARD_H
#define FL_ATTN_VARIANTS_MIXER_BACKWARD_H

#include <stddef.h>

#include "attn_variants/mechanism.h"
#include "attn_variants/mixer.h"
#include "harness/base/status.h"
#include "harness/compute/compute.h"

typedef struct fl_mixer_tape fl_mixer_tape;

/* Forward over a whole sequence from its first token, everything kept. call->output is filled when it is not NULL, call->exact
 * used and filled likewise; the other optional outputs are not. The call's inputs, call->exact's arrays, mechanism and compute
 * are borrowed until the tape is destroyed. */
fl_status fl_mixer_record(fl_compute *compute, const fl_mechanism *mechanism, size_t layer, const fl_mixer_call *call,
                          fl_mixer_tape **out, fl_error *error);
void fl_mixer_tape_destroy(fl_mixer_tape *tape);

/* As fl_mixer_backward below, of what was recorded. */
fl_status fl_mixer_tape_backward(const fl_mixer_tape *tape, fl_array gradient_output, fl_array gradient_query,
                                 fl_array gradient_key, fl_array gradient_value, fl_array gradient_input,
                                 fl_array gradient_parameters, fl_error *error);

/* Bytes that a tape over `tokens` tokens and its backward pass take at most, beside what a backend needs for itself. */
size_t fl_mixer_tape_bytes(fl_compute *compute, const fl_mechanism *mechanism, size_t layer, size_t tokens);

/* call: the forward pass's inputs, the sequence from its first token; its output members are not used and may be NULL.
 * gradient_output [T][H][D]. gradient_query [T][H][D], gradient_key and gradient_value [T][Hkv][D] and gradient_input
 * [T][E] are overwritten; NULL = not wanted. gradient_parameters is a block laid out as the layer's parameters
 * (mechanism->layer_floats), added to; NULL = not wanted. The outputs must not overlap gradient_output.
 * FL_ERROR_UNSUPPORTED for a rule with own hooks that have no derivative. */
fl_status fl_mixer_backward(fl_compute *compute, const fl_mechanism *mechanism, size_t layer,
                            const fl_mixer_call *call, fl_array gradient_output, fl_array gradient_query,
                            fl_array gradient_key, fl_array gradient_value, fl_array gradient_input,
                            fl_array gradient_parameters, fl_error *error);

#endif
