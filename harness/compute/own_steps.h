/* Own steps: the recurrence of a rule whose state does not follow S_t = S_{t-1} diag(a) (I - b r x^T) + w v k^T and that has a step
 * of its own, one token after another: at each step what leaves the delay is written (rule function `write`), then the step's query
 * reads (`read`). A step that writes nothing leaves the state as it is. */
#ifndef FL_COMPUTE_OWN_STEPS_H
#define FL_COMPUTE_OWN_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "harness/compute/array.h"
#include "harness/compute/rule_rows.h"
#include "harness/compute/write_rows.h"

typedef struct fl_own_steps_call {
    const fl_rule_layer *rule;
    size_t state_floats;      /* a head */
    size_t tokens, first_position; /* T, position of step 0 */
    size_t first_step, steps; /* those that are run: first_step .. first_step + steps - 1 */
    float scale;              /* of what is read */
    fl_write_layout layout;
    fl_array query;       /* [H][T][D] */
    fl_write_rows written;    /* row s of each head is what step s writes */
    /* Which position a step writes: position - delay, unless that is before 0 or a sink's (positions below `sinks`); or, where a
     * routed cache decides, positions [kv_heads][T], -1 = none. */
    size_t delay, sinks, kv_heads;
    fl_array positions; /* int32; none: by delay and sinks */
    fl_array state;             /* [H][state_floats], in and out; of the backward pass: the initial one, NULL = as `init` makes it */
    fl_array output;            /* [H][T][D] */
    fl_array state_norm;        /* [H][T] Frobenius norm of all of a head's state, or NULL */
} fl_own_steps_call;

/* Over all T steps from the initial state. */
typedef struct fl_own_steps_gradients {
    fl_array output;          /* [H][T][D], given */
    fl_array query;                 /* [H][T][D], overwritten */
    const fl_write_rows *written; /* rows of steps that write are overwritten */
    float *const *parameters;     /* in the rule's order, added to; NULL = not wanted */
} fl_own_steps_gradients;

#endif
