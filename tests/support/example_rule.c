#include <math.h>

#include "attn_variants/attn_variant.h"

/* A delta rule with one knob: what the gate lets go of is what the write takes in. */
static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_unit_inputs(input, output);    /* q' = q / |q|, k' = k / |k|, v' = v */
    float taken = -expm1f(input->gate[0]); /* 1 - g, from log g */
    output->log_decay[0] = input->gate[0];
    output->erase_strength[0] = taken;
    output->write[0] = taken;
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    fl_rule_unit_inputs_backward(input, gradient, out);
    float of_taken = gradient->erase_strength[0] + gradient->write[0];
    out->gate[0] = gradient->log_decay[0] - of_taken * expf(input->gate[0]);
}

const fl_rule fl_rule_example = {
    .abi = FL_RULE_ABI,
    .name = "example",
    .summary = "delta rule whose step is what the gate lets go of",
    .equation = "S = g S (I - (1 - g) k k^T) + (1 - g) v k^T;  y = S q",
    .source = "the project's own example",
    .gate = FL_GATE_SCALAR,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .default_gate_bias = 1.0,
    .transition = {FL_DECAY_SCALAR, FL_ERASE_KEY},
    .has_write = true,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
