#include "harness/compute/rule_functions.h"

typedef struct comba_options {
    bool decay_first;
} comba_options;

enum { FEEDBACK = 0, CORRECTION };

FL_RULE_FUNCTION float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* S (g - b p k^T) = g S (I - b / g p k^T): the recurrence decays first, so the erase is divided by the decay.
 * Below exp(LOWEST), 1e-13, nothing of the old state is left in float32; there the decay is held, so that 1 /
 * g stays finite. */
static const float LOWEST = -30.0f;

FL_RULE_FUNCTION bool decays_first(const fl_rule_input *input) {
    return ((const comba_options *)input->options)->decay_first;
}

FL_RULE_FUNCTION float held(const fl_rule_input *input) {
    return decays_first(input) || input->gate[0] > LOWEST ? input->gate[0] : LOWEST;
}

FL_RULE_FUNCTION float growth(const fl_rule_input *input) {
    return decays_first(input) ? 1.0f : expf(-held(input));
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_unit_inputs(input, output);
    float feedback = sigmoid(input->parameters[FEEDBACK][input->head]);
    float correction = input->parameters[CORRECTION][input->head];
    FL_EACH(i, input->head_dim) {
        output->erase_read[i] = feedback * output->key[i];
        output->erase_write[i] = output->key[i];
        output->query[i] -= correction * output->key[i];
    }
    FL_ONCE {
        output->log_decay[0] = held(input);
        output->erase_strength[0] = input->beta * growth(input);
        output->write[0] = input->beta;
    }
}

/* The gradients of beta and gate. */
FL_RULE_FUNCTION void strength_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                        fl_rule_input_gradient *out) {
    float of_strength = gradient->erase_strength[0] * growth(input);
    bool free = decays_first(input) || input->gate[0] > LOWEST;
    out->beta[0] = of_strength + gradient->write[0];
    out->gate[0] = free ? gradient->log_decay[0] : 0.0f;
    if (free && !decays_first(input)) out->gate[0] -= of_strength * input->beta;
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    size_t n = input->head_dim;
    FL_VECTOR(key);
    FL_VECTOR(gradient_key);
    float feedback = sigmoid(input->parameters[FEEDBACK][input->head]);
    float correction = input->parameters[CORRECTION][input->head];
    fl_rule_unit(n, input->key, key);
    FL_EACH(i, n) {
        gradient_key[i] = gradient->key[i] + feedback * gradient->erase_read[i] + gradient->erase_write[i] -
                          correction * gradient->query[i];
    }
    fl_rule_sum(of_feedback, i, n, (double)gradient->erase_read[i] * key[i]);
    fl_rule_sum(of_correction, i, n, -((double)gradient->query[i] * key[i]));
    FL_JOIN();
    fl_rule_output_gradient passed = *gradient;
    passed.key = gradient_key;
    fl_rule_unit_inputs_backward(input, &passed, out);
    FL_ONCE {
        strength_backward(input, gradient, out);
        if (out->parameters != NULL) {
            out->parameters[FEEDBACK][input->head] += (float)(of_feedback * feedback * (1.0 - feedback));
            out->parameters[CORRECTION][input->head] += (float)of_correction;
        }
    }
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "decay_first",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(comba_options, decay_first),
     .default_text = "false",
     .help = "take the error from the decayed state, as Gated DeltaNet does: g S (I - b p k^T)"},
};

static const fl_rule_parameter parameters[] = {
    {.name = "comba.feedback",
     .axes = "H",
     .init = "2",
     .help = "p = sigmoid(feedback) k: how much of the read is fed back"},
    {.name = "comba.correction",
     .axes = "H",
     .init = "0.02",
     .help = "the query is corrected to q - correction k"},
};

const fl_rule fl_rule_comba = {
    .abi = FL_RULE_ABI,
    .name = "comba",
    .summary = "gated delta rule as closed-loop control: weaker feedback, and a corrected query",
    .equation = "S = S (g - b p k^T) + b v k^T, p = sigmoid(f) k;  y = S (q - d k)",
    .source = "Hu et al. 2025, arXiv 2506.02475, eq. 5",
    .differs =
        "decay_first: true is g S (I - b p k^T), the mode in which the error is taken from the decayed "
        "state. The "
        "query is corrected by d k after both have unit length, by the paper's formula; released layers "
        "correct by d p before it.",
    .gate = FL_GATE_SCALAR,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .beta = true,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .default_gate_bias = 1.0,
    .default_beta_bias = -1.0,
    .transition = {FL_DECAY_SCALAR, FL_ERASE_DIRECTIONS},
    .has_write = true,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(comba_options),
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
