#include "harness/compute/rule_functions.h"

typedef struct mamba_options {
    bool unit, skip;
} mamba_options;

FL_RULE_FUNCTION bool has_skip(const void *chosen) {
    return ((const mamba_options *)chosen)->skip;
}

FL_RULE_FUNCTION bool unit(const fl_rule_input *input) {
    return ((const mamba_options *)input->options)->unit;
}

enum { A_LOG = 0, SKIP };

enum { STEP = 0 };

FL_RULE_FUNCTION double softplus(double x) {
    return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

FL_RULE_FUNCTION const float *rates(const fl_rule_input *token, size_t row) {
    size_t n = token->head_dim;
    return token->parameters[A_LOG] + (token->head * n + row) * n;
}

FL_RULE_FUNCTION void scaled_vector(const fl_rule_input *token, const float *x, float *y) {
    if (unit(token))
        fl_rule_unit(token->head_dim, x, y);
    else
        fl_rule_copy(token->head_dim, x, y);
}

FL_RULE_FUNCTION void scaled_backward(const fl_rule_input *token, const float *x, const float *gradient_y,
                                      float *gradient_x) {
    if (unit(token))
        fl_rule_unit_backward(token->head_dim, x, gradient_y, gradient_x);
    else
        fl_rule_copy(token->head_dim, gradient_y, gradient_x);
}

/* exponent_i = step A_ji, kept_i = exp(exponent_i). */
FL_RULE_FUNCTION void find_decays(const fl_rule_input *token, size_t row, float step, float *kept,
                                  float *exponent) {
    size_t n = token->head_dim;
    FL_JOIN();
    fl_rule_exp(n, rates(token, row), exponent);
    FL_JOIN();
    FL_EACH(i, n) exponent[i] *= -step;
    FL_JOIN();
    fl_rule_exp(n, exponent, kept);
    FL_JOIN();
}

FL_RULE_FUNCTION void write_token(const fl_rule_input *token, float *state) {
    size_t n = token->head_dim;
    FL_VECTOR(key);
    FL_VECTOR(kept);
    FL_VECTOR(exponent);
    scaled_vector(token, token->key, key);
    FL_ALL(row, n) {
        float step = (float)softplus(token->factors[STEP][row]), write = step * token->value[row];
        find_decays(token, row, step, kept, exponent);
        FL_EACH(i, n) state[row * n + i] = kept[i] * state[row * n + i] + write * key[i];
    }
    FL_JOIN();
}

/* With G the gradient of the state after the write, a = exp(step A):
 * dstep_j = sum_i G_ji (A_ji a_ji S_ji + k_i v_j);  da_log_ji = G_ji S_ji a_ji step_j A_ji;  dk_i = sum_j
 * G_ji step_j v_j; dv_j = step_j sum_i G_ji k_i;  dS_ji = a_ji G_ji. */
FL_RULE_FUNCTION void write_backward(const fl_rule_input *token, const float *before, float *gradient_state,
                                     fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    FL_VECTOR(key);
    FL_VECTOR(kept);
    FL_VECTOR(exponent);
    FL_VECTOR(of_key);
    scaled_vector(token, token->key, key);
    fl_rule_clear(n, of_key);
    FL_ALL(row, n) {
        double x = token->factors[STEP][row];
        float step = (float)softplus(x), write = step * token->value[row];
        float *gradient = gradient_state + row * n;
        float *of_rate =
            out->parameters == NULL ? NULL : out->parameters[A_LOG] + (token->head * n + row) * n;
        find_decays(token, row, step, kept, exponent);
        FL_EACH(i, n) exponent[i] = gradient[i] * kept[i] * before[row * n + i] * exponent[i];
        FL_JOIN();
        fl_rule_sum(along, i, n, (double)gradient[i] * key[i]);
        fl_rule_sum(of_exponent, j, n, exponent[j]);
        FL_EACH(i, n) {
            of_key[i] += write * gradient[i];
            if (of_rate != NULL) of_rate[i] += exponent[i];
            gradient[i] *= kept[i];
        }
        double of_step = along * token->value[row] + (step > 0.0f ? of_exponent / step : 0.0);
        FL_ONCE {
            out->value[row] = (float)(step * along);
            out->factors[STEP][row] = (float)(of_step / (1.0 + exp(-x)));
        }
    }
    FL_JOIN();
    scaled_backward(token, token->key, of_key, out->key);
}

FL_RULE_FUNCTION void read_state(const fl_rule_input *token, const float *state, float *output) {
    FL_VECTOR(query);
    fl_rule_input scaled = *token;
    scaled.query = query;
    scaled_vector(token, token->query, query);
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
    scaled_vector(token, token->query, query);
    fl_rule_read_matrix_backward(&scaled, state, gradient_output, gradient_state, &of_scaled);
    scaled_backward(token, token->query, gradient, out->query);
}

FL_RULE_FUNCTION void bonus(const fl_rule_input *token, float *share) {
    const float *skip = token->parameters[SKIP];
    FL_EACH(i, token->head_dim) share[i] = skip == NULL ? 0.0f : skip[token->head * token->head_dim + i];
    FL_JOIN();
}

FL_RULE_FUNCTION void bonus_backward(const fl_rule_input *token, const float *gradient_share,
                                     fl_rule_input_gradient *out) {
    if (out->parameters == NULL || token->parameters[SKIP] == NULL) return;
    float *of_skip = out->parameters[SKIP] + token->head * token->head_dim;
    FL_EACH(i, token->head_dim) of_skip[i] += gradient_share[i];
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(mamba_options, unit),
     .default_text = "true",
     .help = "q and k of unit length: frozen keys are far from the scale the rule is trained with; false: as "
             "published"},
    {.key = "skip",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(mamba_options, skip),
     .default_text = "false",
     .help = "the source's D: adds a share of every value channel to its own token's read, where no token is "
             "exact"},
};

static const fl_rule_parameter parameters[] = {
    {.name = "mamba.a_log",
     .axes = "HDD",
     .init = "log_counting",
     .help = "A = -exp(a_log) of every value and key channel, -1, -2, ... at first (S4D-Real)"},
    {.name = "mamba.skip", .axes = "HD", .init = "1", .help = "D of every value channel", .used = has_skip},
};

static const fl_rule_factor factors[] = {
    {.name = "mamba.step",
     .axes = "D",
     .activation = FL_ACTIVATE_RAW,
     .bias = -4.6, /* softplus: 0.01, the middle of the source's 0.001 to 0.1 */
     .help = "the step size of every value channel before softplus"},
};

static size_t state_floats(size_t head_dim, const void *chosen) {
    (void)chosen;
    return head_dim * head_dim;
}

const fl_rule fl_rule_mamba = {
    .abi = FL_RULE_ABI,
    .name = "mamba",
    .summary = "selective scan: a decay for every entry of the state, a step size for every value channel",
    .equation = "S_ji = exp(d_j A_ji) S_ji + d_j v_j k_i, d = softplus(h W + bias), A = -exp(a_log);  y = S "
                "q (+ D v)",
    .source = "Gu and Dao 2023, arXiv 2312.00752 (B = k, C = q, x = v)",
    .differs = "B, C and x are the frozen k, q and v of a head, where the published layer projects them for "
               "all channels at "
               "once; the step's projection has rank factors.rank (published: E / 16), its bias begins at "
               "softplus^-1(0.01) "
               "everywhere; convolution and output gate are not part of the rule. unit: false is the "
               "published scale.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(mamba_options),
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .factors = factors,
    .factor_count = sizeof factors / sizeof factors[0],
    .bonus = true,
    .own = {.state_floats = state_floats,
            .write = write_token,
            .read = read_state,
            .write_backward = write_backward,
            .read_backward = read_backward,
            .bonus = bonus,
            .bonus_backward = bonus_backward},
};

#endif
