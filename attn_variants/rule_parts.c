#include "harness/compute/rule_functions.h"

static const double SMALLEST_NORM = 1e-12;

FL_RULE_PIECE float fl_rule_unit(size_t n, const float *x, float *y) {
    double length = sqrt(fl_rule_sum_of_squares(n, x));
    double scale = 1.0 / (length > SMALLEST_NORM ? length : SMALLEST_NORM);
    FL_EACH(i, n) y[i] = (float)(x[i] * scale);
    FL_JOIN();
    return (float)length;
}

FL_RULE_PIECE void fl_rule_unit_backward(size_t n, const float *x, const float *gradient_y,
                                         float *gradient_x) {
    double length = sqrt(fl_rule_sum_of_squares(n, x));
    if (length <= SMALLEST_NORM) {
        FL_EACH(i, n) gradient_x[i] = (float)(gradient_y[i] / SMALLEST_NORM);
    } else {
        double along = fl_rule_dot(n, gradient_y, x) / (length * length), scale = 1.0 / length;
        fl_rule_remove(n, x, along, scale, gradient_y, gradient_x);
    }
    FL_JOIN();
}

FL_RULE_PIECE void fl_rule_copy(size_t n, const float *x, float *y) {
    FL_EACH(i, n) y[i] = x[i];
    FL_JOIN();
}

FL_RULE_PIECE void fl_rule_clear(size_t n, float *y) {
    FL_EACH(i, n) y[i] = 0.0f;
    FL_JOIN();
}

FL_RULE_PIECE void fl_rule_unit_inputs(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_unit(input->head_dim, input->query, output->query);
    fl_rule_unit(input->head_dim, input->key, output->key);
    fl_rule_copy(input->head_dim, input->value, output->value);
}

FL_RULE_PIECE void fl_rule_unit_inputs_backward(const fl_rule_input *input,
                                                const fl_rule_output_gradient *gradient,
                                                fl_rule_input_gradient *out) {
    fl_rule_unit_backward(input->head_dim, input->query, gradient->query, out->query);
    fl_rule_unit_backward(input->head_dim, input->key, gradient->key, out->key);
    fl_rule_copy(input->head_dim, gradient->value, out->value);
}

FL_RULE_PIECE void fl_rule_raw_inputs(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_copy(input->head_dim, input->query, output->query);
    fl_rule_copy(input->head_dim, input->key, output->key);
    fl_rule_copy(input->head_dim, input->value, output->value);
}

FL_RULE_PIECE void fl_rule_raw_inputs_backward(const fl_rule_input *input,
                                               const fl_rule_output_gradient *gradient,
                                               fl_rule_input_gradient *out) {
    fl_rule_copy(input->head_dim, gradient->query, out->query);
    fl_rule_copy(input->head_dim, gradient->key, out->key);
    fl_rule_copy(input->head_dim, gradient->value, out->value);
}

FL_RULE_PIECE void fl_rule_inputs(bool unit, const fl_rule_input *input, fl_rule_output *output) {
    if (unit)
        fl_rule_unit_inputs(input, output);
    else
        fl_rule_raw_inputs(input, output);
}

FL_RULE_PIECE void fl_rule_inputs_backward(bool unit, const fl_rule_input *input,
                                           const fl_rule_output_gradient *gradient,
                                           fl_rule_input_gradient *out) {
    if (unit)
        fl_rule_unit_inputs_backward(input, gradient, out);
    else
        fl_rule_raw_inputs_backward(input, gradient, out);
}

FL_RULE_PIECE void fl_rule_read_matrix(const fl_rule_input *token, const float *state, float *output) {
    size_t n = token->head_dim;
    FL_EACH(row, n) {
        double sum = 0.0;
        FL_ALL(i, n) sum += (double)state[row * n + i] * token->query[i];
        output[row] = (float)sum;
    }
    FL_JOIN();
}

FL_RULE_PIECE void fl_rule_read_matrix_backward(const fl_rule_input *token, const float *state,
                                                const float *gradient_output, float *gradient_state,
                                                fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    fl_rule_clear(n, out->query);
    FL_ALL(row, n) {
        FL_EACH(i, n) {
            out->query[i] += gradient_output[row] * state[row * n + i];
            gradient_state[row * n + i] += gradient_output[row] * token->query[i];
        }
    }
    FL_JOIN();
}
