/* Mix: one layer's token mixing on tensors from a file, so that anyone can hold a rule against code of their own.
 *
 * A safetensors file (F32, F64 or any other float type; F64 is rounded to float32, which is what a layer works in) gives
 *   q [T][H][D], k [T][Hkv][D], v [T][Hkv][D]   after RoPE and the model's own norms: what a mixer is handed
 *   h [T][E]                                    the block's input; needed where gates, beta or the rule's own factors are
 *                                               projected
 *   state [H][Dv][Dk]                           optional: the state before the first token; [H][n] for a rule with a step of
 *                                               its own. With a normaliser Dv is still D, and `normaliser` [H][Dk] its row
 *   p.NAME                                      optional: mechanism parameters, named as in a mechanism file without
 *                                               "layers.<i>."; what is not there keeps its initial value
 *   grad_out [T][H][D]                          optional: dLoss/d(out)
 * and another receives, in float32, `out` [T][H][D], `state` (and `normaliser`) after the last token and, with grad_out,
 * grad.q, grad.k, grad.v (their shapes), grad.h and grad.p.NAME of every parameter. Any other tensor is an error.
 *
 * The variant is a `variant:` mapping: every rule, with window, sinks, cache, convolution and merge. `softmax` is the causal
 * softmax over everything. softmax_layers and lora concern more than one layer's mixing and are refused. */
#ifndef FL_ENGINE_MIX_H
#define FL_ENGINE_MIX_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/config/node.h"
#include "harness/compute/compute.h"

typedef struct fl_mix_request {
    const fl_node *variant;  /* the mapping */
    const char *inputs, *out; /* files; out appears whole or not at all */
    fl_recurrence_mode mode;
    size_t cut;              /* tokens of the first of two forward calls; 0: one call. Gradients are of one call */
} fl_mix_request;

typedef struct fl_mix_summary {
    fl_attention_shape shape;
    size_t tokens, parameters, state_floats /* a head */;
    bool gradients;
} fl_mix_summary;

/* *summary may be NULL. */
fl_status fl_mix_run(fl_compute *compute, const fl_mix_request *request, fl_mix_summary *summary, fl_error *error);

#endif
