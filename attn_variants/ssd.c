#include "harness/compute/rule_functions.h"

typedef struct ssd_options {
    bool unit;
} ssd_options;

FL_RULE_FUNCTION bool unit(const fl_rule_input *input) {
    return ((const ssd_options *)input->options)->unit;
}

/* dt = softplus(x); x = h W + bias, the bias being the source's dt_bias. */
FL_RULE_FUNCTION double softplus(double x) {
    return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    double dt = softplus(input->gate[0]);
    fl_rule_inputs(unit(input), input, output);
    FL_ONCE {
        output->log_decay[0] = (float)(-exp(input->parameters[0][input->head]) * dt);
        output->write[0] = (float)dt;
    }
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    double rate = exp(input->parameters[0][input->head]), dt = softplus(input->gate[0]);
    double gradient_dt = gradient->write[0] - rate * gradient->log_decay[0];
    fl_rule_inputs_backward(unit(input), input, gradient, out);
    FL_ONCE {
        out->gate[0] = (float)(gradient_dt / (1.0 + exp(-(double)input->gate[0])));
        if (out->parameters != NULL)
            out->parameters[0][input->head] -= (float)(rate * dt * gradient->log_decay[0]);
    }
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(ssd_options, unit),
     .default_text = "true",
     .help = "q and k of unit length: frozen keys are far from the scale the rule is trained with; false: as "
             "published"},
};

static const fl_rule_parameter parameters[] = {
    {.name = "ssd.a_log", .axes = "H", .init = "0", .help = "A_log: the state decays by exp(-exp(A_log) dt)"},
};

const fl_rule fl_rule_ssd = {
    .abi = FL_RULE_ABI,
    .name = "ssd",
    .summary = "Mamba-2's scalar gate: step size dt from the input, decay exp(-A dt), write weight dt",
    .equation = "S = exp(-A dt) S + dt v k^T, dt = softplus(h W + bias), A = exp(A_log);  y = S q",
    .source = "Dao and Gu 2024, arXiv 2405.21060",
    .gate = FL_GATE_SCALAR,
    .gate_activation = FL_ACTIVATE_RAW,
    .default_gate_bias = -4.6, /* dt = 0.01, the middle of the source's 0.001 to 0.1 */
    .transition = {FL_DECAY_SCALAR, FL_ERASE_NONE},
    .has_write = true,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(ssd_options),
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
