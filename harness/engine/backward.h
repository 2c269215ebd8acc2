/* Backward: gradients of a loss with respect to a mechanism's parameters, through the frozen network.
 *
 * One sequence from position 0 at a time, whole. The forward pass keeps two streams a layer (before it and after its attention);
 * everything else is recomputed layer by layer on the way down, which stops at the lowest linearised layer, except for the upper
 * layers' projections and softmax over the exact set, which are kept as far as fl_backward_keep allows. What is kept changes no result. Nothing of size
 * [T][V] or [T][T] is ever held: logits and their gradients exist for a few rows at a time. Memory is about
 * 4 T (2 L E + 8 E + 6 F + 9 H D) bytes and the mixers' own; fl_backward_bytes says how much. No gradient with respect to the backbone exists. */
#ifndef FL_ENGINE_BACKWARD_H
#define FL_ENGINE_BACKWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"
#include "harness/base/status.h"
#include "harness/engine/gradient.h"
#include "harness/engine/network.h"

typedef struct fl_backward fl_backward;

/* Both are borrowed; the mechanism's parameters may change between calls. */
fl_status fl_backward_create(const fl_network *network, const fl_mechanism *mechanism, fl_backward **out,
                             fl_error *error);
void fl_backward_destroy(fl_backward *backward);
/* Memory held, kept layers and what a layer's mixer takes while it is passed included. */
size_t fl_backward_bytes(const fl_backward *backward);
/* What sequences of up to `tokens` tokens will take with nothing kept. divergence: for fl_backward_divergence. */
size_t fl_backward_bytes_needed(const fl_backward *backward, size_t tokens, bool divergence);
/* Bytes that what is kept may take. To be called before the first pass. */
void fl_backward_keep(fl_backward *backward, size_t bytes);

/* Each adds weight * dLoss/d(parameters) to *gradient (NULL: the loss alone) and sets the loss; sums are float64. Ids must be
 * inside the vocabulary, tokens >= 2. NaN and infinity pass through. */

/* Mean next-token cross-entropy over the tokens - 1 predictions, in nats. */
fl_status fl_backward_next_token(fl_backward *backward, const int32_t *ids, size_t tokens, double weight,
                                 fl_gradient *gradient, double *loss, fl_error *error);

/* Mean over all positions of KL(frozen model || linearised model), in nats. */
fl_status fl_backward_divergence(fl_backward *backward, const int32_t *ids, size_t tokens, double weight,
                                 fl_gradient *gradient, double *loss, fl_error *error);

/* Every layer by itself on the frozen model's own inputs: the mean square of (linearised - frozen) attention block output,
 * divided by the frozen output's variance on this sequence when `normalise`. losses [L], 0 in softmax layers. A layer's
 * gradient is that of its own loss. */
fl_status fl_backward_layer_error(fl_backward *backward, const int32_t *ids, size_t tokens, double weight,
                                  bool normalise, fl_gradient *gradient, double *losses, fl_error *error);

#endif
