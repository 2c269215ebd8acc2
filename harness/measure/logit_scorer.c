#include "harness/measure/logit_scorer.h"

#include "harness/base/memory.h"

static size_t vocabulary_of(const fl_logit_scorer *scorer) {
    return scorer->network->model->config.vocabulary;
}

static fl_status allocate_figures(fl_logit_figures *figures, size_t rows, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&figures->log_sum_exp, rows, error));
    FL_TRY(FL_ALLOCATE(&figures->largest, rows, error));
    return FL_ALLOCATE(&figures->cross_entropy, rows, error);
}

static void release_figures(fl_logit_figures *figures) {
    fl_memory_free(figures->log_sum_exp);
    fl_memory_free(figures->largest);
    fl_memory_free(figures->cross_entropy);
}

static fl_status allocate_arrays(fl_logit_scorer *scorer, fl_error *error) {
    fl_compute *compute = scorer->network->compute;
    const size_t rows = scorer->rows, logits = rows * vocabulary_of(scorer);
    const struct {
        fl_array *array;
        size_t count;
        fl_number number;
    } wanted[] = {{&scorer->reference_logits, logits, FL_FLOAT32},
                  {&scorer->logits, logits, FL_FLOAT32},
                  {&scorer->probabilities, logits, FL_FLOAT64},
                  {&scorer->reference_log_sum_exp, rows, FL_FLOAT64},
                  {&scorer->log_sum_exp, rows, FL_FLOAT64},
                  {&scorer->made_divergence, rows, FL_FLOAT64},
                  {&scorer->best, rows, FL_INT32},
                  {&scorer->places, rows, FL_INT32},
                  {&scorer->of_targets, rows, FL_FLOAT32}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        FL_TRY(compute->ops->allocate(compute, wanted[i].count, wanted[i].number, wanted[i].array, error));
    }
    return FL_OK;
}

fl_status fl_logit_scorer_create(const fl_network *network, fl_logit_scorer *out, fl_error *error) {
    *out = (fl_logit_scorer){.network = network};
    out->rows = fl_network_logit_rows(network);
    fl_status status = FL_OK;
    FL_TRY_DONE(status, allocate_figures(&out->reference, out->rows, error));
    FL_TRY_DONE(status, allocate_figures(&out->compared, out->rows, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->divergence, out->rows, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->target_places, out->rows, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->target_logits, out->rows, error));
    FL_TRY_DONE(status, allocate_arrays(out, error));
    return FL_OK;
done:
    fl_logit_scorer_release(out);
    return status;
}

void fl_logit_scorer_release(fl_logit_scorer *scorer) {
    if (scorer->network == NULL) return;
    fl_compute *compute = scorer->network->compute;
    const fl_array arrays[] = {
        scorer->reference_logits, scorer->logits,          scorer->probabilities,
        scorer->log_sum_exp,      scorer->made_divergence, scorer->best,
        scorer->places,           scorer->of_targets,      scorer->reference_log_sum_exp};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) compute->ops->release(compute, arrays[i]);
    release_figures(&scorer->reference);
    release_figures(&scorer->compared);
    fl_memory_free(scorer->divergence);
    fl_memory_free(scorer->target_places);
    fl_memory_free(scorer->target_logits);
    *scorer = (fl_logit_scorer){0};
}

/* Logits of the rows, and their log-softmax on the host. */
static fl_status normalise(fl_logit_scorer *scorer, size_t rows, fl_array hidden, fl_array logits,
                           fl_array log_sum_exp, fl_array probabilities, fl_logit_figures *figures,
                           fl_error *error) {
    fl_compute *compute = scorer->network->compute;
    fl_network_logits(scorer->network, rows, hidden, logits);
    const fl_logit_rows_call call = {.rows = rows,
                                     .vocabulary = vocabulary_of(scorer),
                                     .logits = logits,
                                     .log_sum_exp = log_sum_exp,
                                     .best = scorer->best,
                                     .probabilities = probabilities};
    compute->ops->logit_rows(compute, &call);
    FL_TRY(compute->ops->download(compute, figures->log_sum_exp, log_sum_exp, rows, error));
    return compute->ops->download(compute, figures->largest, scorer->best, rows, error);
}

static fl_status score_targets(fl_logit_scorer *scorer, fl_array logits, const int32_t *targets,
                               size_t scored, fl_logit_figures *figures, fl_error *error) {
    fl_compute *compute = scorer->network->compute;
    for (size_t row = 0; row < scored; row++)
        scorer->target_places[row] = (int32_t)(row * vocabulary_of(scorer)) + targets[row];
    compute->ops->upload(compute, scorer->places, scorer->target_places, scored);
    compute->ops->gather_rows(compute, scorer->of_targets, 1, logits, 1, scorer->places, scored, 1);
    FL_TRY(compute->ops->download(compute, scorer->target_logits, scorer->of_targets, scored, error));
    for (size_t row = 0; row < scored; row++)
        figures->cross_entropy[row] = figures->log_sum_exp[row] - (double)scorer->target_logits[row];
    return FL_OK;
}

fl_status fl_logit_scorer_reference(fl_logit_scorer *scorer, size_t rows, fl_array hidden,
                                    const int32_t *targets, size_t scored, fl_error *error) {
    FL_TRY(normalise(scorer, rows, hidden, scorer->reference_logits, scorer->reference_log_sum_exp,
                     scorer->probabilities, &scorer->reference, error));
    return score_targets(scorer, scorer->reference_logits, targets, scored, &scorer->reference, error);
}

fl_status fl_logit_scorer_compare(fl_logit_scorer *scorer, size_t rows, fl_array hidden,
                                  const int32_t *targets, size_t scored, fl_error *error) {
    fl_compute *compute = scorer->network->compute;
    FL_TRY(normalise(scorer, rows, hidden, scorer->logits, scorer->log_sum_exp, fl_array_none,
                     &scorer->compared, error));
    FL_TRY(score_targets(scorer, scorer->logits, targets, scored, &scorer->compared, error));
    const fl_logit_divergence_call call = {.rows = rows,
                                           .vocabulary = vocabulary_of(scorer),
                                           .probabilities = scorer->probabilities,
                                           .logits = scorer->reference_logits,
                                           .log_sum_exp = scorer->reference_log_sum_exp,
                                           .other_logits = scorer->logits,
                                           .other_log_sum_exp = scorer->log_sum_exp,
                                           .divergence = scorer->made_divergence};
    compute->ops->logit_divergence(compute, &call);
    return compute->ops->download(compute, scorer->divergence, scorer->made_divergence, rows, error);
}
