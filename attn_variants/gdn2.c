#include <math.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

enum { ERASE = 0, WRITE };

/* The source projects both factors from the input; here beta is, and every channel scales it by 2 sigmoid of
 * what is learned. */
static const fl_rule_parameter parameters[] = {
    {"gdn2.erase", "HD", "0", "log-odds of each key channel's erase factor"},
    {"gdn2.write", "HD", "0", "log-odds of each value channel's write factor"},
};

static float factor(float x) {
    return 2.0f / (1.0f + expf(-x));
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim, at = input->head * n;
    fl_rule_unit_inputs(input, output);
    memcpy(output->log_decay, input->gate, n * sizeof(float));
    memcpy(output->erase_write, output->key, n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        output->erase_read[i] = factor(input->parameters[ERASE][at + i]) * output->key[i];
        output->value[i] *= factor(input->parameters[WRITE][at + i]);
    }
    output->erase_strength[0] = input->beta;
    output->write[0] = input->beta;
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    size_t n = input->head_dim, at = input->head * n;
    float key[FL_RULE_MAX_HEAD_DIM], gradient_key[FL_RULE_MAX_HEAD_DIM], gradient_value[FL_RULE_MAX_HEAD_DIM];
    fl_rule_unit(n, input->key, key);
    for (size_t i = 0; i < n; i++) {
        float erase = factor(input->parameters[ERASE][at + i]),
              write = factor(input->parameters[WRITE][at + i]);
        gradient_key[i] = gradient->key[i] + gradient->erase_write[i] + erase * gradient->erase_read[i];
        gradient_value[i] = write * gradient->value[i];
        if (out->parameters == NULL) continue;
        out->parameters[ERASE][at + i] += gradient->erase_read[i] * key[i] * erase * (1.0f - 0.5f * erase);
        out->parameters[WRITE][at + i] +=
            gradient->value[i] * input->value[i] * write * (1.0f - 0.5f * write);
    }
    fl_rule_output_gradient passed = *gradient;
    passed.key = gradient_key;
    passed.value = gradient_value;
    fl_rule_unit_inputs_backward(input, &passed, out);
    memcpy(out->gate, gradient->log_decay, n * sizeof(float));
    out->beta[0] = gradient->erase_strength[0] + gradient->write[0];
}

const fl_rule fl_rule_gdn2 = {
    .abi = FL_RULE_ABI,
    .name = "gdn2",
    .summary = "delta rule that erases by key channel and writes by value channel; kda at first",
    .equation = "S = S diag(a)(I - b (e*k) k^T) + b (w*v) k^T;  y = S q",
    .source = "arXiv 2605.22791 (GDN-2)",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .beta = true,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .default_gate_bias = 1.0,
    .default_beta_bias = -1.0,
    .transition = {FL_DECAY_CHANNEL, FL_ERASE_DIRECTIONS},
    .has_write = true,
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
