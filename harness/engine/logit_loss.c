#include "harness/engine/logit_loss.h"

#include <string.h>

#include "harness/base/memory.h"

static size_t vocabulary_of(const fl_logit_loss *loss) {
    return loss->network->model->config.vocabulary;
}

fl_status fl_logit_loss_create(const fl_network *network, bool with_target, fl_logit_loss *out,
                               fl_error *error) {
    *out = (fl_logit_loss){.network = network};
    out->rows = fl_network_logit_rows(network);
    const size_t logits = out->rows * vocabulary_of(out);
    const fl_compute_ops *ops = network->compute->ops;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, ops->allocate(network->compute, logits, FL_FLOAT32, &out->logits, error));
    FL_TRY_DONE(status, ops->allocate(network->compute, out->rows, FL_FLOAT64, &out->made, error));
    FL_TRY_DONE(status, ops->allocate(network->compute, out->rows, FL_INT32, &out->targets, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->row_loss, out->rows, error));
    if (!with_target) return FL_OK;
    FL_TRY_DONE(status, ops->allocate(network->compute, logits, FL_FLOAT32, &out->target_logits, error));
    return FL_OK;
done:
    fl_logit_loss_release(out);
    return status;
}

void fl_logit_loss_release(fl_logit_loss *loss) {
    if (loss->network == NULL) return;
    fl_compute *compute = loss->network->compute;
    compute->ops->release(compute, loss->logits);
    compute->ops->release(compute, loss->target_logits);
    compute->ops->release(compute, loss->made);
    compute->ops->release(compute, loss->targets);
    fl_memory_free(loss->row_loss);
    *loss = (fl_logit_loss){0};
}

static size_t bytes_of(size_t blocks, size_t rows, size_t vocabulary) {
    return blocks == 0 ? 0 : rows * (blocks * vocabulary * sizeof(float) + sizeof(double));
}

size_t fl_logit_loss_bytes(const fl_logit_loss *loss) {
    size_t blocks = fl_array_is(loss->logits) + fl_array_is(loss->target_logits);
    return blocks == 0 ? 0 : bytes_of(blocks, loss->rows, vocabulary_of(loss));
}

size_t fl_logit_loss_bytes_of(const fl_network *network, bool with_target) {
    return bytes_of(with_target ? 2 : 1, fl_network_logit_rows(network), network->model->config.vocabulary);
}

/* hidden -> logits -> losses (and gradient_hidden) of `rows` rows; *sum += the losses. */
static fl_status run_rows(fl_logit_loss *loss, fl_logit_gradient_call call, fl_array hidden,
                          fl_array gradient_hidden, double *sum, fl_error *error) {
    fl_compute *compute = loss->network->compute;
    double rows_sum = 0.0;
    call.vocabulary = vocabulary_of(loss);
    call.gradient = fl_array_is(gradient_hidden);
    call.logits = loss->logits;
    call.loss = loss->made;
    fl_network_logits(loss->network, call.rows, hidden, loss->logits);
    compute->ops->logit_gradient(compute, &call);
    FL_TRY(compute->ops->download(compute, loss->row_loss, loss->made, call.rows, error));
    for (size_t row = 0; row < call.rows; row++) rows_sum += loss->row_loss[row];
    *sum += rows_sum;
    if (fl_array_is(gradient_hidden)) {
        compute->ops->linear_backward(compute, loss->network->head, call.rows, loss->logits, gradient_hidden,
                                      false);
    }
    return FL_OK;
}

fl_status fl_logit_loss_next_token(fl_logit_loss *loss, const int32_t *ids, size_t tokens, fl_array hidden,
                                   double weight, fl_array gradient_hidden, double *mean, fl_error *error) {
    fl_compute *compute = loss->network->compute;
    size_t width = loss->network->model->config.model_dim, scored = tokens - 1;
    double sum = 0.0;
    for (size_t done = 0; done < scored; done += loss->rows) {
        size_t rows = scored - done < loss->rows ? scored - done : loss->rows;
        compute->ops->upload(compute, loss->targets, ids + done + 1, rows);
        const fl_logit_gradient_call call = {
            .rows = rows, .targets = loss->targets, .weight = weight / (double)scored};
        FL_TRY(run_rows(loss, call, fl_array_from(hidden, done * width),
                        fl_array_is(gradient_hidden) ? fl_array_from(gradient_hidden, done * width)
                                                     : fl_array_none,
                        &sum, error));
    }
    if (fl_array_is(gradient_hidden))
        fl_compute_fill(compute, fl_array_from(gradient_hidden, scored * width), width, 0.0);
    *mean = sum / (double)scored;
    return FL_OK;
}

fl_status fl_logit_loss_divergence(fl_logit_loss *loss, size_t tokens, fl_array target_hidden,
                                   fl_array hidden, double weight, fl_array gradient_hidden, double *mean,
                                   fl_error *error) {
    size_t width = loss->network->model->config.model_dim;
    double sum = 0.0;
    for (size_t done = 0; done < tokens; done += loss->rows) {
        size_t rows = tokens - done < loss->rows ? tokens - done : loss->rows;
        fl_network_logits(loss->network, rows, fl_array_from(target_hidden, done * width),
                          loss->target_logits);
        const fl_logit_gradient_call call = {
            .rows = rows, .target_logits = loss->target_logits, .weight = weight / (double)tokens};
        FL_TRY(run_rows(loss, call, fl_array_from(hidden, done * width),
                        fl_array_is(gradient_hidden) ? fl_array_from(gradient_hidden, done * width)
                                                     : fl_array_none,
                        &sum, error));
    }
    *mean = sum / (double)tokens;
    return FL_OK;
}
