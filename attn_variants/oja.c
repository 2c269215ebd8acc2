#include <math.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

/* The error is taken in key space, so the transition acts on the rows of S: it does not fit the recurrence
 * and is stated as its own step. S [D][D]. */
static size_t state_floats(size_t head_dim, const void *options) {
    (void)options;
    return head_dim * head_dim;
}

typedef struct oja_write {
    float key[FL_RULE_MAX_HEAD_DIM], value[FL_RULE_MAX_HEAD_DIM]; /* of unit length */
    float decay[FL_RULE_MAX_HEAD_DIM];                            /* of a row */
    float error[FL_RULE_MAX_HEAD_DIM];                            /* k - S^T v, S decayed */
} oja_write;

static void begin_write(const fl_rule_input *token, const float *before, oja_write *write) {
    size_t n = token->head_dim;
    fl_rule_unit(n, token->key, write->key);
    fl_rule_unit(n, token->value, write->value);
    memcpy(write->error, write->key, n * sizeof *write->error);
    for (size_t row = 0; row < n; row++) {
        write->decay[row] = expf(token->gate[row]);
        float weight = write->value[row] * write->decay[row];
        for (size_t i = 0; i < n; i++) write->error[i] -= weight * before[row * n + i];
    }
}

static void write_token(const fl_rule_input *token, float *state) {
    size_t n = token->head_dim;
    oja_write write;
    begin_write(token, state, &write);
    for (size_t row = 0; row < n; row++) {
        float weight = token->beta * write.value[row];
        for (size_t i = 0; i < n; i++) {
            state[row * n + i] = write.decay[row] * state[row * n + i] + weight * write.error[i];
        }
    }
}

/* With G the gradient of the state after the write, S the decayed state, e the error:
 * db = v^T G e;  de = b G^T v = dk;  dv = b G e - S de;  dS = G - v de^T;  d log a = rows of dS . S. */
static void write_backward(const fl_rule_input *token, const float *before, float *gradient_state,
                           fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    oja_write write;
    float value[FL_RULE_MAX_HEAD_DIM], error[FL_RULE_MAX_HEAD_DIM] = {0}; /* their gradients */
    float beta = 0.0f;
    begin_write(token, before, &write);
    for (size_t row = 0; row < n; row++) {
        const float *gradient = gradient_state + row * n;
        float along = 0.0f, weight = token->beta * write.value[row];
        for (size_t i = 0; i < n; i++) {
            along += gradient[i] * write.error[i];
            error[i] += weight * gradient[i];
        }
        beta += write.value[row] * along;
        value[row] = token->beta * along;
    }
    for (size_t row = 0; row < n; row++) {
        float *gradient = gradient_state + row * n;
        float of_value = 0.0f, of_gate = 0.0f;
        for (size_t i = 0; i < n; i++) {
            float decayed = write.decay[row] * before[row * n + i];
            of_value += decayed * error[i];
            gradient[i] -= write.value[row] * error[i];
            of_gate += gradient[i] * decayed;
            gradient[i] *= write.decay[row];
        }
        value[row] -= of_value;
        out->gate[row] = of_gate;
    }
    out->beta[0] = beta;
    fl_rule_unit_backward(n, token->key, error, out->key);
    fl_rule_unit_backward(n, token->value, value, out->value);
}

static void read_state(const fl_rule_input *token, const float *state, float *output) {
    size_t n = token->head_dim;
    float query[FL_RULE_MAX_HEAD_DIM];
    fl_rule_unit(n, token->query, query);
    for (size_t row = 0; row < n; row++) {
        double sum = 0.0;
        for (size_t i = 0; i < n; i++) sum += (double)state[row * n + i] * query[i];
        output[row] = (float)sum;
    }
}

static void read_backward(const fl_rule_input *token, const float *state, const float *gradient_output,
                          float *gradient_state, fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    float query[FL_RULE_MAX_HEAD_DIM], gradient[FL_RULE_MAX_HEAD_DIM] = {0};
    fl_rule_unit(n, token->query, query);
    for (size_t row = 0; row < n; row++) {
        for (size_t i = 0; i < n; i++) {
            gradient[i] += gradient_output[row] * state[row * n + i];
            gradient_state[row * n + i] += gradient_output[row] * query[i];
        }
    }
    fl_rule_unit_backward(n, token->query, gradient, out->query);
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
