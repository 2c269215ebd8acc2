#include "harness/measure/exact_lab.h"

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"

const char *const fl_exact_rule_names[FL_EXACT_RULES] = {"linear", "delta", "gated_delta", "kda"};

static double dot(size_t n, const double *x, const double *y) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static void read_state(size_t n, const double *state, const double *key, double *y) {
    for (size_t i = 0; i < n; i++) y[i] = dot(n, state + i * n, key);
}

/* What is kept of channel `column` of the key. */
static double kept(fl_exact_rule rule, const fl_exact_strength *strength, size_t dimension, size_t column) {
    if (rule == FL_EXACT_GATED_DELTA) return strength->gate;
    if (rule == FL_EXACT_KDA) return column < (dimension + 1) / 2 ? strength->gate : strength->gate_rest;
    return 1.0;
}

void fl_exact_lab_write(fl_exact_rule rule, const fl_exact_strength *strength, size_t dimension,
                        const double *key, const double *value, double *state, double *recalled) {
    bool erases = rule != FL_EXACT_LINEAR;
    double beta = erases ? strength->beta : 1.0;
    for (size_t at = 0; at < dimension * dimension; at++)
        state[at] *= kept(rule, strength, dimension, at % dimension);
    read_state(dimension, state, key, recalled);
    for (size_t i = 0; i < dimension; i++) {
        double change = beta * (value[i] - (erases ? recalled[i] : 0.0));
        for (size_t j = 0; j < dimension; j++) state[i * dimension + j] += change * key[j];
    }
}

enum { SIZE = FL_EXACT_FIGURE_SIZE };

void fl_exact_lab_figure(fl_exact_rule rule, const fl_exact_strength *strength, double overlap,
                         fl_exact_figure *steps) {
    const double keys[FL_EXACT_FIGURE_KEYS][SIZE] = {
        {1, 0, 0, 0}, {0, 1, 0, 0}, {overlap, 0, sqrt(1.0 - overlap * overlap), 0}};
    const double values[FL_EXACT_FIGURE_WRITES][SIZE] = {
        {1, 0.5, -0.5, 0}, {0, -1, 0.5, 1}, {0.5, 1, 0, -1}, {-0.5, 0, 1, 0.5}};
    double state[SIZE * SIZE] = {0}, recalled[SIZE];
    for (size_t step = 0; step < FL_EXACT_FIGURE_WRITES; step++) {
        fl_exact_lab_write(rule, strength, SIZE, keys[step % FL_EXACT_FIGURE_KEYS], values[step], state,
                           recalled);
        memcpy(steps[step].state, state, sizeof state);
        for (size_t k = 0; k < FL_EXACT_FIGURE_KEYS; k++)
            read_state(SIZE, state, keys[k], steps[step].recall[k]);
    }
}

/* One trial in float64, and what a timeline needs. */
typedef struct {
    size_t dimension, pairs;
    float *drawn;                     /* shared [D], keys, replaced, values [pairs][D] */
    double *keys, *replaced, *values; /* [pairs][D] */
    double *state, *y, *other;        /* [D][D], [D], [D] */
} trial_data;

static void trial_free(trial_data *data) {
    fl_memory_free(data->drawn);
    fl_memory_free(data->keys);
    fl_memory_free(data->state);
}

static fl_status trial_create(size_t dimension, size_t pairs, trial_data *data, fl_error *error) {
    *data = (trial_data){.dimension = dimension, .pairs = pairs};
    if (dimension == 0 || pairs == 0)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "memory lab: dimension and pairs must be positive");
    size_t rows = 0, drawn = 0, square = 0;
    FL_TRY(fl_memory_multiply(pairs, 3 * sizeof(double), &rows, "memory lab: pairs", error));
    FL_TRY(fl_memory_multiply(rows, dimension, &drawn, "memory lab: pairs and dimension", error));
    FL_TRY(fl_memory_multiply(dimension, dimension + 2, &square, "memory lab: dimension", error));
    drawn /= sizeof(double);
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&data->drawn, drawn + dimension, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&data->keys, drawn, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&data->state, square, error));
    data->replaced = data->keys + pairs * dimension;
    data->values = data->replaced + pairs * dimension;
    data->y = data->state + dimension * dimension;
    data->other = data->y + dimension;
    return FL_OK;
done:
    trial_free(data);
    return status;
}

static void trial_draw(trial_data *data, const fl_memory_lab_options *options, size_t trial) {
    size_t size = data->pairs * data->dimension;
    float *keys = data->drawn + data->dimension;
    fl_memory_lab_draw(options, data->pairs, trial, data->drawn, keys, keys + size, keys + 2 * size);
    for (size_t i = 0; i < 3 * size; i++) data->keys[i] = (double)keys[i];
    memset(data->state, 0, data->dimension * data->dimension * sizeof *data->state);
}

/* The sum as attention writes it, over all tokens up to `t`. */
static void attend(const trial_data *data, size_t t, double *y) {
    size_t d = data->dimension;
    memset(y, 0, d * sizeof *y);
    for (size_t j = 0; j <= t; j++) {
        double score = dot(d, data->replaced + t * d, data->keys + j * d);
        for (size_t i = 0; i < d; i++) y[i] += score * data->values[j * d + i];
    }
}

fl_status fl_exact_lab_regrouped(const fl_memory_lab_options *options, size_t pairs, fl_exact_regrouped *out,
                                 fl_error *error) {
    trial_data data;
    const fl_exact_strength whole = {1.0, 1.0, 1.0};
    size_t d = options->dimension;
    FL_TRY(trial_create(d, pairs, &data, error));
    trial_draw(&data, options, 0);
    *out = (fl_exact_regrouped){0};
    for (size_t t = 0; t < pairs; t++) {
        fl_exact_lab_write(FL_EXACT_LINEAR, &whole, d, data.keys + t * d, data.values + t * d, data.state,
                           data.y);
        read_state(d, data.state, data.replaced + t * d, data.y);
        attend(&data, t, data.other);
        for (size_t i = 0; i < d; i++)
            out->difference = fmax(out->difference, fabs(data.y[i] - data.other[i]));
        out->length += sqrt(dot(d, data.y, data.y)) / (double)pairs;
    }
    trial_free(&data);
    return FL_OK;
}

static bool is_nearest(const trial_data *data, size_t pair) {
    size_t d = data->dimension, best = 0;
    double largest = -INFINITY;
    for (size_t i = 0; i < data->pairs; i++) {
        double score = dot(d, data->y, data->values + i * d);
        if (score > largest) {
            largest = score;
            best = i;
        }
    }
    return best == pair;
}

static void tally(const trial_data *data, size_t pair, fl_exact_recall *sum) {
    size_t d = data->dimension;
    const double *newest = data->values + pair * d, *old = data->replaced + pair * d;
    double to_newest = 0.0, to_old = 0.0, to_blend = 0.0, length = sqrt(dot(d, data->y, data->y));
    for (size_t i = 0; i < d; i++) {
        double y = data->y[i], both = newest[i] + old[i];
        to_newest += (y - newest[i]) * (y - newest[i]);
        to_old += (y - old[i]) * (y - old[i]);
        to_blend += (y - both) * (y - both);
    }
    sum->recall_error += to_newest;
    sum->to_newest += sqrt(to_newest);
    sum->to_old += sqrt(to_old);
    sum->to_blend += sqrt(to_blend);
    sum->cosine += length > 0.0 ? dot(d, data->y, newest) / length : 0.0;
    sum->cosine_old += length > 0.0 ? dot(d, data->y, old) / length : 0.0;
    sum->accuracy += is_nearest(data, pair) ? 1.0 : 0.0;
}

static void mean(fl_exact_recall *sum, double reads, bool overwrite) {
    double *members[] = {&sum->recall_error, &sum->to_newest,  &sum->to_old,  &sum->to_blend,
                         &sum->cosine,       &sum->cosine_old, &sum->accuracy};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) *members[i] /= reads;
    if (!overwrite) sum->to_old = sum->to_blend = sum->cosine_old = NAN;
}

fl_status fl_exact_lab_recall(fl_exact_rule rule, const fl_exact_strength *strength,
                              const fl_memory_lab_options *options, size_t pairs, fl_exact_recall *out,
                              fl_error *error) {
    trial_data data;
    size_t d = options->dimension, writes = options->overwrite ? 2 * pairs : pairs;
    FL_TRY(trial_create(d, pairs, &data, error));
    *out = (fl_exact_recall){0};
    for (size_t trial = 0; trial < options->trials; trial++) {
        trial_draw(&data, options, trial);
        for (size_t step = 0; step < writes; step++) {
            const double *values = options->overwrite && step < pairs ? data.replaced : data.values;
            size_t at = step % pairs * d;
            fl_exact_lab_write(rule, strength, d, data.keys + at, values + at, data.state, data.y);
        }
        for (size_t pair = 0; pair < pairs; pair++) {
            read_state(d, data.state, data.keys + pair * d, data.y);
            tally(&data, pair, out);
        }
    }
    mean(out, (double)(options->trials * pairs), options->overwrite);
    trial_free(&data);
    return FL_OK;
}
