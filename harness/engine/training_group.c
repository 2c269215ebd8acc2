#include "harness/engine/training_group.h"

#include <math.h>
#include <unistd.h>

#include "harness/base/clock.h"
#include "harness/base/memory.h"
#include "harness/engine/training_state.h"

static fl_status check_mechanism(const fl_mechanism *mechanism, fl_error *error) {
    for (size_t l = 0; l < mechanism->layers && mechanism->layer_floats > 0; l++) {
        if (mechanism->layer[l] != NULL) return FL_OK;
    }
    return fl_error_set(error, FL_ERROR_ARGUMENT,
                        "train: rule %s with these options has no parameters that could be trained",
                        mechanism->variant->rule->name);
}

/* A linear branch that no sequence reaches cannot be fitted; adapters can. */
static fl_status check_reach(const fl_mechanism *mechanism, size_t longest, fl_error *error) {
    const fl_variant *variant = mechanism->variant;
    size_t exact = variant->sinks + variant->window + variant->cache_budget;
    if (longest > exact || variant->lora_rank > 0) return FL_OK;
    return fl_error_set(
        error, FL_ERROR_ARGUMENT,
        "train: no sequence reaches the linear state: the longest has %zu tokens, sinks, window and "
        "cache keep %zu; use a longer sequence_length",
        longest, exact);
}

static fl_status create_history(size_t steps, fl_training_history *history, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&history->loss, steps, error));
    FL_TRY(FL_ALLOCATE(&history->gradient_norm, steps, error));
    FL_TRY(FL_ALLOCATE(&history->learning_rate, steps, error));
    FL_TRY(FL_ALLOCATE(&history->evaluation_step, steps + 1, error));
    return FL_ALLOCATE(&history->evaluation_value, steps + 1, error);
}

static fl_status create_member(fl_compute *compute, fl_training_member *member, fl_error *error) {
    const fl_training_job *job = member->job;
    const fl_train_config *config = job->config;
    FL_TRY(check_mechanism(job->mechanism, error));
    FL_TRY(create_history(config->steps, job->history, error));
    FL_TRY(fl_gradient_create(job->mechanism, compute, &member->gradient, error));
    FL_TRY(fl_adamw_create(job->mechanism, config->beta1, config->beta2, config->epsilon,
                           config->weight_decay, &member->adamw, error));
    for (size_t l = 0; l < job->mechanism->layers; l++)
        member->linearised += job->mechanism->layer[l] != NULL;
    if (job->checkpoint_path == NULL || access(job->checkpoint_path, F_OK) != 0) return FL_OK;
    return fl_training_state_load(job->checkpoint_path, job->identity, config->steps, job->mechanism,
                                  member->adamw, job->history, error);
}

static fl_status create(fl_training_group *group, const fl_training_job *jobs, fl_error *error) {
    FL_TRY(fl_sequences_check(group->sequences, group->network->model->config.vocabulary, 2, "training text",
                              error));
    FL_TRY(FL_ALLOCATE(&group->members, group->count, error));
    for (size_t i = 0; i < group->count; i++) {
        group->members[i].job = &jobs[i];
        FL_TRY(check_reach(jobs[i].mechanism, fl_training_group_longest(group), error));
        FL_TRY(create_member(group->network->compute, &group->members[i], error));
    }
    group->draws = jobs[0].config->batch * jobs[0].config->accumulate;
    return FL_ALLOCATE(&group->drawn, group->draws, error);
}

fl_status fl_training_group_create(const fl_network *network, const fl_training_job *jobs, size_t count,
                                   const fl_sequences *sequences, const fl_progress *progress,
                                   fl_training_group *group, fl_error *error) {
    *group =
        (fl_training_group){.network = network, .sequences = sequences, .progress = progress, .count = count};
    for (size_t i = 0; i < count; i++) *jobs[i].history = (fl_training_history){0};
    fl_status status = create(group, jobs, error);
    if (status == FL_OK) return FL_OK;
    for (size_t i = 0; i < count; i++) fl_training_history_release(jobs[i].history);
    fl_training_group_release(group, 0, status);
    return status;
}

/* Gradient and two moments. */
static size_t member_bytes(const fl_training_member *member) {
    return 3 * member->linearised * member->job->mechanism->layer_floats * sizeof(float);
}

size_t fl_training_group_longest(const fl_training_group *group) {
    size_t longest = 0;
    for (size_t i = 0; i < group->sequences->count; i++) {
        if (group->sequences->lengths[i] > longest) longest = group->sequences->lengths[i];
    }
    return longest;
}

fl_status fl_training_group_budget(const fl_training_group *group, size_t needed, size_t *keep,
                                   fl_error *error) {
    size_t limit = SIZE_MAX;
    *keep = 0;
    for (size_t i = 0; i < group->count; i++) {
        const fl_train_config *config = group->members[i].job->config;
        size_t memory = config->memory_budget * FL_MEBIBYTE, kept = config->activation_budget * FL_MEBIBYTE;
        if (memory > 0 && memory < limit) limit = memory;
        if (kept > *keep) *keep = kept;
        needed += member_bytes(&group->members[i]);
    }
    if (needed > limit) {
        return fl_error_set(error, FL_ERROR_MEMORY,
                            "train: sequences of %zu tokens need %zu MiB of activations and optimiser, "
                            "memory_budget is %zu MiB; use a shorter sequence_length or a larger budget",
                            fl_training_group_longest(group), (needed + FL_MEBIBYTE - 1) / FL_MEBIBYTE,
                            limit / FL_MEBIBYTE);
    }
    if (*keep > limit - needed) *keep = limit - needed;
    return FL_OK;
}

void fl_training_group_release(fl_training_group *group, size_t activation_bytes, fl_status status) {
    for (size_t i = 0; group->members != NULL && i < group->count; i++) {
        fl_training_member *member = &group->members[i];
        fl_gradient_destroy(member->gradient);
        fl_adamw_destroy(member->adamw);
        if (member->job == NULL) continue;
        if (status != FL_OK && status != FL_ERROR_CANCELLED)
            fl_training_history_release(member->job->history);
        else
            member->job->history->bytes = activation_bytes + 3 * member->linearised *
                                                                 member->job->mechanism->layer_floats *
                                                                 sizeof(float);
    }
    fl_memory_free(group->members);
    fl_memory_free(group->drawn);
    *group = (fl_training_group){0};
}

static fl_status save(const fl_training_member *member, fl_error *error) {
    const fl_training_job *job = member->job;
    if (job->checkpoint_path == NULL) return FL_OK;
    return fl_training_state_save(job->checkpoint_path, job->identity, job->mechanism, member->adamw,
                                  job->history, error);
}

static fl_status evaluate(const fl_training_member *member, fl_error *error) {
    fl_training_history *history = member->job->history;
    const fl_training_hooks *hooks = member->job->hooks;
    if (hooks == NULL || hooks->evaluate == NULL) return FL_OK;
    if (history->evaluations > 0 && history->evaluation_step[history->evaluations - 1] == history->steps)
        return FL_OK;
    double value = NAN;
    FL_TRY(hooks->evaluate(hooks->context, &value, error));
    history->evaluation_step[history->evaluations] = history->steps;
    history->evaluation_value[history->evaluations++] = value;
    return FL_OK;
}

static bool finished(const fl_training_member *member) {
    return member->job->history->diverged || member->job->history->steps >= member->job->config->steps;
}

/* Marks the members that are furthest behind; *step = where they are. False when all are finished. */
static bool choose_members(fl_training_group *group, size_t *step, size_t *active) {
    *step = SIZE_MAX;
    *active = 0;
    for (size_t i = 0; i < group->count; i++) {
        const fl_training_member *member = &group->members[i];
        if (!finished(member) && member->job->history->steps < *step) *step = member->job->history->steps;
    }
    for (size_t i = 0; i < group->count; i++) {
        fl_training_member *member = &group->members[i];
        member->active = !finished(member) && member->job->history->steps == *step;
        *active += member->active;
    }
    return *step != SIZE_MAX;
}

static fl_status add_sequences(fl_training_group *group, size_t step, fl_training_add add, void *context,
                               fl_error *error) {
    double weight = 1.0 / (double)group->draws;
    FL_TRY(fl_training_order(group->members[0].job->config, group->sequences->count, step * group->draws,
                             group->draws, group->drawn, error));
    group->seen = 0;
    for (size_t i = 0; i < group->count; i++) {
        fl_training_member *member = &group->members[i];
        if (!member->active) continue;
        fl_gradient_clear(member->gradient);
        member->loss = member->seconds = 0.0;
    }
    for (size_t i = 0; i < group->draws; i++) {
        FL_TRY(add(context, group, group->drawn[i], weight, error));
        group->seen += group->sequences->lengths[group->drawn[i]];
    }
    return FL_OK;
}

static fl_status take_step(fl_training_group *group, fl_training_member *member, fl_error *error) {
    const fl_train_config *config = member->job->config;
    fl_training_history *history = member->job->history;
    size_t step = history->steps;
    double start = fl_clock_seconds(), loss = member->loss * (1.0 / (double)group->draws);
    FL_TRY(fl_gradient_collect(member->gradient, error));
    double norm = fl_gradient_clip(member->gradient, config->clip);
    double rate = fl_learning_rate(config->learning_rate, config->warmup_steps, config->steps, step);
    history->diverged = !isfinite(loss) || !isfinite(norm);
    if (!history->diverged) {
        double adapter_rate =
            fl_learning_rate(config->adapter_learning_rate, config->warmup_steps, config->steps, step);
        fl_adamw_step(member->adamw, member->job->mechanism, member->gradient, rate, adapter_rate);
    }
    history->loss[step] = loss;
    history->gradient_norm[step] = norm;
    history->learning_rate[step] = rate;
    history->steps = step + 1;
    history->tokens_seen += group->seen;
    member->seconds += fl_clock_seconds() - start;
    return FL_OK;
}

/* The step's own seconds, and an equal share of what was spent on all. */
static void share_seconds(fl_training_group *group, size_t active, double seconds) {
    double common = seconds;
    for (size_t i = 0; i < group->count; i++) {
        if (group->members[i].active) common -= group->members[i].seconds;
    }
    for (size_t i = 0; i < group->count; i++) {
        const fl_training_member *member = &group->members[i];
        if (member->active) member->job->history->seconds += member->seconds + common / (double)active;
    }
}

static bool due(size_t every, size_t step) {
    return every != 0 && step % every == 0;
}

/* Told of, evaluated and saved as its configuration wants. */
static fl_status follow_step(const fl_training_member *member, fl_error *error) {
    const fl_train_config *config = member->job->config;
    const fl_training_hooks *hooks = member->job->hooks;
    const fl_training_history *history = member->job->history;
    if (hooks != NULL && hooks->step != NULL) hooks->step(hooks->context, history);
    if (history->diverged) return FL_OK;
    if (due(config->evaluate_every, history->steps)) FL_TRY(evaluate(member, error));
    if (history->steps == config->steps) return FL_OK;
    return due(config->checkpoint_every, history->steps) ? save(member, error) : FL_OK;
}

static fl_status interrupt(const fl_training_group *group, size_t step, size_t steps, fl_error *error) {
    for (size_t i = 0; i < group->count; i++) {
        if (!group->members[i].job->history->diverged) FL_TRY(save(&group->members[i], error));
    }
    return fl_error_set(error, FL_ERROR_CANCELLED, "training: interrupted after step %zu of %zu", step,
                        steps);
}

static size_t most_steps(const fl_training_group *group) {
    size_t steps = 0;
    for (size_t i = 0; i < group->count; i++) {
        if (group->members[i].job->config->steps > steps) steps = group->members[i].job->config->steps;
    }
    return steps;
}

/* Also when all its steps came from a checkpoint; a first step that diverged fitted nothing. */
static void note_fit(const fl_training_job *job) {
    size_t taken = job->history->steps - job->history->diverged;
    if (taken > 0) job->mechanism->fit = fl_train_config_fit(job->config, job->mechanism->fit);
}

/* What an interrupt came between after a step that was kept: its evaluation. */
static fl_status catch_up(const fl_training_group *group, fl_error *error) {
    for (size_t i = 0; i < group->count; i++) {
        const fl_training_job *job = group->members[i].job;
        if (job->history->steps > 0 && !job->history->diverged &&
            due(job->config->evaluate_every, job->history->steps))
            FL_TRY(evaluate(&group->members[i], error));
    }
    return FL_OK;
}

/* The step that the furthest behind are at, by all of those. */
static fl_status make_step(fl_training_group *group, size_t step, size_t active, fl_training_add add,
                           void *context, fl_error *error) {
    double start = fl_clock_seconds();
    FL_TRY(add_sequences(group, step, add, context, error));
    for (size_t i = 0; i < group->count; i++) {
        if (group->members[i].active) FL_TRY(take_step(group, &group->members[i], error));
    }
    share_seconds(group, active, fl_clock_seconds() - start);
    for (size_t i = 0; i < group->count; i++) {
        if (group->members[i].active) FL_TRY(follow_step(&group->members[i], error));
    }
    return FL_OK;
}

static fl_status finish(const fl_training_member *member, fl_error *error) {
    note_fit(member->job);
    if (member->job->history->diverged) return FL_OK;
    FL_TRY(evaluate(member, error));
    return save(member, error);
}

fl_status fl_training_group_run(fl_training_group *group, fl_training_add add, void *context,
                                fl_error *error) {
    size_t step = 0, active = 0, steps = most_steps(group);
    fl_status status = catch_up(group, error);
    while (status == FL_OK && choose_members(group, &step, &active)) {
        fl_progress_report(group->progress, "training", step, steps);
        if (fl_progress_cancelled(group->progress)) return interrupt(group, step, steps, error);
        status = make_step(group, step, active, add, context, error);
    }
    if (status == FL_OK) fl_progress_report(group->progress, "training", steps, steps);
    for (size_t i = 0; status == FL_OK && i < group->count; i++) status = finish(&group->members[i], error);
    /* Within a step or an evaluation: the steps that were made are kept. */
    return status == FL_ERROR_CANCELLED ? interrupt(group, step, steps, error) : status;
}
