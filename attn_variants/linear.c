#include "harness/compute/rule_functions.h"

typedef enum feature_map { MAP_IDENTITY = 0, MAP_ELU1, MAP_RELU, MAP_EXP } feature_map;

typedef struct linear_options {
    int feature_map;
} linear_options;

FL_RULE_FUNCTION feature_map map_of(const fl_rule_input *input) {
    return (feature_map)((const linear_options *)input->options)->feature_map;
}

FL_RULE_FUNCTION bool positive(const void *chosen) {
    return ((const linear_options *)chosen)->feature_map != MAP_IDENTITY;
}

FL_RULE_FUNCTION size_t position_of_largest(size_t n, const float *x) {
    size_t best = 0;
    FL_ALL(i, n) {
        if (x[i] > x[best]) best = i;
    }
    return best;
}

FL_RULE_FUNCTION float value_of(feature_map map, float x, float largest) {
    switch (map) {
    case MAP_IDENTITY:
        break;
    case MAP_ELU1:
        return x > 0.0f ? x + 1.0f : expf(x);
    case MAP_RELU:
        return x > 0.0f ? x : 0.0f;
    case MAP_EXP:
        return expf(x - largest);
    }
    return x;
}

FL_RULE_FUNCTION float slope_of(feature_map map, float x, float largest) {
    switch (map) {
    case MAP_IDENTITY:
        break;
    case MAP_ELU1:
        return x > 0.0f ? 1.0f : expf(x);
    case MAP_RELU:
        return x > 0.0f ? 1.0f : 0.0f;
    case MAP_EXP:
        return expf(x - largest);
    }
    return 1.0f;
}

FL_RULE_FUNCTION void apply(feature_map map, size_t n, const float *x, float *y) {
    float largest = map == MAP_EXP ? x[position_of_largest(n, x)] : 0.0f;
    FL_EACH(i, n) y[i] = value_of(map, x[i], largest);
}

FL_RULE_FUNCTION void apply_backward(feature_map map, size_t n, const float *x, const float *gradient_y,
                                     float *gradient_x) {
    size_t top = map == MAP_EXP ? position_of_largest(n, x) : 0;
    float largest = x[top];
    FL_EACH(i, n) gradient_x[i] = gradient_y[i] * slope_of(map, x[i], largest);
    FL_JOIN();
    if (map != MAP_EXP) return;
    fl_rule_sum(total, i, n, gradient_x[i]);
    FL_JOIN();
    FL_ONCE gradient_x[top] = (float)(gradient_x[top] - total);
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    apply(map_of(input), input->head_dim, input->query, output->query);
    apply(map_of(input), input->head_dim, input->key, output->key);
    fl_rule_copy(input->head_dim, input->value, output->value);
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    apply_backward(map_of(input), input->head_dim, input->query, gradient->query, out->query);
    apply_backward(map_of(input), input->head_dim, input->key, gradient->key, out->key);
    fl_rule_copy(input->head_dim, gradient->value, out->value);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const char *const map_names[] = {"identity", "elu1", "relu", "exp", NULL};

static const fl_option options[] = {
    {.key = "feature_map",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(linear_options, feature_map),
     .default_text = "elu1",
     .choices = map_names,
     .help = "phi on q and k: identity, elu1 (elu(x) + 1), relu, exp (exp(x - max x))"},
};

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

#endif
