#include "harness/compute/rule_functions.h"

typedef struct longhorn_options {
    bool diagonal;
} longhorn_options;

FL_RULE_FUNCTION bool is_diagonal(const void *chosen) {
    return ((const longhorn_options *)chosen)->diagonal;
}

FL_RULE_FUNCTION bool is_exact(const void *chosen) {
    return !is_diagonal(chosen);
}

enum { BETA = 0 };

FL_RULE_FUNCTION double square(const fl_rule_input *input) {
    fl_rule_sum(sum, i, input->head_dim, (double)input->key[i] * input->key[i]);
    return sum;
}

/* The closed form: S = S (I - e k k^T) + e v k^T, e = b / (1 + b |k|^2). */

FL_RULE_FUNCTION void prepare(const fl_rule_input *input, fl_rule_output *output) {
    float step = (float)(input->beta / (1.0 + input->beta * square(input)));
    fl_rule_raw_inputs(input, output);
    FL_ONCE {
        output->erase_strength[0] = step;
        output->write[0] = step;
    }
}

FL_RULE_FUNCTION void prepare_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                       fl_rule_input_gradient *out) {
    fl_rule_raw_inputs_backward(input, gradient, out);
    double gradient_step = (double)gradient->erase_strength[0] + gradient->write[0];
    double slope = 1.0 / (1.0 + input->beta * square(input));
    double along = -2.0 * gradient_step * slope * slope * input->beta * input->beta;
    FL_ONCE out->beta[0] = (float)(gradient_step * slope * slope);
    FL_EACH(i, input->head_dim) out->key[i] += (float)(along * input->key[i]);
}

/* The released step, elementwise: S_ji = (1 - e_j k_i^2) S_ji + e_j v_j k_i, e_j = b_j / (1 + b_j |k|^2). */

FL_RULE_FUNCTION void write_token(const fl_rule_input *token, float *state) {
    size_t n = token->head_dim;
    double norm = square(token);
    FL_ALL(row, n) {
        float beta = token->factors[BETA][row], step = (float)(beta / (1.0 + beta * norm));
        float *of_row = state + row * n, write = step * token->value[row];
        FL_EACH(i, n) {
            float key = token->key[i];
            of_row[i] = (1.0f - step * key * key) * of_row[i] + write * key;
        }
    }
    FL_JOIN();
}

/* With G the gradient of the state after the write:
 * de_j = sum_i G_ji (v_j k_i - k_i^2 S_ji);  dv_j = e_j sum_i G_ji k_i;  dk_i = sum_j e_j G_ji (v_j - 2 k_i
 * S_ji), and through |k|^2: 2 k_i dn, dn = - sum_j de_j b_j^2 / (1 + b_j n)^2;  db_j = de_j / (1 + b_j n)^2;
 * dS_ji = (1 - e_j k_i^2) G_ji. */
FL_RULE_FUNCTION void write_backward(const fl_rule_input *token, const float *before, float *gradient_state,
                                     fl_rule_input_gradient *out) {
    size_t n = token->head_dim;
    double norm = square(token), of_norm = 0.0;
    fl_rule_clear(n, out->key);
    FL_ALL(row, n) {
        double beta = token->factors[BETA][row], slope = 1.0 / (1.0 + beta * norm);
        float step = (float)(beta * slope), value = token->value[row];
        float *gradient = gradient_state + row * n;
        const float *state = before + row * n;
        fl_rule_sum(along, i, n, (double)gradient[i] * token->key[i]);
        fl_rule_sum(erased, j, n, -((double)gradient[j] * token->key[j] * token->key[j] * state[j]));
        double of_step = erased + value * along;
        FL_EACH(i, n) {
            float key = token->key[i];
            out->key[i] += step * gradient[i] * (value - 2.0f * key * state[i]);
            gradient[i] *= 1.0f - step * key * key;
        }
        FL_ONCE {
            out->value[row] = (float)(step * along);
            out->factors[BETA][row] = (float)(of_step * slope * slope);
        }
        of_norm -= of_step * beta * beta * slope * slope;
    }
    FL_EACH(i, n) out->key[i] += (float)(2.0 * of_norm * token->key[i]);
    FL_JOIN();
}

#ifndef FL_RULE_WARP
#include "attn_variants/attn_variant.h"

static const fl_option options[] = {
    {.key = "diagonal",
     .type = FL_OPTION_BOOL,
     .offset = offsetof(longhorn_options, diagonal),
     .default_text = "false",
     .help = "the released step: k k^T by its diagonal, and a beta for every value channel"},
};

static const fl_rule_factor factors[] = {
    {.name = "longhorn.beta",
     .axes = "D",
     .activation = FL_ACTIVATE_SIGMOID,
     .bias = -1.0,
     .help = "beta of every value channel",
     .used = is_diagonal},
};

/* The released step, elementwise: S_ji = (1 - e_j k_i^2) S_ji + e_j v_j k_i, e_j = b_j / (1 + b_j |k|^2). */

static size_t state_floats(size_t head_dim, const void *chosen) {
    (void)chosen;
    return head_dim * head_dim;
}

const fl_rule fl_rule_longhorn = {
    .abi = FL_RULE_ABI,
    .name = "longhorn",
    .summary = "delta rule whose step is the closed form of an implicit update: keys need no unit length",
    .equation = "S = S (I - e k k^T) + e v k^T, e = b / (1 + b |k|^2);  y = S q;  diagonal: S_ji = (1 - e_j "
                "k_i^2) S_ji + "
                "e_j v_j k_i",
    .source = "Liu et al. 2024, arXiv 2407.14207",
    .differs =
        "the default is the exact solution with one beta a head; the released layer is diagonal: true, which "
        "approximates k k^T by its diagonal and has a beta for every value channel.",
    .beta = true,
    .takes_beta = is_exact,
    .beta_activation = FL_ACTIVATE_SIGMOID,
    .default_beta_bias = -1.0,
    .transition = {FL_DECAY_NONE, FL_ERASE_KEY},
    .has_write = true,
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .options_bytes = sizeof(longhorn_options),
    .factors = factors,
    .factor_count = sizeof factors / sizeof factors[0],
    .prepare = prepare,
    .prepare_backward = prepare_backward,
    .own = {.used = is_diagonal,
            .state_floats = state_floats,
            .write = write_token,
            .read = fl_rule_read_matrix,
            .write_backward = write_backward,
            .read_backward = fl_rule_read_matrix_backward},
};

#endif
