/* What measures, and rows of logits. */
#include <math.h>
#include <string.h>

#include "harness/bench/operation_list.h"

#define SLOT(name_) .name = #name_, .slot = offsetof(fl_compute_ops, name_)

/* --- rows --- */

typedef struct {
    size_t rows, columns;
    fl_trial_input reference, x;
    fl_array first, second;
} rows_case;

static fl_status make_rows_case(fl_trial *trial, const char *first, const char *second, rows_case **out,
                                double *expected[2], fl_error *error) {
    rows_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    c->rows = trial->sizes[0];
    c->columns = trial->sizes[1];
    FL_TRY(fl_trial_normals(trial, c->rows * c->columns, 1.0, &c->reference, error));
    FL_TRY(fl_trial_normals(trial, c->rows * c->columns, 1.0, &c->x, error));
    FL_TRY(fl_trial_array(trial, c->rows, FL_FLOAT64, &c->first, error));
    FL_TRY(fl_trial_array(trial, c->rows, FL_FLOAT64, &c->second, error));
    FL_TRY(fl_trial_expect(trial, first, c->first, c->rows, &expected[0], error));
    FL_TRY(fl_trial_expect(trial, second, c->second, c->rows, &expected[1], error));
    trial->bytes = 2.0 * sizeof(float) * (double)(c->rows * c->columns);
    return FL_OK;
}

static fl_status make_row_errors(fl_trial *trial, fl_error *error) {
    rows_case *c = NULL;
    double *expected[2];
    FL_TRY(make_rows_case(trial, "squared", "cosine", &c, expected, error));
    for (size_t row = 0; row < c->rows; row++) {
        double squared = 0.0, dot = 0.0, norm = 0.0, other = 0.0;
        for (size_t i = row * c->columns; i < (row + 1) * c->columns; i++) {
            const double r = c->reference.wide[i], x = c->x.wide[i];
            squared += (x - r) * (x - r);
            dot += x * r;
            norm += r * r;
            other += x * x;
        }
        expected[0][row] = squared;
        expected[1][row] = dot / sqrt(norm * other);
    }
    return FL_OK;
}

static fl_status call_row_errors(fl_trial *trial, fl_error *error) {
    const rows_case *c = trial->context;
    (void)error;
    trial->compute->ops->row_errors(trial->compute, c->rows, c->columns, c->reference.array, c->x.array,
                                    c->first, c->second);
    return FL_OK;
}

static fl_status make_row_moments(fl_trial *trial, fl_error *error) {
    rows_case *c = NULL;
    double *expected[2];
    FL_TRY(make_rows_case(trial, "sum", "sum_squares", &c, expected, error));
    for (size_t i = 0; i < c->x.count; i++) {
        expected[0][i / c->columns] += c->x.wide[i];
        expected[1][i / c->columns] += c->x.wide[i] * c->x.wide[i];
    }
    trial->bytes *= 0.5;
    return FL_OK;
}

static fl_status call_row_moments(fl_trial *trial, fl_error *error) {
    const rows_case *c = trial->context;
    (void)error;
    trial->compute->ops->row_moments(trial->compute, c->rows, c->columns, c->x.array, c->first, c->second);
    return FL_OK;
}

/* --- whole arrays --- */

typedef struct {
    size_t count;
    fl_trial_input x, y;
    fl_array made;
} array_case;

static fl_status make_array_case(fl_trial *trial, fl_number number, array_case **out, fl_error *error) {
    array_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    c->count = trial->sizes[0];
    FL_TRY(fl_trial_array(trial, 1, number, &c->made, error));
    trial->bytes = sizeof(float) * (double)c->count;
    return FL_OK;
}

static fl_status make_first_not_finite(fl_trial *trial, fl_error *error) {
    array_case *c = NULL;
    double *wide = NULL, *expected = NULL;
    FL_TRY(make_array_case(trial, FL_INT32, &c, error));
    FL_TRY(fl_trial_block(trial, c->count, sizeof *wide, &wide, error));
    FL_TRY(fl_trial_expect(trial, "first", c->made, 1, &expected, error));
    const size_t first = (size_t)fl_random_below(&trial->random, c->count + 1); /* count: none */
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < c->count; i++) wide[i] = i % 3 == 0 ? 3e38 : fl_random_normal(&trial->random);
    if (first < c->count) wide[first] = bad[fl_random_below(&trial->random, 3)];
    if (first + 1 < c->count) wide[c->count - 1] = NAN;
    expected[0] = (double)first;
    return fl_trial_upload(trial, c->count, wide, &c->x, error);
}

static fl_status call_first_not_finite(fl_trial *trial, fl_error *error) {
    const array_case *c = trial->context;
    (void)error;
    trial->compute->ops->first_not_finite(trial->compute, c->count, c->x.array, c->made);
    return FL_OK;
}

static fl_status make_subtract(fl_trial *trial, fl_error *error) {
    array_case *c = NULL;
    double *difference = NULL, *squares = NULL;
    FL_TRY(make_array_case(trial, FL_FLOAT64, &c, error));
    FL_TRY(fl_trial_normals(trial, c->count, 1.0, &c->x, error));
    FL_TRY(fl_trial_normals(trial, c->count, 1.0, &c->y, error));
    FL_TRY(fl_trial_expect(trial, "x", c->x.array, c->count, &difference, error));
    FL_TRY(fl_trial_expect(trial, "squares", c->made, 1, &squares, error));
    for (size_t i = 0; i < c->count; i++) {
        difference[i] = c->x.wide[i] - c->y.wide[i];
        squares[0] += difference[i] * difference[i];
    }
    trial->bytes *= 3.0;
    return FL_OK;
}

static fl_status call_subtract(fl_trial *trial, fl_error *error) {
    const array_case *c = trial->context;
    (void)error;
    trial->compute->ops->subtract_squares(trial->compute, c->count, c->y.array, c->x.array, c->made);
    return FL_OK;
}

static fl_status make_scale(fl_trial *trial, fl_error *error) {
    array_case *c = NULL;
    double *expected = NULL;
    FL_TRY(make_array_case(trial, FL_FLOAT64, &c, error));
    FL_TRY(fl_trial_normals(trial, c->count, 1.0, &c->x, error));
    FL_TRY(fl_trial_expect(trial, "x", c->x.array, c->count, &expected, error));
    for (size_t i = 0; i < c->count; i++) expected[i] = 0.375 * c->x.wide[i];
    trial->bytes *= 2.0;
    return FL_OK;
}

static fl_status call_scale(fl_trial *trial, fl_error *error) {
    const array_case *c = trial->context;
    (void)error;
    trial->compute->ops->scale(trial->compute, c->count, 0.375f, c->x.array);
    return FL_OK;
}

/* --- keys and states --- */

typedef struct {
    fl_key_geometry_call call;
    fl_trial_input key;
} geometry_case;

/* Over all keys up to t, the definitions written out: cosine of the newest with their mean, and the mean
 * squared distance of the projections on the mean from it. */
static void describe_keys(const double *unit, size_t count, size_t dim, double *mean, double *concentration,
                          double *residual) {
    double norm = 0.0, dot = 0.0, total = 0.0;
    memset(mean, 0, dim * sizeof *mean);
    for (size_t i = 0; i < count * dim; i++) mean[i % dim] += unit[i] / (double)count;
    for (size_t i = 0; i < dim; i++) {
        norm += mean[i] * mean[i];
        dot += mean[i] * unit[(count - 1) * dim + i];
    }
    for (size_t key = 0; key < count; key++) {
        double along = 0.0;
        for (size_t i = 0; i < dim; i++) along += unit[key * dim + i] * mean[i];
        total += (along / norm - 1.0) * (along / norm - 1.0) * norm;
    }
    *concentration = dot / sqrt(norm);
    *residual = total / (double)count;
}

static fl_status make_geometry(fl_trial *trial, fl_error *error) {
    geometry_case *c = NULL;
    double *unit = NULL, *mean = NULL, *concentration = NULL, *residual = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    const size_t tokens = trial->sizes[0], heads = trial->sizes[1], dim = trial->sizes[2];
    FL_TRY(fl_trial_uniforms(trial, tokens * heads * dim, -0.5, 1.5, &c->key, error));
    c->call =
        (fl_key_geometry_call){.tokens = tokens, .kv_heads = heads, .head_dim = dim, .key = c->key.array};
    FL_TRY(fl_trial_array(trial, heads * dim, FL_FLOAT64, &c->call.sum, error));
    FL_TRY(fl_trial_array(trial, heads * dim * dim, FL_FLOAT64, &c->call.product, error));
    FL_TRY(fl_trial_array(trial, heads * tokens, FL_FLOAT64, &c->call.concentration, error));
    FL_TRY(fl_trial_array(trial, heads * tokens, FL_FLOAT64, &c->call.residual, error));
    FL_TRY(fl_trial_block(trial, tokens * dim, sizeof *unit, &unit, error));
    FL_TRY(fl_trial_block(trial, dim, sizeof *mean, &mean, error));
    trial->compute->ops->fill(trial->compute, c->call.sum, heads * dim, 0.0);
    trial->compute->ops->fill(trial->compute, c->call.product, heads * dim * dim, 0.0);
    FL_TRY(fl_trial_expect(trial, "concentration", c->call.concentration, heads * tokens, &concentration,
                           error));
    FL_TRY(fl_trial_expect(trial, "residual", c->call.residual, heads * tokens, &residual, error));
    trial->expected[1].scale = 1e-3; /* of one or two keys it is zero but for rounding */
    for (size_t head = 0; head < heads; head++) {
        for (size_t t = 0; t < tokens; t++) {
            const double *key = c->key.wide + (t * heads + head) * dim;
            double norm = 0.0;
            for (size_t i = 0; i < dim; i++) norm += key[i] * key[i];
            for (size_t i = 0; i < dim; i++) unit[t * dim + i] = key[i] / sqrt(norm);
            describe_keys(unit, t + 1, dim, mean, &concentration[head * tokens + t],
                          &residual[head * tokens + t]);
        }
    }
    return FL_OK;
}

static fl_status call_geometry(fl_trial *trial, fl_error *error) {
    const geometry_case *c = trial->context;
    (void)error;
    trial->compute->ops->key_geometry(trial->compute, &c->call);
    return FL_OK;
}

typedef struct {
    size_t heads, value_dim, key_dim;
    fl_trial_input state;
    fl_array rank;
} rank_case;

/* States with known spectra: orthogonal rows of chosen lengths, turned in the plane of the first two axes of
 * each pair. */
static fl_status make_rank(fl_trial *trial, fl_error *error) {
    rank_case *c = NULL;
    double *wide = NULL, *expected = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = c;
    const size_t heads = trial->sizes[0], dim = trial->sizes[1];
    *c = (rank_case){.heads = heads, .value_dim = dim, .key_dim = dim + trial->sizes[2]};
    FL_TRY(fl_trial_block(trial, heads * dim * c->key_dim, sizeof *wide, &wide, error));
    FL_TRY(fl_trial_array(trial, heads, FL_FLOAT64, &c->rank, error));
    FL_TRY(fl_trial_expect(trial, "rank", c->rank, heads, &expected, error));
    for (size_t head = 0; head < heads; head++) {
        double total = 0.0, entropy = 0.0;
        for (size_t i = 0; i < dim; i++) {
            const double length = (double)(1 + fl_random_below(&trial->random, 8));
            wide[(head * dim + i) * c->key_dim + (i + head) % dim] = length;
            total += length;
            entropy -= length * log(length);
        }
        expected[head] = exp(entropy / total + log(total));
    }
    return fl_trial_upload(trial, heads * dim * c->key_dim, wide, &c->state, error);
}

static fl_status call_rank(fl_trial *trial, fl_error *error) {
    const rank_case *c = trial->context;
    return trial->compute->ops->effective_rank(trial->compute, c->heads, c->value_dim, c->key_dim,
                                               c->state.array, c->rank, error);
}

/* --- logits --- */

typedef struct {
    size_t rows, vocabulary;
    fl_trial_input logits, other;
    fl_logit_rows_call call;
    fl_logit_divergence_call divergence;
    fl_logit_gradient_call gradient;
} logits_case;

/* Softmax of row `row` into p [V]; returns its log-sum-exp. */
static double softmax(const double *logits, size_t count, double *p) {
    double largest = -INFINITY, sum = 0.0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, logits[i]);
    for (size_t i = 0; i < count; i++) sum += p[i] = exp(logits[i] - largest);
    for (size_t i = 0; i < count; i++) p[i] /= sum;
    return largest + log(sum);
}

static fl_status make_logits_case(fl_trial *trial, logits_case **out, fl_error *error) {
    logits_case *c = NULL;
    FL_TRY(fl_trial_block(trial, 1, sizeof *c, &c, error));
    trial->context = *out = c;
    c->rows = trial->sizes[0];
    c->vocabulary = trial->sizes[1];
    trial->bytes = sizeof(float) * (double)(c->rows * c->vocabulary);
    FL_TRY(fl_trial_normals(trial, c->rows * c->vocabulary, 4.0, &c->logits, error));
    return fl_trial_normals(trial, c->rows * c->vocabulary, 4.0, &c->other, error);
}

static fl_status make_logit_rows(fl_trial *trial, fl_error *error) {
    logits_case *c = NULL;
    double *log_sum_exp = NULL, *best = NULL, *probabilities = NULL;
    FL_TRY(make_logits_case(trial, &c, error));
    c->call = (fl_logit_rows_call){.rows = c->rows, .vocabulary = c->vocabulary, .logits = c->logits.array};
    FL_TRY(fl_trial_array(trial, c->rows, FL_FLOAT64, &c->call.log_sum_exp, error));
    FL_TRY(fl_trial_array(trial, c->rows, FL_INT32, &c->call.best, error));
    FL_TRY(fl_trial_array(trial, c->logits.count, FL_FLOAT64, &c->call.probabilities, error));
    FL_TRY(fl_trial_expect(trial, "log_sum_exp", c->call.log_sum_exp, c->rows, &log_sum_exp, error));
    FL_TRY(fl_trial_expect(trial, "best", c->call.best, c->rows, &best, error));
    FL_TRY(fl_trial_expect(trial, "probabilities", c->call.probabilities, c->logits.count, &probabilities,
                           error));
    for (size_t row = 0; row < c->rows; row++) {
        const double *logits = c->logits.wide + row * c->vocabulary;
        size_t at = 0;
        for (size_t i = 1; i < c->vocabulary; i++) at = logits[i] > logits[at] ? i : at;
        best[row] = (double)at;
        log_sum_exp[row] = softmax(logits, c->vocabulary, probabilities + row * c->vocabulary);
    }
    return FL_OK;
}

static fl_status call_logit_rows(fl_trial *trial, fl_error *error) {
    const logits_case *c = trial->context;
    (void)error;
    trial->compute->ops->logit_rows(trial->compute, &c->call);
    return FL_OK;
}

static fl_status make_divergence(fl_trial *trial, fl_error *error) {
    logits_case *c = NULL;
    double *p = NULL, *q = NULL, *first = NULL, *second = NULL, *expected = NULL;
    FL_TRY(make_logits_case(trial, &c, error));
    FL_TRY(fl_trial_block(trial, c->logits.count, sizeof *p, &p, error));
    FL_TRY(fl_trial_block(trial, c->logits.count, sizeof *q, &q, error));
    FL_TRY(fl_trial_block(trial, c->rows, sizeof *first, &first, error));
    FL_TRY(fl_trial_block(trial, c->rows, sizeof *second, &second, error));
    c->divergence = (fl_logit_divergence_call){.rows = c->rows,
                                               .vocabulary = c->vocabulary,
                                               .logits = c->logits.array,
                                               .other_logits = c->other.array};
    FL_TRY(fl_trial_array(trial, c->rows, FL_FLOAT64, &c->divergence.divergence, error));
    FL_TRY(fl_trial_array(trial, c->rows, FL_FLOAT64, &c->divergence.log_sum_exp, error));
    FL_TRY(fl_trial_array(trial, c->rows, FL_FLOAT64, &c->divergence.other_log_sum_exp, error));
    FL_TRY(fl_trial_array(trial, c->logits.count, FL_FLOAT64, &c->divergence.probabilities, error));
    FL_TRY(fl_trial_expect(trial, "divergence", c->divergence.divergence, c->rows, &expected, error));
    for (size_t row = 0; row < c->rows; row++) {
        const size_t at = row * c->vocabulary;
        first[row] = softmax(c->logits.wide + at, c->vocabulary, p + at);
        second[row] = softmax(c->other.wide + at, c->vocabulary, q + at);
        for (size_t i = at; i < at + c->vocabulary; i++) expected[row] += p[i] * (log(p[i]) - log(q[i]));
    }
    trial->expected[0].scale = 1e-3; /* of one token it is 0 */
    trial->compute->ops->upload(trial->compute, c->divergence.log_sum_exp, first, c->rows);
    trial->compute->ops->upload(trial->compute, c->divergence.other_log_sum_exp, second, c->rows);
    trial->compute->ops->upload(trial->compute, c->divergence.probabilities, p, c->logits.count);
    return FL_OK;
}

static fl_status call_divergence(fl_trial *trial, fl_error *error) {
    const logits_case *c = trial->context;
    (void)error;
    trial->compute->ops->logit_divergence(trial->compute, &c->divergence);
    return FL_OK;
}

static fl_status make_gradient(fl_trial *trial, fl_error *error) {
    const double weight = 0.25;
    logits_case *c = NULL;
    double *loss = NULL, *gradient = NULL, *q = NULL;
    int32_t *targets = NULL;
    FL_TRY(make_logits_case(trial, &c, error));
    const bool next_token = fl_random_below(&trial->random, 2) == 0;
    c->gradient = (fl_logit_gradient_call){.rows = c->rows,
                                           .vocabulary = c->vocabulary,
                                           .weight = weight,
                                           .gradient = true,
                                           .logits = c->logits.array};
    FL_TRY(fl_trial_array(trial, c->rows, FL_FLOAT64, &c->gradient.loss, error));
    FL_TRY(fl_trial_expect(trial, "loss", c->gradient.loss, c->rows, &loss, error));
    FL_TRY(fl_trial_expect(trial, "gradient", c->logits.array, c->logits.count, &gradient, error));
    trial->expected[0].scale = trial->expected[1].scale = 1e-3; /* of one token both are 0 */
    FL_TRY(fl_trial_block(trial, c->rows, sizeof *targets, &targets, error));
    FL_TRY(fl_trial_block(trial, c->vocabulary, sizeof *q, &q, error));
    for (size_t row = 0; row < c->rows; row++) {
        const double *logits = c->logits.wide + row * c->vocabulary;
        double *p = gradient + row * c->vocabulary;
        const double shift = softmax(logits, c->vocabulary, p);
        targets[row] = (int32_t)fl_random_below(&trial->random, c->vocabulary);
        const double other = softmax(c->other.wide + row * c->vocabulary, c->vocabulary, q);
        loss[row] = next_token ? shift - logits[targets[row]] : 0.0;
        for (size_t i = 0; i < c->vocabulary; i++) {
            const double target = next_token ? ((size_t)targets[row] == i ? 1.0 : 0.0) : q[i];
            if (!next_token)
                loss[row] += q[i] * (c->other.wide[row * c->vocabulary + i] - other - logits[i] + shift);
            p[i] = weight * (p[i] - target);
        }
    }
    if (next_token) return fl_trial_integers(trial, c->rows, targets, &c->gradient.targets, error);
    c->gradient.target_logits = c->other.array;
    return FL_OK;
}

static fl_status call_gradient(fl_trial *trial, fl_error *error) {
    const logits_case *c = trial->context;
    (void)error;
    trial->compute->ops->logit_gradient(trial->compute, &c->gradient);
    return FL_OK;
}

#define ROWS .sizes = {{"rows", {1, 2, 33, 100}, 512}, {"columns", {1, 7, 64, 577}, 576}}
#define COUNT .sizes = {{"count", {1, 7, 64, 1001, 40000}, 294912}}
#define LOGITS .sizes = {{"rows", {1, 3, 40}, 128}, {"vocabulary", {1, 2, 511, 513, 4099}, 49152}}

const fl_operation fl_operations_statistics[] = {
    {SLOT(row_errors), ROWS, .bound = 1e-12, .make = make_row_errors, .call = call_row_errors},
    {SLOT(row_moments), ROWS, .bound = 1e-12, .make = make_row_moments, .call = call_row_moments},
    {SLOT(first_not_finite), COUNT, .bound = 0.0, .make = make_first_not_finite,
     .call = call_first_not_finite},
    {SLOT(subtract_squares), COUNT, .bound = 2e-7, .make = make_subtract, .call = call_subtract},
    {SLOT(scale), COUNT, .bound = 2e-7, .make = make_scale, .call = call_scale},
    {SLOT(key_geometry),
     .sizes = {{"tokens", {1, 2, 65}, 256}, {"key heads", {1, 3}, 3}, {"head_dim", {2, 8, 33, 64}, 64}},
     .bound = 1e-10, .make = make_geometry, .call = call_geometry},
    {SLOT(effective_rank),
     .sizes = {{"heads", {1, 3}, 9}, {"value_dim", {1, 2, 16, 65}, 64}, {"more keys", {1, 5}, 1}},
     .bound = 1e-6, .make = make_rank, .call = call_rank},
    {SLOT(logit_rows), LOGITS, .bound = 1e-12, .make = make_logit_rows, .call = call_logit_rows},
    {SLOT(logit_divergence), LOGITS, .bound = 1e-11, .make = make_divergence, .call = call_divergence},
    {SLOT(logit_gradient), LOGITS, .bound = 5e-6, .make = make_gradient, .call = call_gradient},
    {0},
};
