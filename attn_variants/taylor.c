#include "harness/compute/rule_functions.h"

enum { LARGEST_HEAD_DIM = 128 };

/* Products x_i x_j are kept once, those with i < j at sqrt 2: 1 + D + D (D + 1) / 2 features. */
FL_RULE_FUNCTION size_t key_dim(size_t head_dim, const void *options) {
    (void)options;
    return 1 + head_dim + head_dim * (head_dim + 1) / 2;
}

/* phi(q).phi(k) = 1 + s + s^2 / 2 with s = q.k / sqrt(D). */
FL_RULE_FUNCTION float first_order(size_t n) {
    return (float)pow((double)n, -0.25);
}

/* Where the products of x_i with x_i, x_(i + 1), ... begin among the features. */
FL_RULE_FUNCTION size_t products_of(size_t n, size_t i) {
    return 1 + n + i * (2 * n - i + 1) / 2;
}

FL_RULE_FUNCTION void map(size_t n, const float *x, float *phi) {
    float scale = first_order(n);
    float on_diagonal = scale * scale * (float)sqrt(0.5), off_diagonal = scale * scale;
    FL_ONCE phi[0] = 1.0f;
    FL_EACH(i, n) phi[1 + i] = scale * x[i];
    FL_ALL(i, n) {
        float *of_row = phi + products_of(n, i);
        FL_ONCE of_row[0] = on_diagonal * x[i] * x[i];
        FL_EACH(j, n - i - 1) of_row[1 + j] = off_diagonal * x[i] * x[i + 1 + j];
    }
    FL_JOIN();
}

/* Of the first order, then of the products with the channels before it, with itself and with those behind it.
 */
FL_RULE_FUNCTION void map_backward(size_t n, const float *x, const float *gradient_phi, float *gradient_x) {
    float scale = first_order(n);
    float on_diagonal = scale * scale * (float)sqrt(0.5), off_diagonal = scale * scale;
    FL_EACH(i, n) {
        const float *of_row = gradient_phi + products_of(n, i);
        float sum = scale * gradient_phi[1 + i];
        FL_ALL(j, i) sum += off_diagonal * gradient_phi[products_of(n, j) + i - j] * x[j];
        sum += 2.0f * on_diagonal * x[i] * of_row[0];
        FL_ALL(j, n - i - 1) sum += off_diagonal * of_row[1 + j] * x[i + 1 + j];
        gradient_x[i] = sum;
    }
    FL_JOIN();
}

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    map(input->head_dim, input->query, output->query);
    map(input->head_dim, input->key, output->key);
    fl_rule_copy(input->head_dim, input->value, output->value);
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    map_backward(input->head_dim, input->query, gradient->query, out->query);
    map_backward(input->head_dim, input->key, gradient->key, out->key);
    fl_rule_copy(input->head_dim, gradient->value, out->value);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static fl_status check(const fl_attention_shape *shape, const void *options, fl_error *error) {
    (void)options;
    if (shape->head_dim <= LARGEST_HEAD_DIM) return FL_OK;
    return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                        "head dimension %zu makes %zu second-order features; at most %d channels are taken",
                        shape->head_dim, key_dim(shape->head_dim, NULL), (int)LARGEST_HEAD_DIM);
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

#endif
