#include "harness/measure/logit_scorer.h"

#include "harness/base/memory.h"

static size_t vocabulary_of(const fl_logit_scorer *scorer) {
    return scorer->network->model->config.vocabulary;
}

fl_status fl_logit_scorer_create(const fl_network *network, fl_logit_scorer *out, fl_error *error) {
    *out = (fl_logit_scorer){.network = network};
    out->rows = fl_network_logit_rows(network);
    size_t logits = out->rows * vocabulary_of(out);
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_compute_floats(network->compute, logits, &out->reference_logits, error));
    FL_TRY_DONE(status, fl_compute_floats(network->compute, logits, &out->logits, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->probabilities, logits, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->reference_row, out->rows, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->row, out->rows, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->divergence, out->rows, error));
    return FL_OK;
done:
    fl_logit_scorer_release(out);
    return status;
}

void fl_logit_scorer_release(fl_logit_scorer *scorer) {
    if (scorer->network == NULL) return;
    fl_compute_release(scorer->network->compute, scorer->reference_logits);
    fl_compute_release(scorer->network->compute, scorer->logits);
    fl_memory_free(scorer->probabilities);
    fl_memory_free(scorer->reference_row);
    fl_memory_free(scorer->row);
    fl_memory_free(scorer->divergence);
    *scorer = (fl_logit_scorer){0};
}

static void reference_row(void *context, size_t row, size_t worker) {
    (void)worker;
    fl_logit_scorer *scorer = context;
    size_t at = row * vocabulary_of(scorer);
    scorer->reference_row[row] =
        fl_logit_row_of(scorer->reference_logits + at, vocabulary_of(scorer), scorer->probabilities + at);
}

static void compare_row(void *context, size_t row, size_t worker) {
    (void)worker;
    fl_logit_scorer *scorer = context;
    size_t vocabulary = vocabulary_of(scorer), at = row * vocabulary;
    scorer->row[row] = fl_logit_row_of(scorer->logits + at, vocabulary, NULL);
    scorer->divergence[row] = fl_logit_row_divergence(
        vocabulary, scorer->probabilities + at, scorer->reference_logits + at,
        scorer->reference_row[row].log_sum_exp, scorer->logits + at, scorer->row[row].log_sum_exp);
}

void fl_logit_scorer_reference(fl_logit_scorer *scorer, size_t rows, const float *hidden) {
    fl_network_logits(scorer->network, rows, hidden, scorer->reference_logits);
    fl_threads_for(scorer->network->compute->threads, rows, reference_row, scorer);
}

void fl_logit_scorer_compare(fl_logit_scorer *scorer, size_t rows, const float *hidden) {
    fl_network_logits(scorer->network, rows, hidden, scorer->logits);
    fl_threads_for(scorer->network->compute->threads, rows, compare_row, scorer);
}

double fl_logit_scorer_cross_entropy(const fl_logit_scorer *scorer, const float *logits,
                                     const fl_logit_row *rows, size_t row, int32_t target) {
    return rows[row].log_sum_exp - (double)logits[row * vocabulary_of(scorer) + (size_t)target];
}
