#include "harness/compute/rule_functions.h"

typedef struct mlstm_options {
    bool unit;
} mlstm_options;

enum { INPUT = 0 };

FL_RULE_FUNCTION bool unit(const fl_rule_input *input) {
    return ((const mlstm_options *)input->options)->unit;
}

FL_RULE_FUNCTION float key_scale(const fl_rule_input *token) {
    return unit(token) ? 1.0f : (float)(1.0 / sqrt((double)token->head_dim));
}

FL_RULE_FUNCTION void scaled(const fl_rule_input *token, const float *x, float factor, float *y) {
    if (unit(token)) {
        fl_rule_unit(token->head_dim, x, y);
    } else {
        FL_EACH(i, token->head_dim) y[i] = factor * x[i];
        FL_JOIN();
    }
}

FL_RULE_FUNCTION void scaled_backward(const fl_rule_input *token, const float *x, float factor,
                                      const float *gradient_y, float *gradient_x) {
    if (unit(token)) {
        fl_rule_unit_backward(token->head_dim, x, gradient_y, gradient_x);
    } else {
        FL_EACH(i, token->head_dim) gradient_x[i] = factor * gradient_y[i];
        FL_JOIN();
    }
}

/* m' = max(log f + m, log i): both weights are at most 1. */
typedef struct mlstm_weights {
    float kept, written, log_scale;
} mlstm_weights;

FL_RULE_FUNCTION mlstm_weights weights_of(const fl_rule_input *token, float log_scale) {
    float decayed = token->gate[0] + log_scale, input = token->factors[INPUT][0];
    float next = decayed > input ? decayed : input;
    mlstm_weights weights = {expf(decayed - next), expf(input - next), next};
    return weights;
}

FL_RULE_FUNCTION void write_token(const fl_rule_input *token, float *state) {
    size_t n = token->head_dim;
    float *normaliser = state + n * n;
    FL_VECTOR(key);
    mlstm_weights weights = weights_of(token, state[n * n + n]);
    scaled(token, token->key, key_scale(token), key);
    FL_ALL(row, n) {
        float write = weights.written * token->value[row];
        FL_EACH(i, n) state[row * n + i] = weights.kept * state[row * n + i] + write * key[i];
    }
    FL_EACH(i, n) normaliser[i] = weights.kept * normaliser[i] + weights.written * key[i];
    FL_JOIN();
    FL_ONCE state[n * n + n] = weights.log_scale;
    FL_JOIN();
}

/* What is read depends on S exp(m) and n exp(m) alone, so m may be taken as constant. */
FL_RULE_FUNCTION void write_backward(const fl_rule_input *token, const float *before, float *gradient_state,
                                     fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    const float *normaliser = before + n * n;
    float *of_normaliser = gradient_state + n * n;
    FL_VECTOR(key);
    FL_VECTOR(of_key);
    mlstm_weights weights = weights_of(token, before[n * n + n]);
    scaled(token, token->key, key_scale(token), key);
    fl_rule_sum(of_kept, i, n, (double)of_normaliser[i] * normaliser[i]);
    fl_rule_sum(of_written, j, n, (double)of_normaliser[j] * key[j]);
    FL_EACH(i, n) {
        of_key[i] = weights.written * of_normaliser[i];
        of_normaliser[i] *= weights.kept;
    }
    /* Entries of all rows in their order. */
    fl_rule_sum_onto(of_kept, at, n * n, (double)gradient_state[at] * before[at]);
    FL_JOIN();
    FL_ALL(row, n) {
        float *gradient = gradient_state + row * n;
        fl_rule_sum(along, i, n, (double)gradient[i] * key[i]);
        FL_EACH(i, n) {
            of_key[i] += weights.written * token->value[row] * gradient[i];
            gradient[i] *= weights.kept;
        }
        of_written += along * token->value[row];
        FL_ONCE out->value[row] = (float)(weights.written * along);
    }
    FL_ONCE {
        gradient_state[n * n + n] = 0.0f;
        out->gate[0] = (float)(of_kept * weights.kept);
        out->factors[INPUT][0] = (float)(of_written * weights.written);
    }
    FL_JOIN();
    scaled_backward(token, token->key, key_scale(token), of_key, out->key);
}

/* y = S q / max(|n.q|, exp(-m)): the divisor, and whether it is not |n.q|. */
typedef struct mlstm_divisor {
    double by, dot;
    bool clipped;
} mlstm_divisor;

FL_RULE_FUNCTION mlstm_divisor divisor_of(const fl_rule_input *token, const float *state,
                                          const float *query) {
    size_t n = token->head_dim;
    double least = exp(-(double)state[n * n + n]);
    fl_rule_sum(dot, i, n, (double)state[n * n + i] * query[i]);
    mlstm_divisor divisor = {fabs(dot), dot, !(fabs(dot) > least)};
    if (divisor.clipped) divisor.by = least;
    return divisor;
}

FL_RULE_FUNCTION void read_state(const fl_rule_input *token, const float *state, float *output) {
    FL_VECTOR(query);
    fl_rule_input reading = *token;
    reading.query = query;
    scaled(token, token->query, 1.0f, query);
    fl_rule_read_matrix(&reading, state, output);
    mlstm_divisor divisor = divisor_of(token, state, query);
    FL_EACH(i, token->head_dim) output[i] = (float)(output[i] / divisor.by);
    FL_JOIN();
}

FL_RULE_FUNCTION void read_backward(const fl_rule_input *token, const float *state,
                                    const float *gradient_output, float *gradient_state,
                                    fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    FL_VECTOR(query);
    FL_VECTOR(of_query);
    FL_VECTOR(divided);
    FL_VECTOR(read);
    fl_rule_input reading = *token;
    fl_rule_input_gradient of_reading = *out;
    reading.query = query;
    of_reading.query = of_query;
    scaled(token, token->query, 1.0f, query);
    fl_rule_read_matrix(&reading, state, read);
    mlstm_divisor divisor = divisor_of(token, state, query);
    FL_EACH(i, n) divided[i] = (float)(gradient_output[i] / divisor.by);
    FL_JOIN();
    fl_rule_read_matrix_backward(&reading, state, divided, gradient_state, &of_reading);
    fl_rule_sum(along, i, n, -((double)divided[i] * read[i] / divisor.by));
    double of_dot = divisor.clipped ? 0.0 : divisor.dot > 0.0 ? along : -along;
    FL_EACH(i, n) {
        of_query[i] += (float)(of_dot * state[n * n + i]);
        gradient_state[n * n + i] += (float)(of_dot * query[i]);
    }
    FL_JOIN();
    scaled_backward(token, token->query, 1.0f, of_query, out->query);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(mlstm_options, unit),
     .default_text = "true",
     .help = "q and k of unit length: frozen keys are far from the scale the rule is trained with; false: as "
             "published, k times D^-1/2"},
};

static const fl_rule_factor factors[] = {
    {.name = "mlstm.input", .axes = "1", .activation = FL_ACTIVATE_RAW, .help = "log of the input gate"},
};

/* S [D][D], n [D], and m, the log of what both are scaled down by. */
static size_t state_floats(size_t head_dim, const void *chosen) {
    (void)chosen;
    return head_dim * head_dim + head_dim + 1;
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

#endif
