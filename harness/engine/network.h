/* Network: a frozen model's weights made ready for a compute backend. Immutable but for `stop`; shared by all sessions on
 * one backend. */
#ifndef FL_ENGINE_NETWORK_H
#define FL_ENGINE_NETWORK_H

#include <stddef.h>

#include "harness/base/progress.h"
#include "harness/base/status.h"
#include "harness/compute/compute.h"
#include "harness/model/model.h"

typedef struct fl_network_layer {
    fl_array input_norm, post_attention_norm;  /* [E] float32, owned by the network */
    fl_array query_norm, key_norm;             /* [D] or NULL */
    fl_weight *query, *key, *value, *output;
    fl_array query_bias, key_bias, value_bias, output_bias; /* or NULL */
    fl_weight *gate, *up, *down;
    fl_array gate_bias, up_bias, down_bias;   /* or NULL */
} fl_network_layer;

typedef struct fl_network {
    const fl_model *model;  /* borrowed */
    fl_compute *compute;    /* borrowed */
    fl_weight *embedding, *head; /* the same handle when tied */
    fl_array final_norm;
    fl_network_layer *layers;
    fl_attention_shape shape;
    float *vectors;         /* storage of all norms and biases */
    const fl_progress *stop; /* asked before every layer of every pass whether to stop; borrowed, NULL: never */
} fl_network;

fl_status fl_network_create(const fl_model *model, fl_compute *compute, fl_network **out, fl_error *error);
void fl_network_destroy(fl_network *network);

/* FL_ERROR_CANCELLED when `stop` says so: what passes ask before each layer, so that an interrupt waits for one layer of one
 * block of tokens at most. */
fl_status fl_network_go_on(const fl_network *network, fl_error *error);

/* stream [T][E] = the embeddings of ids [T] of the host, which are inside the vocabulary. */
fl_status fl_network_embed(const fl_network *network, size_t tokens, const int32_t *ids, fl_array stream,
                           fl_error *error);

/* logits [rows][V] from final hidden states [rows][E] (after the final norm). */
void fl_network_logits(const fl_network *network, size_t rows, fl_array hidden, fl_array logits);

/* How many rows of logits to hold at a time: enough for a product at full speed, little enough for memory with a large
 * vocabulary. */
size_t fl_network_logit_rows(const fl_network *network);

/* Bytes of keys and values that the frozen softmax of a layer holds for a sequence of `tokens` (a sliding window caps it). */
size_t fl_network_cache_bytes(const fl_network *network, size_t layer, size_t tokens);

#endif
