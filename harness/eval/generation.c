#include "harness/eval/generation.h"

#include "harness/base/memory.h"
#include "harness/eval/log_softmax.h"

typedef struct generation_work {
    float *hidden, *logits; /* [FL_SESSION_BLOCK][E], [V] */
} generation_work;

/* Reads the prompt block by block; *last = its last row. */
static fl_status read_prompt(fl_session *session, const fl_network *network, const int32_t *prompt,
                             size_t tokens, float *hidden, const float **last, fl_error *error) {
    size_t read = 0, block = 0;
    while (read < tokens) {
        block = tokens - read < FL_SESSION_BLOCK ? tokens - read : FL_SESSION_BLOCK;
        FL_TRY(fl_session_forward(session, prompt + read, block, NULL, hidden, NULL, error));
        read += block;
    }
    *last = hidden + (block - 1) * network->model->config.model_dim;
    return FL_OK;
}

static fl_status generate(fl_session *session, const fl_network *network, const int32_t *prompt,
                          size_t tokens, size_t most, int32_t stop, generation_work *work, fl_generation *out,
                          fl_error *error) {
    const size_t vocabulary = network->model->config.vocabulary;
    const float *last = NULL;
    FL_TRY(read_prompt(session, network, prompt, tokens, work->hidden, &last, error));
    while (out->count < most) {
        fl_network_logits(network, 1, last, work->logits);
        const int32_t next =
            (int32_t)fl_log_softmax_of(work->logits, vocabulary, FL_LOG_SOFTMAX_FLOAT64).best;
        if (next == stop) break;
        out->ids[out->count++] = next;
        out->reached += fl_session_tokens_written(session) > 0;
        if (out->count == most) break;
        FL_TRY(fl_session_forward(session, &next, 1, NULL, work->hidden, NULL, error));
        last = work->hidden;
    }
    return FL_OK;
}

fl_status fl_generate_greedy(fl_session *session, const fl_network *network, const int32_t *prompt,
                             size_t tokens, size_t most, int32_t stop, fl_generation *out, fl_error *error) {
    *out = (fl_generation){0};
    if (tokens == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "an empty prompt cannot be continued");
    const fl_model_config *config = &network->model->config;
    generation_work work = {0};
    fl_status status;
    FL_TRY_DONE(status, FL_ALLOCATE(&work.hidden, FL_SESSION_BLOCK * config->model_dim, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&work.logits, config->vocabulary, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->ids, most, error));
    status = generate(session, network, prompt, tokens, most, stop, &work, out, error);
done:
    fl_memory_free(work.hidden);
    fl_memory_free(work.logits);
    if (status != FL_OK) fl_generation_release(out);
    return status;
}

void fl_generation_release(fl_generation *generation) {
    fl_memory_free(generation->ids);
    *generation = (fl_generation){0};
}
