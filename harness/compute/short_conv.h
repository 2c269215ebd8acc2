/* Short convolution: causal, depthwise, with bias, no activation, on the linear branch's q, k and v of every query head
 * (arXiv 2607.07706):
 *
 *     y_t[c] = bias[c] + sum_i weight[c][i] x_{t - (kernel - 1) + i}[c],     x = 0 before token 0
 *
 * weight [H*D][kernel], index kernel - 1 is the current token (PyTorch's Conv1d order). The last kernel - 1 tokens are kept
 * between calls (compute.h: short_conv_remember), so how a sequence is cut changes nothing. */
#ifndef FL_COMPUTE_SHORT_CONV_H
#define FL_COMPUTE_SHORT_CONV_H

#include <stddef.h>

#include "harness/compute/array.h"

typedef struct fl_short_conv_call {
    size_t tokens, heads, source_heads, head_dim, kernel; /* output head h reads source head h / (heads / source_heads) */
    fl_array input;    /* [T][source_heads][D] */
    fl_array history;  /* [kernel - 1][source_heads][D], oldest first, zeros before token 0 */
    fl_array weight;   /* [heads*D][kernel] */
    fl_array bias;     /* [heads*D] */
    fl_array taps;           /* scratch [kernel][heads*D] */
    fl_array output;         /* [T][heads][D] */
} fl_short_conv_call;

/* Gradients over one whole sequence (history all zeros). All but gradient_output are added to; NULL = not wanted. */
typedef struct fl_short_conv_gradients {
    fl_array output;  /* [T][heads][D] */
    fl_array input;         /* [T][source_heads][D] */
    fl_array weight, bias; /* [heads*D][kernel], [heads*D] */
} fl_short_conv_gradients;

#endif
