#include "harness/compute/rule_functions.h"

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_raw_inputs(input, output);
    FL_ONCE output->log_decay[0] = input->gate[0];
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    fl_rule_raw_inputs_backward(input, gradient, out);
    FL_ONCE out->gate[0] = gradient->log_decay[0];
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

const fl_rule fl_rule_decay = {
    .abi = FL_RULE_ABI,
    .name = "decay",
    .summary = "one decay a head, the write at full weight",
    .equation = "S = g S + v k^T;  y = S q",
    .source = "Sun et al. 2023, arXiv 2307.08621 (retention); Dao and Gu 2024, arXiv 2405.21060",
    .gate = FL_GATE_SCALAR,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .default_gate_bias = 1.0,
    .transition = {FL_DECAY_SCALAR, FL_ERASE_NONE},
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
