#include "harness/run/cell_training.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/clock.h"
#include "harness/base/memory.h"
#include "harness/run/cell_warnings.h"
#include "harness/run/sampled_text.h"
#include "harness/engine/layer_fit.h"
#include "harness/measure/text_evaluation.h"

enum { PATH_BYTES = 4096, EVALUATION_SEQUENCES = 8, MOST = FL_CELL_TRAINING_MOST, IDENTITY_BYTES = 64 };

static bool same(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_data(const fl_train_config *a, const fl_train_config *b) {
    return same(a->path, b->path) && same(a->ids, b->ids) &&
           fl_self_generated_same(&a->self_generated, &b->self_generated) &&
           a->sequence_length == b->sequence_length && a->sequences == b->sequences;
}

static fl_status read_text(const fl_cell_list *list, fl_cell_group *group, const fl_cell_work *cell,
                           const fl_progress *progress, fl_error *error) {
    const fl_train_config *train = &cell->parts.train;
    if (train->self_generated.node != NULL) {
        fl_sampled_text sampled;
        FL_TRY(fl_sampled_text_describe(&train->self_generated, train->sequence_length, &group->bench,
                                        &group->identity, &sampled, error));
        return fl_sampled_text_load(&sampled, &group->bench, list->out, train->sequences, list->threads,
                                    progress, &group->training, error);
    }
    const fl_text_config text = {.path = train->path,
                                 .ids = train->ids,
                                 .sequence_length = train->sequence_length,
                                 .sequences = train->sequences,
                                 .bos = cell->experiment->text.bos};
    return fl_text_source_load(&text, cell->experiment->model_path, group->bench.model->config.vocabulary,
                               &group->training, error);
}

/* The group's training text when it is this one, else loads it in its place. */
static fl_status load_text(const fl_cell_list *list, fl_cell_group *group, const fl_cell_work *cell,
                           const fl_progress *progress, fl_error *error) {
    const fl_train_config *train = &cell->parts.train;
    if (group->training_of != NULL && same_data(group->training_of, train)) return FL_OK;
    fl_text_source_release(&group->training);
    group->training_of = NULL;
    fl_status status = read_text(list, group, cell, progress, error);
    if (status == FL_OK && train->ids == NULL)
        status = fl_text_source_keep_whole_rows(&group->training, train->sequence_length, error);
    if (status != FL_OK) return fl_error_prepend(error, status, "train");
    group->training_of = train;
    return FL_OK;
}

typedef struct fl_training_desk fl_training_desk;

typedef struct {
    const fl_cell_group *group;
    const fl_cell_work *cell;
    fl_training_desk *desk;
} fl_training_view;

/* Perplexity of the first sequences of the evaluation text, end to end. */
static fl_status evaluate(void *context, double *value, fl_error *error) {
    const fl_training_view *view = context;
    fl_sequences some = view->group->text.sequences;
    *value = NAN;
    if (some.count == 0) return FL_OK;
    if (some.count > EVALUATION_SEQUENCES) some.count = EVALUATION_SEQUENCES;
    const fl_text_evaluation_options options = {.language_model = true};
    const fl_mechanism *list[] = {view->cell->linearised.mechanism};
    fl_text_result result;
    FL_TRY(fl_text_evaluation_run(view->group->bench.network, &some, list, 1, &options, NULL, &result, NULL,
                                  error));
    *value = result.perplexity;
    fl_text_result_release(&result);
    return FL_OK;
}

bool fl_cell_trains_with(const fl_cell_work *a, const fl_cell_work *b) {
    return same_data(&a->parts.train, &b->parts.train) &&
           fl_layer_fit_compatible(&a->parts.train, &b->parts.train);
}

/* What the jobs of one call point to. */
struct fl_training_desk {
    fl_training_view views[MOST];
    fl_training_hooks hooks[MOST];
    fl_training_job jobs[MOST];
    char checkpoints[MOST][PATH_BYTES];
    char identities[MOST][IDENTITY_BYTES];
    size_t count;
    const fl_progress *progress;
    fl_run_log *log;
    double start;         /* seconds, monotonic, after the first step of this call, ... */
    size_t tokens_before; /* ... and what had been seen by then */
};

/* Smallest and largest of a figure over the jobs' last steps; not finite where one diverged. */
static void range_of(const fl_training_desk *desk, bool of_loss, double *least, double *most) {
    *least = INFINITY;
    *most = -INFINITY;
    for (size_t i = 0; i < desk->count; i++) {
        const fl_training_history *history = desk->jobs[i].history;
        if (history->steps == 0) continue;
        double value = (of_loss ? history->loss : history->gradient_norm)[history->steps - 1];
        *least = fmin(*least, value);
        *most = fmax(*most, value);
    }
}

static int print_range(char *out, size_t bytes, const char *name, double least, double most) {
    if (least == most) return snprintf(out, bytes, "%s %.4g, ", name, least);
    return snprintf(out, bytes, "%s %.4g to %.4g, ", name, least, most);
}

static void log_step(const fl_training_view *view, const fl_training_history *history, double now) {
    const fl_training_desk *desk = view->desk;
    const size_t last = history->steps - 1;
    const bool timed = now > desk->start && history->tokens_seen > desk->tokens_before;
    const double speed = (double)(history->tokens_seen - desk->tokens_before) / (now - desk->start);
    const fl_run_log_field fields[] = {
        {.name = "run_id", .text = view->cell->run_id},
        {.name = "label", .text = view->cell->label},
        {.name = "stage", .text = "training"},
        {.name = "step", .number = (double)history->steps},
        {.name = "total", .number = (double)view->cell->parts.train.steps},
        {.name = "loss", .number = history->loss[last]},
        {.name = "gradient_norm", .number = history->gradient_norm[last]},
        {.name = "learning_rate", .number = history->learning_rate[last]},
        {.name = "tokens_seen", .number = (double)history->tokens_seen},
        {.name = timed ? "tokens_per_second" : NULL, .number = speed},
    };
    fl_run_log_add(desk->log, "step", fields, sizeof fields / sizeof fields[0]);
}

/* Tells of loss, gradient and speed. */
static void on_step(void *context, const fl_training_history *history) {
    const fl_training_view *view = context;
    fl_training_desk *desk = view->desk;
    double now = fl_clock_seconds(), least = 0, most = 0;
    if (desk->start == 0) {
        desk->start = now;
        desk->tokens_before = history->tokens_seen;
    }
    char text[FL_PROGRESS_DETAIL_BYTES];
    range_of(desk, true, &least, &most);
    int used = print_range(text, sizeof text, "loss", least, most);
    range_of(desk, false, &least, &most);
    used += print_range(text + used, sizeof text - (size_t)used, "gradient", least, most);
    if (now > desk->start && history->tokens_seen > desk->tokens_before) {
        double speed = (double)(history->tokens_seen - desk->tokens_before) / (now - desk->start);
        snprintf(text + used, sizeof text - (size_t)used, "%.0f tokens/s", speed);
    } else {
        text[used - 2] = '\0'; /* the comma */
    }
    fl_progress_detail(desk->progress, text);
    log_step(view, history, now);
}

/* A training that other code has begun is not gone on with. */
static fl_status fill_job(fl_training_desk *desk, size_t index, const fl_cell_list *list,
                          const fl_cell_group *group, fl_cell_work *cell, fl_error *error) {
    snprintf(desk->checkpoints[index], PATH_BYTES, "%s/%s.training.safetensors", list->out, cell->run_id);
    snprintf(desk->identities[index], IDENTITY_BYTES, "%s %s", cell->run_id, cell->fingerprint.text);
    desk->views[index] = (fl_training_view){.group = group, .cell = cell, .desk = desk};
    desk->hooks[index] =
        (fl_training_hooks){.step = on_step, .evaluate = evaluate, .context = &desk->views[index]};
    desk->jobs[index] = (fl_training_job){.config = &cell->parts.train,
                                          .mechanism = cell->linearised.mechanism,
                                          .checkpoint_path = desk->checkpoints[index],
                                          .identity = desk->identities[index],
                                          .hooks = &desk->hooks[index],
                                          .history = &cell->history};
    return fl_training_discard_other(desk->checkpoints[index], desk->identities[index], error);
}

static fl_status run_jobs(const fl_network *network, const fl_training_job *jobs, size_t count,
                          const fl_sequences *sequences, const fl_progress *progress, fl_error *error) {
    if (jobs[0].config->objective == FL_OBJECTIVE_LAYER_MSE) {
        return fl_layer_fit_run(network, jobs, count, sequences, progress, error);
    }
    const fl_training_options options = {.config = jobs[0].config,
                                         .sequences = sequences,
                                         .checkpoint_path = jobs[0].checkpoint_path,
                                         .identity = jobs[0].identity,
                                         .progress = progress,
                                         .hooks = jobs[0].hooks};
    return fl_training_run(network, jobs[0].mechanism, &options, jobs[0].history, error);
}

fl_status fl_cells_train(const fl_cell_list *list, fl_cell_group *group, fl_cell_work *const *cells,
                         size_t count, const fl_progress *progress, fl_error *error) {
    assert(count > 0 && count <= MOST);
    FL_TRY(load_text(list, group, cells[0], progress, error));
    fl_training_desk *desk = NULL;
    FL_TRY(FL_ALLOCATE(&desk, 1, error));
    fl_status status = FL_OK;
    desk->count = count;
    desk->progress = progress;
    desk->log = list->log;
    for (size_t i = 0; i < count; i++) {
        FL_TRY_DONE(status, fl_training_check_overlap(&cells[i]->parts.train, &group->training.sequences,
                                                      &group->text.sequences, error));
        FL_TRY_DONE(status, fl_cell_warnings_of_training(cells[i], group, error));
        fl_training_history_release(&cells[i]->history);
        FL_TRY_DONE(status, fill_job(desk, i, list, group, cells[i], error));
    }
    FL_TRY_DONE(status, run_jobs(group->bench.network, desk->jobs, count, &group->training.sequences,
                                 progress, error));
    for (size_t i = 0; i < count; i++) {
        char fitted[PATH_BYTES];
        snprintf(fitted, sizeof fitted, "%s/%s.mechanism.safetensors", list->out, cells[i]->run_id);
        FL_TRY_DONE(status, fl_mechanism_save(cells[i]->linearised.mechanism, fitted, error));
    }
done:
    fl_memory_free(desk);
    return status;
}
