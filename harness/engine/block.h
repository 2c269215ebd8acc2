/* Block: the frozen parts of one layer around its token mixing, on explicit activation buffers, for the session's forward pass
 * and for the backward pass (which recomputes them).
 *
 *     h = norm(stream);  q, k, v = projections of h, q/k norm, RoPE;  mix;  stream += W_o mix;
 *     m = norm(stream);  stream += W_down(activation(W_gate m) * W_up m) */
#ifndef FL_ENGINE_BLOCK_H
#define FL_ENGINE_BLOCK_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"
#include "harness/compute/array.h"
#include "harness/engine/adapter.h"
#include "harness/engine/network.h"

/* Activations of one layer for up to `capacity` tokens, in one allocation. Every member is [T][...] contiguous. */
typedef struct fl_block {
    size_t capacity;
    fl_compute *compute; /* borrowed from the network that made room */
    bool keep; /* the inputs of q/k norm and of the activation are kept: the backward pass needs them */
    fl_array storage;
    fl_array attention_input;         /* [T][E] h */
    fl_array query, key, value;     /* [T][H][D], [T][Hkv][D], [T][Hkv][D] */
    fl_array raw_query, raw_key;     /* the same before q/k norm; = query, key unless kept */
    fl_array mix;                     /* [T][H][D] */
    fl_array attention_output;        /* [T][E] */
    fl_array mlp_input;               /* [T][E] m */
    fl_array gate, up, activated;   /* [T][F]; activated = gate unless kept */
    fl_array mlp_output;              /* [T][E] */
    fl_array low;                     /* [2][T][rank] scratch of adapters; its own allocation */
    size_t low_floats;
} fl_block;

/* Makes room for `tokens` tokens; contents are lost when that takes more memory. */
fl_status fl_block_reserve(fl_block *block, const fl_network *network, bool keep, size_t tokens, fl_error *error);
/* Room for adapters of this rank; 0 is fine. To be called after fl_block_reserve. */
fl_status fl_block_reserve_adapter(fl_block *block, size_t rank, size_t tokens, fl_error *error);
void fl_block_release(fl_block *block);
size_t fl_block_bytes(const fl_block *block, const fl_model_config *config);
/* The same of one still to be made. */
size_t fl_block_bytes_of(const fl_model_config *config, bool keep, size_t rank, size_t tokens);

/* RoPE of a network for sequences of a given length (which matters to dynamic scaling only). */
typedef struct fl_rope {
    float *inverse_frequencies; /* [rotary_dim / 2] */
    float factor;
} fl_rope;

fl_status fl_rope_create(const fl_model_config *config, fl_rope *out, fl_error *error);
void fl_rope_set_length(fl_rope *rope, const fl_model_config *config, size_t sequence_length);
void fl_rope_release(fl_rope *rope);

/* stream [T][E] -> attention_input, query, key, value of positions first, first + 1, ... adapter NULL: the frozen
 * projections alone (here and below). rope NULL: not rotated yet (rows that are not one timeline). */
void fl_block_project(const fl_network *network, size_t layer, const fl_rope *rope, const fl_adapter *adapter,
                      size_t tokens, size_t first, fl_array stream, fl_block *block);

/* The same from the norm's output: attention input -> query, key, value. `input` may be block->attention_input. */
void fl_block_project_input(const fl_network *network, size_t layer, const fl_rope *rope, const fl_adapter *adapter,
                            size_t tokens, size_t first, fl_array input, fl_block *block);

/* RoPE of `tokens` rows of query and key (a block's, from any row on) at positions first, first + 1, ... */
void fl_block_rotate(const fl_network *network, const fl_rope *rope, size_t tokens, size_t first, fl_array query,
                     fl_array key);

/* mix -> attention_output, added to stream. */
void fl_block_attention_output(const fl_network *network, size_t layer, const fl_adapter *adapter, size_t tokens,
                               fl_array stream, fl_block *block);

/* stream -> mlp_input, gate, up, activated. */
void fl_block_expand(const fl_network *network, size_t layer, size_t tokens, fl_array stream, fl_block *block);

/* fl_block_expand, then mlp_output, added to stream. */
void fl_block_feed_forward(const fl_network *network, size_t layer, size_t tokens, fl_array stream, fl_block *block);

#endif
