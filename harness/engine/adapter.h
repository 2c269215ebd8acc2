/* Adapter: the low-rank terms (LoRA, arXiv 2106.09685) that a mechanism adds to the frozen projections of one linearised layer:
 * output += alpha / rank input A B, A [in][rank], B [rank][out]. The backbone's weights are not touched. */
#ifndef FL_ENGINE_ADAPTER_H
#define FL_ENGINE_ADAPTER_H

#include <stddef.h>

#include "attn_variants/mechanism.h"
#include "harness/compute/compute.h"

typedef struct fl_adapter_part {
    fl_array a, b; /* NULL: not a target */
    size_t in, out;
    size_t offset_a, offset_b; /* in a block laid out as the layer's parameters */
} fl_adapter_part;

typedef struct fl_adapter {
    size_t rank; /* 0: the layer has none */
    float scale;
    fl_adapter_part parts[FL_LORA_TARGETS];
} fl_adapter;

/* Points into the mechanism's parameters. rank 0 for a NULL mechanism, a softmax layer, and without LoRA. */
fl_adapter fl_adapter_of(const fl_mechanism *mechanism, size_t layer);

/* Adds the term of `target` to output [T][out]; nothing when it has none. low: scratch [T][rank]. */
void fl_adapter_forward(fl_compute *compute, const fl_adapter *adapter, fl_lora_target target, size_t tokens,
                        fl_array input, fl_array low, fl_array output);

/* Adds to the gradients of A and B in gradient_parameters (a block laid out as the layer's), and to gradient_input [T][in]
 * (NULL: not wanted). low: scratch [2][T][rank]. */
void fl_adapter_backward(fl_compute *compute, const fl_adapter *adapter, fl_lora_target target, size_t tokens,
                         fl_array input, fl_array gradient_output, fl_array low, fl_array gradient_parameters,
                         fl_array gradient_input);

#endif
