#include <math.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

enum { LARGEST_HEAD_DIM = 128 };

/* Products x_i x_j are kept once, those with i < j at sqrt 2: 1 + D + D (D + 1) / 2 features. */
static size_t key_dim(size_t head_dim, const void *options) {
    (void)options;
    return 1 + head_dim + head_dim * (head_dim + 1) / 2;
}

static fl_status check(const fl_attention_shape *shape, const void *options, fl_error *error) {
    (void)options;
    if (shape->head_dim <= LARGEST_HEAD_DIM) return FL_OK;
    return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                        "head dimension %zu makes %zu second-order features; at most %d channels are taken",
                        shape->head_dim, key_dim(shape->head_dim, NULL), (int)LARGEST_HEAD_DIM);
}

/* phi(q).phi(k) = 1 + s + s^2 / 2 with s = q.k / sqrt(D). */
static float first_order(size_t n) {
    return (float)pow((double)n, -0.25);
}

static void map(size_t n, const float *x, float *phi) {
    float scale = first_order(n);
    float on_diagonal = scale * scale * (float)sqrt(0.5), off_diagonal = scale * scale;
    *phi++ = 1.0f;
    for (size_t i = 0; i < n; i++) *phi++ = scale * x[i];
    for (size_t i = 0; i < n; i++) {
        *phi++ = on_diagonal * x[i] * x[i];
        for (size_t j = i + 1; j < n; j++) *phi++ = off_diagonal * x[i] * x[j];
    }
}

static void map_backward(size_t n, const float *x, const float *gradient_phi, float *gradient_x) {
    float scale = first_order(n);
    float on_diagonal = scale * scale * (float)sqrt(0.5), off_diagonal = scale * scale;
    const float *second = gradient_phi + 1 + n;
    for (size_t i = 0; i < n; i++) gradient_x[i] = scale * gradient_phi[1 + i];
    for (size_t i = 0; i < n; i++) {
        gradient_x[i] += 2.0f * on_diagonal * x[i] * *second++;
        for (size_t j = i + 1; j < n; j++) {
            float of_product = off_diagonal * *second++;
            gradient_x[i] += of_product * x[j];
            gradient_x[j] += of_product * x[i];
        }
    }
}

static void prepare(const fl_rule_input *input, fl_rule_output *output) {
    map(input->head_dim, input->query, output->query);
    map(input->head_dim, input->key, output->key);
    memcpy(output->value, input->value, input->head_dim * sizeof(float));
}

static void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    map_backward(input->head_dim, input->query, gradient->query, out->query);
    map_backward(input->head_dim, input->key, gradient->key, out->key);
    memcpy(out->value, gradient->value, input->head_dim * sizeof(float));
}

const fl_rule fl_rule_taylor = {
    .abi = FL_RULE_ABI,
    .name = "taylor",
    .summary = "kernel attention with softmax's second-order Taylor polynomial",
    .equation =
        "S = S + v phi(k)^T;  y = S phi(q) / (z.phi(q));  phi(q).phi(k) = 1 + s + s^2/2, s = q.k / sqrt(D)",
    .source = "Arora et al. 2024 (Based), arXiv 2402.18668",
    .normaliser = true,
    .shared_normaliser = true,
    .key_dim = key_dim,
    .check = check,
    .prepare = prepare,
    .prepare_backward = prepare_backward,
};
