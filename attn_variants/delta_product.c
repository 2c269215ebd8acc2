#include "harness/compute/rule_functions.h"

typedef struct delta_product_options {
    size_t householder_steps;
    bool negative_eigenvalues, fixed;
} delta_product_options;

FL_RULE_FUNCTION const delta_product_options *chosen(const void *options_of_variant) {
    return (const delta_product_options *)options_of_variant;
}

FL_RULE_FUNCTION bool is_fixed(const void *options_of_variant) {
    return chosen(options_of_variant)->fixed;
}

FL_RULE_FUNCTION bool is_projected(const void *options_of_variant) {
    return !is_fixed(options_of_variant);
}

FL_RULE_FUNCTION size_t micro_steps(const void *options_of_variant) {
    return chosen(options_of_variant)->householder_steps;
}

enum { KEY = 0, VALUE, BETA };

FL_RULE_FUNCTION float strength(const fl_rule_input *input, size_t step) {
    float beta = input->factors[BETA] != NULL ? input->factors[BETA][step] : input->beta;
    return chosen(input->options)->negative_eigenvalues ? 2.0f * beta : beta;
}

/* What a micro step makes of the token's key or value. */
FL_RULE_FUNCTION void of_step(const fl_rule_input *input, int which, size_t step, const float *from,
                              float *to) {
    size_t n = input->head_dim, steps = micro_steps(input->options);
    if (input->factors[which] != NULL) {
        FL_EACH(i, n) to[i] = from[i] + input->factors[which][step * n + i];
    } else {
        const float *scale = input->parameters[which] + (input->head * steps + step) * n;
        FL_EACH(i, n) to[i] = from[i] * scale[i];
    }
    FL_JOIN();
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim, steps = micro_steps(input->options);
    FL_VECTOR(key);
    fl_rule_unit(n, input->query, output->query);
    FL_ALL(step, steps) {
        of_step(input, KEY, step, input->key, key);
        fl_rule_unit(n, key, output->key + step * n);
        of_step(input, VALUE, step, input->value, output->value + step * n);
        FL_ONCE {
            output->log_decay[step] = step == 0 ? input->gate[0] : 0.0f;
            output->erase_strength[step] = strength(input, step);
            output->write[step] = strength(input, step);
        }
    }
}

/* Adds to the token's gradient, and to (or over) that of what the step has of its own. */
FL_RULE_FUNCTION void of_step_backward(const fl_rule_input *input, int which, size_t step, const float *from,
                                       const float *gradient, float *gradient_from,
                                       fl_rule_input_gradient *out) {
    size_t n = input->head_dim, at = (input->head * micro_steps(input->options) + step) * n;
    if (input->factors[which] != NULL) {
        FL_EACH(i, n) {
            gradient_from[i] += gradient[i];
            out->factors[which][step * n + i] = gradient[i];
        }
    } else {
        const float *scale = input->parameters[which] + at;
        FL_EACH(i, n) {
            gradient_from[i] += gradient[i] * scale[i];
            if (out->parameters != NULL) out->parameters[which][at + i] += gradient[i] * from[i];
        }
    }
    FL_JOIN();
}

/* The gradients of gate and betas. */
FL_RULE_FUNCTION void strengths_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                         fl_rule_input_gradient *out) {
    float within = chosen(input->options)->negative_eigenvalues ? 2.0f : 1.0f;
    out->gate[0] = gradient->log_decay[0];
    if (out->beta != NULL) out->beta[0] = 0.0f;
    FL_ALL(step, micro_steps(input->options)) {
        float of_beta = within * (gradient->erase_strength[step] + gradient->write[step]);
        if (input->factors[BETA] != NULL)
            out->factors[BETA][step] = of_beta;
        else
            out->beta[0] += of_beta;
    }
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    size_t n = input->head_dim, steps = micro_steps(input->options);
    FL_VECTOR(key);
    FL_VECTOR(gradient_key);
    fl_rule_unit_backward(n, input->query, gradient->query, out->query);
    fl_rule_clear(n, out->key);
    fl_rule_clear(n, out->value);
    FL_ALL(step, steps) {
        of_step(input, KEY, step, input->key, key);
        fl_rule_unit_backward(n, key, gradient->key + step * n, gradient_key);
        of_step_backward(input, KEY, step, input->key, gradient_key, out->key, out);
        of_step_backward(input, VALUE, step, input->value, gradient->value + step * n, out->value, out);
    }
    FL_ONCE strengths_backward(input, gradient, out);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "householder_steps",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(delta_product_options, householder_steps),
     .default_text = "2",
     .minimum = 1,
     .maximum = FL_RULE_MAX_MICRO_STEPS,
     .help = "delta steps a token (n_h)"},
    {.key = "negative_eigenvalues",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(delta_product_options, negative_eigenvalues),
     .default_text = "true",
     .help = "beta in (0, 2): a step may reflect, not only erase"},
    {.key = "static",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(delta_product_options, fixed),
     .default_text = "false",
     .help = "no projections: every step scales the channels of k and v, and all share one beta"},
};

static const fl_rule_parameter parameters[] = {
    {.name = "delta_product.key_scale",
     .axes = "HMD",
     .init = "1",
     .help = "channel scales of every micro step's key, before unit length",
     .used = is_fixed},
    {.name = "delta_product.value_scale",
     .axes = "HMD",
     .init = "1",
     .help = "channel scales of every micro step's value",
     .used = is_fixed},
};

/* The source projects every step's k, v and beta; the frozen backbone has one k and v a token, to which each
 * step adds what it projects itself. */
static const fl_rule_factor factors[] = {
    {.name = "delta_product.key",
     .axes = "MD",
     .activation = FL_ACTIVATE_RAW,
     .help = "added to every micro step's key, before unit length",
     .used = is_projected},
    {.name = "delta_product.value",
     .axes = "MD",
     .activation = FL_ACTIVATE_RAW,
     .help = "added to every micro step's value",
     .used = is_projected},
    {.name = "delta_product.beta",
     .axes = "M",
     .activation = FL_ACTIVATE_SIGMOID,
     .bias = -1.0,
     .help = "beta of every micro step",
     .used = is_projected},
};

const fl_rule fl_rule_delta_product = {
    .abi = FL_RULE_ABI,
    .name = "delta_product",
    .summary = "several delta steps a token behind one decay, beta up to 2",
    .equation = "S = g S;  n_h times: S = S (I - b_i k_i k_i^T) + b_i v_i k_i^T;  y = S q",
    .source = "Siems et al. 2025, arXiv 2502.10297",
    .differs = "k_i = unit(k + h Uk_i), v_i = v + h Uv_i with projections of low rank (factors.rank): the "
               "frozen k and v stay "
               "in every step, where the published layer projects each from nothing; static: true is the "
               "form without.",
    .gate = FL_GATE_SCALAR,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .beta = true,
    .takes_beta = is_fixed,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .default_gate_bias = 1.0,
    .default_beta_bias = -1.0,
    .transition = {FL_DECAY_SCALAR, FL_ERASE_KEY},
    .has_write = true,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(delta_product_options),
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .factors = factors,
    .factor_count = sizeof factors / sizeof factors[0],
    .micro_steps = micro_steps,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
