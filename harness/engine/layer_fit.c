#include "harness/engine/layer_fit.h"

#include "attn_variants/exact_shares.h"
#include "attn_variants/mixer_backward.h"
#include "harness/base/clock.h"
#include "harness/base/memory.h"
#include "harness/engine/frozen_pass.h"
#include "harness/engine/layer_error.h"
#include "harness/engine/training_group.h"

typedef struct {
    fl_frozen_pass *frozen;
    fl_layer_error scratch;
    fl_exact_shares shares; /* among members */
} fl_layer_fit;

/* One sequence at hand. */
typedef struct {
    fl_layer_fit *fit;
    fl_training_group *group;
    double weight;
} fl_fit_visit;

bool fl_layer_fit_compatible(const fl_train_config *a, const fl_train_config *b) {
    return a->objective == FL_OBJECTIVE_LAYER_MSE && b->objective == FL_OBJECTIVE_LAYER_MSE &&
           a->batch == b->batch && a->accumulate == b->accumulate && a->order == b->order &&
           a->seed == b->seed;
}

static fl_status fit_layer(void *context, const fl_frozen_layer *target, fl_error *error) {
    const fl_fit_visit *visit = context;
    fl_training_group *group = visit->group;
    fl_layer_fit *fit = visit->fit;
    fl_exact_shares_clear(&fit->shares);
    for (size_t i = 0; i < group->count; i++) {
        fl_training_member *member = &group->members[i];
        const fl_mechanism *mechanism = member->job->mechanism;
        if (!member->active || mechanism->layer[target->layer] == NULL) continue;
        double start = fl_clock_seconds(), loss = 0.0, share = 1.0 / (double)member->linearised;
        FL_TRY(fl_layer_error_run(&fit->scratch, group->network, mechanism, target, fit->shares.of[i],
                                  visit->weight * share, true, member->gradient->sum[target->layer], &loss,
                                  error));
        member->loss += loss * share;
        member->seconds += fl_clock_seconds() - start;
    }
    return FL_OK;
}

static fl_status add_sequence(void *context, fl_training_group *group, size_t sequence, double weight,
                              fl_error *error) {
    fl_layer_fit *fit = context;
    fl_fit_visit visit = {fit, group, weight};
    return fl_frozen_pass_run(fit->frozen, sequence, group->sequences->ids[sequence],
                              group->sequences->lengths[sequence], fit_layer, &visit, error);
}

static fl_status check(const fl_training_job *jobs, size_t count, fl_error *error) {
    for (size_t i = 0; i < count; i++) {
        FL_TRY(fl_layer_error_check(jobs[i].mechanism, error));
        if (fl_layer_fit_compatible(jobs[0].config, jobs[i].config)) continue;
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "layer fit: job %zu does not draw the sequences of job 0 (objective, batch, "
                            "accumulate, order and seed must agree)",
                            i);
    }
    return FL_OK;
}

/* The most that one mechanism's layer takes while it is fitted, beside the frozen pass. */
static size_t mixer_bytes(const fl_training_group *group, size_t tokens) {
    size_t most = 0;
    for (size_t i = 0; i < group->count; i++) {
        const fl_mechanism *mechanism = group->members[i].job->mechanism;
        for (size_t l = 0; l < mechanism->layers; l++) {
            if (mechanism->layer[l] == NULL) continue;
            size_t bytes = fl_mixer_tape_bytes(group->network->compute, mechanism, l, tokens);
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

/* Bytes beside the frozen pass. */
static size_t fit_bytes(const fl_layer_fit *fit, const fl_training_group *group) {
    size_t longest = fl_training_group_longest(group);
    const fl_layer_error scratch = {.capacity = longest};
    return fl_layer_error_bytes(&scratch, &group->network->model->config) + mixer_bytes(group, longest) +
           fl_exact_shares_bytes(&fit->shares, &group->network->shape, longest);
}

static fl_status find_shares(fl_layer_fit *fit, const fl_training_group *group, fl_error *error) {
    const fl_mechanism **mechanisms = NULL;
    FL_TRY(FL_ALLOCATE(&mechanisms, group->count, error));
    for (size_t i = 0; i < group->count; i++) mechanisms[i] = group->members[i].job->mechanism;
    fl_status status =
        fl_exact_shares_create(group->network->compute, mechanisms, group->count, &group->network->shape,
                               fl_training_group_longest(group), &fit->shares, error);
    fl_memory_free(mechanisms);
    return status;
}

static void release(fl_layer_fit *fit) {
    fl_exact_shares_release(&fit->shares);
    fl_frozen_pass_destroy(fit->frozen);
    fl_layer_error_release(&fit->scratch);
}

/* The largest of the jobs, in its folder. */
static fl_frozen_budget scratch_budget(const fl_training_group *group) {
    fl_frozen_budget budget = {0};
    for (size_t i = 0; i < group->count; i++) {
        const fl_train_config *config = group->members[i].job->config;
        if (config->scratch_budget * FL_MEBIBYTE <= budget.scratch) continue;
        budget.scratch = config->scratch_budget * FL_MEBIBYTE;
        budget.scratch_folder = config->scratch_folder;
    }
    return budget;
}

static fl_status create_frozen_pass(fl_layer_fit *fit, const fl_training_group *group, fl_error *error) {
    size_t layers = group->network->model->config.layers;
    fl_frozen_budget budget = scratch_budget(group);
    size_t needed = fl_frozen_pass_bytes_of(group->network, fl_training_group_longest(group));
    bool *wanted = NULL;
    FL_TRY(fl_training_group_budget(group, needed + fit_bytes(fit, group), &budget.memory, error));
    FL_TRY(FL_ALLOCATE(&wanted, layers, error));
    for (size_t i = 0; i < group->count; i++) {
        for (size_t l = 0; l < layers; l++) wanted[l] |= group->members[i].job->mechanism->layer[l] != NULL;
    }
    fl_status status =
        fl_frozen_pass_create(group->network, wanted, group->sequences->count, &budget, &fit->frozen, error);
    fl_memory_free(wanted);
    return status;
}

fl_status fl_layer_fit_run(const fl_network *network, const fl_training_job *jobs, size_t count,
                           const fl_sequences *sequences, const fl_progress *progress, fl_error *error) {
    fl_training_group group;
    fl_layer_fit fit = {0};
    for (size_t i = 0; i < count; i++) *jobs[i].history = (fl_training_history){0};
    FL_TRY(check(jobs, count, error));
    FL_TRY(fl_training_group_create(network, jobs, count, sequences, progress, &group, error));
    fl_status status = find_shares(&fit, &group, error);
    if (status == FL_OK) status = create_frozen_pass(&fit, &group, error);
    if (status == FL_OK) status = fl_training_group_run(&group, add_sequence, &fit, error);
    size_t bytes = fit.frozen != NULL ? fl_frozen_pass_bytes(fit.frozen) + fit_bytes(&fit, &group) : 0;
    fl_training_group_release(&group, bytes, status);
    release(&fit);
    return status;
}
