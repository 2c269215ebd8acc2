/* The one recurrence (method.md sections 8 to 10): nearly every rule of linear attention is an instance of
 *
 *     S_t = S_{t-1} diag(a_t) (I - b_t r_t x_t^T) + w_t v_t k_t^T,      y_t = S_t q_t
 *
 * with S [Dv][Dk]; decay a_t absent, one number a head, or one a channel of k (given as log a_t <= 0, -inf allowed);
 * erase absent, along the key (r = x = k), or along directions of the rule's own (r is read, x is removed: RWKV-7, Comba,
 * GDN-2); write weight w_t. The decay acts before the erase. The write of step t is visible to the read of step t.
 *
 * A null write (k = 0, log a = 0, b = 0) leaves S unchanged bit for bit.
 *
 * Two ways of computing the same thing: FL_RECURRENCE_STEP, one token after another, the definition; FL_RECURRENCE_CHUNK,
 * chunks of matrix products, stable for gates near 0 and near 1 (no exponent is ever positive beyond what float32 holds).
 * FL_RECURRENCE_AUTO takes the chunk form from a few tokens on. A call may continue from any state, so a sequence can be cut
 * anywhere. `steps` 0 is allowed and leaves the state as it is. */
#ifndef FL_COMPUTE_RECURRENCE_H
#define FL_COMPUTE_RECURRENCE_H

#include <stddef.h>

#include "harness/compute/array.h"

typedef enum fl_decay_kind { FL_DECAY_NONE = 0, FL_DECAY_SCALAR, FL_DECAY_CHANNEL } fl_decay_kind;
typedef enum fl_erase_kind { FL_ERASE_NONE = 0, FL_ERASE_KEY, FL_ERASE_DIRECTIONS } fl_erase_kind;

typedef struct fl_transition {
    fl_decay_kind decay;
    fl_erase_kind erase;
} fl_transition;

typedef enum fl_recurrence_mode {
    FL_RECURRENCE_AUTO = 0,
    FL_RECURRENCE_STEP,
    FL_RECURRENCE_CHUNK
} fl_recurrence_mode;

/* The per-step inputs of `heads` independent streams, each [heads][steps][...] contiguous. heads = query heads. */
typedef struct fl_recurrence_inputs {
    fl_array query;          /* [H][T][Dk] */
    fl_array key;            /* [H][T][Dk] */
    fl_array value;          /* [H][T][Dv] */
    fl_array log_decay;      /* NULL, [H][T] or [H][T][Dk], by transition.decay */
    fl_array erase_strength; /* b: NULL or [H][T] */
    fl_array erase_read;     /* r: [H][T][Dk] with FL_ERASE_DIRECTIONS, else NULL */
    fl_array erase_write;    /* x: likewise */
    fl_array write;          /* w: NULL (all 1) or [H][T] */
} fl_recurrence_inputs;

/* Rows from one head to the next where arrays hold more of them than the steps of a call (what waits to be written, the rest of a
 * block); their pointers are those of the call's first step. 0: as many as steps. */
typedef struct fl_recurrence_rows {
    size_t read;  /* of query, output, state_norm */
    size_t write; /* of the other inputs */
} fl_recurrence_rows;

typedef struct fl_recurrence_call {
    fl_transition transition;
    fl_recurrence_mode mode;
    size_t heads, steps, key_dim, value_dim;
    fl_recurrence_rows rows;
    fl_recurrence_inputs inputs;
    fl_array state;       /* [H][Dv][Dk], in and out */
    fl_array output;      /* [H][T][Dv], or NULL when only the state is wanted */
    fl_array state_norm;  /* [H][T] Frobenius norm of S_t, or NULL; asking for it forces the step form */
    size_t norm_values; /* rows of S, from the first, that the norm counts; 0: all */
} fl_recurrence_call;

/* Gradients with respect to everything; NULL members are not computed. All are overwritten, [layout of the input]. */
typedef struct fl_recurrence_gradients {
    fl_array query, key, value, log_decay, erase_strength, erase_read, erase_write, write;
    fl_array initial_state; /* [H][Dv][Dk] */
} fl_recurrence_gradients;

typedef struct fl_recurrence_backward_call {
    fl_transition transition;
    fl_recurrence_mode mode;
    size_t heads, steps, key_dim, value_dim;
    fl_recurrence_rows rows;           /* gradients lie as their inputs do */
    fl_recurrence_inputs inputs;
    fl_array initial_state;        /* [H][Dv][Dk] or NULL = 0 */
    fl_array gradient_output;      /* [H][T][Dv] */
    fl_array gradient_final_state; /* [H][Dv][Dk] or NULL = 0 */
    fl_recurrence_gradients gradients;
} fl_recurrence_backward_call;

#endif
