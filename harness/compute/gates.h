/* Gates: what becomes of the numbers a token projects from the block's input (gates, betas, a rule's factors), x [T][H][width]:
 *
 *     y = activation(x + bias),      with a rate: y = -exp(rate) softplus(x + bias)
 *
 * and of gradients on their way back. */
#ifndef FL_COMPUTE_GATES_H
#define FL_COMPUTE_GATES_H

#include <stddef.h>

#include "harness/compute/array.h"

/* What a rule is handed for a gate, beta or factor projected as x = h W + bias. It has no default: a rule that takes one of
 * these and does not say is refused by name. */
typedef enum fl_gate_activation {
    FL_ACTIVATE_UNSET = 0,
    FL_ACTIVATE_LOG_SIGMOID,     /* log sigmoid(x): a gate, in log space; a constant gate g gives log g */
    FL_ACTIVATE_SIGMOID,         /* sigmoid(x): a beta; a constant beta is given as it is */
    FL_ACTIVATE_RAW,             /* x itself: the rule has its own activation (SSD's dt) */
    FL_ACTIVATE_TANH             /* the mixer's own, between the two factors of a bounded gate */
} fl_gate_activation;

typedef struct fl_gates_call {
    size_t tokens, heads, width; /* T, H, numbers a head */
    fl_gate_activation activation;
    float maximum;               /* of a sigmoid: y in (0, maximum); at most 1 counts as 1 */
    fl_array bias;           /* [H*width], or NULL: none */
    fl_array rate;           /* [H], or NULL */
    fl_array values;               /* [T][H][width]: x, in place to y; the backward pass takes y */
} fl_gates_call;

typedef struct fl_gates_gradients {
    fl_array values;       /* [T][H][width] with respect to y, given; in place to x */
    fl_array bias, rate;  /* [H*width], [H]: added to; NULL = not wanted */
} fl_gates_gradients;

#endif
