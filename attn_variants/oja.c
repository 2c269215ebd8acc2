#include <math.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

/* The error is taken in key space, so the transition acts on the rows of S: it does not fit the recurrence
 * and is stated as its own step. S [D][D]. */
static size_t state_floats(size_t head_dim, const void *options) {
    (void)options;
    return head_dim * head_dim;
}

static void write_token(const fl_rule_input *token, float *state) {
    size_t n = token->head_dim;
    float key[FL_RULE_MAX_HEAD_DIM], value[FL_RULE_MAX_HEAD_DIM], error[FL_RULE_MAX_HEAD_DIM];
    fl_rule_unit(n, token->key, key);
    fl_rule_unit(n, token->value, value);
    memcpy(error, key, n * sizeof *error);
    for (size_t row = 0; row < n; row++) {
        float decay = expf(token->gate[row]);
        for (size_t i = 0; i < n; i++) {
            state[row * n + i] *= decay;
            error[i] -= value[row] * state[row * n + i];
        }
    }
    for (size_t row = 0; row < n; row++) {
        for (size_t i = 0; i < n; i++) state[row * n + i] += token->beta * value[row] * error[i];
    }
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

const fl_rule fl_rule_oja = {
    .abi = FL_RULE_ABI,
    .name = "oja",
    .summary = "gated Oja rule: the error is taken in key space, decay by value channel; directions of v "
               "only, not trainable",
    .equation = "S = diag(a) S;  S = S + b v (k - S^T v)^T, v of unit length;  y = S q",
    .source =
        "Oja 1982; as fast weights Irie et al. 2022, arXiv 2206.01649; gated as in flash-linear-attention",
    .gate = FL_GATE_CHANNEL,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .beta = true,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .default_gate_bias = 1.0,
    .default_beta_bias = -1.0,
    .own = {.state_floats = state_floats, .write = write_token, .read = read_state},
};
