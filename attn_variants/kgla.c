#include "harness/compute/rule_functions.h"

/* diag(a)(I - b diag(k*k)) is a diagonal: it is folded into the decay. b k^2 <= 1 for unit keys; rounding may
 * pass it. */
FL_RULE_FUNCTION float kept(float beta, float key) {
    float kept = 1.0f - beta * key * key;
    return kept > 0.0f ? kept : 0.0f;
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_unit_inputs(input, output);
    FL_EACH(i, input->head_dim) {
        float erased = input->beta * output->key[i] * output->key[i];
        output->log_decay[i] = input->gate[i] + log1pf(erased < 1.0f ? -erased : -1.0f);
    }
}

/* d log a / d(what is kept). */
FL_RULE_FUNCTION float slope_of(float gradient_log, float kept) {
    return kept > 0.0f ? -gradient_log / kept : 0.0f;
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    size_t n = input->head_dim;
    FL_VECTOR(key);
    FL_VECTOR(gradient_key);
    fl_rule_unit(n, input->key, key);
    FL_EACH(i, n) {
        float slope = slope_of(gradient->log_decay[i], kept(input->beta, key[i]));
        out->gate[i] = gradient->log_decay[i];
        gradient_key[i] = gradient->key[i] + slope * 2.0f * input->beta * key[i];
    }
    fl_rule_sum(of_beta, i, n,
                (double)slope_of(gradient->log_decay[i], kept(input->beta, key[i])) * key[i] * key[i]);
    FL_JOIN();
    fl_rule_output_gradient passed = *gradient;
    passed.key = gradient_key;
    fl_rule_unit_inputs_backward(input, &passed, out);
    FL_ONCE out->beta[0] = (float)of_beta;
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

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

#endif
