#include "harness/compute/rule_functions.h"

typedef struct gdn2_options {
    bool fixed, negative_eigenvalues;
} gdn2_options;

enum { ERASE = 0, WRITE };

FL_RULE_FUNCTION bool is_fixed(const void *chosen) {
    return ((const gdn2_options *)chosen)->fixed;
}

FL_RULE_FUNCTION bool is_projected(const void *chosen) {
    return !is_fixed(chosen);
}

FL_RULE_FUNCTION float reach(const fl_rule_input *input) {
    return ((const gdn2_options *)input->options)->negative_eigenvalues ? 2.0f : 1.0f;
}

FL_RULE_FUNCTION float scale_of(float x) {
    return 2.0f / (1.0f + expf(-x));
}

/* The gates e and w of a channel: projected, or beta times a scale in (0, 2). */
FL_RULE_FUNCTION float erase_gate(const fl_rule_input *input, size_t i) {
    if (input->factors[ERASE] != NULL) return reach(input) * input->factors[ERASE][i];
    return reach(input) * input->beta * scale_of(input->parameters[ERASE][input->head * input->head_dim + i]);
}

FL_RULE_FUNCTION float write_gate(const fl_rule_input *input, size_t i) {
    if (input->factors[WRITE] != NULL) return input->factors[WRITE][i];
    return input->beta * scale_of(input->parameters[WRITE][input->head * input->head_dim + i]);
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim;
    fl_rule_unit_inputs(input, output);
    fl_rule_copy(n, input->gate, output->log_decay);
    fl_rule_copy(n, output->key, output->erase_write);
    FL_EACH(i, n) {
        output->erase_read[i] = erase_gate(input, i) * output->key[i];
        output->value[i] *= write_gate(input, i);
    }
    FL_ONCE {
        output->erase_strength[0] = 1.0f;
        output->write[0] = 1.0f;
    }
}

FL_RULE_FUNCTION float fixed_scale(const fl_rule_input *input, int which, size_t i) {
    return scale_of(input->parameters[which][input->head * input->head_dim + i]);
}

/* A channel's gradient of its gates, to where the gates come from. */
FL_RULE_FUNCTION void gate_backward(const fl_rule_input *input, int which, size_t i, float gate,
                                    float gradient, fl_rule_input_gradient *out) {
    if (input->factors[which] != NULL) {
        out->factors[which][i] = (which == ERASE ? reach(input) : 1.0f) * gradient;
    } else if (out->parameters != NULL) {
        out->parameters[which][input->head * input->head_dim + i] +=
            gradient * gate * (1.0f - 0.5f * fixed_scale(input, which, i));
    }
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    size_t n = input->head_dim;
    FL_VECTOR(key);
    FL_VECTOR(gradient_key);
    FL_VECTOR(gradient_value);
    fl_rule_unit(n, input->key, key);
    FL_EACH(i, n) {
        float erase = erase_gate(input, i), write = write_gate(input, i);
        gradient_key[i] = gradient->key[i] + gradient->erase_write[i] + erase * gradient->erase_read[i];
        gradient_value[i] = write * gradient->value[i];
        gate_backward(input, ERASE, i, erase, gradient->erase_read[i] * key[i], out);
        gate_backward(input, WRITE, i, write, gradient->value[i] * input->value[i], out);
    }
    if (out->beta != NULL && input->factors[ERASE] == NULL) {
        float within = reach(input);
        /* Erase and write of a channel in turn. */
        fl_rule_float_sum(
            of_beta, j, 2 * n,
            j % 2 == 0
                ? within * fixed_scale(input, ERASE, j / 2) * (gradient->erase_read[j / 2] * key[j / 2])
                : fixed_scale(input, WRITE, j / 2) * (gradient->value[j / 2] * input->value[j / 2]));
        FL_ONCE out->beta[0] = of_beta;
    } else if (out->beta != NULL) {
        FL_ONCE out->beta[0] = 0.0f;
    }
    FL_JOIN();
    fl_rule_output_gradient passed = *gradient;
    passed.key = gradient_key;
    passed.value = gradient_value;
    fl_rule_unit_inputs_backward(input, &passed, out);
    fl_rule_copy(n, gradient->log_decay, out->gate);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

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

#endif
