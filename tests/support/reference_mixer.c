#include "tests/support/reference_mixer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <complex.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/random.h"

enum { MAX_D = 128, MAX_FACTOR = MAX_D * FL_RULE_MAX_MICRO_STEPS };

typedef struct token_inputs {
    double q[MAX_D], k[MAX_D], v[MAX_D]; /* of the linear branch */
    double gate[MAX_D];                  /* in (0, 1), or ssd's dt before softplus */
    double beta;
    double factors[FL_RULE_MAX_FACTORS][MAX_FACTOR]; /* activated */
} token_inputs;

typedef struct rule_state {
    double *s; /* [D][K]; s4d: [2][D][K] */
    double *z; /* [K] */
} rule_state;

typedef struct world {
    const fl_reference_call *call;
    const fl_variant *variant;
    const char *rule;
    size_t heads, kv_heads, group, d, k_dim, micro;
    token_inputs *tokens; /* [T][H] */
    rule_state *states;   /* [H] */
    bool *cached;         /* [Hkv][T] */
    double *mass;         /* [Hkv][T] */
} world;

static void *zeroed(size_t count, size_t size) {
    void *block = calloc(count > 0 ? count : 1, size);
    if (block == NULL) abort();
    return block;
}

static bool is_rule(const world *w, const char *name) {
    return strcmp(w->rule, name) == 0;
}

static double sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

static const float *parameter(const world *w, const char *name) {
    return fl_mechanism_find(w->call->mechanism, w->call->layer, name);
}

static double length(size_t n, const double *x) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static void unit(size_t n, const double *x, double *y) {
    double norm = length(n, x);
    for (size_t i = 0; i < n; i++) y[i] = x[i] / fmax(norm, 1e-12);
}

/* Inputs. */

static double projected(const world *w, size_t t, const char *weight, const char *bias, size_t columns,
                        size_t column) {
    size_t e = w->call->mechanism->shape.model_dim;
    const float *matrix = parameter(w, weight);
    double sum = parameter(w, bias)[column];
    for (size_t i = 0; i < e; i++) sum += (double)w->call->input[t * e + i] * matrix[i * columns + column];
    return sum;
}

static const float *part(const world *w, const char *name, const char *tensor) {
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, tensor);
    return parameter(w, full);
}

static double low_rank(const world *w, size_t t, const char *name, size_t rank, size_t columns,
                       size_t column) {
    size_t e = w->call->mechanism->shape.model_dim;
    const float *w1 = part(w, name, "w1"), *w2 = part(w, name, "w2");
    double sum = part(w, name, "bias")[column];
    for (size_t r = 0; r < rank; r++) {
        double inner = 0.0;
        for (size_t i = 0; i < e; i++) inner += (double)w->call->input[t * e + i] * w1[i * rank + r];
        sum += (w->variant->rule->gate_bounded && strcmp(name, "gate") == 0 ? tanh(inner) : inner) *
               w2[r * columns + column];
    }
    return sum;
}

static double softplus(double x) {
    return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static void find_factors(const world *w, size_t t, size_t h, token_inputs *token) {
    const fl_rule *rule = w->variant->rule;
    for (size_t f = 0; f < rule->factor_count; f++) {
        const fl_rule_factor *factor = &rule->factors[f];
        size_t width = 1;
        if (strchr(factor->axes, 'D') != NULL) width *= w->d;
        if (strchr(factor->axes, 'M') != NULL) width *= w->micro;
        if (strchr(factor->axes, 'S') != NULL) width *= rule->slots(w->variant->rule_options);
        if (part(w, factor->name, "bias") == NULL) continue;
        for (size_t i = 0; i < width; i++) {
            size_t column = h * width + i, columns = w->heads * width;
            char weight[64], bias[64];
            snprintf(weight, sizeof weight, "%s.weight", factor->name);
            snprintf(bias, sizeof bias, "%s.bias", factor->name);
            double x = strpbrk(factor->axes, "DS") != NULL
                           ? low_rank(w, t, factor->name, w->variant->factor_rank, columns, column)
                           : projected(w, t, weight, bias, columns, column);
            token->factors[f][i] = factor->activation == FL_ACTIVATE_SIGMOID       ? sigmoid(x)
                                   : factor->activation == FL_ACTIVATE_LOG_SIGMOID ? -softplus(-x)
                                                                                   : x;
        }
    }
}

static void gates(const world *w, size_t t, size_t h, token_inputs *token) {
    const fl_rule *rule = w->variant->rule;
    bool raw = rule->gate_activation == FL_ACTIVATE_RAW;
    for (size_t i = 0; i < w->d && rule->gate != FL_GATE_NONE; i++) {
        bool scalar = rule->gate == FL_GATE_SCALAR;
        if (w->variant->gate_source == FL_GATE_CONSTANT) {
            token->gate[i] = w->variant->gate_value;
        } else {
            double x = scalar ? projected(w, t, "gate.weight", "gate.bias", w->heads, h)
                              : low_rank(w, t, "gate", w->variant->gate_rank, w->heads * w->d, h * w->d + i);
            token->gate[i] = raw ? x : sigmoid(x);
            if (w->variant->gate_form == FL_GATE_SOFTPLUS)
                token->gate[i] = exp(-exp(parameter(w, "gate.a_log")[h]) * softplus(x));
        }
        if (scalar) break;
    }
    find_factors(w, t, h, token);
    if (!w->variant->takes_beta) return;
    token->beta =
        w->variant->beta_source == FL_GATE_CONSTANT
            ? w->variant->beta_value
            : w->variant->beta_maximum * sigmoid(projected(w, t, "beta.weight", "beta.bias", w->heads, h));
}

static const float *raw_row(const world *w, char which, size_t t, size_t h) {
    const fl_reference_call *call = w->call;
    if (which == 'q') return call->query + (t * w->heads + h) * w->d;
    const float *base = which == 'k' ? call->key : call->value;
    return base + (t * w->kv_heads + h / w->group) * w->d;
}

static void convolved(const world *w, char which, size_t t, size_t h, double *y) {
    size_t kernel = w->variant->conv_kernel;
    char weight[24] = "conv.x.weight", bias[24] = "conv.x.bias";
    weight[5] = bias[5] = which;
    for (size_t i = 0; i < w->d; i++) {
        if (kernel == 0) {
            y[i] = raw_row(w, which, t, h)[i];
            continue;
        }
        size_t channel = h * w->d + i;
        y[i] = parameter(w, bias)[channel];
        for (size_t tap = 0; tap < kernel; tap++) {
            if (t + tap + 1 < kernel) continue;
            y[i] += (double)parameter(w, weight)[channel * kernel + tap] *
                    raw_row(w, which, t + tap + 1 - kernel, h)[i];
        }
    }
}

/* Features: what a query, or a key and value, become. */

static bool has_unit_inputs(const world *w) {
    static const char *const names[] = {"gla", "kgla", "delta", "gated_delta", "kda", "comba", "gdn2", "oja"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is_rule(w, names[i])) return true;
    }
    /* `unit` is the first member of the option structs that have it. */
    if (is_rule(w, "retnet") || is_rule(w, "ssd") || is_rule(w, "rwkv7") || is_rule(w, "mamba") ||
        is_rule(w, "lightning") || is_rule(w, "rwkv6") || is_rule(w, "mlstm"))
        return *(bool *)w->variant->rule_options;
    if (is_rule(w, "hgrn2")) return *(bool *)((char *)w->variant->rule_options + sizeof(double));
    if (is_rule(w, "s4d")) return *(bool *)((char *)w->variant->rule_options + sizeof(int));
    return false;
}

static void softmax_pair(size_t n, const double *z, double *phi) {
    for (int half = 0; half < 2; half++) {
        double sign = half == 0 ? 1.0 : -1.0, top = -INFINITY, sum = 0.0;
        for (size_t i = 0; i < n; i++) top = fmax(top, sign * z[i]);
        for (size_t i = 0; i < n; i++) sum += exp(sign * z[i] - top);
        for (size_t i = 0; i < n; i++) phi[(size_t)half * n + i] = exp(sign * z[i] - top) / sum;
    }
}

/* All d d products, which have the same dot products as the half that is kept. */
static void rebased_features(const world *w, size_t h, const double *x, double *phi) {
    size_t d = w->d;
    double mean = 0.0, variance = 0.0, z[MAX_D];
    bool normalise = *(bool *)w->variant->rule_options;
    for (size_t i = 0; i < d; i++) mean += x[i] / (double)d;
    for (size_t i = 0; i < d; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)d;
    for (size_t i = 0; i < d; i++) {
        z[i] = normalise ? (x[i] - mean) / sqrt(variance + 1e-5) : x[i];
        z[i] = z[i] * parameter(w, "rebased.scale")[h * d + i] + parameter(w, "rebased.shift")[h * d + i];
    }
    for (size_t i = 0; i < d; i++) {
        for (size_t j = 0; j < d; j++) phi[i * d + j] = z[i] * z[j] / sqrt((double)d);
    }
}

static void feature_map(const world *w, size_t h, bool query, const double *x, double *phi) {
    size_t d = w->d;
    if (is_rule(w, "linear")) {
        int map = *(int *)w->variant->rule_options;
        double top = -INFINITY;
        for (size_t i = 0; i < d; i++) top = fmax(top, x[i]);
        for (size_t i = 0; i < d; i++) {
            phi[i] = map == 0   ? x[i]
                     : map == 1 ? (x[i] > 0 ? x[i] + 1.0 : exp(x[i]))
                     : map == 2 ? fmax(x[i], 0.0)
                                : exp(x[i] - top);
        }
    } else if (is_rule(w, "hedgehog")) {
        const float *weight = parameter(w, query ? "hedgehog.query" : "hedgehog.key") + h * d * d;
        double z[MAX_D] = {0.0};
        for (size_t j = 0; j < d; j++) {
            for (size_t i = 0; i < d; i++) z[j] += x[i] * weight[i * d + j];
        }
        softmax_pair(d, z, phi);
    } else if (is_rule(w, "taylor")) {
        double root = sqrt(sqrt((double)d));
        phi[0] = 1.0;
        for (size_t i = 0; i < d; i++) {
            phi[1 + i] = x[i] / root;
            for (size_t j = 0; j < d; j++) phi[1 + d + i * d + j] = x[i] * x[j] / (root * root * sqrt(2.0));
        }
    } else if (is_rule(w, "random_features")) {
        const float *weight = parameter(w, "random_features.weight") + h * w->k_dim * d;
        double root = sqrt(sqrt((double)d)), square = 0.0;
        for (size_t i = 0; i < d; i++) square += x[i] / root * (x[i] / root);
        for (size_t m = 0; m < w->k_dim; m++) {
            double dot = 0.0;
            for (size_t i = 0; i < d; i++) dot += weight[m * d + i] * x[i] / root;
            phi[m] = exp(dot - square / 2.0) / sqrt((double)w->k_dim);
        }
    } else if (is_rule(w, "dpfp")) {
        size_t nu = *(size_t *)w->variant->rule_options;
        double z[2 * MAX_D];
        for (size_t i = 0; i < d; i++) {
            z[i] = fmax(x[i], 0.0);
            z[d + i] = fmax(-x[i], 0.0);
        }
        for (size_t j = 1; j <= nu; j++) {
            for (size_t i = 0; i < 2 * d; i++)
                phi[(j - 1) * 2 * d + i] = z[i] * z[(i + 2 * d * j - j) % (2 * d)];
        }
    } else if (is_rule(w, "rebased")) {
        rebased_features(w, h, x, phi);
    } else if (has_unit_inputs(w)) {
        unit(d, x, phi);
    } else {
        memcpy(phi, x, d * sizeof *phi);
    }
}

static void query_features(const world *w, size_t h, const token_inputs *token, double *q) {
    if (is_rule(w, "delta_product")) {
        unit(w->d, token->q, q);
        return;
    }
    feature_map(w, h, true, token->q, q);
    if (is_rule(w, "comba")) {
        double k[MAX_D];
        unit(w->d, token->k, k);
        for (size_t i = 0; i < w->d; i++) q[i] -= parameter(w, "comba.correction")[h] * k[i];
    }
}

static double hgrn2_gate(const world *w, const token_inputs *token, size_t i) {
    double bound = *(double *)w->variant->rule_options;
    return bound + (1.0 - bound) * token->gate[i];
}

/* The key and value of one micro step, as they would be written. */
static void key_and_value(const world *w, size_t h, const token_inputs *token, size_t micro, double *k,
                          double *v) {
    size_t d = w->d;
    memcpy(v, token->v, d * sizeof *v);
    if (is_rule(w, "delta_product")) {
        double scaled[MAX_D];
        for (size_t i = 0; i < d; i++) {
            size_t at = (h * w->micro + micro) * d + i;
            if (parameter(w, "delta_product.key_scale") == NULL) {
                scaled[i] = token->k[i] + token->factors[0][micro * d + i];
                v[i] += token->factors[1][micro * d + i];
                continue;
            }
            scaled[i] = token->k[i] * parameter(w, "delta_product.key_scale")[at];
            v[i] *= parameter(w, "delta_product.value_scale")[at];
        }
        unit(d, scaled, k);
        return;
    }
    feature_map(w, h, false, token->k, k);
    for (size_t i = 0; i < d; i++) {
        if (is_rule(w, "hgrn2")) k[i] = 1.0 - hgrn2_gate(w, token, i);
        if (is_rule(w, "rodimus")) {
            double norm = fmax(length(d, token->k), 1e-12);
            k[i] = token->k[i] / norm * pow(softplus(token->gate[i]), token->factors[0][i]);
            v[i] *= token->factors[1][i];
        }
        if (is_rule(w, "mlstm") && !*(bool *)w->variant->rule_options) k[i] /= sqrt((double)d);
        if (is_rule(w, "gdn2")) {
            const float *scale = parameter(w, "gdn2.write");
            v[i] *= scale == NULL ? token->factors[1][i] : token->beta * 2.0 * sigmoid(scale[h * d + i]);
        }
        if (is_rule(w, "rwkv7"))
            k[i] *= 1.0 + (token->factors[0][i] - 1.0) * parameter(w, "rwkv7.replacement")[h * d + i];
    }
}

/* Rules. */

static void scale_columns(const world *w, double *s, const double *by, bool scalar) {
    for (size_t j = 0; j < w->d; j++) {
        for (size_t i = 0; i < w->k_dim; i++) s[j * w->k_dim + i] *= scalar ? by[0] : by[i];
    }
}

static void add_outer(const world *w, double *s, double by, const double *v, const double *k) {
    for (size_t j = 0; j < w->d; j++) {
        for (size_t i = 0; i < w->k_dim; i++) s[j * w->k_dim + i] += by * v[j] * k[i];
    }
}

static void read_plain(const world *w, const double *s, const double *q, double *y) {
    for (size_t j = 0; j < w->d; j++) {
        y[j] = 0.0;
        for (size_t i = 0; i < w->k_dim; i++) y[j] += s[j * w->k_dim + i] * q[i];
    }
}

/* S += b (v - S p) k^T */
static void correct(const world *w, double *s, double b, const double *v, const double *p, const double *k) {
    double e[MAX_D];
    read_plain(w, s, p, e);
    for (size_t j = 0; j < w->d; j++) e[j] = v[j] - e[j];
    add_outer(w, s, b, e, k);
}

static void write_rwkv7(const world *w, size_t h, double *s, const token_inputs *token, const double *k,
                        const double *v) {
    size_t d = w->d;
    double removed[MAX_D], direction[MAX_D], read[MAX_D], decay[MAX_D], back[MAX_D];
    for (size_t i = 0; i < d; i++) {
        removed[i] = token->k[i] * parameter(w, "rwkv7.removal")[h * d + i];
        decay[i] = exp(-exp(-0.5) * token->gate[i]);
    }
    unit(d, removed, direction);
    for (size_t i = 0; i < d; i++) back[i] = token->factors[0][i] * direction[i];
    read_plain(w, s, direction, read);
    scale_columns(w, s, decay, false);
    add_outer(w, s, -1.0, read, back);
    add_outer(w, s, 1.0, v, k);
}

static void write_oja(const world *w, double *s, const token_inputs *token, const double *k) {
    size_t d = w->d;
    double v[MAX_D], e[MAX_D];
    unit(d, token->v, v);
    for (size_t j = 0; j < d; j++) {
        for (size_t i = 0; i < d; i++) s[j * d + i] *= token->gate[j];
    }
    for (size_t i = 0; i < d; i++) {
        e[i] = k[i];
        for (size_t j = 0; j < d; j++) e[i] -= s[j * d + i] * v[j];
    }
    add_outer(w, s, token->beta, v, e);
}

static void write_mamba(const world *w, size_t h, double *s, const token_inputs *token, const double *k,
                        const double *v) {
    for (size_t j = 0; j < w->d; j++) {
        double dt = softplus(token->factors[0][j]);
        for (size_t i = 0; i < w->d; i++) {
            double a = -exp(parameter(w, "mamba.a_log")[(h * w->d + j) * w->d + i]);
            s[j * w->d + i] = exp(dt * a) * s[j * w->d + i] + dt * k[i] * v[j];
        }
    }
}

static void write_s4d(const world *w, size_t h, double *s, const double *k, const double *v) {
    const float *frequency = parameter(w, "s4d.frequency");
    const float *rate = parameter(w, frequency != NULL ? "s4d.lin_rate" : "s4d.real_rate");
    size_t size = w->d * w->d;
    for (size_t j = 0; j < w->d; j++) {
        double dt = exp(parameter(w, "s4d.step")[h * w->d + j]);
        for (size_t i = 0; i < w->d; i++) {
            double complex a =
                -exp(rate[h * w->d + i]) + (frequency == NULL ? 0.0 : frequency[h * w->d + i]) * I;
            double complex x = s[j * w->d + i] + s[size + j * w->d + i] * I;
            x = cexp(dt * a) * x + dt * k[i] * v[j];
            s[j * w->d + i] = creal(x);
            s[size + j * w->d + i] = cimag(x);
        }
    }
}

/* z: n [D], then m: only what the norm of the state is taken of is scaled by it. */
static void write_mlstm(const world *w, rule_state *state, const token_inputs *token, const double *k,
                        const double *v) {
    double decayed = log(token->gate[0]) + state->z[w->d], input = token->factors[0][0];
    double m = fmax(decayed, input), keep = exp(decayed - m), written = exp(input - m);
    scale_columns(w, state->s, &keep, true);
    add_outer(w, state->s, written, v, k);
    for (size_t i = 0; i < w->d; i++) state->z[i] = keep * state->z[i] + written * k[i];
    state->z[w->d] = m;
}

/* s: keys [M][D], values [M][D]. */
static void write_gsa(const world *w, double *s, const token_inputs *token, const double *k,
                      const double *v) {
    size_t slots = *(size_t *)w->variant->rule_options;
    double softness = *(double *)((char *)w->variant->rule_options + sizeof(size_t));
    for (size_t m = 0; m < slots; m++) {
        double keep = exp(token->factors[0][m] / softness);
        for (size_t i = 0; i < w->d; i++) {
            s[m * w->d + i] = keep * s[m * w->d + i] + (1.0 - keep) * k[i];
            s[(slots + m) * w->d + i] = keep * s[(slots + m) * w->d + i] + (1.0 - keep) * v[i];
        }
    }
}

static void read_gsa(const world *w, const double *s, const double *q, double *y) {
    size_t slots = *(size_t *)w->variant->rule_options;
    double p[MAX_FACTOR], sum = 0.0, top = -INFINITY;
    for (size_t m = 0; m < slots; m++) {
        p[m] = 0.0;
        for (size_t i = 0; i < w->d; i++) p[m] += q[i] * s[m * w->d + i] / sqrt((double)w->d);
        top = fmax(top, p[m]);
    }
    for (size_t m = 0; m < slots; m++) sum += exp(p[m] - top);
    memset(y, 0, w->d * sizeof *y);
    for (size_t m = 0; m < slots; m++) {
        for (size_t i = 0; i < w->d; i++) y[i] += exp(p[m] - top) / sum * s[(slots + m) * w->d + i];
    }
}

static void write_gla(const world *w, double *s, const token_inputs *token, const double *k,
                      const double *v) {
    for (size_t i = 0; i < w->d; i++) {
        double keep = token->gate[i] * (is_rule(w, "kgla") ? 1.0 - token->beta * k[i] * k[i] : 1.0);
        for (size_t j = 0; j < w->d; j++) s[j * w->d + i] *= keep;
    }
    add_outer(w, s, 1.0, v, k);
}

/* Plain accumulation of features of the key. */
static bool is_kernel(const world *w) {
    static const char *const names[] = {"linear", "hedgehog", "taylor", "random_features", "dpfp", "rebased"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is_rule(w, names[i])) return true;
    }
    return false;
}

static void write_token(const world *w, size_t h, const token_inputs *token) {
    rule_state *state = &w->states[h];
    double *s = state->s;
    double *k = zeroed(w->k_dim, sizeof *k), v[MAX_D], p[MAX_D];
    key_and_value(w, h, token, 0, k, v);
    if (is_rule(w, "gated")) {
        scale_columns(w, s, token->gate, true);
        add_outer(w, s, 1.0 - token->gate[0], v, k);
    } else if (is_rule(w, "decay")) {
        scale_columns(w, s, token->gate, true);
        add_outer(w, s, 1.0, v, k);
    } else if (is_rule(w, "retnet")) {
        scale_columns(w, s, (double[]){1.0 - pow(2.0, -5.0 - (double)h)}, true);
        add_outer(w, s, 1.0, v, k);
    } else if (is_rule(w, "ssd")) {
        double dt = log1p(exp(token->gate[0]));
        scale_columns(w, s, (double[]){exp(-exp(parameter(w, "ssd.a_log")[h]) * dt)}, true);
        add_outer(w, s, dt, v, k);
    } else if (is_rule(w, "gla") || is_rule(w, "kgla")) {
        write_gla(w, s, token, k, v);
    } else if (is_rule(w, "delta")) {
        correct(w, s, token->beta, v, k, k);
    } else if (is_rule(w, "longhorn") && *(bool *)w->variant->rule_options) {
        double norm = length(w->d, k);
        for (size_t j = 0; j < w->d; j++) {
            double step = token->factors[0][j] / (1.0 + token->factors[0][j] * norm * norm);
            for (size_t i = 0; i < w->d; i++)
                s[j * w->d + i] = (1.0 - step * k[i] * k[i]) * s[j * w->d + i] + step * v[j] * k[i];
        }
    } else if (is_rule(w, "longhorn")) {
        double norm = length(w->d, k);
        correct(w, s, token->beta / (1.0 + token->beta * norm * norm), v, k, k);
    } else if (is_rule(w, "gated_delta") || is_rule(w, "kda")) {
        scale_columns(w, s, token->gate, is_rule(w, "gated_delta"));
        correct(w, s, token->beta, v, k, k);
    } else if (is_rule(w, "delta_product")) {
        bool reflects = *(bool *)((char *)w->variant->rule_options + sizeof(size_t));
        scale_columns(w, s, token->gate, true);
        for (size_t micro = 0; micro < w->micro; micro++) {
            key_and_value(w, h, token, micro, k, v);
            double beta = w->variant->takes_beta ? token->beta : token->factors[2][micro];
            correct(w, s, (reflects ? 2.0 : 1.0) * beta, v, k, k);
        }
    } else if (is_rule(w, "comba")) {
        for (size_t i = 0; i < w->d; i++) p[i] = sigmoid(parameter(w, "comba.feedback")[h]) * k[i];
        double e[MAX_D];
        bool decay_first = *(bool *)w->variant->rule_options;
        if (decay_first) scale_columns(w, s, token->gate, true);
        read_plain(w, s, p, e);
        if (!decay_first) scale_columns(w, s, token->gate, true);
        for (size_t j = 0; j < w->d; j++) e[j] = v[j] - e[j];
        add_outer(w, s, token->beta, e, k);
    } else if (is_rule(w, "gdn2")) {
        const float *scale = parameter(w, "gdn2.erase");
        double reach = *((bool *)w->variant->rule_options + 1) ? 2.0 : 1.0;
        for (size_t i = 0; i < w->d; i++)
            p[i] = reach * k[i] *
                   (scale == NULL ? token->factors[0][i] : token->beta * 2.0 * sigmoid(scale[h * w->d + i]));
        scale_columns(w, s, token->gate, false);
        correct(w, s, 1.0, v, p, k);
    } else if (is_rule(w, "rwkv7")) {
        write_rwkv7(w, h, s, token, k, v);
    } else if (is_rule(w, "lightning")) {
        double depth = (double)w->call->layer / (double)w->call->mechanism->layers;
        scale_columns(w, s, (double[]){exp(-8.0 / (double)w->heads * (1.0 - depth) * (double)h)}, true);
        add_outer(w, s, 1.0, v, k);
    } else if (is_rule(w, "hgrn2") || is_rule(w, "rodimus") || is_rule(w, "rwkv6")) {
        double keep[MAX_D];
        for (size_t i = 0; i < w->d; i++) {
            keep[i] = is_rule(w, "hgrn2")   ? hgrn2_gate(w, token, i)
                      : is_rule(w, "rwkv6") ? exp(-exp(token->gate[i]))
                                            : exp(-softplus(token->gate[i]) * token->factors[0][i]);
        }
        scale_columns(w, s, keep, false);
        add_outer(w, s, 1.0, v, k);
    } else if (is_rule(w, "mlstm")) {
        write_mlstm(w, state, token, k, v);
    } else if (is_rule(w, "gsa")) {
        write_gsa(w, s, token, k, v);
    } else if (is_rule(w, "mamba")) {
        write_mamba(w, h, s, token, k, v);
    } else if (is_rule(w, "s4d")) {
        write_s4d(w, h, s, k, v);
    } else if (is_rule(w, "oja")) {
        write_oja(w, s, token, k);
    } else if (is_kernel(w)) {
        add_outer(w, s, 1.0, v, k);
        for (size_t i = 0; i < w->k_dim; i++) state->z[i] += k[i];
    } else {
        fail_msg(
            "rule %s has no float64 form: state it, as its paper does, in write_token (and key_and_value) "
            "of tests/support/reference_mixer.c",
            w->rule);
    }
    free(k);
}

static double read_state(const world *w, size_t h, const double *q, double *y) {
    double mass = 0.0;
    if (is_rule(w, "gsa")) {
        read_gsa(w, w->states[h].s, q, y);
        return 0.0;
    }
    read_plain(w, w->states[h].s, q, y);
    for (size_t i = 0; parameter(w, "s4d.frequency") != NULL && i < w->d; i++) y[i] *= 2.0;
    for (size_t i = 0; i < w->k_dim; i++) mass += w->states[h].z[i] * q[i];
    for (size_t i = 0; is_rule(w, "mlstm") && i < w->d; i++)
        y[i] /= fmax(fabs(mass), exp(-w->states[h].z[w->d]));
    return mass;
}

/* Exact set and routing. */

static bool is_exact(const world *w, size_t g, size_t i, size_t t) {
    if (i > t) return false;
    if (i < w->variant->sinks || t - i < w->variant->window) return true;
    return w->cached[g * w->call->tokens + i];
}

static double recall_error(const world *w, size_t h, const token_inputs *token) {
    double *k = zeroed(w->k_dim, sizeof *k), v[MAX_D], y[MAX_D], total = 0.0;
    for (size_t micro = 0; micro < w->micro; micro++) {
        double difference[MAX_D];
        key_and_value(w, h, token, micro, k, v);
        double mass = read_state(w, h, k, y);
        for (size_t i = 0; i < w->d; i++) {
            if (w->variant->normaliser) y[i] = mass == 0.0 ? 0.0 : y[i] / mass;
            difference[i] = v[i] - y[i];
        }
        total += length(w->d, difference) / (double)w->micro;
    }
    free(k);
    return total;
}

static double score(const world *w, size_t g, size_t i) {
    double x[MAX_D], sum = 0.0;
    const float *key = raw_row(w, 'k', i, g * w->group), *value = raw_row(w, 'v', i, g * w->group);
    switch (w->variant->route) {
    case FL_ROUTE_SELF_RECALL:
        for (size_t h = g * w->group; h < (g + 1) * w->group; h++) {
            if (w->variant->rule->stateless) break;
            sum += recall_error(w, h, &w->tokens[i * w->heads + h]) / (double)w->group;
        }
        if (!w->variant->rule->stateless) return sum;
        for (size_t c = 0; c < w->d; c++) x[c] = value[c];
        return length(w->d, x);
    case FL_ROUTE_ATTENTION_MASS:
        return w->mass[g * w->call->tokens + i];
    case FL_ROUTE_KEY_NORM:
        for (size_t c = 0; c < w->d; c++) x[c] = key[c];
        return length(w->d, x);
    case FL_ROUTE_VALUE_NORM:
        for (size_t c = 0; c < w->d; c++) x[c] = value[c];
        return length(w->d, x);
    case FL_ROUTE_RECENCY:
        return (double)i;
    case FL_ROUTE_RANDOM:
        return (double)(fl_random_hash(w->variant->seed, w->call->layer, g, i) >> 11) * 0x1.0p-53;
    }
    return 0.0;
}

/* The token written at step t, or -1. */
static int32_t route(const world *w, size_t g, size_t t) {
    size_t tokens = w->call->tokens, window = w->variant->window, cached = 0;
    if (is_rule(w, "rwkv6") && window == 0 && w->variant->cache_budget == 0)
        window = 1; /* reads come first */
    if (t < window || t - window < w->variant->sinks) return -1;
    size_t leaving = t - window;
    for (size_t i = 0; i < tokens; i++) cached += w->cached[g * tokens + i];
    w->cached[g * tokens + leaving] = w->variant->cache_budget > 0;
    if (w->variant->cache_budget == 0) return (int32_t)leaving;
    if (cached < w->variant->cache_budget) return -1;
    size_t lowest = SIZE_MAX;
    double lowest_score = INFINITY;
    for (size_t i = 0; i < tokens; i++) { /* oldest first, so that ties send it */
        if (!w->cached[g * tokens + i]) continue;
        double of_token = score(w, g, i);
        if (lowest == SIZE_MAX || of_token < lowest_score) {
            lowest = i;
            lowest_score = of_token;
        }
    }
    w->cached[g * tokens + lowest] = false;
    return (int32_t)lowest;
}

typedef struct exact_part {
    double out[MAX_D]; /* sum of exp(x - top) v */
    double sum, top;
} exact_part;

static exact_part attend(const world *w, size_t h, size_t t) {
    exact_part part = {{0.0}, 0.0, -INFINITY};
    size_t g = h / w->group, tokens = w->call->tokens;
    double scale = w->call->mechanism->shape.scale;
    const float *q = raw_row(w, 'q', t, h);
    double *x = zeroed(t + 1, sizeof *x);
    for (size_t i = 0; i <= t; i++) {
        if (!is_exact(w, g, i, t)) continue;
        for (size_t c = 0; c < w->d; c++) x[i] += scale * q[c] * raw_row(w, 'k', i, h)[c];
        part.top = fmax(part.top, x[i]);
    }
    for (size_t i = 0; i <= t; i++) {
        if (!is_exact(w, g, i, t)) continue;
        double weight = exp(x[i] - part.top);
        part.sum += weight;
        for (size_t c = 0; c < w->d; c++) part.out[c] += weight * raw_row(w, 'v', i, h)[c];
    }
    for (size_t i = 0; i <= t && w->mass != NULL; i++) {
        if (is_exact(w, g, i, t))
            w->mass[g * tokens + i] += exp(x[i] - part.top) / part.sum / (double)w->group;
    }
    free(x);
    return part;
}

static void merge(const world *w, size_t h, size_t t, const exact_part *exact, const double *read,
                  double mass, double *y) {
    const fl_variant *variant = w->variant;
    bool exact_set = variant->window > 0 || variant->sinks > 0 || variant->cache_budget > 0;
    bool linear = !variant->rule->stateless;
    (void)t;
    for (size_t i = 0; i < w->d; i++) {
        double softmax = exact->sum > 0.0 ? exact->out[i] / exact->sum : 0.0;
        double lin = !linear ? 0.0 : !variant->normaliser ? read[i] : mass == 0.0 ? 0.0 : read[i] / mass;
        switch (variant->merge) {
        case FL_MERGE_SUM:
            y[i] = softmax + lin;
            continue;
        case FL_MERGE_HALF:
            y[i] = exact_set ? 0.5 * softmax + 0.5 * lin : lin;
            continue;
        case FL_MERGE_SHARED_NORMALISER:
        case FL_MERGE_LOLCATS:
        case FL_MERGE_LOLCATS_INVARIANT:
            break;
        }
        if (!linear || exact->sum == 0.0) {
            y[i] = softmax + lin;
            continue;
        }
        bool gamma = variant->merge != FL_MERGE_SHARED_NORMALISER;
        double weight = gamma ? sigmoid(parameter(w, "merge.window_factor")[h]) : 1.0;
        /* Kernel terms scaled by exp(-top), except in the published form. */
        double kernel = variant->merge == FL_MERGE_LOLCATS ? 1.0 : exp(-exact->top);
        y[i] = (weight * exact->out[i] + kernel * read[i]) / (weight * exact->sum + kernel * mass);
    }
}

/* What a token reads of itself beside the state, where it is not exact. */
static void add_own(const world *w, size_t h, size_t t, const double *q, double *y) {
    const token_inputs *token = &w->tokens[t * w->heads + h];
    const fl_variant *variant = w->variant;
    if (variant->window > 0 || variant->cache_budget > 0 || t < variant->sinks) return;
    const float *skip = parameter(w, "mamba.skip");
    for (size_t i = 0; skip != NULL && i < w->d; i++) y[i] += skip[h * w->d + i] * token->v[i];
    if (!is_rule(w, "rwkv7") && !is_rule(w, "rwkv6")) return;
    const float *bonus = parameter(w, is_rule(w, "rwkv7") ? "rwkv7.bonus" : "rwkv6.bonus");
    double k[MAX_D], v[MAX_D], own = 0.0;
    key_and_value(w, h, token, 0, k, v);
    for (size_t i = 0; i < w->d; i++) own += q[i] * k[i] * bonus[h * w->d + i];
    for (size_t i = 0; i < w->d; i++) y[i] += own * v[i];
}

static double of_state(const world *w, size_t h) {
    if (is_rule(w, "gsa")) return length(2 * *(size_t *)w->variant->rule_options * w->d, w->states[h].s);
    double matrix = length(w->d * w->k_dim * (is_rule(w, "s4d") ? 2 : 1), w->states[h].s);
    return is_rule(w, "mlstm") ? hypot(matrix, length(w->d + 1, w->states[h].z)) : matrix;
}

static void step(const world *w, size_t t) {
    const fl_reference_call *call = w->call;
    bool linear = !w->variant->rule->stateless;
    double *q = zeroed(w->k_dim, sizeof *q);
    for (size_t g = 0; g < w->kv_heads; g++) {
        int32_t written = route(w, g, t);
        call->written[g * call->tokens + t] = written;
        for (size_t h = g * w->group; linear && written >= 0 && h < (g + 1) * w->group; h++) {
            write_token(w, h, &w->tokens[(size_t)written * w->heads + h]);
        }
    }
    for (size_t h = 0; h < w->heads; h++) {
        exact_part exact = attend(w, h, t);
        double read[MAX_D] = {0.0}, mass = 0.0;
        call->state_norm[h * call->tokens + t] = 0.0;
        if (linear) {
            query_features(w, h, &w->tokens[t * w->heads + h], q);
            mass = read_state(w, h, q, read);
            add_own(w, h, t, q, read);
            for (size_t i = 0; i < w->d; i++) read[i] *= w->variant->scale;
            mass *= w->variant->scale;
            call->state_norm[h * call->tokens + t] = of_state(w, h);
        }
        merge(w, h, t, &exact, read, mass, call->output + (t * w->heads + h) * w->d);
    }
    free(q);
}

void fl_reference_mixer(const fl_reference_call *call) {
    const fl_attention_shape *shape = &call->mechanism->shape;
    const fl_variant *variant = call->mechanism->variant;
    world w = {.call = call,
               .variant = variant,
               .rule = variant->rule->name,
               .heads = shape->query_heads,
               .kv_heads = shape->kv_heads,
               .group = shape->query_heads / shape->kv_heads,
               .d = shape->head_dim,
               .micro = fl_rule_micro_steps(variant->rule, variant->rule_options)};
    if (w.d > MAX_D) abort();
    w.k_dim = is_rule(&w, "taylor")    ? 1 + w.d + w.d * w.d
              : is_rule(&w, "rebased") ? w.d * w.d
                                       : fl_rule_key_dim(variant->rule, w.d, variant->rule_options);
    w.tokens = zeroed(call->tokens * w.heads, sizeof *w.tokens);
    w.states = zeroed(w.heads, sizeof *w.states);
    w.cached = zeroed(w.kv_heads * call->tokens, sizeof *w.cached);
    w.mass = zeroed(w.kv_heads * call->tokens, sizeof *w.mass);
    for (size_t h = 0; h < w.heads; h++) {
        w.states[h] = (rule_state){zeroed(2 * w.d * (is_rule(&w, "gsa") ? 256 : w.k_dim), sizeof(double)),
                                   zeroed(w.k_dim + 1, sizeof(double))};
    }
    for (size_t t = 0; t < call->tokens && !variant->rule->stateless; t++) {
        for (size_t h = 0; h < w.heads; h++) {
            token_inputs *token = &w.tokens[t * w.heads + h];
            convolved(&w, 'q', t, h, token->q);
            convolved(&w, 'k', t, h, token->k);
            convolved(&w, 'v', t, h, token->v);
            gates(&w, t, h, token);
        }
    }
    for (size_t t = 0; t < call->tokens; t++) step(&w, t);
    for (size_t h = 0; h < w.heads; h++) {
        free(w.states[h].s);
        free(w.states[h].z);
    }
    free(w.tokens);
    free(w.states);
    free(w.cached);
    free(w.mass);
}
