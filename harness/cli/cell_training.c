#include "harness/cli/cell_training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/measure/text_evaluation.h"

enum { PATH_BYTES = 4096, EVALUATION_SEQUENCES = 8 };

static bool same(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_data(const fl_train_config *a, const fl_train_config *b) {
    return same(a->path, b->path) && same(a->ids, b->ids) && a->sequence_length == b->sequence_length &&
           a->sequences == b->sequences;
}

/* The group's training text when it is this one, else loads it in its place. */
static fl_status load_text(fl_cell_group *group, const fl_cell_work *cell, fl_error *error) {
    const fl_train_config *train = &cell->parts.train;
    if (group->training_of != NULL && same_data(group->training_of, train)) return FL_OK;
    fl_text_source_release(&group->training);
    group->training_of = NULL;
    fl_text_config text = {.path = train->path,
                           .ids = train->ids,
                           .sequence_length = train->sequence_length,
                           .sequences = train->sequences};
    fl_status status = fl_text_source_load(&text, cell->experiment->model_path,
                                           group->bench.model->config.vocabulary, &group->training, error);
    if (status != FL_OK) return fl_error_prepend(error, status, "train");
    group->training_of = train;
    return FL_OK;
}

typedef struct {
    const fl_cell_group *group;
    const fl_cell_work *cell;
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

fl_status fl_cell_train(const fl_cell_list *list, fl_cell_group *group, fl_cell_work *cell,
                        const fl_progress *progress, fl_error *error) {
    FL_TRY(load_text(group, cell, error));
    FL_TRY(fl_training_check_overlap(&cell->parts.train, &group->training.sequences, &group->text.sequences,
                                     error));
    char checkpoint[PATH_BYTES], fitted[PATH_BYTES];
    snprintf(checkpoint, sizeof checkpoint, "%s/%s.training.safetensors", list->out, cell->run_id);
    snprintf(fitted, sizeof fitted, "%s/%s.mechanism.safetensors", list->out, cell->run_id);
    fl_training_view view = {.group = group, .cell = cell};
    const fl_training_hooks hooks = {.evaluate = evaluate, .context = &view};
    const fl_training_options options = {.config = &cell->parts.train,
                                         .sequences = &group->training.sequences,
                                         .checkpoint_path = checkpoint,
                                         .identity = cell->run_id,
                                         .progress = progress,
                                         .hooks = &hooks};
    fl_training_history_release(&cell->history);
    FL_TRY(
        fl_training_run(group->bench.network, cell->linearised.mechanism, &options, &cell->history, error));
    return fl_mechanism_save(cell->linearised.mechanism, fitted, error);
}
