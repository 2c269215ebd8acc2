#include "harness/engine/training.h"

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/engine/backward.h"
#include "harness/engine/training_group.h"

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

static fl_status add_sequence(void *context, fl_training_group *group, size_t sequence, double weight,
                              fl_error *error) {
    fl_backward *backward = context;
    fl_training_member *member = &group->members[0];
    const int32_t *ids = group->sequences->ids[sequence];
    size_t tokens = group->sequences->lengths[sequence];
    bool divergence = member->job->config->objective == FL_OBJECTIVE_KL;
    double loss = 0.0;
    FL_TRY((divergence ? fl_backward_divergence : fl_backward_next_token)(backward, ids, tokens, weight,
                                                                          member->gradient, &loss, error));
    member->loss += loss;
    return FL_OK;
}

/* With as much kept as the budgets allow. */
static fl_status prepare_backward(const fl_training_group *group, const fl_training_job *job,
                                  fl_backward **backward, fl_error *error) {
    bool divergence = job->config->objective == FL_OBJECTIVE_KL;
    size_t keep = 0;
    FL_TRY(fl_backward_create(group->network, job->mechanism, backward, error));
    size_t needed = fl_backward_bytes_needed(*backward, fl_training_group_longest(group), divergence);
    FL_TRY(fl_training_group_budget(group, needed, &keep, error));
    fl_backward_keep(*backward, keep);
    return FL_OK;
}

/* An objective at the end of the network: nothing to share. */
static fl_status train_through_network(const fl_network *network, const fl_training_job *job,
                                       const fl_training_options *options, fl_error *error) {
    fl_training_group group;
    fl_backward *backward = NULL;
    FL_TRY(fl_training_group_create(network, job, 1, options->sequences, options->progress, &group, error));
    fl_status status = prepare_backward(&group, job, &backward, error);
    if (status == FL_OK) status = fl_training_group_run(&group, add_sequence, backward, error);
    fl_training_group_release(&group, backward != NULL ? fl_backward_bytes(backward) : 0, status);
    fl_backward_destroy(backward);
    return status;
}

fl_status fl_training_run(const fl_network *network, fl_mechanism *mechanism,
                          const fl_training_options *options, fl_training_history *history, fl_error *error) {
    const fl_training_job job = {.config = options->config,
                                 .mechanism = mechanism,
                                 .checkpoint_path = options->checkpoint_path,
                                 .identity = options->identity,
                                 .hooks = options->hooks,
                                 .history = history};
    if (options->config->objective == FL_OBJECTIVE_LAYER_MSE) {
        return fl_layer_fit_run(network, &job, 1, options->sequences, options->progress, error);
    }
    return train_through_network(network, &job, options, error);
}

void fl_training_history_release(fl_training_history *history) {
    fl_memory_free(history->loss);
    fl_memory_free(history->gradient_norm);
    fl_memory_free(history->learning_rate);
    fl_memory_free(history->evaluation_step);
    fl_memory_free(history->evaluation_value);
    *history = (fl_training_history){0};
}
