#include "harness/compute/rule_functions.h"

/* key and value of unit length, the decay of every row, and the error k - S^T v of the decayed state. */
FL_RULE_FUNCTION void begin_write(const fl_rule_input *token, const float *before, float *key, float *value,
                                  float *decay, float *error) {
    size_t n = token->head_dim;
    fl_rule_unit(n, token->key, key);
    fl_rule_unit(n, token->value, value);
    fl_rule_copy(n, key, error);
    FL_EACH(row, n) decay[row] = expf(token->gate[row]);
    FL_JOIN();
    FL_ALL(row, n) {
        float weight = value[row] * decay[row];
        FL_EACH(i, n) error[i] -= weight * before[row * n + i];
    }
    FL_JOIN();
}

FL_RULE_FUNCTION void write_token(const fl_rule_input *token, float *state) {
    size_t n = token->head_dim;
    FL_VECTOR(key);
    FL_VECTOR(value);
    FL_VECTOR(decay);
    FL_VECTOR(error);
    begin_write(token, state, key, value, decay, error);
    FL_ALL(row, n) {
        float weight = token->beta * value[row];
        FL_EACH(i, n) state[row * n + i] = decay[row] * state[row * n + i] + weight * error[i];
    }
    FL_JOIN();
}

/* With G the gradient of the state after the write, S the decayed state, e the error:
 * db = v^T G e;  de = b G^T v = dk;  dv = b G e - S de;  dS = G - v de^T;  d log a = rows of dS . S. */
FL_RULE_FUNCTION void write_backward(const fl_rule_input *token, const float *before, float *gradient_state,
                                     fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    FL_VECTOR(key);
    FL_VECTOR(value);
    FL_VECTOR(decay);
    FL_VECTOR(error);
    FL_VECTOR(of_value);
    FL_VECTOR(of_error);
    float beta = 0.0f;
    begin_write(token, before, key, value, decay, error);
    fl_rule_clear(n, of_error);
    FL_ALL(row, n) {
        const float *gradient = gradient_state + row * n;
        float weight = token->beta * value[row];
        fl_rule_float_sum(along, i, n, gradient[i] * error[i]);
        FL_EACH(i, n) of_error[i] += weight * gradient[i];
        FL_ONCE of_value[row] = token->beta * along;
        beta += value[row] * along;
    }
    FL_JOIN();
    FL_ALL(row, n) {
        float *gradient = gradient_state + row * n;
        const float *old = before + row * n;
        fl_rule_float_sum(along, i, n, decay[row] * old[i] * of_error[i]);
        FL_EACH(i, n) gradient[i] -= value[row] * of_error[i];
        FL_JOIN();
        fl_rule_float_sum(of_gate, j, n, gradient[j] * (decay[row] * old[j]));
        FL_EACH(i, n) gradient[i] *= decay[row];
        FL_ONCE {
            of_value[row] -= along;
            out->gate[row] = of_gate;
        }
    }
    FL_ONCE out->beta[0] = beta;
    FL_JOIN();
    fl_rule_unit_backward(n, token->key, of_error, out->key);
    fl_rule_unit_backward(n, token->value, of_value, out->value);
}

FL_RULE_FUNCTION void read_state(const fl_rule_input *token, const float *state, float *output) {
    FL_VECTOR(query);
    fl_rule_input scaled = *token;
    scaled.query = query;
    fl_rule_unit(token->head_dim, token->query, query);
    fl_rule_read_matrix(&scaled, state, output);
}

FL_RULE_FUNCTION void read_backward(const fl_rule_input *token, const float *state,
                                    const float *gradient_output, float *gradient_state,
                                    fl_rule_input_gradient *out) {
    FL_VECTOR(query);
    FL_VECTOR(gradient);
    fl_rule_input scaled = *token;
    fl_rule_input_gradient of_scaled = *out;
    scaled.query = query;
    of_scaled.query = gradient;
    fl_rule_unit(token->head_dim, token->query, query);
    fl_rule_read_matrix_backward(&scaled, state, gradient_output, gradient_state, &of_scaled);
    fl_rule_unit_backward(token->head_dim, token->query, gradient, out->query);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

/* The error is taken in key space, so the transition acts on the rows of S: it does not fit the recurrence
 * and is stated as its own step. S [D][D]. */
static size_t state_floats(size_t head_dim, const void *options) {
    (void)options;
    return head_dim * head_dim;
}

const fl_rule fl_rule_oja = {
    .abi = FL_RULE_ABI,
    .name = "oja",
    .summary =
        "gated Oja rule: the error is taken in key space, decay by value channel; directions of v only",
    .equation = "S = diag(a) S;  S = S + b v (k - S^T v)^T, v of unit length;  y = S q",
    .source =
        "Oja 1982; as fast weights Irie et al. 2022, arXiv 2206.01649; gated as in flash-linear-attention",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .beta = true,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .default_gate_bias = 1.0,
    .default_beta_bias = -1.0,
    .own = {.state_floats = state_floats,
            .write = write_token,
            .read = read_state,
            .write_backward = write_backward,
            .read_backward = read_backward},
};

#endif
