#include "harness/compute/rule_functions.h"

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_unit_inputs(input, output);
    fl_rule_copy(input->head_dim, input->gate, output->log_decay);
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    fl_rule_unit_inputs_backward(input, gradient, out);
    fl_rule_copy(input->head_dim, gradient->log_decay, out->gate);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

const fl_rule fl_rule_gla = {
    .abi = FL_RULE_ABI,
    .name = "gla",
    .summary = "gated linear attention: a decay for every key channel, unit queries and keys",
    .equation = "S = S diag(a) + v k^T;  y = S q",
    .source = "Yang et al. 2023, arXiv 2312.06635; as used in arXiv 2607.07706, eq. 5",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .default_gate_bias = 1.0,
    .transition = {FL_DECAY_CHANNEL, FL_ERASE_NONE},
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
