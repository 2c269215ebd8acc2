#include "harness/compute/rule_functions.h"

typedef struct random_features_options {
    size_t features;
} random_features_options;

FL_RULE_FUNCTION size_t key_dim(size_t head_dim, const void *chosen) {
    size_t features = ((const random_features_options *)chosen)->features;
    return features > 0 ? features : head_dim;
}

/* phi_i(x) = exp(w_i.x' - |x'|^2 / 2) / sqrt(m) with x' = x / D^(1/4): phi(q).phi(k) is exp(q.k / sqrt(D)) on
 * average. */
FL_RULE_FUNCTION void map(const fl_rule_input *input, const float *x, float *phi) {
    size_t n = input->head_dim, m = key_dim(n, input->options);
    const float *weight = input->parameters[0] + input->head * m * n;
    double scale = pow((double)n, -0.25);
    float share = (float)(1.0 / sqrt((double)m));
    fl_rule_sum(square, j, n, (double)x[j] * x[j]);
    fl_rule_times_rows(m, n, weight, x, phi);
    FL_JOIN();
    /* The difference in float64: its sides may be large where it is not. */
    FL_EACH(i, m) phi[i] = (float)(scale * phi[i] - 0.5 * scale * scale * square);
    FL_JOIN();
    fl_rule_exp(m, phi, phi);
    FL_JOIN();
    FL_EACH(i, m) phi[i] *= share;
    FL_JOIN();
}

FL_RULE_FUNCTION void map_backward(const fl_rule_input *input, const float *x, const float *phi,
                                   const float *gradient_phi, float *gradient_x, float *gradient_weight) {
    size_t n = input->head_dim, m = key_dim(n, input->options);
    const float *weight = input->parameters[0] + input->head * m * n;
    double scale = pow((double)n, -0.25);
    fl_rule_sum(total, i, m, (double)gradient_phi[i] * phi[i]);
    FL_EACH(j, n) {
        double sum = 0.0;
        FL_ALL(i, m) sum += (double)gradient_phi[i] * phi[i] * weight[i * n + j];
        gradient_x[j] = (float)(scale * sum - scale * scale * total * x[j]);
    }
    FL_JOIN();
    if (gradient_weight == NULL) return;
    FL_ALL(i, m) {
        double of_exponent = (double)gradient_phi[i] * phi[i];
        FL_EACH(j, n) gradient_weight[i * n + j] += (float)(of_exponent * scale * x[j]);
    }
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    map(input, input->query, output->query);
    map(input, input->key, output->key);
    fl_rule_copy(input->head_dim, input->value, output->value);
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    enum { LARGEST_FEATURES = 4096 };
    size_t n = input->head_dim;
    float *weight =
        out->parameters == NULL ? NULL : out->parameters[0] + input->head * key_dim(n, input->options) * n;
    FL_VECTORS(phi, LARGEST_FEATURES / FL_RULE_MAX_HEAD_DIM);
    map(input, input->query, phi);
    map_backward(input, input->query, phi, gradient->query, out->query, weight);
    FL_JOIN();
    map(input, input->key, phi);
    map_backward(input, input->key, phi, gradient->key, out->key, weight);
    fl_rule_copy(n, gradient->value, out->value);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "features",
     .type = FL_OPTION_SIZE,
     .offset = offsetof(random_features_options, features),
     .default_text = "0",
     .minimum = 0,
     .maximum = 4096,
     .help = "random features a head; 0 = the head dimension"},
};

static const fl_rule_parameter parameters[] = {
    {.name = "random_features.weight",
     .axes = "HKD",
     .init = "normal",
     .help = "the random directions, drawn from variant.seed"},
};

const fl_rule fl_rule_random_features = {
    .abi = FL_RULE_ABI,
    .name = "random_features",
    .summary = "kernel attention with positive random features of the softmax kernel",
    .equation = "S = S + v phi(k)^T;  y = S phi(q) / (z.phi(q));  E phi(q).phi(k) = exp(q.k / sqrt(D))",
    .source = "Choromanski et al. 2021 (Performer), arXiv 2009.14794",
    .normaliser = true,
    .shared_normaliser = true,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(random_features_options),
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .key_dim = key_dim,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
