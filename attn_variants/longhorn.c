#include "attn_variants/attn_variant.h"

static double square(const fl_rule_input *input) {
    double sum = 0.0;
    for (size_t i = 0; i < input->head_dim; i++) sum += (double)input->key[i] * input->key[i];
    return sum;
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_raw_inputs(input, output);
    float step = (float)(input->beta / (1.0 + input->beta * square(input)));
    output->erase_strength[0] = step;
    output->write[0] = step;
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    fl_rule_raw_inputs_backward(input, gradient, out);
    double gradient_step = (double)gradient->erase_strength[0] + gradient->write[0];
    double slope = 1.0 / (1.0 + input->beta * square(input));
    out->beta[0] = (float)(gradient_step * slope * slope);
    double along = -2.0 * gradient_step * slope * slope * input->beta * input->beta;
    for (size_t i = 0; i < input->head_dim; i++) out->key[i] += (float)(along * input->key[i]);
}

const fl_rule fl_rule_longhorn = {
    .abi = FL_RULE_ABI,
    .name = "longhorn",
    .summary = "delta rule whose step is the closed form of an implicit update: keys need no unit length",
    .equation = "S = S (I - e k k^T) + e v k^T, e = b / (1 + b |k|^2);  y = S q",
    .source = "Liu et al. 2024, arXiv 2407.14207",
    .beta = true,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .default_beta_bias = -1.0,
    .transition = {FL_DECAY_NONE, FL_ERASE_KEY},
    .has_write = true,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
