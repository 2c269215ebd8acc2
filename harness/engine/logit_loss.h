/* Losses on logits, a few rows at a time: value, and gradient with respect to the final hidden states. */
#ifndef FL_ENGINE_LOGIT_LOSS_H
#define FL_ENGINE_LOGIT_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/compute/array.h"
#include "harness/engine/network.h"

typedef struct fl_logit_loss {
    const fl_network *network; /* borrowed */
    size_t rows;               /* logits are held for so many rows */
    fl_array logits, target_logits; /* [rows][V] */
    fl_array targets;               /* [rows] int32 */
    fl_array made;                  /* [rows] float64 */
    double *row_loss;               /* [rows], the same on the host */
} fl_logit_loss;

/* with_target: room for a second model's logits (divergence). */
fl_status fl_logit_loss_create(const fl_network *network, bool with_target, fl_logit_loss *out, fl_error *error);
void fl_logit_loss_release(fl_logit_loss *loss);
size_t fl_logit_loss_bytes(const fl_logit_loss *loss);
/* The same of one still to be created. */
size_t fl_logit_loss_bytes_of(const fl_network *network, bool with_target);

/* hidden [T][E] after the final norm; ids [T]. *mean = mean over rows 0 .. T - 2 of -log p(ids[t + 1]);
 * gradient_hidden [T][E] = weight * its gradient (the last row is 0), or NULL. */
fl_status fl_logit_loss_next_token(fl_logit_loss *loss, const int32_t *ids, size_t tokens, fl_array hidden,
                                   double weight, fl_array gradient_hidden, double *mean, fl_error *error);

/* Mean over T rows of KL(softmax(head target_hidden) || softmax(head hidden)); gradient with respect to hidden. */
fl_status fl_logit_loss_divergence(fl_logit_loss *loss, size_t tokens, fl_array target_hidden,
                                   fl_array hidden, double weight, fl_array gradient_hidden, double *mean,
                                   fl_error *error);

#endif
