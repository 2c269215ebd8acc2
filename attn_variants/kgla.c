#include <math.h>

#include "attn_variants/attn_variant.h"

/* diag(a)(I - b diag(k*k)) is a diagonal: it is folded into the decay. b k^2 <= 1 for unit keys; rounding may
 * pass it. */
static float kept(float beta, float key) {
    float kept = 1.0f - beta * key * key;
    return kept > 0.0f ? kept : 0.0f;
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_unit_inputs(input, output);
    for (size_t i = 0; i < input->head_dim; i++) {
        float erased = input->beta * output->key[i] * output->key[i];
        output->log_decay[i] = input->gate[i] + log1pf(erased < 1.0f ? -erased : -1.0f);
    }
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    size_t n = input->head_dim;
    float key[FL_RULE_MAX_HEAD_DIM], gradient_key[FL_RULE_MAX_HEAD_DIM];
    fl_rule_unit(n, input->key, key);
    double gradient_beta = 0.0;
    for (size_t i = 0; i < n; i++) {
        float remaining = kept(input->beta, key[i]);
        float gradient_log = gradient->log_decay[i];
        float slope = remaining > 0.0f ? -gradient_log / remaining : 0.0f;
        out->gate[i] = gradient_log;
        gradient_beta += (double)slope * key[i] * key[i];
        gradient_key[i] = gradient->key[i] + slope * 2.0f * input->beta * key[i];
    }
    fl_rule_output_gradient passed = *gradient;
    passed.key = gradient_key;
    fl_rule_unit_inputs_backward(input, &passed, out);
    out->beta[0] = (float)gradient_beta;
}

const fl_rule fl_rule_kgla = {
    .abi = FL_RULE_ABI,
    .name = "kgla",
    .summary = "key-gated GLA: the delta rule's projection replaced by its diagonal",
    .equation = "S = S diag(a)(I - b diag(k*k)) + v k^T;  y = S q",
    .source = "arXiv 2607.07706, eq. 12",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .beta = true,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .default_gate_bias = 1.0,
    .default_beta_bias = -1.0,
    .transition = {FL_DECAY_CHANNEL, FL_ERASE_NONE},
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
