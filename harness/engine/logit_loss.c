#include "harness/engine/logit_loss.h"

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"

enum { LARGEST_BLOCK_LOGITS = 1 << 21, LARGEST_BLOCK_ROWS = 64 };

/* One block of rows, worked off in parallel; logits become weight * gradient in place. */
typedef struct {
    const fl_logit_loss *loss;
    size_t vocabulary;
    const int32_t *targets; /* [rows] next tokens */
    double weight;
    bool gradient;
} fl_logit_job;

static size_t vocabulary_of(const fl_logit_loss *loss) {
    return loss->network->model->config.vocabulary;
}

fl_status fl_logit_loss_create(const fl_network *network, bool with_target, fl_logit_loss *out,
                               fl_error *error) {
    *out = (fl_logit_loss){.network = network};
    size_t rows = LARGEST_BLOCK_LOGITS / vocabulary_of(out);
    out->rows = rows < 1 ? 1 : rows > LARGEST_BLOCK_ROWS ? LARGEST_BLOCK_ROWS : rows;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&out->logits, out->rows * vocabulary_of(out), error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->row_loss, out->rows, error));
    if (with_target)
        FL_TRY_DONE(status, FL_ALLOCATE(&out->target_logits, out->rows * vocabulary_of(out), error));
    return FL_OK;
done:
    fl_logit_loss_release(out);
    return status;
}

void fl_logit_loss_release(fl_logit_loss *loss) {
    fl_memory_free(loss->logits);
    fl_memory_free(loss->target_logits);
    fl_memory_free(loss->row_loss);
    *loss = (fl_logit_loss){0};
}

size_t fl_logit_loss_bytes(const fl_logit_loss *loss) {
    size_t blocks = (loss->logits != NULL) + (loss->target_logits != NULL);
    return blocks == 0
               ? 0
               : blocks * loss->rows * vocabulary_of(loss) * sizeof(float) + loss->rows * sizeof(double);
}

static double largest_of(size_t count, const float *x) {
    float largest = x[0];
    for (size_t i = 1; i < count; i++) largest = x[i] > largest ? x[i] : largest;
    return (double)largest;
}

static double log_sum_exp(size_t count, const float *x) {
    double largest = largest_of(count, x), sum = exp((double)x[0] - largest);
    for (size_t i = 1; i < count; i++) sum += exp((double)x[i] - largest);
    return largest + log(sum);
}

static void next_token_row(void *context, size_t row, size_t worker) {
    (void)worker;
    const fl_logit_job *job = context;
    float *logits = job->loss->logits + row * job->vocabulary;
    size_t target = (size_t)job->targets[row];
    double log_sum = log_sum_exp(job->vocabulary, logits);
    job->loss->row_loss[row] = log_sum - (double)logits[target];
    if (!job->gradient) return;
    for (size_t i = 0; i < job->vocabulary; i++) {
        double probability = exp((double)logits[i] - log_sum);
        logits[i] = (float)(job->weight * (i == target ? probability - 1.0 : probability));
    }
}

static void divergence_row(void *context, size_t row, size_t worker) {
    (void)worker;
    const fl_logit_job *job = context;
    float *logits = job->loss->logits + row * job->vocabulary;
    const float *target = job->loss->target_logits + row * job->vocabulary;
    double log_sum = log_sum_exp(job->vocabulary, logits),
           target_log_sum = log_sum_exp(job->vocabulary, target);
    double sum = 0.0;
    for (size_t i = 0; i < job->vocabulary; i++) {
        double log_probability = (double)logits[i] - log_sum, target_log = (double)target[i] - target_log_sum;
        double target_probability = exp(target_log);
        if (target_probability > 0.0) sum += target_probability * (target_log - log_probability);
        if (job->gradient) logits[i] = (float)(job->weight * (exp(log_probability) - target_probability));
    }
    job->loss->row_loss[row] = sum;
}

/* hidden -> logits -> losses (and gradient_hidden) of `rows` rows; returns the sum of the losses. */
static double run_rows(fl_logit_loss *loss, fl_logit_job *job, fl_threads_body body, size_t rows,
                       const float *hidden, float *gradient_hidden) {
    fl_compute *compute = loss->network->compute;
    job->loss = loss;
    job->vocabulary = vocabulary_of(loss);
    job->gradient = gradient_hidden != NULL;
    fl_network_logits(loss->network, rows, hidden, loss->logits);
    fl_threads_for(compute->threads, rows, body, job);
    double sum = 0.0;
    for (size_t row = 0; row < rows; row++) sum += loss->row_loss[row];
    if (gradient_hidden != NULL) {
        compute->ops->linear_backward(compute, loss->network->head, rows, loss->logits, gradient_hidden,
                                      false);
    }
    return sum;
}

double fl_logit_loss_next_token(fl_logit_loss *loss, const int32_t *ids, size_t tokens, const float *hidden,
                                double weight, float *gradient_hidden) {
    size_t width = loss->network->model->config.model_dim, scored = tokens - 1;
    double sum = 0.0;
    for (size_t done = 0; done < scored; done += loss->rows) {
        size_t rows = scored - done < loss->rows ? scored - done : loss->rows;
        fl_logit_job job = {.targets = ids + done + 1, .weight = weight / (double)scored};
        sum += run_rows(loss, &job, next_token_row, rows, hidden + done * width,
                        gradient_hidden != NULL ? gradient_hidden + done * width : NULL);
    }
    if (gradient_hidden != NULL) memset(gradient_hidden + scored * width, 0, width * sizeof(float));
    return sum / (double)scored;
}

double fl_logit_loss_divergence(fl_logit_loss *loss, size_t tokens, const float *target_hidden,
                                const float *hidden, double weight, float *gradient_hidden) {
    size_t width = loss->network->model->config.model_dim;
    double sum = 0.0;
    for (size_t done = 0; done < tokens; done += loss->rows) {
        size_t rows = tokens - done < loss->rows ? tokens - done : loss->rows;
        fl_logit_job job = {.weight = weight / (double)tokens};
        fl_network_logits(loss->network, rows, target_hidden + done * width, loss->target_logits);
        sum += run_rows(loss, &job, divergence_row, rows, hidden + done * width,
                        gradient_hidden != NULL ? gradient_hidden + done * width : NULL);
    }
    return sum / (double)tokens;
}
