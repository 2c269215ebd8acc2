#include "harness/engine/backward.h"

#include <assert.h>
#include <string.h>

#include "attn_variants/mixer_backward.h"
#include "harness/base/memory.h"
#include "harness/engine/block.h"
#include "harness/engine/frozen_pass.h"
#include "harness/engine/full_attention.h"
#include "harness/engine/layer_error.h"
#include "harness/engine/logit_loss.h"

struct fl_backward {
    const fl_network *network;
    const fl_mechanism *mechanism;
    size_t lowest; /* linearised layer; = layers when there is none */
    fl_rope rope;
    fl_block block; /* recomputed activations of the layer at hand */
    fl_full_attention attention;
    fl_logit_loss loss; /* created when first needed, like the two for layer errors */
    fl_frozen_pass *frozen;
    fl_layer_error layer_error;

    size_t keep_bytes; /* at most so many for: */
    fl_array kept;     /* [layers first_kept ..][kept_tokens][kept_floats] of the upper layers */
    size_t first_kept, kept_tokens;

    size_t tokens; /* the buffers below hold so many */
    fl_array storage;
    fl_array stream;                /* [T][E] */
    fl_array layer_inputs, middles; /* [L][T][E] streams before a layer and after its attention */
    fl_array hidden, target_hidden; /* [T][E] after the final norm */
    fl_array gradient_stream;       /* [T][E] */
    fl_array gradient_input;        /* [T][E] of a norm's output */
    fl_array gradient_query, gradient_raw_query, gradient_mix; /* [T][H][D] */
    fl_array gradient_key, gradient_raw_key, gradient_value;   /* [T][Hkv][D] */
    fl_array gradient_key_rows, gradient_value_rows;           /* [Hkv][T][D] */
    fl_array gradient_gate, gradient_up, gradient_activated;   /* [T][F] */
    fl_array exact_output, exact_log; /* [T][H][D], [T][H]: the softmax over a layer's exact set */
};

static const fl_model_config *config_of(const fl_backward *backward) {
    return &backward->network->model->config;
}

static bool is_softmax(const fl_backward *backward, size_t layer) {
    return fl_variant_layer_is_softmax(backward->mechanism->variant, layer);
}

fl_status fl_backward_create(const fl_network *network, const fl_mechanism *mechanism, fl_backward **out,
                             fl_error *error) {
    *out = NULL;
    fl_backward *backward = NULL;
    FL_TRY(FL_ALLOCATE(&backward, 1, error));
    backward->network = network;
    backward->mechanism = mechanism;
    while (backward->lowest < network->model->config.layers && is_softmax(backward, backward->lowest))
        backward->lowest++;
    fl_status status = fl_rope_create(&network->model->config, &backward->rope, error);
    if (status != FL_OK) {
        fl_backward_destroy(backward);
        return status;
    }
    *out = backward;
    return FL_OK;
}

void fl_backward_destroy(fl_backward *backward) {
    if (backward == NULL) return;
    fl_rope_release(&backward->rope);
    fl_block_release(&backward->block);
    fl_logit_loss_release(&backward->loss);
    fl_full_attention_release(&backward->attention);
    fl_frozen_pass_destroy(backward->frozen);
    fl_layer_error_release(&backward->layer_error);
    fl_compute_release(backward->network->compute, backward->storage);
    fl_compute_release(backward->network->compute, backward->kept);
    fl_memory_free(backward);
}

/* The most that a layer's mixer takes while it is passed. */
static size_t mixer_bytes(const fl_backward *backward, size_t tokens) {
    size_t most = 0;
    for (size_t l = backward->lowest; l < config_of(backward)->layers; l++) {
        if (is_softmax(backward, l)) continue;
        size_t bytes = fl_mixer_tape_bytes(backward->network->compute, backward->mechanism, l, tokens);
        if (bytes > most) most = bytes;
    }
    return most;
}

static bool normalises_queries(const fl_backward *backward) {
    return fl_array_is(backward->network->layers[0].query_norm);
}

/* Floats a token of what is kept of a layer: what kept_block and exact_of place. */
static size_t kept_floats(const fl_backward *backward) {
    const fl_model_config *config = config_of(backward);
    size_t query = config->query_heads * config->head_dim, key = config->kv_heads * config->head_dim;
    size_t raw = normalises_queries(backward) ? query + key : 0;
    return config->model_dim + 2 * query + config->query_heads + 2 * key + raw + 2 * config->mlp_dim;
}

static bool is_kept(const fl_backward *backward, size_t layer) {
    return fl_array_is(backward->kept) && layer >= backward->first_kept;
}

static fl_array kept_layer(const fl_backward *backward, size_t layer) {
    return fl_array_from(backward->kept,
                         (layer - backward->first_kept) * backward->kept_tokens * kept_floats(backward));
}

/* The block with the members that are kept of a layer in their place. */
static fl_block kept_block(const fl_backward *backward, size_t layer) {
    const fl_model_config *config = config_of(backward);
    size_t query = config->query_heads * config->head_dim, key = config->kv_heads * config->head_dim;
    bool normalises = normalises_queries(backward);
    fl_block block = backward->block;
    fl_array next = kept_layer(backward, layer);
    const struct {
        fl_array *member;
        size_t width;
    } parts[] = {{&block.attention_input, config->model_dim},
                 {&block.query, query},
                 {&block.raw_query, normalises ? query : 0},
                 {&block.key, key},
                 {&block.raw_key, normalises ? key : 0},
                 {&block.value, key},
                 {&block.gate, config->mlp_dim},
                 {&block.up, config->mlp_dim}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].member = next;
        next = fl_array_from(next, backward->kept_tokens * parts[i].width);
    }
    return block;
}

/* The softmax over a layer's exact set, behind what kept_block places; or where a layer that is not kept has
 * it. */
static fl_exact_share exact_of(const fl_backward *backward, size_t layer) {
    const fl_model_config *config = config_of(backward);
    size_t query = config->query_heads * config->head_dim,
           placed = kept_floats(backward) - query - config->query_heads;
    if (!is_kept(backward, layer))
        return (fl_exact_share){.output = backward->exact_output, .log_sum_exp = backward->exact_log};
    fl_array output = fl_array_from(kept_layer(backward, layer), backward->kept_tokens * placed);
    return (fl_exact_share){.output = output,
                            .log_sum_exp = fl_array_from(output, backward->kept_tokens * query)};
}

void fl_backward_keep(fl_backward *backward, size_t bytes) {
    backward->keep_bytes = bytes;
}

static fl_status reserve_kept(fl_backward *backward, size_t tokens, fl_error *error) {
    size_t layer = tokens * kept_floats(backward), layers = config_of(backward)->layers;
    size_t count = backward->keep_bytes / sizeof(float) / layer, most = layers - backward->lowest;
    if (tokens <= backward->kept_tokens) return FL_OK;
    if (count > most) count = most;
    fl_compute_release(backward->network->compute, backward->kept);
    backward->kept = fl_array_none;
    backward->kept_tokens = 0;
    if (count == 0) return FL_OK;
    FL_TRY(fl_compute_floats(backward->network->compute, count * layer, &backward->kept, error));
    backward->kept_tokens = tokens;
    backward->first_kept = layers - count;
    return FL_OK;
}

enum { MOST_PARTS = 24 };

/* The buffers of `storage` and their floats a token. */
typedef struct {
    size_t count;
    struct {
        fl_array *member;
        size_t width;
    } parts[MOST_PARTS];
} fl_backward_parts;

static fl_backward_parts parts_of(fl_backward *b) {
    const fl_model_config *config = config_of(b);
    size_t model = config->model_dim, mlp = config->mlp_dim, streams = config->layers * model;
    size_t query = config->query_heads * config->head_dim, key = config->kv_heads * config->head_dim;
    return (fl_backward_parts){20,
                               {{&b->stream, model},
                                {&b->layer_inputs, streams},
                                {&b->middles, streams},
                                {&b->hidden, model},
                                {&b->target_hidden, model},
                                {&b->gradient_stream, model},
                                {&b->gradient_input, model},
                                {&b->gradient_query, query},
                                {&b->gradient_raw_query, query},
                                {&b->gradient_mix, query},
                                {&b->gradient_key, key},
                                {&b->gradient_raw_key, key},
                                {&b->gradient_value, key},
                                {&b->gradient_key_rows, key},
                                {&b->gradient_value_rows, key},
                                {&b->gradient_gate, mlp},
                                {&b->gradient_up, mlp},
                                {&b->gradient_activated, mlp},
                                {&b->exact_output, query},
                                {&b->exact_log, config->query_heads}}};
}

/* Floats a token of `storage`. */
static size_t storage_floats(const fl_backward *backward) {
    const fl_model_config *config = config_of(backward);
    size_t query = config->query_heads * config->head_dim, key = config->kv_heads * config->head_dim;
    return (2 * config->layers + 5) * config->model_dim + 4 * query + config->query_heads + 5 * key +
           3 * config->mlp_dim;
}

size_t fl_backward_bytes(const fl_backward *backward) {
    const fl_model_config *config = config_of(backward);
    size_t kept = is_kept(backward, config->layers) ? (config->layers - backward->first_kept) *
                                                          backward->kept_tokens * kept_floats(backward)
                                                    : 0;
    return sizeof(float) * (backward->tokens * storage_floats(backward) + kept) +
           fl_block_bytes(&backward->block, config) + fl_full_attention_bytes(&backward->attention, config) +
           (backward->frozen != NULL ? fl_frozen_pass_bytes(backward->frozen) : 0) +
           fl_layer_error_bytes(&backward->layer_error, config) + fl_logit_loss_bytes(&backward->loss) +
           mixer_bytes(backward, backward->tokens);
}

size_t fl_backward_bytes_needed(const fl_backward *backward, size_t tokens, bool divergence) {
    const fl_model_config *config = config_of(backward);
    return sizeof(float) * tokens * storage_floats(backward) +
           fl_block_bytes_of(config, true, backward->mechanism->variant->lora_rank, tokens) +
           fl_full_attention_bytes_of(config, tokens) +
           fl_logit_loss_bytes_of(backward->network, divergence) + mixer_bytes(backward, tokens);
}

static fl_status reserve(fl_backward *backward, size_t tokens, fl_error *error) {
    const fl_model_config *config = config_of(backward);
    fl_rope_set_length(&backward->rope, config, tokens);
    FL_TRY(fl_block_reserve(&backward->block, backward->network, true, tokens, error));
    FL_TRY(
        fl_block_reserve_adapter(&backward->block, backward->mechanism->variant->lora_rank, tokens, error));
    FL_TRY(fl_full_attention_reserve(&backward->attention, backward->network, tokens, error));
    FL_TRY(reserve_kept(backward, tokens, error));
    tokens = backward->attention.capacity; /* gradients lie as its rows do */
    if (tokens <= backward->tokens) return FL_OK;
    size_t floats = 0;
    fl_compute_release(backward->network->compute, backward->storage);
    backward->storage = fl_array_none;
    backward->tokens = 0;
    FL_TRY(fl_memory_multiply(tokens, storage_floats(backward), &floats, "activations of a training sequence",
                              error));
    FL_TRY(fl_compute_floats(backward->network->compute, floats, &backward->storage, error));
    fl_array next = backward->storage;
    const fl_backward_parts list = parts_of(backward);
    for (size_t i = 0; i < list.count; i++) {
        *list.parts[i].member = next;
        next = fl_array_from(next, tokens * list.parts[i].width);
    }
    assert(next.at == fl_array_from(backward->storage, floats).at);
    backward->tokens = tokens;
    return FL_OK;
}

static fl_attention_call run_softmax(fl_backward *backward, size_t layer, size_t tokens) {
    return fl_full_attention_run(&backward->attention, backward->network, layer, tokens, &backward->block);
}

static fl_mixer_call mixer_call(const fl_backward *backward, fl_exact_share *exact, size_t tokens,
                                fl_array output) {
    const fl_variant *variant = backward->mechanism->variant;
    const fl_block *block = &backward->block;
    return (fl_mixer_call){.tokens = tokens,
                           .exact = fl_variant_shares_exact_set(variant, variant) ? exact : NULL,
                           .query = block->query,
                           .key = block->key,
                           .value = block->value,
                           .input = block->attention_input,
                           .output = output};
}

/* By the tape, as the backward pass makes it again: what it gives in a layer that is not kept is the same. */
static fl_status mix(fl_backward *backward, size_t layer, size_t tokens, fl_error *error) {
    if (is_softmax(backward, layer)) {
        run_softmax(backward, layer, tokens);
        return FL_OK;
    }
    fl_exact_share exact = exact_of(backward, layer);
    fl_mixer_call call = mixer_call(backward, &exact, tokens, backward->block.mix);
    fl_mixer_tape *tape = NULL;
    FL_TRY(fl_mixer_record(backward->network->compute, backward->mechanism, layer, &call, &tape, error));
    fl_mixer_tape_destroy(tape);
    return FL_OK;
}

static fl_status forward_layer(fl_backward *backward, bool frozen, size_t layer, size_t tokens,
                               fl_error *error) {
    const fl_network *network = backward->network;
    size_t floats = tokens * config_of(backward)->model_dim;
    const fl_adapter adapter = fl_adapter_of(frozen ? NULL : backward->mechanism, layer);
    if (!frozen)
        fl_compute_copy(network->compute, fl_array_from(backward->layer_inputs, layer * floats),
                        backward->stream, floats);
    fl_block_project(network, layer, &backward->rope, &adapter, tokens, 0, backward->stream,
                     &backward->block);
    if (frozen)
        run_softmax(backward, layer, tokens);
    else
        FL_TRY(mix(backward, layer, tokens, error));
    fl_block_attention_output(network, layer, &adapter, tokens, backward->stream, &backward->block);
    if (!frozen)
        fl_compute_copy(network->compute, fl_array_from(backward->middles, layer * floats), backward->stream,
                        floats);
    fl_block_feed_forward(network, layer, tokens, backward->stream, &backward->block);
    return FL_OK;
}

/* hidden [T][E] of the linearised model, keeping streams; or of the frozen model, keeping none. */
static fl_status forward(fl_backward *backward, bool frozen, const int32_t *ids, size_t tokens,
                         fl_array hidden, fl_error *error) {
    const fl_network *network = backward->network;
    const fl_model_config *config = config_of(backward);
    fl_compute *compute = network->compute;
    FL_TRY(fl_network_embed(network, tokens, ids, backward->stream, error));
    for (size_t l = 0; l < config->layers; l++) {
        FL_TRY(fl_network_go_on(network, error));
        const fl_block own = backward->block;
        if (!frozen && is_kept(backward, l)) backward->block = kept_block(backward, l);
        fl_status status = forward_layer(backward, frozen, l, tokens, error);
        backward->block = own;
        if (status != FL_OK) return status;
    }
    compute->ops->rms_norm(compute, tokens, config->model_dim, backward->stream, network->final_norm,
                           config->norm_epsilon, hidden);
    return FL_OK;
}

/* gradient_stream: of the stream after the layer -> of the stream after its attention. */
static void feed_forward_backward(fl_backward *backward, size_t layer, size_t tokens) {
    const fl_network *network = backward->network;
    const fl_model_config *config = config_of(backward);
    const fl_network_layer *weights = &network->layers[layer];
    fl_compute *compute = network->compute;
    const fl_compute_ops *ops = compute->ops;
    fl_array middle = fl_array_from(backward->middles, layer * tokens * config->model_dim);
    fl_block *block = &backward->block;
    if (!is_kept(backward, layer)) fl_block_expand(network, layer, tokens, middle, block);
    ops->linear_backward(compute, weights->down, tokens, backward->gradient_stream,
                         backward->gradient_activated, false);
    ops->gated_activation_backward(compute, config->activation, tokens * config->mlp_dim, block->gate,
                                   block->up, backward->gradient_activated, backward->gradient_gate,
                                   backward->gradient_up);
    ops->linear_backward(compute, weights->gate, tokens, backward->gradient_gate, backward->gradient_input,
                         false);
    ops->linear_backward(compute, weights->up, tokens, backward->gradient_up, backward->gradient_input, true);
    ops->rms_norm_backward(compute, tokens, config->model_dim, middle, weights->post_attention_norm,
                           config->norm_epsilon, backward->gradient_input, backward->gradient_stream, true);
}

/* gradient_stream -> gradient_mix -> gradients of query, key and value; in a softmax layer. */
static void softmax_backward(fl_backward *backward, size_t layer, size_t tokens) {
    const fl_network *network = backward->network;
    const fl_model_config *config = config_of(backward);
    fl_compute *compute = network->compute;
    size_t rows = backward->attention.capacity * config->kv_heads * config->head_dim;
    compute->ops->linear_backward(compute, network->layers[layer].output, tokens, backward->gradient_stream,
                                  backward->gradient_mix, false);
    fl_attention_call call = run_softmax(backward, layer, tokens);
    fl_compute_fill(compute, backward->gradient_input, tokens * config->model_dim, 0.0);
    fl_compute_fill(compute, backward->gradient_key_rows, rows, 0.0);
    fl_compute_fill(compute, backward->gradient_value_rows, rows, 0.0);
    fl_attention_gradients gradients = {.output = backward->gradient_mix,
                                        .query = backward->gradient_query,
                                        .key = backward->gradient_key_rows,
                                        .value = backward->gradient_value_rows};
    compute->ops->attention_backward(compute, &call, &gradients);
    fl_key_value_rows_take(&backward->attention.rows, backward->gradient_key_rows, tokens,
                           backward->gradient_key);
    fl_key_value_rows_take(&backward->attention.rows, backward->gradient_value_rows, tokens,
                           backward->gradient_value);
}

/* The same of a linearised layer, with the gradients of its attention input (gates only) and parameters; in
 * the lowest layer only those that an adapter needs. The mix itself is wanted only where an adapter sits on
 * the output projection. */
static fl_status mixer_backward(fl_backward *backward, const fl_adapter *adapter, size_t layer, size_t tokens,
                                fl_array gradient_parameters, fl_error *error) {
    const fl_network *network = backward->network;
    fl_compute *compute = network->compute;
    const fl_block *block = &backward->block;
    bool adapted = fl_array_is(adapter->parts[FL_LORA_OUTPUT].a);
    bool lowest = layer == backward->lowest, projections = !lowest || adapter->rank > 0;
    fl_exact_share exact = exact_of(backward, layer);
    exact.filled = is_kept(backward, layer);
    fl_mixer_call call = mixer_call(backward, &exact, tokens, adapted ? block->mix : fl_array_none);
    fl_mixer_tape *tape = NULL;
    FL_TRY(fl_mixer_record(compute, backward->mechanism, layer, &call, &tape, error));
    compute->ops->linear_backward(compute, network->layers[layer].output, tokens, backward->gradient_stream,
                                  backward->gradient_mix, false);
    if (adapted) {
        fl_adapter_backward(compute, adapter, FL_LORA_OUTPUT, tokens, block->mix, backward->gradient_stream,
                            block->low, gradient_parameters, backward->gradient_mix);
    }
    fl_status status = fl_mixer_tape_backward(
        tape, backward->gradient_mix, projections ? backward->gradient_query : fl_array_none,
        projections ? backward->gradient_key : fl_array_none,
        projections ? backward->gradient_value : fl_array_none,
        lowest ? fl_array_none : backward->gradient_input, gradient_parameters, error);
    fl_mixer_tape_destroy(tape);
    return status;
}

/* Through RoPE and the q/k norm, in that order; returns where the gradient of the projection's output is. */
static fl_array rotate_back(fl_backward *backward, fl_array norm, size_t tokens, size_t heads, fl_array raw,
                            fl_array gradient, fl_array gradient_raw) {
    const fl_model_config *config = config_of(backward);
    fl_compute *compute = backward->network->compute;
    compute->ops->rope(compute, tokens, heads, config->head_dim, 0, config->rope.rotary_dim,
                       fl_array_of(backward->rope.inverse_frequencies), backward->rope.factor, -1, gradient);
    if (!fl_array_is(norm)) return gradient;
    compute->ops->rms_norm_backward(compute, tokens * heads, config->head_dim, raw, norm,
                                    config->norm_epsilon, gradient, gradient_raw, false);
    return gradient_raw;
}

/* One projection of the attention input: its adapter's gradients, and (not in the lowest layer) its share of
 * gradient_input. */
static void projection_backward(fl_backward *backward, const fl_adapter *adapter, fl_lora_target target,
                                const fl_weight *weight, size_t tokens, fl_array gradient_output,
                                fl_array gradient_parameters, bool lowest) {
    fl_compute *compute = backward->network->compute;
    if (!lowest) {
        compute->ops->linear_backward(compute, weight, tokens, gradient_output, backward->gradient_input,
                                      true);
    }
    if (adapter->rank == 0) return;
    fl_adapter_backward(compute, adapter, target, tokens, backward->block.attention_input, gradient_output,
                        backward->block.low, gradient_parameters,
                        lowest ? fl_array_none : backward->gradient_input);
}

/* gradient_stream: of the stream after the attention -> of the stream before the layer (not in the lowest
 * layer). */
static fl_status attention_backward(fl_backward *backward, size_t layer, size_t tokens, fl_gradient *gradient,
                                    fl_error *error) {
    const fl_network *network = backward->network;
    const fl_model_config *config = config_of(backward);
    const fl_network_layer *weights = &network->layers[layer];
    fl_array stream = fl_array_from(backward->layer_inputs, layer * tokens * config->model_dim);
    fl_array parameters = gradient->sum[layer];
    bool lowest = layer == backward->lowest;
    const fl_adapter adapter = fl_adapter_of(backward->mechanism, layer);
    fl_block *block = &backward->block;
    if (!is_kept(backward, layer))
        fl_block_project(network, layer, &backward->rope, &adapter, tokens, 0, stream, block);
    if (is_softmax(backward, layer))
        softmax_backward(backward, layer, tokens);
    else
        FL_TRY(mixer_backward(backward, &adapter, layer, tokens, parameters, error));
    if (lowest && adapter.rank == 0) return FL_OK;
    fl_array query = rotate_back(backward, weights->query_norm, tokens, config->query_heads, block->raw_query,
                                 backward->gradient_query, backward->gradient_raw_query);
    fl_array key = rotate_back(backward, weights->key_norm, tokens, config->kv_heads, block->raw_key,
                               backward->gradient_key, backward->gradient_raw_key);
    projection_backward(backward, &adapter, FL_LORA_QUERY, weights->query, tokens, query, parameters, lowest);
    projection_backward(backward, &adapter, FL_LORA_KEY, weights->key, tokens, key, parameters, lowest);
    projection_backward(backward, &adapter, FL_LORA_VALUE, weights->value, tokens, backward->gradient_value,
                        parameters, lowest);
    if (lowest) return FL_OK;
    network->compute->ops->rms_norm_backward(network->compute, tokens, config->model_dim, stream,
                                             weights->input_norm, config->norm_epsilon,
                                             backward->gradient_input, backward->gradient_stream, true);
    return FL_OK;
}

/* gradient_input holds the gradient of `hidden`. */
static fl_status descend(fl_backward *backward, size_t tokens, fl_gradient *gradient, fl_error *error) {
    const fl_network *network = backward->network;
    const fl_model_config *config = config_of(backward);
    network->compute->ops->rms_norm_backward(network->compute, tokens, config->model_dim, backward->stream,
                                             network->final_norm, config->norm_epsilon,
                                             backward->gradient_input, backward->gradient_stream, false);
    for (size_t l = config->layers; l-- > backward->lowest;) {
        FL_TRY(fl_network_go_on(network, error));
        const fl_block own = backward->block;
        if (is_kept(backward, l)) backward->block = kept_block(backward, l);
        feed_forward_backward(backward, l, tokens);
        fl_status status = attention_backward(backward, l, tokens, gradient, error);
        backward->block = own;
        if (status != FL_OK) return status;
    }
    return FL_OK;
}

static fl_status prepare_loss(fl_backward *backward, bool with_target, fl_error *error) {
    if (fl_array_is(backward->loss.logits) && (fl_array_is(backward->loss.target_logits) || !with_target))
        return FL_OK;
    fl_logit_loss_release(&backward->loss);
    return fl_logit_loss_create(backward->network, with_target, &backward->loss, error);
}

fl_status fl_backward_next_token(fl_backward *backward, const int32_t *ids, size_t tokens, double weight,
                                 fl_gradient *gradient, double *loss, fl_error *error) {
    assert(tokens >= 2);
    FL_TRY(reserve(backward, tokens, error));
    FL_TRY(prepare_loss(backward, false, error));
    FL_TRY(forward(backward, false, ids, tokens, backward->hidden, error));
    FL_TRY(fl_logit_loss_next_token(&backward->loss, ids, tokens, backward->hidden, weight,
                                    gradient != NULL ? backward->gradient_input : fl_array_none, loss,
                                    error));
    return gradient != NULL ? descend(backward, tokens, gradient, error) : FL_OK;
}

fl_status fl_backward_divergence(fl_backward *backward, const int32_t *ids, size_t tokens, double weight,
                                 fl_gradient *gradient, double *loss, fl_error *error) {
    FL_TRY(reserve(backward, tokens, error));
    FL_TRY(prepare_loss(backward, true, error));
    FL_TRY(forward(backward, true, ids, tokens, backward->target_hidden, error));
    FL_TRY(forward(backward, false, ids, tokens, backward->hidden, error));
    FL_TRY(fl_logit_loss_divergence(&backward->loss, tokens, backward->target_hidden, backward->hidden,
                                    weight, gradient != NULL ? backward->gradient_input : fl_array_none, loss,
                                    error));
    return gradient != NULL ? descend(backward, tokens, gradient, error) : FL_OK;
}

typedef struct {
    fl_backward *backward;
    double weight;
    bool normalise;
    fl_gradient *gradient;
    double *losses;
} fl_layer_errors;

static fl_status visit_layer(void *context, const fl_frozen_layer *target, fl_error *error) {
    const fl_layer_errors *wanted = context;
    fl_backward *backward = wanted->backward;
    return fl_layer_error_run(&backward->layer_error, backward->network, backward->mechanism, target, NULL,
                              wanted->weight, wanted->normalise,
                              wanted->gradient != NULL ? wanted->gradient->sum[target->layer] : fl_array_none,
                              &wanted->losses[target->layer], error);
}

static fl_status prepare_frozen_pass(fl_backward *backward, fl_error *error) {
    if (backward->frozen != NULL) return FL_OK;
    size_t layers = config_of(backward)->layers;
    bool *wanted = NULL;
    FL_TRY(FL_ALLOCATE(&wanted, layers, error));
    for (size_t l = 0; l < layers; l++) wanted[l] = !is_softmax(backward, l);
    const fl_frozen_budget nothing = {0};
    fl_status status =
        fl_frozen_pass_create(backward->network, wanted, 0, &nothing, &backward->frozen, error);
    fl_memory_free(wanted);
    return status;
}

fl_status fl_backward_layer_error(fl_backward *backward, const int32_t *ids, size_t tokens, double weight,
                                  bool normalise, fl_gradient *gradient, double *losses, fl_error *error) {
    fl_layer_errors wanted = {backward, weight, normalise, gradient, losses};
    FL_TRY(fl_layer_error_check(backward->mechanism, error));
    for (size_t l = 0; l < config_of(backward)->layers; l++) losses[l] = 0.0;
    FL_TRY(prepare_frozen_pass(backward, error));
    return fl_frozen_pass_run(backward->frozen, 0, ids, tokens, visit_layer, &wanted, error);
}
