#include "harness/engine/session.h"

#include <assert.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/engine/block.h"
#include "harness/engine/key_value_cache.h"

typedef struct {
    fl_key_value_cache cache; /* softmax layers */
    fl_mixer *mixer;          /* linearised layers; NULL in softmax layers */
    fl_mixer *branch;         /* a continuation of it that is not kept; NULL until there is one */
} fl_session_layer;

struct fl_session {
    const fl_network *network;
    const fl_mechanism *mechanism;
    size_t position, expected_length;
    bool broken; /* a forward pass stopped half-way: layers disagree about the position */
    fl_session_layer *layers;
    fl_ascending index; /* positions, and shifted by the window expiries, of cached keys */
    fl_rope rope;
    fl_block block;
    fl_array stream; /* [stream_tokens][E] */
    size_t stream_tokens;
    fl_array rows; /* [FL_SESSION_BLOCK] int32: numbers of wanted tokens; none until some are */
};

static const fl_model_config *config_of(const fl_session *session) {
    return &session->network->model->config;
}

static fl_status reserve_activations(fl_session *session, size_t tokens, fl_error *error) {
    size_t rank = session->mechanism != NULL ? session->mechanism->variant->lora_rank : 0;
    FL_TRY(fl_block_reserve(&session->block, session->network, false, tokens, error));
    FL_TRY(fl_block_reserve_adapter(&session->block, rank, tokens, error));
    if (tokens <= session->stream_tokens) return FL_OK;
    fl_compute *compute = session->network->compute;
    fl_compute_release(compute, session->stream);
    session->stream = fl_array_none;
    session->stream_tokens = 0;
    FL_TRY(fl_compute_floats(compute, tokens * config_of(session)->model_dim, &session->stream, error));
    session->stream_tokens = tokens;
    return FL_OK;
}

static fl_status reserve_rows(fl_session *session, fl_error *error) {
    fl_compute *compute = session->network->compute;
    if (fl_array_is(session->rows)) return FL_OK;
    return compute->ops->allocate(compute, FL_SESSION_BLOCK, FL_INT32, &session->rows, error);
}

static fl_status create_layers(fl_session *session, fl_error *error) {
    const fl_model_config *config = config_of(session);
    const fl_mechanism *mechanism = session->mechanism;
    FL_TRY(FL_ALLOCATE(&session->layers, config->layers, error));
    for (size_t l = 0; l < config->layers; l++) {
        fl_session_layer *layer = &session->layers[l];
        fl_key_value_cache_init(&layer->cache, session->network->compute, config->kv_heads, config->head_dim,
                                config->sliding_window[l]);
        if (mechanism == NULL || fl_variant_layer_is_softmax(mechanism->variant, l)) continue;
        FL_TRY(fl_mixer_create(session->network->compute, mechanism, l, &layer->mixer, error));
    }
    return FL_OK;
}

fl_status fl_session_create(const fl_network *network, const fl_mechanism *mechanism, fl_session **out,
                            fl_error *error) {
    *out = NULL;
    assert(mechanism == NULL || mechanism->layers == network->model->config.layers);
    fl_session *session = NULL;
    FL_TRY(FL_ALLOCATE(&session, 1, error));
    session->network = network;
    session->mechanism = mechanism;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, create_layers(session, error));
    FL_TRY_DONE(status, fl_rope_create(config_of(session), &session->rope, error));
    *out = session;
    return FL_OK;
done:
    fl_session_destroy(session);
    return status;
}

void fl_session_destroy(fl_session *session) {
    if (session == NULL) return;
    for (size_t l = 0; session->layers != NULL && l < config_of(session)->layers; l++) {
        fl_key_value_cache_release(&session->layers[l].cache);
        fl_mixer_destroy(session->layers[l].mixer);
        fl_mixer_destroy(session->layers[l].branch);
    }
    fl_memory_free(session->layers);
    fl_compute_release(session->network->compute, session->index.values);
    fl_compute_release(session->network->compute, session->stream);
    session->network->compute->ops->release(session->network->compute, session->rows);
    fl_rope_release(&session->rope);
    fl_block_release(&session->block);
    fl_memory_free(session);
}

void fl_session_reset(fl_session *session) {
    for (size_t l = 0; l < config_of(session)->layers; l++) {
        fl_key_value_cache_clear(&session->layers[l].cache);
        if (session->layers[l].mixer != NULL) fl_mixer_reset(session->layers[l].mixer);
    }
    session->position = session->expected_length = 0;
    session->broken = false;
}

fl_status fl_session_expect_length(fl_session *session, size_t tokens, fl_error *error) {
    for (size_t l = 0; l < config_of(session)->layers; l++) {
        fl_session_layer *layer = &session->layers[l];
        if (layer->mixer != NULL || layer->cache.window != 0) continue;
        FL_TRY(fl_key_value_cache_reserve(&layer->cache, tokens, error));
    }
    session->expected_length = tokens;
    return FL_OK;
}

/* Rows of a block's activations: one timeline's tokens. */
typedef struct {
    size_t tokens;
    fl_array attention_input, query, key, value;
    fl_array mix;
} fl_rows;

static fl_rows rows_from(const fl_session *session, const fl_block *block, size_t first, size_t tokens) {
    const fl_model_config *config = config_of(session);
    size_t queries = config->query_heads * config->head_dim, keys = config->kv_heads * config->head_dim;
    return (fl_rows){.tokens = tokens,
                     .attention_input = fl_array_from(block->attention_input, first * config->model_dim),
                     .query = fl_array_from(block->query, first * queries),
                     .key = fl_array_from(block->key, first * keys),
                     .value = fl_array_from(block->value, first * keys),
                     .mix = fl_array_from(block->mix, first * queries)};
}

static fl_status mix_softmax(fl_session *session, fl_key_value_cache *cache, const fl_rows *rows,
                             fl_error *error) {
    size_t past = 0, tokens = rows->tokens;
    FL_TRY(fl_key_value_cache_append(cache, tokens, rows->key, rows->value, &past, error));
    fl_compute *compute = session->network->compute;
    FL_TRY(fl_ascending_reserve(&session->index, compute, past + tokens + cache->window, error));
    /* Positions count from the oldest live key: only differences matter here. */
    fl_attention_call call = {
        .shape = session->network->shape,
        .tokens = tokens,
        .first_position = past,
        .query = rows->query,
        .keys = past + tokens,
        .key = fl_key_value_rows_key(&cache->rows, cache->start),
        .value = fl_key_value_rows_value(&cache->rows, cache->start),
        .key_head_stride = fl_key_value_rows_stride(&cache->rows),
        .position = session->index.values,
        .expiry = cache->window != 0 ? fl_array_from(session->index.values, cache->window) : fl_array_none,
        .output = rows->mix,
    };
    compute->ops->attention(compute, &call);
    return FL_OK;
}

static fl_status mix_linear(fl_mixer *mixer, const fl_rows *rows, fl_error *error) {
    const fl_mixer_call call = {
        .tokens = rows->tokens,
        .query = rows->query,
        .key = rows->key,
        .value = rows->value,
        .input = rows->attention_input,
        .output = rows->mix,
    };
    return fl_mixer_forward(mixer, &call, error);
}

static fl_status mix(fl_session *session, size_t layer, const fl_rows *rows, fl_error *error) {
    fl_session_layer *state = &session->layers[layer];
    return state->mixer == NULL ? mix_softmax(session, &state->cache, rows, error)
                                : mix_linear(state->mixer, rows, error);
}

/* The same, leaving the layer as it was. *written: tokens its state would have received, SIZE_MAX without
 * one. */
static fl_status mix_branch(fl_session *session, size_t layer, const fl_rows *rows, size_t *written,
                            fl_error *error) {
    fl_session_layer *state = &session->layers[layer];
    *written = SIZE_MAX;
    if (state->mixer == NULL) {
        FL_TRY(mix_softmax(session, &state->cache, rows, error));
        fl_key_value_cache_take_back(&state->cache, rows->tokens);
        return FL_OK;
    }
    if (state->branch == NULL) {
        FL_TRY(fl_mixer_fork(state->mixer, &state->branch, error));
    } else {
        FL_TRY(fl_mixer_copy(state->branch, state->mixer, error));
    }
    FL_TRY(mix_linear(state->branch, rows, error));
    *written = fl_mixer_tokens_written(state->branch);
    return FL_OK;
}

/* Tokens of a block whose final states are wanted: number `first` of its call is the block's first. */
typedef struct {
    const size_t *rows;
    size_t first, count;
} fl_wanted_rows;

/* Moves their mix and stream to the front, by way of what lies before the mixing. */
static fl_status gather(fl_session *session, const fl_wanted_rows *wanted, fl_error *error) {
    const fl_model_config *config = config_of(session);
    const size_t mix = config->query_heads * config->head_dim, width = config->model_dim,
                 rows = wanted->count;
    fl_compute *compute = session->network->compute;
    fl_block *block = &session->block;
    int32_t index[FL_SESSION_BLOCK];
    FL_TRY(reserve_rows(session, error));
    for (size_t i = 0; i < rows; i++) index[i] = (int32_t)(wanted->rows[i] - wanted->first);
    compute->ops->upload(compute, session->rows, index, rows);
    fl_compute_gather_rows(compute, block->query, mix, block->mix, mix, session->rows, rows, mix);
    fl_compute_copy(compute, block->mix, block->query, rows * mix);
    fl_compute_gather_rows(compute, block->attention_input, width, session->stream, width, session->rows,
                           rows, width);
    fl_compute_copy(compute, session->stream, block->attention_input, rows * width);
    return FL_OK;
}

/* After mixing: the rest of the layer, and after the last one of the model, into hidden (NULL: not wanted).
 * wanted NULL: all tokens. */
static fl_status finish_layer(fl_session *session, size_t layer, const fl_adapter *adapter, size_t tokens,
                              const fl_wanted_rows *wanted, fl_array hidden, fl_error *error) {
    const fl_network *network = session->network;
    const fl_model_config *config = config_of(session);
    bool last = layer + 1 == config->layers;
    if (last && wanted != NULL) {
        FL_TRY(gather(session, wanted, error));
        tokens = wanted->count;
    }
    if (tokens == 0) return FL_OK;
    fl_block_attention_output(network, layer, adapter, tokens, session->stream, &session->block);
    fl_block_feed_forward(network, layer, tokens, session->stream, &session->block);
    if (!last || !fl_array_is(hidden)) return FL_OK;
    network->compute->ops->rms_norm(network->compute, tokens, config->model_dim, session->stream,
                                    network->final_norm, config->norm_epsilon, hidden);
    return FL_OK;
}

static fl_status forward_layer(fl_session *session, size_t layer, size_t tokens, size_t first,
                               const fl_wanted_rows *wanted, fl_array hidden,
                               const fl_session_observer *observer, fl_error *error) {
    const fl_network *network = session->network;
    fl_block *block = &session->block;
    const fl_adapter adapter = fl_adapter_of(session->mechanism, layer);
    fl_block_project(network, layer, &session->rope, &adapter, tokens, first, session->stream, block);
    const fl_rows rows = rows_from(session, block, 0, tokens);
    FL_TRY(mix(session, layer, &rows, error));
    FL_TRY(finish_layer(session, layer, &adapter, tokens, wanted, hidden, error));
    if (observer == NULL || observer->layer == NULL) return FL_OK;
    fl_layer_view view = {
        .layer = layer,
        .tokens = tokens,
        .first_position = first,
        .attention_input = block->attention_input,
        .query = block->query,
        .key = block->key,
        .value = block->value,
        .mix = block->mix,
        .attention_output = block->attention_output,
        .residual = session->stream,
        .mixer = session->layers[layer].mixer,
    };
    return observer->layer(observer->context, &view, error);
}

static fl_status forward_block(fl_session *session, const int32_t *ids, size_t tokens, fl_array embedding,
                               const fl_wanted_rows *wanted, fl_array hidden,
                               const fl_session_observer *observer, fl_error *error) {
    const fl_network *network = session->network;
    const fl_model_config *config = config_of(session);
    fl_compute *compute = network->compute;
    size_t floats = tokens * config->model_dim;
    FL_TRY(reserve_activations(session, tokens, error));
    FL_TRY(fl_network_embed(network, tokens, ids, session->stream, error));
    if (fl_array_is(embedding)) fl_compute_copy(compute, embedding, session->stream, floats);
    for (size_t l = 0; l < config->layers; l++) {
        FL_TRY(fl_network_go_on(network, error));
        FL_TRY(forward_layer(session, l, tokens, session->position, wanted, hidden, observer, error));
    }
    session->position += tokens;
    return FL_OK;
}

static fl_status check_call(const fl_session *session, const int32_t *ids, size_t tokens, fl_error *error) {
    size_t vocabulary = config_of(session)->vocabulary;
    if (session->broken) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "session: an earlier forward pass stopped half-way; reset the session first");
    }
    for (size_t t = 0; t < tokens; t++) {
        if (ids[t] < 0 || (size_t)ids[t] >= vocabulary) {
            return fl_error_set(error, FL_ERROR_ARGUMENT,
                                "token %zu: id %ld is outside the vocabulary of %zu", session->position + t,
                                (long)ids[t], vocabulary);
        }
    }
    return FL_OK;
}

/* Frequencies for the length reached after `tokens` more. */
static void set_rope_length(fl_session *session, size_t tokens) {
    if (config_of(session)->rope.type != FL_ROPE_DYNAMIC) return;
    size_t length = session->position + tokens;
    if (length < session->expected_length) length = session->expected_length;
    fl_rope_set_length(&session->rope, config_of(session), length);
}

/* A call in blocks. chosen NULL: all tokens are wanted. */
static fl_status forward_call(fl_session *session, const int32_t *ids, size_t tokens, fl_array embedding,
                              const fl_wanted_rows *chosen, fl_array hidden,
                              const fl_session_observer *observer, fl_error *error) {
    FL_TRY(check_call(session, ids, tokens, error));
    set_rope_length(session, tokens);
    size_t width = config_of(session)->model_dim, finished = 0;
    for (size_t done = 0; done < tokens; done += FL_SESSION_BLOCK) {
        size_t block = tokens - done < FL_SESSION_BLOCK ? tokens - done : FL_SESSION_BLOCK;
        fl_wanted_rows wanted = {.first = done};
        if (chosen != NULL && chosen->count > 0) wanted.rows = chosen->rows + finished;
        while (chosen != NULL && finished + wanted.count < chosen->count &&
               wanted.rows[wanted.count] < done + block)
            wanted.count++;
        fl_status status = forward_block(
            session, ids + done, block,
            fl_array_is(embedding) ? fl_array_from(embedding, done * width) : fl_array_none,
            chosen != NULL ? &wanted : NULL,
            fl_array_is(hidden) ? fl_array_from(hidden, finished * width) : fl_array_none, observer, error);
        if (status != FL_OK) {
            session->broken = true;
            return status;
        }
        finished += chosen != NULL ? wanted.count : block;
    }
    assert(chosen == NULL || finished == chosen->count);
    return FL_OK;
}

fl_status fl_session_forward_rows(fl_session *session, const int32_t *ids, size_t tokens, const size_t *rows,
                                  size_t row_count, fl_array hidden, fl_error *error) {
    const fl_wanted_rows chosen = {.rows = rows, .count = row_count};
    return forward_call(session, ids, tokens, fl_array_none, &chosen, hidden, NULL, error);
}

fl_status fl_session_forward(fl_session *session, const int32_t *ids, size_t tokens, fl_array embedding,
                             fl_array hidden, const fl_session_observer *observer, fl_error *error) {
    const fl_wanted_rows none = {0}, *chosen = !fl_array_is(hidden) && observer == NULL ? &none : NULL;
    return forward_call(session, ids, tokens, embedding, chosen, hidden, observer, error);
}

static fl_status forward_branches_layer(fl_session *session, const fl_session_branches *branches,
                                        size_t layer, size_t tokens, fl_error *error) {
    const fl_network *network = session->network;
    const fl_model_config *config = config_of(session);
    const fl_adapter adapter = fl_adapter_of(session->mechanism, layer);
    fl_block *block = &session->block;
    size_t queries = config->query_heads * config->head_dim, keys = config->kv_heads * config->head_dim;
    fl_block_project(network, layer, NULL, &adapter, tokens, 0, session->stream, block);
    for (size_t i = 0, at = 0; i < branches->count; at += branches->tokens[i++]) {
        size_t written, count = branches->tokens[i];
        set_rope_length(session, count);
        fl_block_rotate(network, &session->rope, count, session->position,
                        fl_array_from(block->query, at * queries), fl_array_from(block->key, at * keys));
        const fl_rows rows = rows_from(session, block, at, count);
        FL_TRY(mix_branch(session, layer, &rows, &written, error));
        if (written < branches->written[i]) branches->written[i] = written;
    }
    const fl_wanted_rows wanted = {branches->rows, 0, branches->row_count};
    return finish_layer(session, layer, &adapter, tokens, &wanted, branches->hidden, error);
}

fl_status fl_session_forward_branches(fl_session *session, const fl_session_branches *branches,
                                      fl_error *error) {
    const fl_network *network = session->network;
    fl_status status = FL_OK;
    size_t tokens = 0;
    for (size_t i = 0; i < branches->count; i++) {
        tokens += branches->tokens[i];
        branches->written[i] = SIZE_MAX;
    }
    assert(tokens <= FL_SESSION_BLOCK);
    FL_TRY(check_call(session, branches->ids, tokens, error));
    FL_TRY(reserve_activations(session, tokens, error));
    FL_TRY(fl_network_embed(network, tokens, branches->ids, session->stream, error));
    for (size_t l = 0; status == FL_OK && l < config_of(session)->layers; l++) {
        status = fl_network_go_on(network, error);
        if (status == FL_OK) status = forward_branches_layer(session, branches, l, tokens, error);
    }
    session->broken = status != FL_OK;
    for (size_t i = 0; i < branches->count; i++)
        if (branches->written[i] == SIZE_MAX) branches->written[i] = 0;
    return status;
}

/* One layer for one row of each session; activations lie in the first session's block. */
static fl_status forward_batch_layer(fl_session *const *sessions, size_t count, size_t layer, fl_array hidden,
                                     fl_error *error) {
    fl_session *first = sessions[0];
    const fl_network *network = first->network;
    const fl_model_config *config = config_of(first);
    const fl_adapter adapter = fl_adapter_of(first->mechanism, layer);
    fl_block *block = &first->block;
    size_t queries = config->query_heads * config->head_dim, keys = config->kv_heads * config->head_dim;
    fl_block_project(network, layer, NULL, &adapter, count, 0, first->stream, block);
    for (size_t i = 0; i < count; i++) {
        fl_block_rotate(network, &sessions[i]->rope, 1, sessions[i]->position,
                        fl_array_from(block->query, i * queries), fl_array_from(block->key, i * keys));
        const fl_rows row = rows_from(first, block, i, 1);
        FL_TRY(mix(sessions[i], layer, &row, error));
    }
    return finish_layer(first, layer, &adapter, count, NULL, hidden, error);
}

static fl_status forward_rows(fl_session *const *sessions, size_t count, const int32_t *ids, fl_array hidden,
                              fl_error *error) {
    fl_session *first = sessions[0];
    const fl_network *network = first->network;
    FL_TRY(reserve_activations(first, count, error));
    FL_TRY(fl_network_embed(network, count, ids, first->stream, error));
    for (size_t l = 0; l < config_of(first)->layers; l++) {
        FL_TRY(fl_network_go_on(network, error));
        FL_TRY(forward_batch_layer(sessions, count, l, hidden, error));
    }
    return FL_OK;
}

fl_status fl_session_forward_batch(fl_session *const *sessions, size_t count, const int32_t *ids,
                                   fl_array hidden, fl_error *error) {
    for (size_t i = 0; i < count; i++) {
        assert(sessions[i]->network == sessions[0]->network);
        assert(sessions[i]->mechanism == sessions[0]->mechanism);
        FL_TRY(check_call(sessions[i], ids + i, 1, error));
        set_rope_length(sessions[i], 1);
    }
    fl_status status = count > 0 ? forward_rows(sessions, count, ids, hidden, error) : FL_OK;
    for (size_t i = 0; i < count; i++) {
        sessions[i]->position += status == FL_OK;
        sessions[i]->broken = status != FL_OK;
    }
    return status;
}

fl_status fl_session_fork(const fl_session *session, fl_session **out, fl_error *error) {
    fl_session *fork = NULL;
    *out = NULL;
    FL_TRY(fl_session_create(session->network, session->mechanism, &fork, error));
    fl_status status = fl_session_copy(fork, session, error);
    if (status != FL_OK) {
        fl_session_destroy(fork);
        return status;
    }
    *out = fork;
    return FL_OK;
}

fl_status fl_session_copy(fl_session *session, const fl_session *source, fl_error *error) {
    assert(session->network == source->network && session->mechanism == source->mechanism);
    session->broken = true;
    for (size_t l = 0; l < config_of(session)->layers; l++) {
        fl_session_layer *layer = &session->layers[l];
        const fl_session_layer *from = &source->layers[l];
        FL_TRY(fl_key_value_cache_copy(&layer->cache, &from->cache, error));
        if (layer->mixer != NULL) FL_TRY(fl_mixer_copy(layer->mixer, from->mixer, error));
    }
    session->position = source->position;
    session->expected_length = source->expected_length;
    session->broken = source->broken;
    return FL_OK;
}

size_t fl_session_position(const fl_session *session) {
    return session->position;
}

size_t fl_session_state_bytes(const fl_session *session) {
    size_t bytes = 0;
    for (size_t l = 0; l < config_of(session)->layers; l++) {
        if (session->layers[l].mixer != NULL) bytes += fl_mixer_state_bytes(session->layers[l].mixer);
    }
    return bytes;
}

size_t fl_session_exact_bytes(const fl_session *session) {
    size_t bytes = 0;
    for (size_t l = 0; l < config_of(session)->layers; l++) {
        const fl_mixer *mixer = session->layers[l].mixer;
        bytes += mixer != NULL ? fl_mixer_exact_bytes(mixer)
                               : fl_network_cache_bytes(session->network, l, session->position);
    }
    return bytes;
}

size_t fl_session_tokens_written(const fl_session *session) {
    size_t least = SIZE_MAX;
    for (size_t l = 0; l < config_of(session)->layers; l++) {
        if (session->layers[l].mixer == NULL) continue;
        size_t written = fl_mixer_tokens_written(session->layers[l].mixer);
        if (written < least) least = written;
    }
    return least == SIZE_MAX ? 0 : least;
}

void fl_session_output_projection(const fl_network *network, size_t layer, size_t tokens, fl_array mix,
                                  fl_array attention_output) {
    const fl_network_layer *weights = &network->layers[layer];
    network->compute->ops->linear(network->compute, weights->output, weights->output_bias, tokens, mix,
                                  attention_output);
}
