#include <math.h>
#include <stddef.h>
#include <string.h>

#include "attn_variants/attn_variant.h"
#include "harness/compute/vector_math.h"

typedef struct random_features_options {
    size_t features;
} random_features_options;

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

static size_t key_dim(size_t head_dim, const void *chosen) {
    size_t features = ((const random_features_options *)chosen)->features;
    return features > 0 ? features : head_dim;
}

/* phi_i(x) = exp(w_i.x' - |x'|^2 / 2) / sqrt(m) with x' = x / D^(1/4): phi(q).phi(k) is exp(q.k / sqrt(D)) on
 * average. */
static void map(const fl_rule_input *input, const float *x, float *phi) {
    size_t n = input->head_dim, m = key_dim(n, input->options);
    const float *weight = input->parameters[0] + input->head * m * n;
    double scale = pow((double)n, -0.25), square = 0.0;
    float share = (float)(1.0 / sqrt((double)m));
    for (size_t j = 0; j < n; j++) square += (double)x[j] * x[j];
    fl_vector_times_rows(m, n, weight, x, phi);
    /* The difference in float64: its sides may be large where it is not. */
    for (size_t i = 0; i < m; i++) phi[i] = (float)(scale * phi[i] - 0.5 * scale * scale * square);
    fl_vector_exp(m, phi, phi);
    for (size_t i = 0; i < m; i++) phi[i] *= share;
}

static void map_backward(const fl_rule_input *input, const float *x, const float *phi,
                         const float *gradient_phi, float *gradient_x, float *gradient_weight) {
    size_t n = input->head_dim, m = key_dim(n, input->options);
    const float *weight = input->parameters[0] + input->head * m * n;
    double scale = pow((double)n, -0.25), total = 0.0;
    double sum[FL_RULE_MAX_HEAD_DIM] = {0.0};
    for (size_t i = 0; i < m; i++) {
        double of_exponent = (double)gradient_phi[i] * phi[i];
        total += of_exponent;
        for (size_t j = 0; j < n; j++) sum[j] += of_exponent * weight[i * n + j];
        for (size_t j = 0; gradient_weight != NULL && j < n; j++) {
            gradient_weight[i * n + j] += (float)(of_exponent * scale * x[j]);
        }
    }
    for (size_t j = 0; j < n; j++) gradient_x[j] = (float)(scale * sum[j] - scale * scale * total * x[j]);
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    map(input, input->query, output->query);
    map(input, input->key, output->key);
    memcpy(output->value, input->value, input->head_dim * sizeof(float));
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    enum { LARGEST_FEATURES = 4096 };
    float phi[LARGEST_FEATURES];
    size_t n = input->head_dim;
    float *weight =
        out->parameters == NULL ? NULL : out->parameters[0] + input->head * key_dim(n, input->options) * n;
    map(input, input->query, phi);
    map_backward(input, input->query, phi, gradient->query, out->query, weight);
    map(input, input->key, phi);
    map_backward(input, input->key, phi, gradient->key, out->key, weight);
    memcpy(out->value, gradient->value, n * sizeof(float));
}

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
