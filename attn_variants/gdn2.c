#include <math.h>
#include <stddef.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

typedef struct gdn2_options {
    bool fixed, negative_eigenvalues;
} gdn2_options;

static const fl_option options[] = {
    {.key = "static",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(gdn2_options, fixed),
     .default_text = "false",
     .help = "erase and write gates that no token changes: channel scales times one beta; kda at first"},
    {.key = "negative_eigenvalues",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(gdn2_options, negative_eigenvalues),
     .default_text = "false",
     .help = "erase gates in (0, 2): a step may reflect, not only erase"},
};

enum { ERASE = 0, WRITE };

static bool is_fixed(const void *chosen) {
    return ((const gdn2_options *)chosen)->fixed;
}

static bool is_projected(const void *chosen) {
    return !is_fixed(chosen);
}

static const fl_rule_parameter parameters[] = {
    {.name = "gdn2.erase",
     .axes = "HD",
     .init = "0",
     .help = "log-odds of each key channel's erase scale",
     .used = is_fixed},
    {.name = "gdn2.write",
     .axes = "HD",
     .init = "0",
     .help = "log-odds of each value channel's write scale",
     .used = is_fixed},
};

static const fl_rule_factor factors[] = {
    {.name = "gdn2.erase_gate",
     .axes = "D",
     .activation = FL_ACTIVATE_SIGMOID,
     .bias = -1.0,
     .help = "how much of each key channel's read is erased",
     .used = is_projected},
    {.name = "gdn2.write_gate",
     .axes = "D",
     .activation = FL_ACTIVATE_SIGMOID,
     .bias = -1.0,
     .help = "how much of each value channel is written",
     .used = is_projected},
};

static float reach(const fl_rule_input *input) {
    return ((const gdn2_options *)input->options)->negative_eigenvalues ? 2.0f : 1.0f;
}

static float scale_of(float x) {
    return 2.0f / (1.0f + expf(-x));
}

/* The gates e and w of a channel: projected, or beta times a scale in (0, 2). */
static float erase_gate(const fl_rule_input *input, size_t i) {
    if (input->factors[ERASE] != NULL) return reach(input) * input->factors[ERASE][i];
    return reach(input) * input->beta * scale_of(input->parameters[ERASE][input->head * input->head_dim + i]);
}

static float write_gate(const fl_rule_input *input, size_t i) {
    if (input->factors[WRITE] != NULL) return input->factors[WRITE][i];
    return input->beta * scale_of(input->parameters[WRITE][input->head * input->head_dim + i]);
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim;
    fl_rule_unit_inputs(input, output);
    memcpy(output->log_decay, input->gate, n * sizeof(float));
    memcpy(output->erase_write, output->key, n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        output->erase_read[i] = erase_gate(input, i) * output->key[i];
        output->value[i] *= write_gate(input, i);
    }
    output->erase_strength[0] = 1.0f;
    output->write[0] = 1.0f;
}

/* A gate's gradient to where the gate comes from. */
static void gate_backward(const fl_rule_input *input, int which, size_t i, float gate, float gradient,
                          fl_rule_input_gradient *out) {
    float within = which == ERASE ? reach(input) : 1.0f;
    if (input->factors[which] != NULL) {
        out->factors[which][i] = within * gradient;
        return;
    }
    size_t at = input->head * input->head_dim + i;
    float scale = scale_of(input->parameters[which][at]);
    out->beta[0] += within * scale * gradient;
    if (out->parameters != NULL) out->parameters[which][at] += gradient * gate * (1.0f - 0.5f * scale);
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    size_t n = input->head_dim;
    float key[FL_RULE_MAX_HEAD_DIM], gradient_key[FL_RULE_MAX_HEAD_DIM], gradient_value[FL_RULE_MAX_HEAD_DIM];
    fl_rule_unit(n, input->key, key);
    if (out->beta != NULL) out->beta[0] = 0.0f;
    for (size_t i = 0; i < n; i++) {
        float erase = erase_gate(input, i), write = write_gate(input, i);
        gradient_key[i] = gradient->key[i] + gradient->erase_write[i] + erase * gradient->erase_read[i];
        gradient_value[i] = write * gradient->value[i];
        gate_backward(input, ERASE, i, erase, gradient->erase_read[i] * key[i], out);
        gate_backward(input, WRITE, i, write, gradient->value[i] * input->value[i], out);
    }
    fl_rule_output_gradient passed = *gradient;
    passed.key = gradient_key;
    passed.value = gradient_value;
    fl_rule_unit_inputs_backward(input, &passed, out);
    memcpy(out->gate, gradient->log_decay, n * sizeof(float));
}

const fl_rule fl_rule_gdn2 = {
    .abi = FL_RULE_ABI,
    .name = "gdn2",
    .summary = "delta rule that erases by key channel and writes by value channel, as each token says",
    .equation = "S = S diag(a)(I - (e*k) k^T) + (w*v) k^T, e = sigmoid(h We), w = sigmoid(h Ww);  y = S q",
    .source = "arXiv 2605.22791 (GDN-2)",
    .differs = "the projections of e and w have low rank (factors.rank) and begin at sigmoid(-1), where the "
               "published ones "
               "are full and begin at sigmoid(0); static: true is the form without projections.",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .beta = true,
    .takes_beta = is_fixed,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .default_gate_bias = 1.0,
    .default_beta_bias = -1.0,
    .transition = {FL_DECAY_CHANNEL, FL_ERASE_DIRECTIONS},
    .has_write = true,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(gdn2_options),
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .factors = factors,
    .factor_count = sizeof factors / sizeof factors[0],
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
