/* Prepare: from the linear branch's q, k, v and gates of a call's tokens to the rows that its recurrence reads and writes, by the
 * rule's function `prepare`; and gradients on their way back.
 *
 * A token's write waits `delay` steps: the rows of a stream begin with what waits, and token t of the call fills row first_row + t,
 * while the recurrence reads rows 0 .. T - 1. */
#ifndef FL_COMPUTE_PREPARE_H
#define FL_COMPUTE_PREPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/compute/array.h"
#include "harness/compute/rule_rows.h"
#include "harness/compute/write_rows.h"

typedef struct fl_prepare_call {
    const fl_rule_layer *rule;
    bool own;                 /* a rule with a step of its own is handed its inputs when it writes: they become the row as they are */
    size_t tokens, first_position; /* T, position of the first */
    size_t key_heads;         /* heads of key and value; query head h uses head h / (H / key_heads) */
    fl_array query;       /* [T][H][D] */
    fl_array key, value; /* [T][key_heads][D] */
    fl_array gate, beta, factors[FL_RULE_MAX_FACTORS]; /* [T][H][width], activated; NULL: not taken */
    size_t gate_width, factor_width[FL_RULE_MAX_FACTORS];
    float scale;              /* of what is read */
    bool normaliser;          /* the last value channel holds 1 */
    fl_write_layout layout;
    fl_array read;              /* [H][T*m][Dk]: the query, scaled unless own, in a token's last micro step; zeros before it */
    fl_write_rows written;
    size_t first_row;
    size_t null_tokens;       /* the first tokens (sinks) are never written: their rows are null writes */
    size_t bonus_from;        /* the first tokens are exact, and get no bonus */
    fl_array bonus;             /* [T][H][D], scaled; NULL: the rule has none */
} fl_prepare_call;

typedef struct fl_prepare_gradients {
    /* Given: with respect to `read` (made that of the unscaled query in place) and to rows 0 .. steps - 1 of `written`, and of rules
     * with a bonus to the recurrence's output [H][T*m][Dv]. row_of [kv_heads][T]: the row of a token's write, -1 = never written;
     * NULL: first_row + t. Rows from `steps` on are not written within the call either. */
    fl_array read;
    const fl_write_rows *written;
    size_t steps, kv_heads;
    fl_array row_of; /* int32 */
    fl_array output;
    /* Overwritten: [T][H][D], and as the call's. */
    fl_array query, key, value;
    fl_array gate, beta, factors[FL_RULE_MAX_FACTORS];
    float *const *parameters; /* in the rule's order, added to; NULL = not wanted */
} fl_prepare_gradients;

/* read += bonus * v: what the recurrence's reads lack of their own tokens. */
typedef struct fl_bonus_call {
    size_t tokens, heads, value_heads, head_dim;
    fl_array bonus, value;           /* [T][H][D], [T][value_heads][D] */
    fl_array read;                          /* of token t and head h at t read_stride + h read_head_stride */
    size_t read_stride, read_head_stride;
} fl_bonus_call;

#endif
