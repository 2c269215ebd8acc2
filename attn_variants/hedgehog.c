#include <string.h>

#include "attn_variants/attn_variant.h"
#include "harness/compute/vector_math.h"

enum { QUERY_MAP = 0, KEY_MAP };

static const fl_rule_parameter parameters[] = {
    {.name = "hedgehog.query",
     .axes = "HDD",
     .init = "identity",
     .help = "W of the queries, [in][out] of every head"},
    {.name = "hedgehog.key", .axes = "HDD", .init = "identity", .help = "W of the keys"},
};

static size_t key_dim(size_t head_dim, const void *options) {
    (void)options;
    return 2 * head_dim;
}

/* z = x W, then phi = softmax(z) (+) softmax(-z). */
static void map(size_t n, const float *x, const float *weight, float *phi) {
    float z[FL_RULE_MAX_HEAD_DIM];
    fl_vector_weigh_rows(n, n, x, weight, z);
    fl_vector_softmax(n, z, phi);
    for (size_t i = 0; i < n; i++) z[i] = -z[i];
    fl_vector_softmax(n, z, phi + n);
}

/* gradient_z += sign * p (g - p.g) */
static void softmax_backward(size_t n, const float *p, const float *gradient_p, float sign,
                             float *gradient_z) {
    double mean = 0.0;
    for (size_t i = 0; i < n; i++) mean += (double)p[i] * gradient_p[i];
    for (size_t i = 0; i < n; i++) gradient_z[i] += sign * p[i] * (float)(gradient_p[i] - mean);
}

static void map_backward(size_t n, const float *x, const float *weight, const float *gradient_phi,
                         float *gradient_x, float *gradient_weight) {
    float phi[2 * FL_RULE_MAX_HEAD_DIM], gradient_z[FL_RULE_MAX_HEAD_DIM];
    map(n, x, weight, phi);
    memset(gradient_z, 0, n * sizeof *gradient_z);
    softmax_backward(n, phi, gradient_phi, 1.0f, gradient_z);
    softmax_backward(n, phi + n, gradient_phi + n, -1.0f, gradient_z);
    for (size_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (size_t j = 0; j < n; j++) sum += (double)weight[i * n + j] * gradient_z[j];
        gradient_x[i] = (float)sum;
        for (size_t j = 0; gradient_weight != NULL && j < n; j++)
            gradient_weight[i * n + j] += x[i] * gradient_z[j];
    }
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim, at = input->head * n * n;
    map(n, input->query, input->parameters[QUERY_MAP] + at, output->query);
    map(n, input->key, input->parameters[KEY_MAP] + at, output->key);
    memcpy(output->value, input->value, n * sizeof(float));
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    size_t n = input->head_dim, at = input->head * n * n;
    bool wanted = out->parameters != NULL;
    map_backward(n, input->query, input->parameters[QUERY_MAP] + at, gradient->query, out->query,
                 wanted ? out->parameters[QUERY_MAP] + at : NULL);
    map_backward(n, input->key, input->parameters[KEY_MAP] + at, gradient->key, out->key,
                 wanted ? out->parameters[KEY_MAP] + at : NULL);
    memcpy(out->value, gradient->value, n * sizeof(float));
}

const fl_rule fl_rule_hedgehog = {
    .abi = FL_RULE_ABI,
    .name = "hedgehog",
    .summary = "kernel attention with a learned feature map of two softmaxes, the identity at first",
    .equation = "S = S + v phi(k)^T;  y = S phi(q) / (z.phi(q));  phi(x) = softmax(x W) (+) softmax(-x W)",
    .source = "Zhang et al. 2024, arXiv 2402.04347; LoLCATs, arXiv 2410.10254",
    .normaliser = true,
    .shared_normaliser = true,
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .key_dim = key_dim,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
