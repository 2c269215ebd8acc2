#include "harness/compute/rule_functions.h"

typedef struct hgrn2_options {
    double lower_bound;
    bool unit;
} hgrn2_options;

FL_RULE_FUNCTION const hgrn2_options *chosen(const fl_rule_input *input) {
    return (const hgrn2_options *)input->options;
}

/* a, from the gate's log sigmoid. */
FL_RULE_FUNCTION double kept(const fl_rule_input *input, size_t i) {
    double bound = chosen(input)->lower_bound;
    return bound + (1.0 - bound) * exp((double)input->gate[i]);
}

/* 1 - a without its cancellation. */
FL_RULE_FUNCTION double taken(const fl_rule_input *input, size_t i) {
    return (1.0 - chosen(input)->lower_bound) * -expm1((double)input->gate[i]);
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_inputs(chosen(input)->unit, input, output);
    FL_EACH(i, input->head_dim) {
        output->log_decay[i] =
            chosen(input)->lower_bound == 0.0 ? input->gate[i] : (float)log(kept(input, i));
        output->key[i] = (float)taken(input, i);
    }
}

/* With u = e^gate: da/dgate = (1 - bound) u, d log a/dgate = (1 - bound) u / a, dk'/dgate = -(1 - bound) u.
 */
FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    fl_rule_inputs_backward(chosen(input)->unit, input, gradient, out);
    FL_EACH(i, input->head_dim) {
        double slope = (1.0 - chosen(input)->lower_bound) * exp((double)input->gate[i]);
        double of_log = chosen(input)->lower_bound == 0.0 ? 1.0 : slope / kept(input, i);
        out->gate[i] = (float)(gradient->log_decay[i] * of_log - gradient->key[i] * slope);
        out->key[i] = 0.0f;
    }
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "lower_bound",
     .type = FL_OPTION_NUMBER,
     .offset = offsetof(hgrn2_options, lower_bound),
     .default_text = "0",
     .minimum = 0.0,
     .maximum = 0.9999,
     .help = "no channel keeps less: a = bound + (1 - bound) sigmoid(x)"},
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(hgrn2_options, unit),
     .default_text = "true",
     .help = "q of unit length; false: as it is"},
};

const fl_rule fl_rule_hgrn2 = {
    .abi = FL_RULE_ABI,
    .name = "hgrn2",
    .summary = "what a channel forgets is what is written into it: the forget gate is the key",
    .equation = "S = S diag(a) + v (1 - a)^T;  y = S q",
    .source = "Qin et al. 2024, arXiv 2404.07904",
    .differs = "the frozen key is not used at all; lower_bound is one number where the published layers "
               "learn an increasing one.",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .default_gate_bias = 1.0,
    .transition = {FL_DECAY_CHANNEL, FL_ERASE_NONE},
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(hgrn2_options),
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
