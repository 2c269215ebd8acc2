#include <string.h>

#include "attn_variants/attn_variant.h"

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_unit_inputs(input, output);
    memcpy(output->log_decay, input->gate, input->head_dim * sizeof(float));
    output->erase_strength[0] = input->beta;
    output->write[0] = input->beta;
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    fl_rule_unit_inputs_backward(input, gradient, out);
    memcpy(out->gate, gradient->log_decay, input->head_dim * sizeof(float));
    out->beta[0] = gradient->erase_strength[0] + gradient->write[0];
}

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
