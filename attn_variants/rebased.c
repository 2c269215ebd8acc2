#include <math.h>
#include <stddef.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

typedef struct rebased_options {
    bool normalise;
} rebased_options;

static const fl_option options[] = {
    {.key = "normalise",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(rebased_options, normalise),
     .default_text = "true",
     .help = "layer norm of q and k before the learned scale and shift, as published"},
};

enum { SCALE = 0, SHIFT };

static const fl_rule_parameter parameters[] = {
    {.name = "rebased.scale", .axes = "HD", .init = "1", .help = "gamma: of q and k alike"},
    {.name = "rebased.shift", .axes = "HD", .init = "0", .help = "beta: of q and k alike"},
};

static const double EPSILON = 1e-5; /* of the layer norm */

static bool normalises(const fl_rule_input *input) {
    return ((const rebased_options *)input->options)->normalise;
}

static size_t key_dim(size_t head_dim, const void *chosen) {
    (void)chosen;
    return head_dim * (head_dim + 1) / 2;
}

/* z = (x - mean) / sqrt(variance + epsilon), or x; returns 1 / that root. */
static double normalised(const fl_rule_input *input, const float *x, float *z) {
    size_t n = input->head_dim;
    double mean = 0.0, variance = 0.0;
    memcpy(z, x, n * sizeof *z);
    if (!normalises(input)) return 1.0;
    for (size_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)n;
    double inverse = 1.0 / sqrt(variance + EPSILON);
    for (size_t i = 0; i < n; i++) z[i] = (float)((x[i] - mean) * inverse);
    return inverse;
}

static void shifted(const fl_rule_input *input, const float *z, float *w) {
    size_t n = input->head_dim, at = input->head * n;
    for (size_t i = 0; i < n; i++)
        w[i] = z[i] * input->parameters[SCALE][at + i] + input->parameters[SHIFT][at + i];
}

/* phi(q) . phi(k) = (q . k)^2 / D with half as many features as q q^T has entries. */
static void map(const fl_rule_input *input, const float *x, float *features) {
    size_t n = input->head_dim;
    float z[FL_RULE_MAX_HEAD_DIM], w[FL_RULE_MAX_HEAD_DIM];
    float square = (float)(1.0 / sqrt((double)n)), product = (float)sqrt(2.0 / (double)n);
    normalised(input, x, z);
    shifted(input, z, w);
    for (size_t i = 0; i < n; i++) *features++ = square * w[i] * w[i];
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) *features++ = product * w[i] * w[j];
    }
}

static void map_backward(const fl_rule_input *input, const float *x, const float *gradient, float *gradient_x,
                         float *const *of_parameters) {
    size_t n = input->head_dim, at = input->head * n;
    float z[FL_RULE_MAX_HEAD_DIM], w[FL_RULE_MAX_HEAD_DIM], of_w[FL_RULE_MAX_HEAD_DIM];
    float square = (float)(1.0 / sqrt((double)n)), product = (float)sqrt(2.0 / (double)n);
    double inverse = normalised(input, x, z), mean = 0.0, along = 0.0;
    shifted(input, z, w);
    for (size_t i = 0; i < n; i++) of_w[i] = 2.0f * square * w[i] * *gradient++;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++, gradient++) {
            of_w[i] += product * w[j] * *gradient;
            of_w[j] += product * w[i] * *gradient;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (of_parameters != NULL) of_parameters[SCALE][at + i] += of_w[i] * z[i];
        if (of_parameters != NULL) of_parameters[SHIFT][at + i] += of_w[i];
        of_w[i] *= input->parameters[SCALE][at + i]; /* of z from here on */
        mean += of_w[i] / (double)n;
        along += (double)of_w[i] * z[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++)
        gradient_x[i] = normalises(input) ? (float)(inverse * (of_w[i] - mean - z[i] * along)) : of_w[i];
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    map(input, input->query, output->query);
    map(input, input->key, output->key);
    memcpy(output->value, input->value, input->head_dim * sizeof(float));
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    map_backward(input, input->query, gradient->query, out->query, out->parameters);
    map_backward(input, input->key, gradient->key, out->key, out->parameters);
    memcpy(out->value, gradient->value, input->head_dim * sizeof(float));
}

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
