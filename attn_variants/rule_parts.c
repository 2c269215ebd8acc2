#include <math.h>
#include <string.h>

#include "attn_variants/attn_variant.h"
#include "harness/compute/vector_math.h"

enum { RUN = 8 }; /* numbers worked on together, so that they go into vector registers */

static const double SMALLEST_NORM = 1e-12;

float fl_rule_unit(size_t n, const float *x, float *y) {
    double length = sqrt(fl_vector_sum_of_squares(n, x));
    double scale = 1.0 / (length > SMALLEST_NORM ? length : SMALLEST_NORM);
    for (size_t i = 0; i < n; i++) y[i] = (float)(x[i] * scale);
    return (float)length;
}

void fl_rule_unit_backward(size_t n, const float *x, const float *gradient_y, float *gradient_x) {
    double length = sqrt(fl_vector_sum_of_squares(n, x));
    if (length <= SMALLEST_NORM) {
        for (size_t i = 0; i < n; i++) gradient_x[i] = (float)(gradient_y[i] / SMALLEST_NORM);
        return;
    }
    double along = fl_vector_dot_float64(n, gradient_y, x) / (length * length), scale = 1.0 / length;
    size_t i = 0;
    for (; i + RUN <= n; i += RUN) {
        float run[RUN];
#pragma GCC unroll 8
        for (size_t j = 0; j < RUN; j++) run[j] = (float)((gradient_y[i + j] - along * x[i + j]) * scale);
        memcpy(gradient_x + i, run, sizeof run);
    }
    for (; i < n; i++) gradient_x[i] = (float)((gradient_y[i] - along * x[i]) * scale);
}

void fl_rule_unit_inputs(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_unit(input->head_dim, input->query, output->query);
    fl_rule_unit(input->head_dim, input->key, output->key);
    memcpy(output->value, input->value, input->head_dim * sizeof(float));
}

void fl_rule_unit_inputs_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                  fl_rule_input_gradient *out) {
    fl_rule_unit_backward(input->head_dim, input->query, gradient->query, out->query);
    fl_rule_unit_backward(input->head_dim, input->key, gradient->key, out->key);
    memcpy(out->value, gradient->value, input->head_dim * sizeof(float));
}

void fl_rule_raw_inputs(const fl_rule_input *input, fl_rule_output *output) {
    size_t bytes = input->head_dim * sizeof(float);
    memcpy(output->query, input->query, bytes);
    memcpy(output->key, input->key, bytes);
    memcpy(output->value, input->value, bytes);
}

void fl_rule_raw_inputs_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                 fl_rule_input_gradient *out) {
    size_t bytes = input->head_dim * sizeof(float);
    memcpy(out->query, gradient->query, bytes);
    memcpy(out->key, gradient->key, bytes);
    memcpy(out->value, gradient->value, bytes);
}

void fl_rule_read_matrix(const fl_rule_input *token, const float *state, float *output) {
    size_t n = token->head_dim;
    for (size_t row = 0; row < n; row++) {
        double sum = 0.0;
        for (size_t i = 0; i < n; i++) sum += (double)state[row * n + i] * token->query[i];
        output[row] = (float)sum;
    }
}

void fl_rule_read_matrix_backward(const fl_rule_input *token, const float *state,
                                  const float *gradient_output, float *gradient_state,
                                  fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    memset(out->query, 0, n * sizeof *out->query);
    for (size_t row = 0; row < n; row++) {
        for (size_t i = 0; i < n; i++) {
            out->query[i] += gradient_output[row] * state[row * n + i];
            gradient_state[row * n + i] += gradient_output[row] * token->query[i];
        }
    }
}
