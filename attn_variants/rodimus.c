#include "harness/compute/rule_functions.h"

enum { TEMPERATURE = 0, INPUT };

FL_RULE_FUNCTION double softplus(double x) {
    return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* g = softplus(x), log a = -g tau, and the key is weighed by g^tau. */
FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim;
    fl_rule_copy(n, input->query, output->query);
    fl_rule_unit(n, input->key, output->key);
    FL_EACH(i, n) {
        double g = softplus(input->gate[i]), tau = input->factors[TEMPERATURE][i];
        output->log_decay[i] = (float)(-g * tau);
        output->key[i] *= (float)pow(g, tau);
        output->value[i] = input->value[i] * input->factors[INPUT][i];
    }
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    size_t n = input->head_dim;
    FL_VECTOR(key);
    FL_VECTOR(of_key);
    fl_rule_unit(n, input->key, key);
    fl_rule_copy(n, gradient->query, out->query);
    FL_EACH(i, n) {
        double x = input->gate[i], g = softplus(x), tau = input->factors[TEMPERATURE][i],
               weight = pow(g, tau);
        double of_weight = (double)gradient->key[i] * key[i], of_log = gradient->log_decay[i];
        double of_g = -tau * of_log + (g > 0.0 ? of_weight * tau * weight / g : 0.0);
        of_key[i] = (float)(gradient->key[i] * weight);
        out->gate[i] = (float)(of_g / (1.0 + exp(-x)));
        out->factors[TEMPERATURE][i] = (float)(-g * of_log + (g > 0.0 ? of_weight * weight * log(g) : 0.0));
        out->factors[INPUT][i] = gradient->value[i] * input->value[i];
        out->value[i] = gradient->value[i] * input->factors[INPUT][i];
    }
    FL_JOIN();
    fl_rule_unit_backward(n, input->key, of_key, out->key);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_rule_factor factors[] = {
    {.name = "rodimus.temperature",
     .axes = "D",
     .activation = FL_ACTIVATE_SIGMOID,
     .help = "tau: how sharply a key channel selects"},
    {.name = "rodimus.input",
     .axes = "D",
     .activation = FL_ACTIVATE_SIGMOID,
     .help = "how much of each value channel is written"},
};

const fl_rule fl_rule_rodimus = {
    .abi = FL_RULE_ABI,
    .name = "rodimus",
    .summary =
        "tempered selection: one softplus gate decays and, at a temperature of its own, weighs the key",
    .equation =
        "S = S diag(exp(-g*t)) + (b*v) (g^t * k)^T, g = softplus(h Wg), t, b = sigmoid(...);  y = S q",
    .source = "He et al. 2024, arXiv 2410.06577",
    .differs = "gates are projected from the block's input with low rank, where the published layer projects "
               "them from its own "
               "expanded and convolved one; the residual of the value and the output gate are the layer's.",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_RAW,
    .default_gate_bias = -1.0,
    .transition = {FL_DECAY_CHANNEL, FL_ERASE_NONE},
    .factors = factors,
    .factor_count = sizeof factors / sizeof factors[0],
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
