#include <math.h>

#include "attn_variants/attn_variant.h"

enum { FEEDBACK = 0, CORRECTION };

static const fl_rule_parameter parameters[] = {
    {"comba.feedback", "H", "2", "p = sigmoid(feedback) k: how much of the read is fed back"},
    {"comba.correction", "H", "0.02", "the query is corrected to q - correction k"},
};

static float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_unit_inputs(input, output);
    float feedback = sigmoid(input->parameters[FEEDBACK][input->head]);
    float correction = input->parameters[CORRECTION][input->head];
    for (size_t i = 0; i < input->head_dim; i++) {
        output->erase_read[i] = feedback * output->key[i];
        output->erase_write[i] = output->key[i];
        output->query[i] -= correction * output->key[i];
    }
    output->log_decay[0] = input->gate[0];
    output->erase_strength[0] = input->beta;
    output->write[0] = input->beta;
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    size_t n = input->head_dim;
    float key[FL_RULE_MAX_HEAD_DIM], gradient_key[FL_RULE_MAX_HEAD_DIM];
    float feedback = sigmoid(input->parameters[FEEDBACK][input->head]);
    float correction = input->parameters[CORRECTION][input->head];
    double of_feedback = 0.0, of_correction = 0.0;
    fl_rule_unit(n, input->key, key);
    for (size_t i = 0; i < n; i++) {
        gradient_key[i] = gradient->key[i] + feedback * gradient->erase_read[i] + gradient->erase_write[i] -
                          correction * gradient->query[i];
        of_feedback += (double)gradient->erase_read[i] * key[i];
        of_correction -= (double)gradient->query[i] * key[i];
    }
    fl_rule_output_gradient passed = *gradient;
    passed.key = gradient_key;
    fl_rule_unit_inputs_backward(input, &passed, out);
    out->gate[0] = gradient->log_decay[0];
    out->beta[0] = gradient->erase_strength[0] + gradient->write[0];
    if (out->parameters == NULL) return;
    out->parameters[FEEDBACK][input->head] += (float)(of_feedback * feedback * (1.0 - feedback));
    out->parameters[CORRECTION][input->head] += (float)of_correction;
}

const fl_rule fl_rule_comba = {
    .abi = FL_RULE_ABI,
    .name = "comba",
    .summary = "gated delta rule as closed-loop control: weaker feedback, and a corrected query",
    .equation = "S = g S (I - b p k^T) + b v k^T, p = sigmoid(f) k;  y = S (q - d k)",
    .source = "Hu et al. 2025, arXiv 2506.02475",
    .gate = FL_GATE_SCALAR,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .beta = true,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .default_gate_bias = 1.0,
    .default_beta_bias = -1.0,
    .transition = {FL_DECAY_SCALAR, FL_ERASE_DIRECTIONS},
    .has_write = true,
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
