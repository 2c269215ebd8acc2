#include "harness/compute/rule_functions.h"

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_unit_inputs(input, output);
    FL_ONCE {
        output->erase_strength[0] = input->beta;
        output->write[0] = input->beta;
    }
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    fl_rule_unit_inputs_backward(input, gradient, out);
    FL_ONCE out->beta[0] = gradient->erase_strength[0] + gradient->write[0];
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

const fl_rule fl_rule_delta = {
    .abi = FL_RULE_ABI,
    .name = "delta",
    .summary = "delta rule: replaces what the state holds under a unit key by a step of size beta",
    .equation = "S = S (I - b k k^T) + b v k^T;  y = S q",
    .source = "Schlag et al. 2021, arXiv 2102.11174; Yang et al. 2024, arXiv 2406.06484",
    .beta = true,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .beta_may_reflect = true,
    .default_beta_bias = -1.0,
    .transition = {FL_DECAY_NONE, FL_ERASE_KEY},
    .has_write = true,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
