#include "harness/engine/layer_fit.h"

#include "attn_variants/mixer_backward.h"
#include "harness/base/memory.h"
#include "harness/engine/frozen_pass.h"
#include "harness/engine/layer_error.h"
#include "harness/engine/training_group.h"

typedef struct {
    fl_frozen_pass *frozen;
    fl_layer_error scratch;
    fl_exact_share *shares; /* [share_count]: exact sets that several members have in common */
    size_t share_count;
    fl_exact_share **exact; /* [members] one of them, or NULL */
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
    for (size_t i = 0; i < fit->share_count; i++) fit->shares[i].filled = false;
    for (size_t i = 0; i < group->count; i++) {
        fl_training_member *member = &group->members[i];
        const fl_mechanism *mechanism = member->job->mechanism;
        if (!member->active || mechanism->layer[target->layer] == NULL) continue;
        double start = fl_training_clock(), loss = 0.0, share = 1.0 / (double)member->linearised;
        FL_TRY(fl_layer_error_run(&fit->scratch, group->network, mechanism, target, fit->exact[i],
                                  visit->weight * share, true, member->gradient->layer[target->layer], &loss,
                                  error));
        member->loss += loss * share;
        member->seconds += fl_training_clock() - start;
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

/* Floats of what is shared of an exact set: output and log_sum_exp of the longest sequence. */
static size_t share_floats(const fl_training_group *group) {
    const fl_attention_shape *shape = &group->network->shape;
    return fl_training_group_longest(group) * shape->query_heads * (shape->head_dim + 1);
}

/* Bytes beside the frozen pass. */
static size_t fit_bytes(const fl_layer_fit *fit, const fl_training_group *group) {
    size_t longest = fl_training_group_longest(group);
    const fl_layer_error scratch = {.capacity = longest};
    return fl_layer_error_bytes(&scratch, &group->network->model->config) + mixer_bytes(group, longest) +
           fit->share_count * share_floats(group) * sizeof(float);
}

static fl_status create_share(fl_layer_fit *fit, const fl_training_group *group, fl_exact_share **out,
                              fl_error *error) {
    const fl_attention_shape *shape = &group->network->shape;
    fl_exact_share *share = &fit->shares[fit->share_count];
    FL_TRY(FL_ALLOCATE(&share->output, share_floats(group), error));
    share->log_sum_exp =
        share->output + fl_training_group_longest(group) * shape->query_heads * shape->head_dim;
    fit->share_count++;
    *out = share;
    return FL_OK;
}

static fl_status find_shares(fl_layer_fit *fit, const fl_training_group *group, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&fit->shares, group->count, error));
    FL_TRY(FL_ALLOCATE(&fit->exact, group->count, error));
    for (size_t i = 1; i < group->count; i++) {
        const fl_variant *variant = group->members[i].job->mechanism->variant;
        for (size_t j = 0; j < i && fit->exact[i] == NULL; j++) {
            const fl_variant *other = group->members[j].job->mechanism->variant;
            if (!fl_variant_shares_exact_set(variant, other)) continue;
            if (fit->exact[j] == NULL) FL_TRY(create_share(fit, group, &fit->exact[j], error));
            fit->exact[i] = fit->exact[j];
        }
    }
    return FL_OK;
}

static void release(fl_layer_fit *fit) {
    for (size_t i = 0; i < fit->share_count; i++) fl_memory_free(fit->shares[i].output);
    fl_memory_free(fit->shares);
    fl_memory_free(fit->exact);
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
