#include <math.h>
#include <stddef.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

typedef enum feature_map { MAP_IDENTITY = 0, MAP_ELU1, MAP_RELU, MAP_EXP } feature_map;

typedef struct linear_options {
    int feature_map;
} linear_options;

static const char *const map_names[] = {"identity", "elu1", "relu", "exp", NULL};

static const fl_option options[] = {
    {.key = "feature_map",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(linear_options, feature_map),
     .default_text = "elu1",
     .choices = map_names,
     .help = "phi on q and k: identity, elu1 (elu(x) + 1), relu, exp (exp(x - max x))"},
};

static feature_map map_of(const fl_rule_input *input) {
    return (feature_map)((const linear_options *)input->options)->feature_map;
}

static bool positive(const void *chosen) {
    return ((const linear_options *)chosen)->feature_map != MAP_IDENTITY;
}

static size_t position_of_largest(size_t n, const float *x) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (x[i] > x[best]) best = i;
    }
    return best;
}

static void apply(feature_map map, size_t n, const float *x, float *y) {
    float largest = map == MAP_EXP ? x[position_of_largest(n, x)] : 0.0f;
    for (size_t i = 0; i < n; i++) {
        switch (map) {
        case MAP_IDENTITY:
            y[i] = x[i];
            break;
        case MAP_ELU1:
            y[i] = x[i] > 0.0f ? x[i] + 1.0f : expf(x[i]);
            break;
        case MAP_RELU:
            y[i] = x[i] > 0.0f ? x[i] : 0.0f;
            break;
        case MAP_EXP:
            y[i] = expf(x[i] - largest);
            break;
        }
    }
}

static void apply_backward(feature_map map, size_t n, const float *x, const float *gradient_y,
                           float *gradient_x) {
    size_t top = map == MAP_EXP ? position_of_largest(n, x) : 0;
    double total = 0.0;
    for (size_t i = 0; i < n; i++) {
        float slope = 1.0f;
        switch (map) {
        case MAP_IDENTITY:
            break;
        case MAP_ELU1:
            slope = x[i] > 0.0f ? 1.0f : expf(x[i]);
            break;
        case MAP_RELU:
            slope = x[i] > 0.0f ? 1.0f : 0.0f;
            break;
        case MAP_EXP:
            slope = expf(x[i] - x[top]);
            break;
        }
        gradient_x[i] = gradient_y[i] * slope;
        total += gradient_x[i];
    }
    if (map == MAP_EXP) gradient_x[top] = (float)(gradient_x[top] - total);
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    apply(map_of(input), input->head_dim, input->query, output->query);
    apply(map_of(input), input->head_dim, input->key, output->key);
    memcpy(output->value, input->value, input->head_dim * sizeof(float));
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    apply_backward(map_of(input), input->head_dim, input->query, gradient->query, out->query);
    apply_backward(map_of(input), input->head_dim, input->key, gradient->key, out->key);
    memcpy(out->value, gradient->value, input->head_dim * sizeof(float));
}

const fl_rule fl_rule_linear = {
    .abi = FL_RULE_ABI,
    .name = "linear",
    .summary = "kernel attention with a fixed feature map, with or without the normaliser",
    .equation = "S = S + v phi(k)^T;  y = S phi(q)  or  S phi(q) / (z.phi(q)), z = z + phi(k)",
    .source = "Katharopoulos et al. 2020, arXiv 2006.16236",
    .normaliser = true,
    .shared_normaliser = true,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(linear_options),
    .positive = positive,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
