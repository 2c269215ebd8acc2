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
    size_t lowest;     /* linearised layer; = layers when there is none */
    fl_mixer **mixers; /* [L], NULL in softmax layers */
    fl_rope rope;
    fl_block block; /* recomputed activations of the layer at hand */
    fl_full_attention attention;
    fl_logit_loss loss; /* created when first needed, like the two for layer errors */
    fl_frozen_pass *frozen;
    fl_layer_error layer_error;

    size_t tokens; /* the buffers below hold so many */
    size_t token_floats;
    float *storage;
    float *stream;                 /* [T][E] */
    float *layer_inputs, *middles; /* [L][T][E] streams before a layer and after its attention */
    float *hidden, *target_hidden; /* [T][E] after the final norm */
    float *gradient_stream;        /* [T][E] */
    float *gradient_input;         /* [T][E] of a norm's output */
    float *gradient_query, *gradient_raw_query, *gradient_mix; /* [T][H][D] */
    float *gradient_key, *gradient_raw_key, *gradient_value;   /* [T][Hkv][D] */
    float *gradient_key_rows, *gradient_value_rows;            /* [Hkv][T][D] */
    float *gradient_gate, *gradient_up, *gradient_activated;   /* [T][F] */
};

static const fl_model_config *config_of(const fl_backward *backward) {
    return &backward->network->model->config;
}

static fl_status create_mixers(fl_backward *backward, fl_error *error) {
    size_t layers = config_of(backward)->layers;
    backward->lowest = layers;
    FL_TRY(FL_ALLOCATE(&backward->mixers, layers, error));
    for (size_t l = layers; l-- > 0;) {
        if (fl_variant_layer_is_softmax(backward->mechanism->variant, l)) continue;
        backward->lowest = l;
        FL_TRY(
            fl_mixer_create(backward->network->compute, backward->mechanism, l, &backward->mixers[l], error));
    }
    return FL_OK;
}

fl_status fl_backward_create(const fl_network *network, const fl_mechanism *mechanism, fl_backward **out,
                             fl_error *error) {
    *out = NULL;
    fl_backward *backward = NULL;
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&backward, 1, error));
    backward->network = network;
    backward->mechanism = mechanism;
    FL_TRY_DONE(status, create_mixers(backward, error));
    FL_TRY_DONE(status, fl_rope_create(&network->model->config, &backward->rope, error));
    *out = backward;
    return FL_OK;
done:
    fl_backward_destroy(backward);
    return status;
}

void fl_backward_destroy(fl_backward *backward) {
    if (backward == NULL) return;
    for (size_t l = 0; backward->mixers != NULL && l < config_of(backward)->layers; l++) {
        fl_mixer_destroy(backward->mixers[l]);
    }
    fl_memory_free(backward->mixers);
    fl_rope_release(&backward->rope);
    fl_block_release(&backward->block);
    fl_logit_loss_release(&backward->loss);
    fl_full_attention_release(&backward->attention);
    fl_frozen_pass_destroy(backward->frozen);
    fl_layer_error_release(&backward->layer_error);
    fl_memory_free(backward->storage);
    fl_memory_free(backward);
}

size_t fl_backward_bytes(const fl_backward *backward) {
    const fl_model_config *config = config_of(backward);
    return sizeof(float) * backward->tokens * backward->token_floats +
           fl_block_bytes(&backward->block, config) + fl_full_attention_bytes(&backward->attention, config) +
           (backward->frozen != NULL ? fl_frozen_pass_bytes(backward->frozen) : 0) +
           fl_layer_error_bytes(&backward->layer_error, config) + fl_logit_loss_bytes(&backward->loss);
}

static fl_status reserve(fl_backward *backward, size_t tokens, fl_error *error) {
    const fl_model_config *config = config_of(backward);
    fl_rope_set_length(&backward->rope, config, tokens);
    FL_TRY(fl_block_reserve(&backward->block, config, true, tokens, error));
    FL_TRY(
        fl_block_reserve_adapter(&backward->block, backward->mechanism->variant->lora_rank, tokens, error));
    FL_TRY(fl_full_attention_reserve(&backward->attention, config, tokens, error));
    if (tokens <= backward->tokens) return FL_OK;
    size_t model = config->model_dim, mlp = config->mlp_dim, streams = config->layers * model;
    size_t query = config->query_heads * config->head_dim, key = config->kv_heads * config->head_dim;
    const struct {
        float **member;
        size_t width;
    } parts[] = {
        {&backward->stream, model},
        {&backward->layer_inputs, streams},
        {&backward->middles, streams},
        {&backward->hidden, model},
        {&backward->target_hidden, model},
        {&backward->gradient_stream, model},
        {&backward->gradient_input, model},
        {&backward->gradient_query, query},
        {&backward->gradient_raw_query, query},
        {&backward->gradient_mix, query},
        {&backward->gradient_key, key},
        {&backward->gradient_raw_key, key},
        {&backward->gradient_value, key},
        {&backward->gradient_key_rows, key},
        {&backward->gradient_value_rows, key},
        {&backward->gradient_gate, mlp},
        {&backward->gradient_up, mlp},
        {&backward->gradient_activated, mlp},
    };
    size_t width = 0, floats = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) width += parts[i].width;
    fl_memory_free(backward->storage);
    backward->storage = NULL;
    backward->tokens = 0;
    FL_TRY(fl_memory_multiply(tokens, width, &floats, "activations of a training sequence", error));
    FL_TRY(FL_ALLOCATE(&backward->storage, floats, error));
    float *next = backward->storage;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].member = next;
        next += tokens * parts[i].width;
    }
    backward->tokens = tokens;
    backward->token_floats = width;
    return FL_OK;
}

static fl_attention_call run_softmax(fl_backward *backward, size_t layer, size_t tokens) {
    return fl_full_attention_run(&backward->attention, backward->network, layer, tokens, &backward->block);
}

static fl_mixer_call mixer_call(const fl_block *block, size_t tokens, float *output) {
    return (fl_mixer_call){.tokens = tokens,
                           .query = block->query,
                           .key = block->key,
                           .value = block->value,
                           .input = block->attention_input,
                           .output = output};
}

static fl_status mix(fl_backward *backward, size_t layer, size_t tokens, fl_error *error) {
    if (backward->mixers[layer] == NULL) {
        run_softmax(backward, layer, tokens);
        return FL_OK;
    }
    fl_mixer_call call = mixer_call(&backward->block, tokens, backward->block.mix);
    fl_mixer_reset(backward->mixers[layer]);
    return fl_mixer_forward(backward->mixers[layer], &call, error);
}

/* hidden [T][E] of the linearised model, keeping streams; or of the frozen model, keeping none. */
static fl_status forward(fl_backward *backward, bool frozen, const int32_t *ids, size_t tokens, float *hidden,
                         fl_error *error) {
    const fl_network *network = backward->network;
    const fl_model_config *config = config_of(backward);
    fl_compute *compute = network->compute;
    size_t floats = tokens * config->model_dim;
    compute->ops->embed(compute, network->embedding, tokens, ids, backward->stream);
    for (size_t l = 0; l < config->layers; l++) {
        if (!frozen) memcpy(backward->layer_inputs + l * floats, backward->stream, floats * sizeof(float));
        const fl_adapter adapter = fl_adapter_of(frozen ? NULL : backward->mechanism, l);
        fl_block_project(network, l, &backward->rope, &adapter, tokens, 0, backward->stream,
                         &backward->block);
        if (frozen)
            run_softmax(backward, l, tokens);
        else
            FL_TRY(mix(backward, l, tokens, error));
        fl_block_attention_output(network, l, &adapter, tokens, backward->stream, &backward->block);
        if (!frozen) memcpy(backward->middles + l * floats, backward->stream, floats * sizeof(float));
        fl_block_feed_forward(network, l, tokens, backward->stream, &backward->block);
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
    const float *middle = backward->middles + layer * tokens * config->model_dim;
    fl_block *block = &backward->block;
    fl_block_expand(network, layer, tokens, middle, block);
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
    size_t rows = tokens * config->kv_heads * config->head_dim * sizeof(float);
    compute->ops->linear_backward(compute, network->layers[layer].output, tokens, backward->gradient_stream,
                                  backward->gradient_mix, false);
    fl_attention_call call = run_softmax(backward, layer, tokens);
    memset(backward->gradient_input, 0, tokens * config->model_dim * sizeof(float));
    memset(backward->gradient_key_rows, 0, rows);
    memset(backward->gradient_value_rows, 0, rows);
    compute->ops->attention_backward(compute, &call, backward->gradient_mix, NULL, backward->gradient_query,
                                     backward->gradient_key_rows, backward->gradient_value_rows);
    fl_full_attention_from_rows(config, tokens, backward->gradient_key_rows, backward->gradient_key);
    fl_full_attention_from_rows(config, tokens, backward->gradient_value_rows, backward->gradient_value);
}

/* The same of a linearised layer, with the gradients of its attention input (gates only) and parameters. The
 * mix itself is wanted only where an adapter sits on the output projection. */
static fl_status mixer_backward(fl_backward *backward, const fl_adapter *adapter, size_t layer, size_t tokens,
                                float *gradient_parameters, fl_error *error) {
    const fl_network *network = backward->network;
    fl_compute *compute = network->compute;
    fl_block *block = &backward->block;
    bool adapted = adapter->parts[FL_LORA_OUTPUT].a != NULL;
    fl_mixer_call call = mixer_call(block, tokens, adapted ? block->mix : NULL);
    fl_mixer_tape *tape = NULL;
    FL_TRY(fl_mixer_record(compute, backward->mechanism, layer, &call, &tape, error));
    compute->ops->linear_backward(compute, network->layers[layer].output, tokens, backward->gradient_stream,
                                  backward->gradient_mix, false);
    if (adapted) {
        fl_adapter_backward(compute, adapter, FL_LORA_OUTPUT, tokens, block->mix, backward->gradient_stream,
                            block->low, gradient_parameters, backward->gradient_mix);
    }
    fl_status status = fl_mixer_tape_backward(tape, backward->gradient_mix, backward->gradient_query,
                                              backward->gradient_key, backward->gradient_value,
                                              backward->gradient_input, gradient_parameters, error);
    fl_mixer_tape_destroy(tape);
    return status;
}

/* Through RoPE and the q/k norm, in that order; returns where the gradient of the projection's output is. */
static const float *rotate_back(fl_backward *backward, const float *norm, size_t tokens, size_t heads,
                                const float *raw, float *gradient, float *gradient_raw) {
    const fl_model_config *config = config_of(backward);
    fl_compute *compute = backward->network->compute;
    compute->ops->rope(compute, tokens, heads, config->head_dim, 0, config->rope.rotary_dim,
                       backward->rope.inverse_frequencies, backward->rope.factor, -1, gradient);
    if (norm == NULL) return gradient;
    compute->ops->rms_norm_backward(compute, tokens * heads, config->head_dim, raw, norm,
                                    config->norm_epsilon, gradient, gradient_raw, false);
    return gradient_raw;
}

/* One projection of the attention input: its adapter's gradients, and (not in the lowest layer) its share of
 * gradient_input. */
static void projection_backward(fl_backward *backward, const fl_adapter *adapter, fl_lora_target target,
                                const fl_weight *weight, size_t tokens, const float *gradient_output,
                                float *gradient_parameters, bool lowest) {
    fl_compute *compute = backward->network->compute;
    if (!lowest) {
        compute->ops->linear_backward(compute, weight, tokens, gradient_output, backward->gradient_input,
                                      true);
    }
    if (adapter->rank == 0) return;
    fl_adapter_backward(compute, adapter, target, tokens, backward->block.attention_input, gradient_output,
                        backward->block.low, gradient_parameters, lowest ? NULL : backward->gradient_input);
}

/* gradient_stream: of the stream after the attention -> of the stream before the layer (not in the lowest
 * layer). */
static fl_status attention_backward(fl_backward *backward, size_t layer, size_t tokens, fl_gradient *gradient,
                                    fl_error *error) {
    const fl_network *network = backward->network;
    const fl_model_config *config = config_of(backward);
    const fl_network_layer *weights = &network->layers[layer];
    const float *stream = backward->layer_inputs + layer * tokens * config->model_dim;
    float *parameters = gradient->layer[layer];
    bool lowest = layer == backward->lowest;
    const fl_adapter adapter = fl_adapter_of(backward->mechanism, layer);
    fl_block *block = &backward->block;
    fl_block_project(network, layer, &backward->rope, &adapter, tokens, 0, stream, block);
    if (backward->mixers[layer] == NULL)
        softmax_backward(backward, layer, tokens);
    else
        FL_TRY(mixer_backward(backward, &adapter, layer, tokens, parameters, error));
    if (lowest && adapter.rank == 0) return FL_OK;
    const float *query =
        rotate_back(backward, weights->query_norm, tokens, config->query_heads, block->raw_query,
                    backward->gradient_query, backward->gradient_raw_query);
    const float *key = rotate_back(backward, weights->key_norm, tokens, config->kv_heads, block->raw_key,
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
        feed_forward_backward(backward, l, tokens);
        FL_TRY(attention_backward(backward, l, tokens, gradient, error));
    }
    return FL_OK;
}

static fl_status prepare_loss(fl_backward *backward, bool with_target, fl_error *error) {
    if (backward->loss.logits != NULL && (backward->loss.target_logits != NULL || !with_target)) return FL_OK;
    fl_logit_loss_release(&backward->loss);
    return fl_logit_loss_create(backward->network, with_target, &backward->loss, error);
}

fl_status fl_backward_next_token(fl_backward *backward, const int32_t *ids, size_t tokens, double weight,
                                 fl_gradient *gradient, double *loss, fl_error *error) {
    assert(tokens >= 2);
    FL_TRY(reserve(backward, tokens, error));
    FL_TRY(prepare_loss(backward, false, error));
    FL_TRY(forward(backward, false, ids, tokens, backward->hidden, error));
    *loss = fl_logit_loss_next_token(&backward->loss, ids, tokens, backward->hidden, weight,
                                     gradient != NULL ? backward->gradient_input : NULL);
    return gradient != NULL ? descend(backward, tokens, gradient, error) : FL_OK;
}

fl_status fl_backward_divergence(fl_backward *backward, const int32_t *ids, size_t tokens, double weight,
                                 fl_gradient *gradient, double *loss, fl_error *error) {
    FL_TRY(reserve(backward, tokens, error));
    FL_TRY(prepare_loss(backward, true, error));
    FL_TRY(forward(backward, true, ids, tokens, backward->target_hidden, error));
    FL_TRY(forward(backward, false, ids, tokens, backward->hidden, error));
    *loss = fl_logit_loss_divergence(&backward->loss, tokens, backward->target_hidden, backward->hidden,
                                     weight, gradient != NULL ? backward->gradient_input : NULL);
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
    return fl_layer_error_run(&backward->layer_error, backward->network, backward->mechanism, target,
                              wanted->weight, wanted->normalise,
                              wanted->gradient != NULL ? wanted->gradient->layer[target->layer] : NULL,
                              &wanted->losses[target->layer], error);
}

static fl_status prepare_frozen_pass(fl_backward *backward, fl_error *error) {
    if (backward->frozen != NULL) return FL_OK;
    size_t layers = config_of(backward)->layers;
    bool *wanted = NULL;
    FL_TRY(FL_ALLOCATE(&wanted, layers, error));
    for (size_t l = 0; l < layers; l++) wanted[l] = backward->mixers[l] != NULL;
    fl_status status = fl_frozen_pass_create(backward->network, wanted, 0, 0, &backward->frozen, error);
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
