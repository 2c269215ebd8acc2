#include "harness/engine/training.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/engine/backward.h"
#include "harness/engine/training_state.h"

typedef struct {
    const fl_network *network;
    fl_mechanism *mechanism;
    const fl_training_options *options;
    const fl_train_config *config;
    fl_training_history *history;
    fl_backward *backward;
    fl_gradient *gradient;
    fl_adamw *adamw;
    size_t draws;         /* sequences a step */
    size_t *drawn;        /* [draws] */
    double *layer_losses; /* [L] */
    size_t linearised;    /* layers */
} fl_training;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

fl_status fl_training_check_overlap(const fl_train_config *config, const fl_sequences *training,
                                    const fl_sequences *evaluation, fl_error *error) {
    if (config->allow_overlap) return FL_OK;
    fl_overlap overlap;
    FL_TRY(fl_sequences_overlap(training, evaluation, &overlap, error));
    if (overlap.tokens == 0) return FL_OK;
    return fl_error_set(
        error, FL_ERROR_ARGUMENT,
        "train: %zu tokens from token %zu of training sequence %zu are also in the evaluation text "
        "(sequence %zu, token %zu); train on another text or set train.allow_overlap: true",
        overlap.tokens, overlap.training_token, overlap.training_sequence, overlap.evaluation_sequence,
        overlap.evaluation_token);
}

static void shuffle(size_t *order, size_t count, uint64_t seed, uint64_t pass) {
    fl_random random;
    fl_random_seed(&random, seed, pass);
    for (size_t i = 0; i < count; i++) order[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t j = fl_random_below(&random, i), kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

fl_status fl_training_order(const fl_train_config *config, size_t sequences, size_t first, size_t count,
                            size_t *out, fl_error *error) {
    size_t *order = NULL, pass = SIZE_MAX;
    if (config->order == FL_ORDER_SHUFFLED) FL_TRY(FL_ALLOCATE(&order, sequences, error));
    for (size_t i = 0; i < count; i++) {
        size_t draw = first + i;
        if (order != NULL && draw / sequences != pass) {
            pass = draw / sequences;
            shuffle(order, sequences, config->seed, pass);
        }
        out[i] = order != NULL ? order[draw % sequences] : draw % sequences;
    }
    fl_memory_free(order);
    return FL_OK;
}

static fl_status layer_loss(fl_training *training, const int32_t *ids, size_t tokens, double weight,
                            double *loss, fl_error *error) {
    double share = 1.0 / (double)training->linearised, sum = 0.0;
    FL_TRY(fl_backward_layer_error(training->backward, ids, tokens, weight * share, true, training->gradient,
                                   training->layer_losses, error));
    for (size_t l = 0; l < training->mechanism->layers; l++) sum += training->layer_losses[l];
    *loss = sum * share;
    return FL_OK;
}

/* Loss and gradient of a step, averaged over its sequences. */
static fl_status compute_gradient(fl_training *training, size_t step, double *loss, fl_error *error) {
    const fl_sequences *sequences = training->options->sequences;
    double weight = 1.0 / (double)training->draws, sum = 0.0;
    FL_TRY(fl_training_order(training->config, sequences->count, step * training->draws, training->draws,
                             training->drawn, error));
    fl_gradient_clear(training->gradient);
    for (size_t i = 0; i < training->draws; i++) {
        const int32_t *ids = sequences->ids[training->drawn[i]];
        size_t tokens = sequences->lengths[training->drawn[i]];
        double one = 0.0;
        switch ((fl_objective)training->config->objective) {
        case FL_OBJECTIVE_NEXT_TOKEN:
            FL_TRY(fl_backward_next_token(training->backward, ids, tokens, weight, training->gradient, &one,
                                          error));
            break;
        case FL_OBJECTIVE_KL:
            FL_TRY(fl_backward_divergence(training->backward, ids, tokens, weight, training->gradient, &one,
                                          error));
            break;
        case FL_OBJECTIVE_LAYER_MSE:
            FL_TRY(layer_loss(training, ids, tokens, weight, &one, error));
            break;
        }
        sum += one;
        training->history->tokens_seen += tokens;
    }
    *loss = sum * weight;
    return FL_OK;
}

static fl_status take_step(fl_training *training, fl_error *error) {
    const fl_train_config *config = training->config;
    fl_training_history *history = training->history;
    size_t step = history->steps;
    double start = now(), loss = 0.0;
    FL_TRY(compute_gradient(training, step, &loss, error));
    double norm = fl_gradient_clip(training->gradient, config->clip);
    double rate = fl_learning_rate(config->learning_rate, config->warmup_steps, config->steps, step);
    history->diverged = !isfinite(loss) || !isfinite(norm);
    if (!history->diverged) fl_adamw_step(training->adamw, training->mechanism, training->gradient, rate);
    history->loss[step] = loss;
    history->gradient_norm[step] = norm;
    history->learning_rate[step] = rate;
    history->steps = step + 1;
    history->seconds += now() - start;
    return FL_OK;
}

static fl_status evaluate(fl_training *training, fl_error *error) {
    fl_training_history *history = training->history;
    const fl_training_hooks *hooks = training->options->hooks;
    if (hooks == NULL || hooks->evaluate == NULL) return FL_OK;
    if (history->evaluations > 0 && history->evaluation_step[history->evaluations - 1] == history->steps)
        return FL_OK;
    double value = NAN;
    FL_TRY(hooks->evaluate(hooks->context, &value, error));
    history->evaluation_step[history->evaluations] = history->steps;
    history->evaluation_value[history->evaluations++] = value;
    return FL_OK;
}

static fl_status save(const fl_training *training, fl_error *error) {
    if (training->options->checkpoint_path == NULL) return FL_OK;
    return fl_training_state_save(training->options->checkpoint_path, training->options->identity,
                                  training->mechanism, training->adamw, training->history, error);
}

static bool due(size_t every, size_t step) {
    return every != 0 && step % every == 0;
}

static fl_status run_steps(fl_training *training, fl_error *error) {
    const fl_train_config *config = training->config;
    const fl_training_options *options = training->options;
    fl_training_history *history = training->history;
    while (history->steps < config->steps) {
        fl_progress_report(options->progress, "training", history->steps, config->steps);
        if (fl_progress_cancelled(options->progress)) {
            FL_TRY(save(training, error));
            return fl_error_set(error, FL_ERROR_CANCELLED, "training: interrupted after step %zu of %zu",
                                history->steps, config->steps);
        }
        FL_TRY(take_step(training, error));
        if (options->hooks != NULL && options->hooks->step != NULL) {
            options->hooks->step(options->hooks->context, history);
        }
        if (history->diverged) return FL_OK;
        if (due(config->evaluate_every, history->steps)) FL_TRY(evaluate(training, error));
        if (due(config->checkpoint_every, history->steps) && history->steps < config->steps) {
            FL_TRY(save(training, error));
        }
    }
    fl_progress_report(options->progress, "training", config->steps, config->steps);
    FL_TRY(evaluate(training, error));
    return save(training, error);
}

static fl_status check(const fl_network *network, const fl_mechanism *mechanism,
                       const fl_training_options *options, fl_error *error) {
    FL_TRY(
        fl_sequences_check(options->sequences, network->model->config.vocabulary, 2, "training text", error));
    for (size_t l = 0; l < mechanism->layers && mechanism->layer_floats > 0; l++) {
        if (mechanism->layer[l] != NULL) return FL_OK;
    }
    return fl_error_set(error, FL_ERROR_ARGUMENT,
                        "train: rule %s with these options has no parameters that could be trained",
                        mechanism->variant->rule->name);
}

static fl_status create_history(size_t steps, fl_training_history *history, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&history->loss, steps, error));
    FL_TRY(FL_ALLOCATE(&history->gradient_norm, steps, error));
    FL_TRY(FL_ALLOCATE(&history->learning_rate, steps, error));
    FL_TRY(FL_ALLOCATE(&history->evaluation_step, steps + 1, error));
    return FL_ALLOCATE(&history->evaluation_value, steps + 1, error);
}

static fl_status create(fl_training *training, fl_error *error) {
    const fl_train_config *config = training->config;
    FL_TRY(create_history(config->steps, training->history, error));
    FL_TRY(fl_backward_create(training->network, training->mechanism, &training->backward, error));
    FL_TRY(fl_gradient_create(training->mechanism, &training->gradient, error));
    FL_TRY(fl_adamw_create(training->mechanism, config->beta1, config->beta2, config->epsilon,
                           config->weight_decay, &training->adamw, error));
    training->draws = config->batch * config->accumulate;
    FL_TRY(FL_ALLOCATE(&training->drawn, training->draws, error));
    for (size_t l = 0; l < training->mechanism->layers; l++) {
        if (training->mechanism->layer[l] != NULL) training->linearised++;
    }
    FL_TRY(FL_ALLOCATE(&training->layer_losses, training->mechanism->layers, error));
    const char *path = training->options->checkpoint_path;
    if (path == NULL || access(path, F_OK) != 0) return FL_OK;
    return fl_training_state_load(path, training->options->identity, config->steps, training->mechanism,
                                  training->adamw, training->history, error);
}

fl_status fl_training_run(const fl_network *network, fl_mechanism *mechanism,
                          const fl_training_options *options, fl_training_history *history, fl_error *error) {
    *history = (fl_training_history){0};
    fl_training training = {.network = network,
                            .mechanism = mechanism,
                            .options = options,
                            .config = options->config,
                            .history = history};
    FL_TRY(check(network, mechanism, options, error));
    fl_status status = FL_OK;
    FL_TRY_DONE(status, create(&training, error));
    FL_TRY_DONE(status, run_steps(&training, error));
done:
    if (training.backward != NULL) {
        history->bytes = fl_backward_bytes(training.backward) +
                         3 * training.linearised * mechanism->layer_floats * sizeof(float);
    }
    fl_backward_destroy(training.backward);
    fl_gradient_destroy(training.gradient);
    fl_adamw_destroy(training.adamw);
    fl_memory_free(training.drawn);
    fl_memory_free(training.layer_losses);
    if (status != FL_OK && status != FL_ERROR_CANCELLED) fl_training_history_release(history);
    return status;
}

void fl_training_history_release(fl_training_history *history) {
    fl_memory_free(history->loss);
    fl_memory_free(history->gradient_norm);
    fl_memory_free(history->learning_rate);
    fl_memory_free(history->evaluation_step);
    fl_memory_free(history->evaluation_value);
    *history = (fl_training_history){0};
}
