#include <stddef.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

typedef struct delta_product_options {
    size_t householder_steps;
    bool negative_eigenvalues;
} delta_product_options;

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
};

enum { KEY_SCALE = 0, VALUE_SCALE };

/* The frozen backbone has one k and v a token where the source projects n_h of them: each micro step scales
 * their channels. */
static const fl_rule_parameter parameters[] = {
    {"delta_product.key_scale", "HMD", "1", "channel scales of every micro step's key, before unit length"},
    {"delta_product.value_scale", "HMD", "1", "channel scales of every micro step's value"},
};

static size_t micro_steps(const void *chosen) {
    return ((const delta_product_options *)chosen)->householder_steps;
}

static float strength(const fl_rule_input *input) {
    return ((const delta_product_options *)input->options)->negative_eigenvalues ? 2.0f : 1.0f;
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim, steps = micro_steps(input->options);
    fl_rule_unit(n, input->query, output->query);
    for (size_t step = 0; step < steps; step++) {
        size_t at = (input->head * steps + step) * n;
        float key[FL_RULE_MAX_HEAD_DIM];
        for (size_t i = 0; i < n; i++) key[i] = input->key[i] * input->parameters[KEY_SCALE][at + i];
        fl_rule_unit(n, key, output->key + step * n);
        for (size_t i = 0; i < n; i++) {
            output->value[step * n + i] = input->value[i] * input->parameters[VALUE_SCALE][at + i];
        }
        output->log_decay[step] = step == 0 ? input->gate[0] : 0.0f;
        output->erase_strength[step] = strength(input) * input->beta;
        output->write[step] = strength(input) * input->beta;
    }
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    size_t n = input->head_dim, steps = micro_steps(input->options);
    fl_rule_unit_backward(n, input->query, gradient->query, out->query);
    memset(out->key, 0, n * sizeof(float));
    memset(out->value, 0, n * sizeof(float));
    out->gate[0] = gradient->log_decay[0];
    out->beta[0] = 0.0f;
    for (size_t step = 0; step < steps; step++) {
        size_t at = (input->head * steps + step) * n;
        const float *key_scale = input->parameters[KEY_SCALE] + at,
                    *value_scale = input->parameters[VALUE_SCALE] + at;
        float key[FL_RULE_MAX_HEAD_DIM], gradient_key[FL_RULE_MAX_HEAD_DIM];
        for (size_t i = 0; i < n; i++) key[i] = input->key[i] * key_scale[i];
        fl_rule_unit_backward(n, key, gradient->key + step * n, gradient_key);
        for (size_t i = 0; i < n; i++) {
            out->key[i] += gradient_key[i] * key_scale[i];
            out->value[i] += gradient->value[step * n + i] * value_scale[i];
            if (out->parameters == NULL) continue;
            out->parameters[KEY_SCALE][at + i] += gradient_key[i] * input->key[i];
            out->parameters[VALUE_SCALE][at + i] += gradient->value[step * n + i] * input->value[i];
        }
        out->beta[0] += strength(input) * (gradient->erase_strength[step] + gradient->write[step]);
    }
}

const fl_rule fl_rule_delta_product = {
    .abi = FL_RULE_ABI,
    .name = "delta_product",
    .summary = "several delta steps a token behind one decay, beta up to 2",
    .equation = "S = g S;  n_h times: S = S (I - b k_i k_i^T) + b v_i k_i^T;  y = S q",
    .source = "Siems et al. 2025, arXiv 2502.10297",
    .gate = FL_GATE_SCALAR,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .beta = true,
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
    .micro_steps = micro_steps,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
