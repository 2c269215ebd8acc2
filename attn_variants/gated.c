#include "harness/compute/rule_functions.h"

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_raw_inputs(input, output);
    FL_ONCE {
        output->log_decay[0] = input->gate[0];
        output->write[0] = -expm1f(input->gate[0]);
    }
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    fl_rule_raw_inputs_backward(input, gradient, out);
    FL_ONCE out->gate[0] = gradient->log_decay[0] - gradient->write[0] * expf(input->gate[0]);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

const fl_rule fl_rule_gated = {
    .abi = FL_RULE_ABI,
    .name = "gated",
    .summary = "gated accumulation: an exponential moving average of v k^T",
    .equation = "S = g S + (1 - g) v k^T;  y = S q",
    .source =
        "exponential moving average; Peng et al. 2021, arXiv 2103.02143 (gated random feature attention)",
    .gate = FL_GATE_SCALAR,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .default_gate_bias = 1.0,
    .transition = {FL_DECAY_SCALAR, FL_ERASE_NONE},
    .has_write = true,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
