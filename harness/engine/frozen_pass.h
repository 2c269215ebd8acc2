/* Frozen pass: what the frozen model's attention blocks receive and give on whole sequences, layer by layer: the targets of a
 * layer-wise fit. One pass serves any number of mechanisms, and what it found is kept in memory while a budget lasts, then in a
 * scratch file while a second one lasts, so that a sequence that comes back costs its query, key and value projections only.
 * Results do not depend on what was kept, nor where. */
#ifndef FL_ENGINE_FROZEN_PASS_H
#define FL_ENGINE_FROZEN_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/compute/array.h"
#include "harness/engine/network.h"

/* One layer on one sequence. Valid during the visit only. */
typedef struct fl_frozen_layer {
    size_t layer, tokens;
    fl_array attention_input;  /* [T][E] after the input norm */
    fl_array query;            /* [T][H][D] after q/k norm and RoPE */
    fl_array key, value;      /* [T][Hkv][D] */
    fl_array attention_output; /* [T][E] after the output projection, before the residual */
    double variance;               /* of attention_output over its T E numbers */
} fl_frozen_layer;

typedef fl_status (*fl_frozen_visit)(void *context, const fl_frozen_layer *layer, fl_error *error);

typedef struct fl_frozen_pass fl_frozen_pass;

/* What may be kept. All zero: nothing. */
typedef struct fl_frozen_budget {
    size_t memory, scratch;     /* bytes in memory, and in a scratch file once memory is full */
    const char *scratch_folder; /* NULL: scratch_file.h's default */
} fl_frozen_budget;

/* wanted [L]: layers to visit (copied). sequences: how many there are; 0 = nothing is kept. */
fl_status fl_frozen_pass_create(const fl_network *network, const bool *wanted, size_t sequences,
                                const fl_frozen_budget *budget, fl_frozen_pass **out, fl_error *error);
void fl_frozen_pass_destroy(fl_frozen_pass *pass);

/* Visits the wanted layers of a sequence in ascending order. A sequence's number stands for its ids. The layers above the
 * highest wanted one are not computed. A visit's failure is passed on. */
fl_status fl_frozen_pass_run(fl_frozen_pass *pass, size_t sequence, const int32_t *ids, size_t tokens,
                             fl_frozen_visit visit, void *context, fl_error *error);

/* Bytes of activations held in memory now, kept ones included; and those in the scratch file. */
size_t fl_frozen_pass_bytes(const fl_frozen_pass *pass);
size_t fl_frozen_pass_scratch_bytes(const fl_frozen_pass *pass);

/* Bytes that sequences of up to `tokens` tokens take when nothing is kept. */
size_t fl_frozen_pass_bytes_of(const fl_network *network, size_t tokens);

#endif
