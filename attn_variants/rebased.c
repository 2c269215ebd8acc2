#include "harness/compute/rule_functions.h"

typedef struct rebased_options {
    bool normalise;
} rebased_options;

enum { SCALE = 0, SHIFT };

static const double EPSILON = 1e-5; /* of the layer norm */

FL_RULE_FUNCTION bool normalises(const fl_rule_input *input) {
    return ((const rebased_options *)input->options)->normalise;
}

FL_RULE_FUNCTION size_t key_dim(size_t head_dim, const void *chosen) {
    (void)chosen;
    return head_dim * (head_dim + 1) / 2;
}

/* z = (x - mean) / sqrt(variance + epsilon), or x; returns 1 / that root. */
FL_RULE_FUNCTION double normalised(const fl_rule_input *input, const float *x, float *z) {
    size_t n = input->head_dim;
    fl_rule_copy(n, x, z);
    if (!normalises(input)) return 1.0;
    fl_rule_sum(mean, i, n, x[i] / (double)n);
    fl_rule_sum(variance, j, n, (x[j] - mean) * (x[j] - mean) / (double)n);
    double inverse = 1.0 / sqrt(variance + EPSILON);
    FL_EACH(i, n) z[i] = (float)((x[i] - mean) * inverse);
    FL_JOIN();
    return inverse;
}

FL_RULE_FUNCTION void shifted(const fl_rule_input *input, const float *z, float *w) {
    size_t n = input->head_dim, at = input->head * n;
    FL_EACH(i, n) w[i] = z[i] * input->parameters[SCALE][at + i] + input->parameters[SHIFT][at + i];
    FL_JOIN();
}

/* Where the products of w_i with w_(i + 1), w_(i + 2), ... begin among the features, less i + 1. */
FL_RULE_FUNCTION size_t products_of(size_t n, size_t i) {
    return n + i * (2 * n - i - 1) / 2 - i - 1;
}

/* phi(q) . phi(k) = (q . k)^2 / D with half as many features as q q^T has entries. */
FL_RULE_FUNCTION void map(const fl_rule_input *input, const float *x, float *features) {
    size_t n = input->head_dim;
    FL_VECTOR(z);
    FL_VECTOR(w);
    float square = (float)(1.0 / sqrt((double)n)), product = (float)sqrt(2.0 / (double)n);
    normalised(input, x, z);
    shifted(input, z, w);
    FL_EACH(i, n) features[i] = square * w[i] * w[i];
    FL_ALL(i, n) {
        float *of_row = features + products_of(n, i) + i + 1;
        FL_EACH(j, n - i - 1) of_row[j] = product * w[i] * w[i + 1 + j];
    }
    FL_JOIN();
}

/* What the features hand back to w: of feature (i, i), then of those with the channels before it, then with
 * those behind it. */
FL_RULE_FUNCTION void features_backward(size_t n, const float *w, const float *gradient, float *of_w) {
    float square = (float)(1.0 / sqrt((double)n)), product = (float)sqrt(2.0 / (double)n);
    FL_EACH(i, n) {
        float sum = 2.0f * square * w[i] * gradient[i];
        FL_ALL(j, i) sum += product * w[j] * gradient[products_of(n, j) + i];
        FL_ALL(j, n - i - 1) sum += product * w[i + 1 + j] * gradient[products_of(n, i) + i + 1 + j];
        of_w[i] = sum;
    }
    FL_JOIN();
}

FL_RULE_FUNCTION void map_backward(const fl_rule_input *input, const float *x, const float *gradient,
                                   float *gradient_x, float *const *of_parameters) {
    size_t n = input->head_dim, at = input->head * n;
    FL_VECTOR(z);
    FL_VECTOR(w);
    FL_VECTOR(of_w);
    double inverse = normalised(input, x, z);
    shifted(input, z, w);
    features_backward(n, w, gradient, of_w);
    FL_EACH(i, n) {
        if (of_parameters != NULL) of_parameters[SCALE][at + i] += of_w[i] * z[i];
        if (of_parameters != NULL) of_parameters[SHIFT][at + i] += of_w[i];
        of_w[i] *= input->parameters[SCALE][at + i]; /* of z from here on */
    }
    FL_JOIN();
    fl_rule_sum(mean, i, n, of_w[i] / (double)n);
    fl_rule_sum(along, j, n, (double)of_w[j] * z[j] / (double)n);
    FL_EACH(i, n)
    gradient_x[i] = normalises(input) ? (float)(inverse * (of_w[i] - mean - z[i] * along)) : of_w[i];
    FL_JOIN();
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    map(input, input->query, output->query);
    map(input, input->key, output->key);
    fl_rule_copy(input->head_dim, input->value, output->value);
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    map_backward(input, input->query, gradient->query, out->query, out->parameters);
    map_backward(input, input->key, gradient->key, out->key, out->parameters);
    fl_rule_copy(input->head_dim, gradient->value, out->value);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "normalise",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(rebased_options, normalise),
     .default_text = "true",
     .help = "layer norm of q and k before the learned scale and shift, as published"},
};

static const fl_rule_parameter parameters[] = {
    {.name = "rebased.scale", .axes = "HD", .init = "1", .help = "gamma: of q and k alike"},
    {.name = "rebased.shift", .axes = "HD", .init = "0", .help = "beta: of q and k alike"},
};

const fl_rule fl_rule_rebased = {
    .abi = FL_RULE_ABI,
    .name = "rebased",
    .summary = "kernel attention whose kernel is a square with learned scale and shift",
    .equation = "S += v phi(k)^T, phi(q).phi(k) = (w(q).w(k))^2 / D, w(x) = gamma norm(x) + beta;  y = S "
                "phi(q) / z.phi(q)",
    .source = "Aksenov et al. 2024, arXiv 2402.10644",
    .differs = "gamma and beta are learned for every head; the denominator has no epsilon (published: 1e-6).",
    .transition = {FL_DECAY_NONE, FL_ERASE_NONE},
    .normaliser = true,
    .shared_normaliser = true,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(rebased_options),
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .key_dim = key_dim,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};

#endif
