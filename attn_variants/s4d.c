#include "harness/compute/rule_functions.h"

typedef struct s4d_options {
    int init;
    bool unit;
} s4d_options;

enum { LIN = 0, REAL };

FL_RULE_FUNCTION bool is_complex(const void *chosen) {
    return ((const s4d_options *)chosen)->init == LIN;
}

FL_RULE_FUNCTION bool is_real(const void *chosen) {
    return !is_complex(chosen);
}

FL_RULE_FUNCTION bool unit(const fl_rule_input *input) {
    return ((const s4d_options *)input->options)->unit;
}

enum { LIN_RATE = 0, REAL_RATE, FREQUENCY, STEP };

FL_RULE_FUNCTION void scaled(const fl_rule_input *token, const float *x, float *y) {
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

FL_RULE_FUNCTION size_t rate_index(const fl_rule_input *token) {
    return is_complex(token->options) ? LIN_RATE : REAL_RATE;
}

/* One mode of one value channel: exp(step A) = size (cosine + i sine). */
typedef struct s4d_turn {
    double rate, frequency, size, cosine, sine;
} s4d_turn;

FL_RULE_FUNCTION s4d_turn turn_of(const fl_rule_input *token, size_t mode, double step) {
    size_t at = token->head * token->head_dim + mode;
    s4d_turn turn = {exp(token->parameters[rate_index(token)][at]), 0.0, 0.0, 1.0, 0.0};
    turn.size = exp(-step * turn.rate);
    if (!is_complex(token->options)) return turn;
    turn.frequency = token->parameters[FREQUENCY][at];
    turn.cosine = cos(step * turn.frequency);
    turn.sine = sin(step * turn.frequency);
    return turn;
}

FL_RULE_FUNCTION double step_of(const fl_rule_input *token, size_t row) {
    return exp(token->parameters[STEP][token->head * token->head_dim + row]);
}

FL_RULE_FUNCTION void write_token(const fl_rule_input *token, float *state) {
    size_t n = token->head_dim;
    FL_VECTOR(key);
    scaled(token, token->key, key);
    FL_ALL(row, n) {
        double step = step_of(token, row);
        FL_EACH(i, n) {
            s4d_turn turn = turn_of(token, i, step);
            float *real = state + row * n + i, *imaginary = real + n * n;
            double write = step * token->value[row] * key[i];
            if (!is_complex(token->options)) {
                *real = (float)(turn.size * *real + write);
                continue;
            }
            double x = *real, y = *imaginary;
            *real = (float)(turn.size * (turn.cosine * x - turn.sine * y) + write);
            *imaginary = (float)(turn.size * (turn.sine * x + turn.cosine * y));
        }
    }
    FL_JOIN();
}

/* What one entry of the state hands back: with (x', y') the turned entry and G its gradient, d log size = G .
 * (x', y'), d angle = G . (-y', x'), and the gradient turns back. Returns d step; *imaginary is NULL for real
 * modes. */
FL_RULE_FUNCTION double entry_backward(const s4d_turn *turn, double step, double x, double y, float *real,
                                       float *imaginary, float *of_rate, float *of_frequency) {
    double g = *real, h = imaginary == NULL ? 0.0 : *imaginary;
    double turned_x = turn->size * (turn->cosine * x - turn->sine * y);
    double turned_y = turn->size * (turn->sine * x + turn->cosine * y);
    double of_size = g * turned_x + h * turned_y, of_angle = h * turned_x - g * turned_y;
    *real = (float)(turn->size * (turn->cosine * g + turn->sine * h));
    if (imaginary != NULL) *imaginary = (float)(turn->size * (turn->cosine * h - turn->sine * g));
    if (of_rate != NULL) *of_rate -= (float)(of_size * step * turn->rate);
    if (of_frequency != NULL) *of_frequency += (float)(of_angle * step);
    return of_angle * turn->frequency - of_size * turn->rate;
}

/* Entry `at` of the state, of mode i. */
FL_RULE_FUNCTION double mode_backward(const fl_rule_input *token, const float *before, size_t at, size_t i,
                                      double step, float *gradient_state, fl_rule_input_gradient *out) {
    size_t n = token->head_dim, parameter = token->head * n + i;
    bool turns = is_complex(token->options);
    s4d_turn turn = turn_of(token, i, step);
    float *of_rate = NULL, *of_frequency = NULL;
    if (out->parameters != NULL) of_rate = out->parameters[rate_index(token)] + parameter;
    if (out->parameters != NULL && turns) of_frequency = out->parameters[FREQUENCY] + parameter;
    return entry_backward(&turn, step, before[at], turns ? before[at + n * n] : 0.0, &gradient_state[at],
                          turns ? &gradient_state[at + n * n] : NULL, of_rate, of_frequency);
}

FL_RULE_FUNCTION void write_backward(const fl_rule_input *token, const float *before, float *gradient_state,
                                     fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    FL_VECTOR(key);
    FL_VECTOR(of_key);
    scaled(token, token->key, key);
    fl_rule_clear(n, of_key);
    FL_ALL(row, n) {
        double step = step_of(token, row);
        fl_rule_sum(along, i, n, (double)gradient_state[row * n + i] * key[i]);
        FL_EACH(i, n) of_key[i] += (float)(step * token->value[row] * gradient_state[row * n + i]);
        fl_rule_sum(of_modes, j, n, mode_backward(token, before, row * n + j, j, step, gradient_state, out));
        double of_step = of_modes + along * token->value[row];
        FL_ONCE {
            out->value[row] = (float)(step * along);
            if (out->parameters != NULL)
                out->parameters[STEP][token->head * n + row] += (float)(of_step * step);
        }
    }
    FL_JOIN();
    scaled_backward(token, token->key, of_key, out->key);
}

/* y = S q, and twice the real part for complex modes, which stand for conjugate pairs. */
FL_RULE_FUNCTION void read_state(const fl_rule_input *token, const float *state, float *output) {
    FL_VECTOR(query);
    fl_rule_input reading = *token;
    reading.query = query;
    scaled(token, token->query, query);
    fl_rule_read_matrix(&reading, state, output);
    if (!is_complex(token->options)) return;
    FL_EACH(i, token->head_dim) output[i] *= 2.0f;
    FL_JOIN();
}

FL_RULE_FUNCTION void read_backward(const fl_rule_input *token, const float *state,
                                    const float *gradient_output, float *gradient_state,
                                    fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    FL_VECTOR(query);
    FL_VECTOR(of_query);
    FL_VECTOR(doubled);
    fl_rule_input reading = *token;
    fl_rule_input_gradient of_reading = *out;
    reading.query = query;
    of_reading.query = of_query;
    scaled(token, token->query, query);
    FL_EACH(i, n) doubled[i] = (is_complex(token->options) ? 2.0f : 1.0f) * gradient_output[i];
    FL_JOIN();
    fl_rule_read_matrix_backward(&reading, state, doubled, gradient_state, &of_reading);
    scaled_backward(token, token->query, of_query, out->query);
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const char *const init_names[] = {"lin", "real", NULL};

static const fl_option options[] = {
    {.key = "init",
     .type = FL_OPTION_CHOICE,
     .offset = offsetof(s4d_options, init),
     .default_text = "lin",
     .choices = init_names,
     .help = "lin: complex modes -1/2 + i pi n (S4D-Lin); real: real ones -1, -2, ... (S4D-Real)"},
    {.key = "unit",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(s4d_options, unit),
     .default_text = "true",
     .help = "q and k of unit length; false: as they are"},
};

static const fl_rule_parameter parameters[] = {
    {.name = "s4d.lin_rate",
     .axes = "HD",
     .init = "-0.69314718055994531",
     .help = "a mode's real part is -exp(rate), -1/2 at first",
     .used = is_complex},
    {.name = "s4d.real_rate",
     .axes = "HD",
     .init = "log_counting",
     .help = "a mode is -exp(rate): -1, -2, ... at first",
     .used = is_real},
    {.name = "s4d.frequency",
     .axes = "HD",
     .init = "pi_counting",
     .help = "a mode's imaginary part: 0, pi, 2 pi, ... at first",
     .used = is_complex},
    {.name = "s4d.step",
     .axes = "HD",
     .init = "log_step",
     .help = "log of the step size of every value channel, drawn between 0.001 and 0.1"},
};

/* Real modes: S [Dv][Dk]. Complex ones: the real parts, then the imaginary parts. */
static size_t state_floats(size_t head_dim, const void *chosen) {
    return head_dim * head_dim * (is_complex(chosen) ? 2 : 1);
}

const fl_rule fl_rule_s4d = {
    .abi = FL_RULE_ABI,
    .name = "s4d",
    .summary = "diagonal state-space model: the same decays and turns for every token",
    .equation = "S_ji = exp(d_j A_i) S_ji + d_j v_j k_i, A and d no token changes;  y = S q, or 2 Re(S) q",
    .source = "Gu, Gupta, Goel and Re 2022, arXiv 2206.11893 (S4D); after S4, arXiv 2111.00396",
    .differs = "B and C are the frozen k and q of the token, where S4D learns constants; the input is "
               "stepped as in the "
               "selective scan (d B), not by zero-order hold ((exp(d A) - 1) / A B), which rescales a mode.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(s4d_options),
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof parameters[0],
    .own = {.state_floats = state_floats,
            .write = write_token,
            .read = read_state,
            .write_backward = write_backward,
            .read_backward = read_backward},
};

#endif
