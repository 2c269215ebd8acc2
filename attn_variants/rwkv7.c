#include <math.h>
#include <stddef.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

typedef struct rwkv7_options {
    bool unit;
} rwkv7_options;

static const fl_option options[] = {
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(rwkv7_options, unit),
     .default_text = "true",
     .help = "q and k of unit length: frozen keys are far from the scale the rule is trained with; false: as "
             "published"},
};

enum { REMOVAL = 0, REPLACEMENT };

static const fl_rule_parameter parameters[] = {
    {"rwkv7.removal", "HD", "0.85", "channel scales of the key that is removed, before unit length"},
    {"rwkv7.replacement", "HD", "1", "how much beta scales each channel of the key that is written"},
};

static const double DECAY =
    0.60653065971263342; /* exp(-1/2): no channel decays faster than exp(-DECAY) a step */

static bool unit(const fl_rule_input *input) {
    return ((const rwkv7_options *)input->options)->unit;
}

/* The source removes along the undecayed state; this recurrence decays first, so the read direction is
 * divided by it. */
static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim;
    const float *removal = input->parameters[REMOVAL] + input->head * n;
    const float *replacement = input->parameters[REPLACEMENT] + input->head * n;
    float removed[FL_RULE_MAX_HEAD_DIM];
    (unit(input) ? fl_rule_unit_inputs : fl_rule_raw_inputs)(input, output);
    for (size_t i = 0; i < n; i++) removed[i] = input->key[i] * removal[i];
    fl_rule_unit(n, removed, output->erase_write);
    for (size_t i = 0; i < n; i++) {
        double log_decay = -DECAY * input->gate[i];
        output->log_decay[i] = (float)log_decay;
        output->erase_read[i] = (float)(output->erase_write[i] * exp(-log_decay));
        output->key[i] *= 1.0f + (input->beta - 1.0f) * replacement[i];
    }
    output->erase_strength[0] = input->beta;
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    size_t n = input->head_dim, at = input->head * n;
    const float *removal = input->parameters[REMOVAL] + at,
                *replacement = input->parameters[REPLACEMENT] + at;
    float key[FL_RULE_MAX_HEAD_DIM], gradient_key[FL_RULE_MAX_HEAD_DIM];
    float removed[FL_RULE_MAX_HEAD_DIM], direction[FL_RULE_MAX_HEAD_DIM],
        gradient_removed[FL_RULE_MAX_HEAD_DIM];
    memcpy(key, input->key, n * sizeof *key);
    if (unit(input)) fl_rule_unit(n, input->key, key);
    for (size_t i = 0; i < n; i++) removed[i] = input->key[i] * removal[i];
    fl_rule_unit(n, removed, direction);
    double gradient_beta = gradient->erase_strength[0];
    for (size_t i = 0; i < n; i++) {
        double growth = exp(DECAY * input->gate[i]);
        double of_read = gradient->erase_read[i];
        out->gate[i] = (float)(DECAY * (of_read * direction[i] * growth - gradient->log_decay[i]));
        gradient_removed[i] = (float)(gradient->erase_write[i] + of_read * growth);
        gradient_key[i] = gradient->key[i] * (1.0f + (input->beta - 1.0f) * replacement[i]);
        gradient_beta += (double)gradient->key[i] * key[i] * replacement[i];
        if (out->parameters != NULL) {
            out->parameters[REPLACEMENT][at + i] += gradient->key[i] * key[i] * (input->beta - 1.0f);
        }
    }
    out->beta[0] = (float)gradient_beta;
    fl_rule_output_gradient passed = *gradient;
    passed.key = gradient_key;
    (unit(input) ? fl_rule_unit_inputs_backward : fl_rule_raw_inputs_backward)(input, &passed, out);
    float gradient_scaled[FL_RULE_MAX_HEAD_DIM];
    fl_rule_unit_backward(n, removed, gradient_removed, gradient_scaled);
    for (size_t i = 0; i < n; i++) {
        out->key[i] += gradient_scaled[i] * removal[i];
        if (out->parameters != NULL) out->parameters[REMOVAL][at + i] += gradient_scaled[i] * input->key[i];
    }
}

const fl_rule fl_rule_rwkv7 = {
    .abi = FL_RULE_ABI,
    .name = "rwkv7",
    .summary = "generalised delta rule with a removal key of its own and a decay for every channel",
    .equation =
        "S = S (diag(w) - x (b x)^T) + v k'^T, x = unit(k * removal), k' = k (1 + (b - 1) replacement), "
        "w = exp(-exp(-1/2) s);  y = S q",
    .source = "Peng et al. 2025, arXiv 2503.14456",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_SIGMOID,
    .beta = true,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .default_gate_bias = -3.0,
    .default_beta_bias = 0.0,
    .transition = {FL_DECAY_CHANNEL, FL_ERASE_DIRECTIONS},
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(rwkv7_options),
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
