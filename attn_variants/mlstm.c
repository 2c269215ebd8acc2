#include <math.h>
#include <stddef.h>
#include <string.h>

#include "attn_variants/attn_variant.h"

typedef struct mlstm_options {
    bool unit;
} mlstm_options;

static const fl_option options[] = {
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(mlstm_options, unit),
     .default_text = "true",
     .help = "q and k of unit length: frozen keys are far from the scale the rule is trained with; false: as "
             "published, k times D^-1/2"},
};

enum { INPUT = 0 };

static const fl_rule_factor factors[] = {
    {.name = "mlstm.input", .axes = "1", .activation = FL_ACTIVATE_RAW, .help = "log of the input gate"},
};

/* S [D][D], n [D], and m, the log of what both are scaled down by. */
static size_t state_floats(size_t head_dim, const void *chosen) {
    (void)chosen;
    return head_dim * head_dim + head_dim + 1;
}

static bool unit(const fl_rule_input *input) {
    return ((const mlstm_options *)input->options)->unit;
}

static float key_scale(const fl_rule_input *token) {
    return unit(token) ? 1.0f : (float)(1.0 / sqrt((double)token->head_dim));
}

static void scaled(const fl_rule_input *token, const float *x, float factor, float *y) {
    size_t n = token->head_dim;
    if (unit(token)) {
        fl_rule_unit(n, x, y);
    } else {
        for (size_t i = 0; i < n; i++) y[i] = factor * x[i];
    }
}

static void scaled_backward(const fl_rule_input *token, const float *x, float factor, const float *gradient_y,
                            float *gradient_x) {
    size_t n = token->head_dim;
    if (unit(token)) {
        fl_rule_unit_backward(n, x, gradient_y, gradient_x);
    } else {
        for (size_t i = 0; i < n; i++) gradient_x[i] = factor * gradient_y[i];
    }
}

/* m' = max(log f + m, log i): both weights are at most 1. */
typedef struct mlstm_weights {
    float kept, written, log_scale;
} mlstm_weights;

static mlstm_weights weights_of(const fl_rule_input *token, float log_scale) {
    float decayed = token->gate[0] + log_scale, input = token->factors[INPUT][0];
    float next = decayed > input ? decayed : input;
    return (mlstm_weights){expf(decayed - next), expf(input - next), next};
}

static void write_token(const fl_rule_input *token, float *state) {
    size_t n = token->head_dim;
    float key[FL_RULE_MAX_HEAD_DIM], *normaliser = state + n * n;
    mlstm_weights weights = weights_of(token, state[n * n + n]);
    scaled(token, token->key, key_scale(token), key);
    for (size_t row = 0; row < n; row++) {
        float write = weights.written * token->value[row];
        for (size_t i = 0; i < n; i++)
            state[row * n + i] = weights.kept * state[row * n + i] + write * key[i];
    }
    for (size_t i = 0; i < n; i++) normaliser[i] = weights.kept * normaliser[i] + weights.written * key[i];
    state[n * n + n] = weights.log_scale;
}

/* What is read depends on S exp(m) and n exp(m) alone, so m may be taken as constant. */
static void write_backward(const fl_rule_input *token, const float *before, float *gradient_state,
                           fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    float key[FL_RULE_MAX_HEAD_DIM], of_key[FL_RULE_MAX_HEAD_DIM];
    float *of_normaliser = gradient_state + n * n;
    mlstm_weights weights = weights_of(token, before[n * n + n]);
    double of_kept = 0.0, of_written = 0.0;
    scaled(token, token->key, key_scale(token), key);
    for (size_t i = 0; i < n; i++) {
        of_kept += (double)of_normaliser[i] * before[n * n + i];
        of_written += (double)of_normaliser[i] * key[i];
        of_key[i] = weights.written * of_normaliser[i];
        of_normaliser[i] *= weights.kept;
    }
    for (size_t row = 0; row < n; row++) {
        float *gradient = gradient_state + row * n;
        double along = 0.0;
        for (size_t i = 0; i < n; i++) {
            along += (double)gradient[i] * key[i];
            of_kept += (double)gradient[i] * before[row * n + i];
            of_key[i] += weights.written * token->value[row] * gradient[i];
            gradient[i] *= weights.kept;
        }
        of_written += along * token->value[row];
        out->value[row] = (float)(weights.written * along);
    }
    gradient_state[n * n + n] = 0.0f;
    out->gate[0] = (float)(of_kept * weights.kept);
    out->factors[INPUT][0] = (float)(of_written * weights.written);
    scaled_backward(token, token->key, key_scale(token), of_key, out->key);
}

/* y = S q / max(|n.q|, exp(-m)). Returns the divisor; *clipped: it is not |n.q|. */
static double divisor(const fl_rule_input *token, const float *state, const float *query, double *dot,
                      bool *clipped) {
    size_t n = token->head_dim;
    double least = exp(-(double)state[n * n + n]);
    *dot = 0.0;
    for (size_t i = 0; i < n; i++) *dot += (double)state[n * n + i] * query[i];
    *clipped = !(fabs(*dot) > least);
    return *clipped ? least : fabs(*dot);
}

static void read_state(const fl_rule_input *token, const float *state, float *output) {
    float query[FL_RULE_MAX_HEAD_DIM];
    double dot;
    bool clipped;
    fl_rule_input reading = *token;
    reading.query = query;
    scaled(token, token->query, 1.0f, query);
    fl_rule_read_matrix(&reading, state, output);
    double by = divisor(token, state, query, &dot, &clipped);
    for (size_t i = 0; i < token->head_dim; i++) output[i] = (float)(output[i] / by);
}

static void read_backward(const fl_rule_input *token, const float *state, const float *gradient_output,
                          float *gradient_state, fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    float query[FL_RULE_MAX_HEAD_DIM], of_query[FL_RULE_MAX_HEAD_DIM], divided[FL_RULE_MAX_HEAD_DIM];
    float read[FL_RULE_MAX_HEAD_DIM];
    double dot, along = 0.0;
    bool clipped;
    fl_rule_input reading = *token;
    fl_rule_input_gradient of_reading = *out;
    reading.query = query;
    of_reading.query = of_query;
    scaled(token, token->query, 1.0f, query);
    fl_rule_read_matrix(&reading, state, read);
    double by = divisor(token, state, query, &dot, &clipped);
    for (size_t i = 0; i < n; i++) divided[i] = (float)(gradient_output[i] / by);
    fl_rule_read_matrix_backward(&reading, state, divided, gradient_state, &of_reading);
    for (size_t i = 0; i < n; i++) along -= (double)divided[i] * read[i] / by;
    double of_dot = clipped ? 0.0 : dot > 0.0 ? along : -along;
    for (size_t i = 0; i < n; i++) {
        of_query[i] += (float)(of_dot * state[n * n + i]);
        gradient_state[n * n + i] += (float)(of_dot * query[i]);
    }
    scaled_backward(token, token->query, 1.0f, of_query, out->query);
}

const fl_rule fl_rule_mlstm = {
    .abi = FL_RULE_ABI,
    .name = "mlstm",
    .summary = "xLSTM's matrix memory: exponential input gate, and a normaliser that is never below one",
    .equation = "S = f S + i v k^T, n = f n + i k, f = sigmoid(...), i = exp(...);  y = S q / max(|n.q|, 1)",
    .source = "Beck et al. 2024, arXiv 2405.04517",
    .differs = "S and n are kept divided by exp(m), m the running maximum of their log weights, as the "
               "paper's stabilised form; "
               "the input gate begins at 1. unit: false is the published scale.",
    .gate = FL_GATE_SCALAR,
    .gate_activation = FL_ACTIVATE_LOG_SIGMOID,
    .default_gate_bias = 3.0,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(mlstm_options),
    .factors = factors,
    .factor_count = sizeof factors / sizeof factors[0],
    .own = {.state_floats = state_floats,
            .write = write_token,
            .read = read_state,
            .write_backward = write_backward,
            .read_backward = read_backward},
};
