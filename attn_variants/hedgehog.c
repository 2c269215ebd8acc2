#include "harness/compute/rule_functions.h"

enum { QUERY_MAP = 0, KEY_MAP };

FL_RULE_FUNCTION size_t key_dim(size_t head_dim, const void *options) {
    (void)options;
    return 2 * head_dim;
}

/* z = x W, then phi = softmax(z) (+) softmax(-z). */
FL_RULE_FUNCTION void map(size_t n, const float *x, const float *weight, float *phi) {
    FL_VECTOR(z);
    fl_rule_weigh_rows(n, n, x, weight, z);
    FL_JOIN();
    fl_rule_softmax_of(n, z, phi);
    FL_JOIN();
    FL_EACH(i, n) z[i] = -z[i];
    FL_JOIN();
    fl_rule_softmax_of(n, z, phi + n);
    FL_JOIN();
}

/* gradient_z += sign * p (g - p.g) */
FL_RULE_FUNCTION void softmax_backward(size_t n, const float *p, const float *gradient_p, float sign,
                                       float *gradient_z) {
    fl_rule_sum(mean, i, n, (double)p[i] * gradient_p[i]);
    FL_EACH(i, n) gradient_z[i] += sign * p[i] * (float)(gradient_p[i] - mean);
    FL_JOIN();
}

FL_RULE_FUNCTION void map_backward(size_t n, const float *x, const float *weight, const float *gradient_phi,
                                   float *gradient_x, float *gradient_weight) {
    FL_VECTORS(phi, 2);
    FL_VECTOR(gradient_z);
    map(n, x, weight, phi);
    fl_rule_clear(n, gradient_z);
    softmax_backward(n, phi, gradient_phi, 1.0f, gradient_z);
    softmax_backward(n, phi + n, gradient_phi + n, -1.0f, gradient_z);
    FL_EACH(i, n) {
        double sum = 0.0;
        FL_ALL(j, n) sum += (double)weight[i * n + j] * gradient_z[j];
        gradient_x[i] = (float)sum;
        if (gradient_weight == NULL) continue;
        FL_ALL(j, n) gradient_weight[i * n + j] += x[i] * gradient_z[j];
    }
    FL_JOIN();
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    size_t n = input->head_dim, at = input->head * n * n;
    map(n, input->query, input->parameters[QUERY_MAP] + at, output->query);
    map(n, input->key, input->parameters[KEY_MAP] + at, output->key);
    fl_rule_copy(n, input->value, output->value);
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    size_t n = input->head_dim, at = input->head * n * n;
    bool wanted = out->parameters != NULL;
    map_backward(n, input->query, input->parameters[QUERY_MAP] + at, gradient->query, out->query,
                 wanted ? out->parameters[QUERY_MAP] + at : NULL);
    map_backward(n, input->key, input->parameters[KEY_MAP] + at, gradient->key, out->key,
                 wanted ? out->parameters[KEY_MAP] + at : NULL);
    fl_rule_copy(n, gradient->value, out->value);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_rule_parameter parameters[] = {
    {.name = "hedgehog.query",
     .axes = "HDD",
     .init = "identity",
     .help = "W of the queries, [in][out] of every head"},
    {.name = "hedgehog.key", .axes = "HDD", .init = "identity", .help = "W of the keys"},
};

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

#endif
