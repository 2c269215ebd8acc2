#include "harness/compute/rule_functions.h"

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_unit_inputs(input, output);
    fl_rule_copy(input->head_dim, input->gate, output->log_decay);
    FL_ONCE {
        output->erase_strength[0] = input->beta;
        output->write[0] = input->beta;
    }
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    fl_rule_unit_inputs_backward(input, gradient, out);
    fl_rule_copy(input->head_dim, gradient->log_decay, out->gate);
    FL_ONCE out->beta[0] = gradient->erase_strength[0] + gradient->write[0];
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

const fl_rule fl_rule_kda = {
    .abi = FL_RULE_ABI,
    .name = "kda",
    .summary = "delta rule with a decay for every key channel, which acts before the error is taken",
    .equation = "S = S diag(a)(I - b k k^T) + b v k^T;  y = S q",
    .source = "Kimi Linear 2025, arXiv 2510.26692; the GDN of arXiv 2607.07706, eq. 6",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .beta = true,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .beta_may_reflect = true,
    .default_gate_bias = 1.0,
    .default_beta_bias = -1.0,
    .transition = {FL_DECAY_CHANNEL, FL_ERASE_KEY},
    .has_write = true,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
