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
    fl_array made;            /* [trials][steps * m][Dv]: what is read */
    float *read, *read_step;  /* the same on the host, of both forms */
    float *last_state;        /* [trials][Dv][Dk] on the host */
    double *trial_error;      /* [trials] */
} fl_lab;

/* Of all steps: key (which is what is read by, too) and value [steps][trials][D], gate [steps][trials][D],
 * beta [steps][trials]. */
typedef struct {
    fl_array key, value, gate, beta;
} lab_inputs;

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

/* A step's key and value on the host: row `at` of [steps][trials][D]. */
static void draw_step(const fl_lab *lab, size_t step, size_t trial, float *key, float *value) {
    const size_t dimension = lab->options->dimension, trials = lab->options->trials;
    const size_t pair = (trial * lab->pairs + step % lab->pairs) * dimension;
    const size_t at = (step * trials + trial) * dimension;
    const bool first = lab->options->overwrite && step < lab->pairs;
    memcpy(key + at, lab->keys + pair, dimension * sizeof *key);
    memcpy(value + at, (first ? lab->replaced : lab->values) + pair, dimension * sizeof *value);
}

static fl_status upload_steps(const fl_lab *lab, lab_inputs *inputs, fl_error *error) {
    const size_t rows = lab->steps * lab->options->trials, count = rows * lab->options->dimension;
    float *key = NULL, *value = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_compute_floats(lab->compute, count, &inputs->key, error));
    FL_TRY_DONE(status, fl_compute_floats(lab->compute, count, &inputs->value, error));
    FL_TRY_DONE(status, fl_compute_floats(lab->compute, count, &inputs->gate, error));
    FL_TRY_DONE(status, fl_compute_floats(lab->compute, rows, &inputs->beta, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&key, count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&value, count, error));
    for (size_t row = 0; row < rows; row++)
        draw_step(lab, row / lab->options->trials, row % lab->options->trials, key, value);
    fl_compute_upload(lab->compute, inputs->key, key, count);
    fl_compute_upload(lab->compute, inputs->value, value, count);
done:
    fl_memory_free(key);
    fl_memory_free(value);
    return status;
}

/* All steps' rows; those of steps that only read are null writes. */
static void prepare_steps(fl_lab *lab, const lab_inputs *inputs) {
    const fl_rule *rule = lab->variant->rule;
    const fl_compute_ops *ops = lab->compute->ops;
    const size_t trials = lab->options->trials, rows = lab->steps * trials;
    fl_rule_layer layer =
        fl_rule_layer_of(rule, lab->variant->rule_options, 0, 1, trials, lab->options->dimension);
    for (size_t i = 0; i < rule->parameter_count; i++)
        layer.parameters[i] = fl_mechanism_find(lab->mechanism, 0, rule->parameters[i].name);
    const double gate = (double)constant(rule->gate_activation, lab->variant->gate_value);
    const double beta = (double)constant(rule->beta_activation, lab->variant->beta_value);
    const bool takes_gate = rule->gate != FL_GATE_NONE;
    ops->fill(lab->compute, inputs->gate, rows * lab->options->dimension, gate);
    ops->fill(lab->compute, inputs->beta, rows, beta);
    ops->prepare(lab->compute,
                 &(fl_prepare_call){.rule = &layer,
                                    .tokens = lab->steps,
                                    .key_heads = trials,
                                    .query = inputs->key,
                                    .key = inputs->key,
                                    .value = inputs->value,
                                    .gate = takes_gate ? inputs->gate : fl_array_none,
                                    .beta = lab->variant->takes_beta ? inputs->beta : fl_array_none,
                                    .gate_width = rule->gate == FL_GATE_CHANNEL ? lab->options->dimension : 1,
                                    .scale = 1.0f,
                                    .normaliser = lab->variant->normaliser,
                                    .layout = lab->layout,
                                    .read = lab->query,
                                    .written = lab->stream});
    for (size_t i = 0; i < FL_WRITE_PARTS * trials; i++) {
        const enum fl_write_part part = (enum fl_write_part)(i / trials);
        const size_t width = lab->layout.width[part];
        if (width == 0) continue;
        ops->fill(lab->compute, fl_write_row(&lab->layout, &lab->stream, part, i % trials, lab->writes),
                  (lab->steps - lab->writes) * width, 0.0);
    }
}

static fl_status prepare(fl_lab *lab, fl_error *error) {
    lab_inputs inputs = {0};
    const fl_status status = upload_steps(lab, &inputs, error);
    if (status == FL_OK) prepare_steps(lab, &inputs);
    fl_compute_release(lab->compute, inputs.key);
    fl_compute_release(lab->compute, inputs.value);
    fl_compute_release(lab->compute, inputs.gate);
    fl_compute_release(lab->compute, inputs.beta);
    return status;
}

/* What the steps read, on the host. */
static fl_status advance(fl_lab *lab, fl_recurrence_mode mode, float *read, fl_error *error) {
    const size_t reads = lab->options->trials * lab->steps * lab->micro_steps * lab->value_dim;
    lab->compute->ops->fill(lab->compute, lab->state, lab->options->trials * lab->value_dim * lab->key_dim,
                            0.0);
    fl_recurrence_call call = {
        .transition = lab->variant->transition,
        .mode = mode,
        .heads = lab->options->trials,
        .steps = lab->steps * lab->micro_steps,
        .key_dim = lab->key_dim,
        .value_dim = lab->value_dim,
        .inputs = fl_write_rows_inputs(&lab->layout, &lab->stream, 0, lab->query),
        .state = lab->state,
        .output = lab->made,
    };
    FL_TRY(lab->compute->ops->recurrence(lab->compute, &call, error));
    return fl_compute_download(lab->compute, read, lab->made, reads, error);
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
            recalled(lab, lab->read, trial, pair, y);
            recalled(lab, lab->read_step, trial, pair, other);
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
            norm += (double)lab->last_state[trial * floats + i] * (double)lab->last_state[trial * floats + i];
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
    FL_TRY(FL_ALLOCATE(&lab->last_state, trials * lab->value_dim * lab->key_dim, error));
    FL_TRY(fl_compute_floats(lab->compute, steps * lab->value_dim, &lab->made, error));
    FL_TRY(FL_ALLOCATE(&lab->read, steps * lab->value_dim, error));
    FL_TRY(FL_ALLOCATE(&lab->read_step, steps * lab->value_dim, error));
    return FL_ALLOCATE(&lab->trial_error, trials, error);
}

static void release(fl_lab *lab) {
    fl_compute_release(lab->compute, lab->block);
    fl_memory_free(lab->keys);
    fl_memory_free(lab->values);
    fl_memory_free(lab->replaced);
    fl_compute_release(lab->compute, lab->query);
    fl_compute_release(lab->compute, lab->state);
    fl_compute_release(lab->compute, lab->made);
    fl_memory_free(lab->read);
    fl_memory_free(lab->read_step);
    fl_memory_free(lab->last_state);
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
    float *shared = NULL;
    double *y = NULL, *other = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, allocate(lab, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&shared, dimension, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&y, dimension, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&other, dimension, error));
    for (size_t trial = 0; trial < lab->options->trials; trial++) {
        size_t at = trial * pairs * dimension;
        fl_memory_lab_draw(lab->options, pairs, trial, shared, lab->keys + at, lab->replaced + at,
                           lab->values + at);
    }
    FL_TRY_DONE(status, prepare(lab, error));
    FL_TRY_DONE(status, advance(lab, FL_RECURRENCE_STEP, lab->read_step, error));
    FL_TRY_DONE(status, advance(lab, FL_RECURRENCE_CHUNK, lab->read, error));
    FL_TRY_DONE(status, fl_compute_download(lab->compute, lab->last_state, lab->state,
                                            lab->options->trials * lab->value_dim * lab->key_dim, error));
    *row = (fl_memory_lab_row){.pairs = pairs};
    tally(lab, y, other, row);
    summarise(lab, row);
done:
    fl_memory_free(shared);
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
