#include "harness/engine/generation.h"

#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"

typedef struct generation_work {
    fl_array hidden, logits; /* [E], [V] of the instance */
    float *host;             /* [V] the logits, downloaded */
} generation_work;

/* hidden [E] = the final state of the prompt's last token. */
static fl_status read_prompt(fl_session *session, const int32_t *prompt, size_t tokens, fl_array hidden,
                             fl_error *error) {
    const size_t last = tokens - 1;
    return fl_session_forward_rows(session, prompt, tokens, &last, 1, hidden, error);
}

static fl_status generate(fl_session *session, const fl_network *network, const int32_t *prompt,
                          size_t tokens, size_t most, int32_t stop, generation_work *work, fl_generation *out,
                          fl_error *error) {
    const size_t vocabulary = network->model->config.vocabulary;
    FL_TRY(read_prompt(session, prompt, tokens, work->hidden, error));
    while (out->count < most) {
        fl_network_logits(network, 1, work->hidden, work->logits);
        FL_TRY(fl_compute_download(network->compute, work->host, work->logits, vocabulary, error));
        const int32_t next = (int32_t)fl_logits_best(work->host, vocabulary);
        if (next == stop) break;
        out->ids[out->count++] = next;
        out->reached += fl_session_tokens_written(session) > 0;
        if (out->count == most) break;
        FL_TRY(fl_session_forward(session, &next, 1, fl_array_none, work->hidden, NULL, error));
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
    FL_TRY_DONE(status, fl_compute_floats(network->compute, config->model_dim, &work.hidden, error));
    FL_TRY_DONE(status, fl_compute_floats(network->compute, config->vocabulary, &work.logits, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&work.host, config->vocabulary, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->ids, most, error));
    status = generate(session, network, prompt, tokens, most, stop, &work, out, error);
done:
    fl_compute_release(network->compute, work.hidden);
    fl_compute_release(network->compute, work.logits);
    fl_memory_free(work.host);
    if (status != FL_OK) fl_generation_release(out);
    return status;
}

void fl_generation_release(fl_generation *generation) {
    fl_memory_free(generation->ids);
    *generation = (fl_generation){0};
}

/* One sequence on its way. */
typedef struct {
    fl_session *session;
    fl_random random;
    int32_t *ids;
    size_t count, room, generated;
    size_t row;   /* of the batch's logits; START: those after the prompt */
    int32_t next; /* the token drawn last */
} fl_lane;

enum { START = FL_GENERATION_BATCH };

typedef struct {
    const fl_network *network;
    const fl_generation_options *options;
    fl_session *prompt; /* after the prompt: where every document starts */
    fl_lane lanes[FL_GENERATION_BATCH];
    size_t lane_count;
    fl_array hidden;                /* [FL_GENERATION_BATCH][E] */
    fl_array device_logits;         /* [FL_GENERATION_BATCH][V] of the instance */
    float *logits, *start_logits;   /* [FL_GENERATION_BATCH][V], [V], downloaded */
    fl_sampling_candidate *scratch; /* [workers][V] */
} fl_sampler;

static size_t vocabulary_of(const fl_sampler *sampler) {
    return sampler->network->model->config.vocabulary;
}

static fl_status append(fl_lane *lane, const int32_t *ids, size_t count, fl_error *error) {
    if (lane->count + count > lane->room) {
        size_t room = 2 * (lane->count + count);
        FL_TRY(FL_RESIZE(&lane->ids, lane->room, room, error));
        lane->room = room;
    }
    if (count > 0) memcpy(lane->ids + lane->count, ids, count * sizeof *ids);
    lane->count += count;
    return FL_OK;
}

static fl_status start_document(fl_sampler *sampler, fl_lane *lane, fl_error *error) {
    const fl_generation_options *options = sampler->options;
    size_t hidden = options->prompt_tokens - options->prompt_shown;
    FL_TRY(fl_session_copy(lane->session, sampler->prompt, error));
    lane->row = START;
    return append(lane, options->prompt + hidden, options->prompt_shown, error);
}

static void draw_next(void *context, size_t item, size_t worker) {
    fl_sampler *sampler = context;
    fl_lane *lane = &sampler->lanes[item];
    size_t vocabulary = vocabulary_of(sampler);
    const float *logits =
        lane->row == START ? sampler->start_logits : sampler->logits + lane->row * vocabulary;
    lane->next = fl_sample(&sampler->options->sampling, logits, vocabulary, fl_random_uniform(&lane->random),
                           sampler->scratch + worker * vocabulary);
}

static bool is_stop(const fl_generation_options *options, int32_t id) {
    for (size_t i = 0; i < options->stop_count; i++) {
        if (options->stops[i] == id) return true;
    }
    return false;
}

/* Appends what was drawn; *goes_on = the document needs a further token. */
static fl_status accept(fl_sampler *sampler, fl_lane *lane, bool *goes_on, fl_error *error) {
    const fl_generation_options *options = sampler->options;
    size_t longest = sampler->network->model->config.max_positions;
    if (lane->next < 0) {
        return fl_error_set(error, FL_ERROR_NUMERIC, "generation: logits are not finite after %zu tokens",
                            lane->generated);
    }
    bool full = longest > 0 && fl_session_position(lane->session) + 1 >= longest;
    if (full && options->stop_count > 0) lane->next = options->stops[0];
    FL_TRY(append(lane, &lane->next, 1, error));
    lane->generated++;
    bool complete = lane->generated == options->tokens;
    *goes_on = !complete && !full && !is_stop(options, lane->next);
    return complete || *goes_on ? FL_OK : start_document(sampler, lane, error);
}

/* logits [rows][V] of the first `rows` final states. */
static fl_status download_logits(const fl_sampler *sampler, size_t rows, float *logits, fl_error *error) {
    fl_network_logits(sampler->network, rows, sampler->hidden, sampler->device_logits);
    return fl_compute_download(sampler->network->compute, logits, sampler->device_logits,
                               rows * vocabulary_of(sampler), error);
}

/* One token for every lane. */
static fl_status advance(fl_sampler *sampler, fl_error *error) {
    fl_session *sessions[FL_GENERATION_BATCH];
    int32_t ids[FL_GENERATION_BATCH];
    size_t rows = 0;
    fl_threads_for(sampler->network->compute->threads, sampler->lane_count, draw_next, sampler);
    for (size_t i = 0; i < sampler->lane_count; i++) {
        fl_lane *lane = &sampler->lanes[i];
        bool goes_on = false;
        FL_TRY(accept(sampler, lane, &goes_on, error));
        if (!goes_on) continue;
        lane->row = rows;
        sessions[rows] = lane->session;
        ids[rows++] = lane->next;
    }
    if (rows == 0) return FL_OK;
    FL_TRY(fl_session_forward_batch(sessions, rows, ids, sampler->hidden, error));
    return download_logits(sampler, rows, sampler->logits, error);
}

/* Sequences first .. first + lane_count - 1. */
static fl_status sample_batch(fl_sampler *sampler, size_t first, fl_sequences *out, fl_error *error) {
    const fl_generation_options *options = sampler->options;
    for (size_t i = 0; i < sampler->lane_count; i++) {
        fl_lane *lane = &sampler->lanes[i];
        lane->count = lane->generated = 0;
        fl_random_seed(&lane->random, options->seed, first + i);
        FL_TRY(start_document(sampler, lane, error));
    }
    for (size_t t = 0; t < options->tokens; t++) {
        fl_progress_report(options->progress, "sampling text",
                           first * options->tokens + t * sampler->lane_count,
                           options->sequences * options->tokens);
        if (fl_progress_cancelled(options->progress))
            return fl_error_set(error, FL_ERROR_CANCELLED, "generation: interrupted");
        FL_TRY(advance(sampler, error));
    }
    for (size_t i = 0; i < sampler->lane_count; i++) {
        fl_lane *lane = &sampler->lanes[i];
        FL_TRY(FL_ALLOCATE(&out->ids[first + i], lane->count, error));
        memcpy(out->ids[first + i], lane->ids, lane->count * sizeof *lane->ids);
        out->lengths[first + i] = lane->count;
    }
    return FL_OK;
}

static fl_status prepare(fl_sampler *sampler, const fl_mechanism *mechanism, size_t lanes, fl_error *error) {
    const fl_network *network = sampler->network;
    const fl_generation_options *options = sampler->options;
    const fl_model_config *config = &network->model->config;
    size_t scratch = fl_threads_count(network->compute->threads) * config->vocabulary;
    FL_TRY(fl_compute_floats(network->compute, FL_GENERATION_BATCH * config->model_dim, &sampler->hidden,
                             error));
    FL_TRY(fl_compute_floats(network->compute, lanes * config->vocabulary, &sampler->device_logits, error));
    FL_TRY(FL_ALLOCATE(&sampler->logits, lanes * config->vocabulary, error));
    FL_TRY(FL_ALLOCATE(&sampler->start_logits, config->vocabulary, error));
    FL_TRY(FL_ALLOCATE(&sampler->scratch, scratch, error));
    FL_TRY(fl_session_create(network, mechanism, &sampler->prompt, error));
    for (size_t i = 0; i < lanes; i++)
        FL_TRY(fl_session_create(network, mechanism, &sampler->lanes[i].session, error));
    FL_TRY(read_prompt(sampler->prompt, options->prompt, options->prompt_tokens, sampler->hidden, error));
    return download_logits(sampler, 1, sampler->start_logits, error);
}

static void release_sampler(fl_sampler *sampler) {
    for (size_t i = 0; i < FL_GENERATION_BATCH; i++) {
        fl_session_destroy(sampler->lanes[i].session);
        fl_memory_free(sampler->lanes[i].ids);
    }
    fl_session_destroy(sampler->prompt);
    fl_compute_release(sampler->network->compute, sampler->hidden);
    fl_compute_release(sampler->network->compute, sampler->device_logits);
    fl_memory_free(sampler->logits);
    fl_memory_free(sampler->start_logits);
    fl_memory_free(sampler->scratch);
}

static fl_status check_options(const fl_network *network, const fl_generation_options *options,
                               fl_error *error) {
    const fl_sampling *sampling = &options->sampling;
    size_t longest = network->model->config.max_positions;
    if (options->sequences == 0 || options->tokens == 0 || options->prompt_tokens == 0 ||
        options->prompt_shown > options->prompt_tokens) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "generation: sequences, tokens and prompt must not be empty");
    }
    if (!(sampling->temperature >= 0.0) || !(sampling->top_p > 0.0 && sampling->top_p <= 1.0)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "generation: temperature must be at least 0, top_p above 0 and at most 1");
    }
    if (longest > 0 && options->prompt_tokens >= longest) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "generation: a prompt of %zu tokens fills the model's context of %zu",
                            options->prompt_tokens, longest);
    }
    return FL_OK;
}

fl_status fl_generate_sampled(const fl_network *network, const fl_mechanism *mechanism,
                              const fl_generation_options *options, fl_sequences *out, fl_error *error) {
    *out = (fl_sequences){0};
    FL_TRY(check_options(network, options, error));
    fl_sampler sampler = {.network = network, .options = options};
    size_t lanes = options->sequences < FL_GENERATION_BATCH ? options->sequences : FL_GENERATION_BATCH;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&out->lengths, options->sequences, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->ids, options->sequences, error));
    out->count = options->sequences;
    FL_TRY_DONE(status, prepare(&sampler, mechanism, lanes, error));
    for (size_t first = 0; first < options->sequences; first += lanes) {
        size_t left = options->sequences - first;
        sampler.lane_count = left < lanes ? left : lanes;
        FL_TRY_DONE(status, sample_batch(&sampler, first, out, error));
    }
    fl_progress_report(options->progress, "sampling text", options->sequences * options->tokens,
                       options->sequences * options->tokens);
done:
    release_sampler(&sampler);
    if (status != FL_OK) fl_sequences_release(out);
    return status;
}
