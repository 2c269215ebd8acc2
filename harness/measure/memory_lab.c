#include "harness/measure/memory_lab.h"

#include <math.h>
#include <string.h>

#include "attn_variants/mechanism.h"
#include "attn_variants/write_layout.h"
#include "harness/base/memory.h"
#include "harness/base/random.h"

/* One experiment: `trials` heads, one timeline each: n (or 2 n) writes, then n reads. */
typedef struct {
    fl_compute *compute;
    const fl_variant *variant;
    const fl_mechanism *mechanism;
    const fl_memory_lab_options *options;
    size_t pairs, writes, steps, key_dim, value_dim, micro_steps;
    fl_write_layout layout;
    fl_write_rows stream;
    fl_array block;
    float *keys;              /* [trials][pairs][D] */
    float *values, *replaced; /* [trials][pairs][D]: newest, and overwritten */
    fl_array query;           /* [trials][steps * m][Dk] */
    fl_array state;           /* [trials][Dv][Dk] */
    fl_array read, read_step; /* [trials][steps * m][Dv] */
    double *trial_error;      /* [trials] */
} fl_lab;

static void random_unit(fl_random *random, size_t dimension, const float *shared, double concentration,
                        float *x) {
    double norm = 0.0;
    for (size_t i = 0; i < dimension; i++) {
        x[i] = (float)fl_random_normal(random);
        norm += (double)x[i] * (double)x[i];
    }
    double scale = sqrt(1.0 - concentration * concentration) / sqrt(norm > 0.0 ? norm : 1.0);
    norm = 0.0;
    for (size_t i = 0; i < dimension; i++) {
        x[i] = (float)(scale * (double)x[i] + (shared != NULL ? concentration * (double)shared[i] : 0.0));
        norm += (double)x[i] * (double)x[i];
    }
    for (size_t i = 0; i < dimension; i++) x[i] = (float)((double)x[i] / sqrt(norm > 0.0 ? norm : 1.0));
}

void fl_memory_lab_draw(const fl_memory_lab_options *options, size_t pairs, size_t trial, float *shared,
                        float *keys, float *replaced, float *values) {
    size_t dimension = options->dimension;
    fl_random random;
    fl_random_seed(&random, options->seed, trial);
    random_unit(&random, dimension, NULL, 0.0, shared);
    for (size_t at = 0; at < pairs * dimension; at += dimension) {
        random_unit(&random, dimension, shared, options->concentration, keys + at);
        random_unit(&random, dimension, NULL, 0.0, replaced + at);
        random_unit(&random, dimension, NULL, 0.0, values + at);
    }
}

static float constant(fl_gate_activation activation, double value) {
    return (float)(activation == FL_ACTIVATE_LOG_SIGMOID ? log(value) : value);
}

static void prepare_step(const fl_lab *lab, size_t trial, size_t step, const float *gate) {
    const fl_rule *rule = lab->variant->rule;
    const float *parameters[FL_RULE_MAX_PARAMETERS] = {NULL};
    for (size_t i = 0; i < rule->parameter_count; i++) {
        parameters[i] = fl_mechanism_find(lab->mechanism, 0, rule->parameters[i].name);
    }
    size_t dimension = lab->options->dimension, pair = step % lab->pairs;
    const float *key = lab->keys + (trial * lab->pairs + pair) * dimension;
    bool first = lab->options->overwrite && step < lab->pairs;
    fl_rule_input input = {
        .head_dim = dimension,
        .layers = 1,
        .head = trial,
        .heads = lab->options->trials,
        .position = step,
        .query = key,
        .key = key,
        .value = (first ? lab->replaced : lab->values) + (trial * lab->pairs + pair) * dimension,
        .gate = rule->gate != FL_GATE_NONE ? gate : NULL,
        .beta = lab->variant->takes_beta ? constant(rule->beta_activation, lab->variant->beta_value) : 0.0f,
        .options = lab->variant->rule_options,
        .parameters = parameters,
    };
    fl_rule_output output = fl_write_row_output(&lab->layout, &lab->stream, trial, step);
    float *row = fl_array_host(lab->query) + (trial * lab->steps + step) * lab->micro_steps * lab->key_dim;
    output.query = row + (lab->micro_steps - 1) * lab->key_dim;
    rule->prepare(&input, &output);
    if (lab->variant->normaliser) output.value[lab->value_dim - 1] = 1.0f;
    if (step >= lab->writes) fl_write_row_clear(&lab->layout, &lab->stream, trial, step); /* a read alone */
}

static fl_status advance(fl_lab *lab, fl_recurrence_mode mode, fl_array read, fl_error *error) {
    memset(fl_array_host(lab->state), 0,
           lab->options->trials * lab->value_dim * lab->key_dim * sizeof(float));
    fl_recurrence_call call = {
        .transition = lab->variant->transition,
        .mode = mode,
        .heads = lab->options->trials,
        .steps = lab->steps * lab->micro_steps,
        .key_dim = lab->key_dim,
        .value_dim = lab->value_dim,
        .inputs = fl_write_rows_inputs(&lab->layout, &lab->stream, 0, lab->query),
        .state = lab->state,
        .output = read,
    };
    return lab->compute->ops->recurrence(lab->compute, &call, error);
}

/* The recalled value of a pair, divided by the kernel's mass where the variant has a normaliser. */
static void recalled(const fl_lab *lab, const float *read, size_t trial, size_t pair, double *y) {
    size_t dimension = lab->options->dimension;
    size_t step = (lab->writes + pair + 1) * lab->micro_steps - 1;
    const float *row = read + (trial * lab->steps * lab->micro_steps + step) * lab->value_dim;
    double mass = lab->variant->normaliser ? (double)row[lab->value_dim - 1] : 1.0;
    for (size_t i = 0; i < dimension; i++) y[i] = mass == 0.0 ? 0.0 : (double)row[i] / mass;
}

static double dot(size_t n, const double *x, const float *y) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += x[i] * (double)y[i];
    return sum;
}

static size_t nearest(const fl_lab *lab, size_t trial, const double *y) {
    size_t dimension = lab->options->dimension, best = 0;
    double largest = -INFINITY;
    for (size_t i = 0; i < lab->pairs; i++) {
        double score = dot(dimension, y, lab->values + (trial * lab->pairs + i) * dimension);
        if (score > largest) {
            largest = score;
            best = i;
        }
    }
    return best;
}

static void tally(fl_lab *lab, double *y, double *other, fl_memory_lab_row *row) {
    size_t dimension = lab->options->dimension, trials = lab->options->trials;
    double reads = (double)(trials * lab->pairs);
    for (size_t trial = 0; trial < trials; trial++) {
        for (size_t pair = 0; pair < lab->pairs; pair++) {
            const float *value = lab->values + (trial * lab->pairs + pair) * dimension;
            const float *old = lab->replaced + (trial * lab->pairs + pair) * dimension;
            recalled(lab, fl_array_host(lab->read), trial, pair, y);
            recalled(lab, fl_array_host(lab->read_step), trial, pair, other);
            double square = 0.0, length = 0.0;
            for (size_t i = 0; i < dimension; i++) {
                square += (y[i] - (double)value[i]) * (y[i] - (double)value[i]);
                length += y[i] * y[i];
                row->form_difference = fmax(row->form_difference, fabs(y[i] - other[i]));
            }
            length = sqrt(length);
            lab->trial_error[trial] += square / (double)lab->pairs;
            row->cosine += length > 0.0 ? dot(dimension, y, value) / length / reads : 0.0;
            row->cosine_old += length > 0.0 ? dot(dimension, y, old) / length / reads : 0.0;
            row->accuracy += nearest(lab, trial, y) == pair ? 1.0 : 0.0;
        }
    }
}

static void summarise(fl_lab *lab, fl_memory_lab_row *row) {
    row->accuracy /= (double)(lab->options->trials * lab->pairs);
    size_t trials = lab->options->trials, floats = lab->value_dim * lab->key_dim;
    double sum = 0.0, square = 0.0;
    for (size_t trial = 0; trial < trials; trial++) {
        double norm = 0.0;
        for (size_t i = 0; i < floats; i++) {
            norm += (double)fl_array_host(lab->state)[trial * floats + i] *
                    (double)fl_array_host(lab->state)[trial * floats + i];
        }
        row->state_norm += sqrt(norm) / (double)trials;
        sum += lab->trial_error[trial];
    }
    row->recall_error = sum / (double)trials;
    for (size_t trial = 0; trial < trials; trial++) {
        square += pow(lab->trial_error[trial] - row->recall_error, 2.0);
    }
    row->recall_error_stderr = trials > 1 ? sqrt(square / (double)(trials - 1) / (double)trials) : NAN;
    if (!lab->options->overwrite) row->cosine_old = NAN;
}

static fl_status allocate(fl_lab *lab, fl_error *error) {
    size_t trials = lab->options->trials, drawn = trials * lab->pairs * lab->options->dimension;
    size_t steps = trials * lab->steps * lab->micro_steps;
    FL_TRY(
        fl_compute_floats(lab->compute, fl_write_rows_floats(&lab->layout, lab->steps), &lab->block, error));
    lab->stream = fl_write_rows_in(&lab->layout, lab->steps, lab->block);
    FL_TRY(FL_ALLOCATE(&lab->keys, drawn, error));
    FL_TRY(FL_ALLOCATE(&lab->values, drawn, error));
    FL_TRY(FL_ALLOCATE(&lab->replaced, drawn, error));
    FL_TRY(fl_compute_floats(lab->compute, steps * lab->key_dim, &lab->query, error));
    FL_TRY(fl_compute_floats(lab->compute, trials * lab->value_dim * lab->key_dim, &lab->state, error));
    FL_TRY(fl_compute_floats(lab->compute, steps * lab->value_dim, &lab->read, error));
    FL_TRY(fl_compute_floats(lab->compute, steps * lab->value_dim, &lab->read_step, error));
    return FL_ALLOCATE(&lab->trial_error, trials, error);
}

static void release(fl_lab *lab) {
    fl_compute_release(lab->compute, lab->block);
    fl_memory_free(lab->keys);
    fl_memory_free(lab->values);
    fl_memory_free(lab->replaced);
    fl_compute_release(lab->compute, lab->query);
    fl_compute_release(lab->compute, lab->state);
    fl_compute_release(lab->compute, lab->read);
    fl_compute_release(lab->compute, lab->read_step);
    fl_memory_free(lab->trial_error);
}

static fl_status run_one(fl_lab *lab, size_t pairs, fl_memory_lab_row *row, fl_error *error) {
    const fl_variant *variant = lab->variant;
    size_t dimension = lab->options->dimension;
    lab->pairs = pairs;
    lab->writes = lab->options->overwrite ? 2 * pairs : pairs;
    lab->steps = lab->writes + pairs;
    lab->key_dim = fl_rule_key_dim(variant->rule, dimension, variant->rule_options);
    lab->value_dim = dimension + (variant->normaliser ? 1 : 0);
    lab->micro_steps = fl_rule_micro_steps(variant->rule, variant->rule_options);
    lab->layout = fl_write_layout_of(variant->rule, variant, lab->options->trials, lab->micro_steps,
                                     lab->key_dim, lab->value_dim);
    float *gate = NULL;
    double *y = NULL, *other = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, allocate(lab, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&gate, dimension, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&y, dimension, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&other, dimension, error));
    for (size_t trial = 0; trial < lab->options->trials; trial++) {
        size_t at = trial * pairs * dimension;
        fl_memory_lab_draw(lab->options, pairs, trial, gate, lab->keys + at, lab->replaced + at,
                           lab->values + at);
    }
    for (size_t i = 0; i < dimension; i++)
        gate[i] = constant(variant->rule->gate_activation, variant->gate_value);
    for (size_t trial = 0; trial < lab->options->trials; trial++) {
        for (size_t step = 0; step < lab->steps; step++) prepare_step(lab, trial, step, gate);
    }
    FL_TRY_DONE(status, advance(lab, FL_RECURRENCE_STEP, lab->read_step, error));
    FL_TRY_DONE(status, advance(lab, FL_RECURRENCE_CHUNK, lab->read, error));
    *row = (fl_memory_lab_row){.pairs = pairs};
    tally(lab, y, other, row);
    summarise(lab, row);
done:
    fl_memory_free(gate);
    fl_memory_free(y);
    fl_memory_free(other);
    release(lab);
    return status;
}

static fl_status check(const fl_variant *variant, const fl_memory_lab_options *options, fl_error *error) {
    const fl_rule *rule = variant->rule;
    if (rule->prepare == NULL || fl_rule_is_own(rule, variant->rule_options)) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "memory lab: rule %s has no matrix state",
                            rule->name);
    }
    if (rule->gate != FL_GATE_NONE && variant->gate_source != FL_GATE_CONSTANT) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "memory lab: rule %s needs gate: {source: constant, value}", rule->name);
    }
    if (variant->takes_beta && variant->beta_source != FL_GATE_CONSTANT) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "memory lab: rule %s needs beta: {source: constant, value}", rule->name);
    }
    if (rule->bonus)
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "memory lab: rule %s reads more than its state",
                            rule->name);
    for (size_t i = 0; i < rule->factor_count; i++) {
        if (fl_rule_factor_width(rule, i, 1, variant->rule_options) == 0) continue;
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "memory lab: rule %s projects %s from an input, which the lab has none of",
                            rule->name, rule->factors[i].name);
    }
    if (options->dimension == 0 || options->trials == 0 || !(options->concentration >= 0.0) ||
        !(options->concentration < 1.0)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "memory lab: dimension and trials must be positive, concentration in [0, 1)");
    }
    return FL_OK;
}

fl_status fl_memory_lab_run(fl_compute *compute, const fl_variant *variant,
                            const fl_memory_lab_options *options, const size_t *pairs, size_t count,
                            fl_memory_lab_row *rows, fl_error *error) {
    FL_TRY(check(variant, options, error));
    fl_attention_shape shape = {options->trials, options->trials, options->dimension, 1,
                                1.0f / sqrtf((float)options->dimension)};
    fl_mechanism *mechanism = NULL;
    FL_TRY(fl_mechanism_create(variant, &shape, 1, &mechanism, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        if (pairs[i] == 0) {
            status = fl_error_set(error, FL_ERROR_ARGUMENT, "memory lab: 0 pairs hold nothing to recall");
            break;
        }
        fl_lab lab = {.compute = compute, .variant = variant, .mechanism = mechanism, .options = options};
        status = run_one(&lab, pairs[i], &rows[i], error);
    }
    fl_mechanism_destroy(mechanism);
    return status == FL_OK ? FL_OK : fl_error_prepend(error, status, "rule %s", variant->rule->name);
}
