#include "harness/engine/logit_loss.h"

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/compute/cpu_kernels.h"
#include "harness/compute/vector_math.h"

/* LANES: numbers worked on together, so that they go into vector registers. */
enum { PIECE = 512, LANES = 8 };

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
    out->rows = fl_network_logit_rows(network);
    fl_status status = FL_OK;
    FL_TRY_DONE(status,
                fl_compute_floats(network->compute, out->rows * vocabulary_of(out), &out->logits, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->row_loss, out->rows, error));
    if (with_target)
        FL_TRY_DONE(status, fl_compute_floats(network->compute, out->rows * vocabulary_of(out),
                                              &out->target_logits, error));
    return FL_OK;
done:
    fl_logit_loss_release(out);
    return status;
}

void fl_logit_loss_release(fl_logit_loss *loss) {
    if (loss->network == NULL) return;
    fl_compute_release(loss->network->compute, loss->logits);
    fl_compute_release(loss->network->compute, loss->target_logits);
    fl_memory_free(loss->row_loss);
    *loss = (fl_logit_loss){0};
}

static size_t bytes_of(size_t blocks, size_t rows, size_t vocabulary) {
    return blocks == 0 ? 0 : rows * (blocks * vocabulary * sizeof(float) + sizeof(double));
}

size_t fl_logit_loss_bytes(const fl_logit_loss *loss) {
    size_t blocks = (loss->logits != NULL) + (loss->target_logits != NULL);
    return blocks == 0 ? 0 : bytes_of(blocks, loss->rows, vocabulary_of(loss));
}

size_t fl_logit_loss_bytes_of(const fl_network *network, bool with_target) {
    return bytes_of(with_target ? 2 : 1, fl_network_logit_rows(network), network->model->config.vocabulary);
}

static double sum_of(size_t count, const float *x) {
    double lane[LANES] = {0.0}, sum = 0.0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
#pragma GCC unroll 8
        for (size_t j = 0; j < LANES; j++) lane[j] += (double)x[i + j];
    }
    for (; i < count; i++) sum += (double)x[i];
    for (size_t j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

/* y = exp(x - shift) for a piece of a row. */
static void exponentials(size_t count, const float *x, float shift, float *y) {
    for (size_t i = 0; i < count; i++) y[i] = x[i] - shift;
    fl_vector_exp(count, y, y);
}

/* Sum of exp(x - shift), which are put in `kept` (may be x) unless it is NULL. The exponentials are float32,
 * within a few units in the last place, their sum float64. */
static double sum_exponentials(size_t count, const float *x, float shift, float *kept) {
    float piece[PIECE] = {0};
    double sum = 0.0;
    for (size_t done = 0; done < count; done += PIECE) {
        size_t part = count - done < PIECE ? count - done : PIECE;
        float *to = kept != NULL ? kept + done : piece;
        exponentials(part, x + done, shift, to);
        sum += sum_of(part, to);
    }
    return sum;
}

static void next_token_row(void *context, size_t row, size_t worker) {
    (void)worker;
    const fl_logit_job *job = context;
    float *logits = job->loss->logits + row * job->vocabulary;
    size_t target = (size_t)job->targets[row];
    float largest = fl_kernels_current()->maximum(job->vocabulary, logits), of_target = logits[target];
    double sum = sum_exponentials(job->vocabulary, logits, largest, logits);
    job->loss->row_loss[row] = log(sum) + (double)largest - (double)of_target;
    if (!job->gradient) return;
    double probability = (double)logits[target] / sum;
    float scale = (float)(job->weight / sum);
    for (size_t i = 0; i < job->vocabulary; i++) logits[i] *= scale;
    logits[target] = (float)(job->weight * (probability - 1.0));
}

/* One piece of a row: target and own logits, with what takes them to probabilities. */
typedef struct {
    float shift, target_shift;
    double scale, target_scale; /* 1 / sum of exponentials */
} fl_divergence_row;

/* Sum of target_p (target - logits); with `weight`, logits become weight (p - target_p). */
static double divergence_piece(const fl_divergence_row *row, size_t count, const float *target, double weight,
                               bool gradient, float *logits) {
    float target_exponentials[PIECE], own[PIECE];
    double lane[LANES] = {0.0}, sum = 0.0;
    exponentials(count, target, row->target_shift, target_exponentials);
    if (gradient) exponentials(count, logits, row->shift, own);
    for (size_t i = 0; i < count; i++) {
        double probability = (double)target_exponentials[i] * row->target_scale;
        double difference = (double)target[i] - (double)logits[i];
        lane[i % LANES] += probability > 0.0 ? probability * difference : 0.0;
        if (gradient) logits[i] = (float)(weight * ((double)own[i] * row->scale - probability));
    }
    for (size_t j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

static void divergence_row(void *context, size_t row, size_t worker) {
    (void)worker;
    const fl_logit_job *job = context;
    size_t count = job->vocabulary;
    float *logits = job->loss->logits + row * count;
    const float *target = job->loss->target_logits + row * count;
    fl_divergence_row of = {.shift = fl_kernels_current()->maximum(count, logits),
                            .target_shift = fl_kernels_current()->maximum(count, target)};
    double own_sum = sum_exponentials(count, logits, of.shift, NULL);
    double target_sum = sum_exponentials(count, target, of.target_shift, NULL), sum = 0.0;
    of.scale = 1.0 / own_sum;
    of.target_scale = 1.0 / target_sum;
    for (size_t done = 0; done < count; done += PIECE) {
        size_t part = count - done < PIECE ? count - done : PIECE;
        sum += divergence_piece(&of, part, target + done, job->weight, job->gradient, logits + done);
    }
    double own_log = log(own_sum) + (double)of.shift, target_log = log(target_sum) + (double)of.target_shift;
    job->loss->row_loss[row] = sum - (target_log - own_log);
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
    if (gradient_hidden != NULL)
        fl_compute_fill(loss->network->compute, gradient_hidden + scored * width, width, 0.0);
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
