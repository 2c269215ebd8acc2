#include "harness/engine/backward.h"

#include <assert.h>
#include <string.h>

#include "attn_variants/mixer_backward.h"
#include "harness/base/memory.h"
#include "harness/engine/block.h"
#include "harness/engine/logit_loss.h"

struct fl_backward {
    const fl_network *network;
    const fl_mechanism *mechanism;
    size_t lowest;     /* linearised layer; = layers when there is none */
    fl_mixer **mixers; /* [L], NULL in softmax layers */
    fl_rope rope;
    fl_block block;     /* recomputed activations of the layer at hand */
    fl_logit_loss loss; /* created when first needed */
    size_t *index;      /* 0, 1, 2, ... */
    size_t index_count;

    size_t tokens; /* the buffers below hold so many */
    bool whole;    /* streams of all layers are among them */
    size_t token_floats;
    float *storage;
    float *stream;                 /* [T][E] */
    float *layer_inputs, *middles; /* [L][T][E] streams before a layer and after its attention */
    float *hidden, *target_hidden; /* [T][E] after the final norm */
    float *key_rows, *value_rows;  /* [Hkv][T][D] */
    float *log_sum_exp;            /* [T][H] */
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
    fl_memory_free(backward->index);
    fl_memory_free(backward->storage);
    fl_memory_free(backward);
}

size_t fl_backward_bytes(const fl_backward *backward) {
    const fl_model_config *config = config_of(backward);
    size_t query = config->query_heads * config->head_dim, key = config->kv_heads * config->head_dim;
    size_t block = 4 * config->model_dim + 3 * query + 3 * key + 3 * config->mlp_dim;
    return sizeof(float) * (backward->tokens * backward->token_floats + backward->block.capacity * block) +
           backward->index_count * sizeof(size_t) + fl_logit_loss_bytes(&backward->loss);
}

static size_t largest_window(const fl_model_config *config) {
    size_t largest = 0;
    for (size_t l = 0; l < config->layers; l++) {
        if (config->sliding_window[l] > largest) largest = config->sliding_window[l];
    }
    return largest;
}

static fl_status reserve_index(fl_backward *backward, size_t tokens, fl_error *error) {
    size_t count = tokens + largest_window(config_of(backward));
    if (count <= backward->index_count) return FL_OK;
    FL_TRY(FL_RESIZE(&backward->index, backward->index_count, count, error));
    for (size_t i = backward->index_count; i < count; i++) backward->index[i] = i;
    backward->index_count = count;
    return FL_OK;
}

/* whole: the loss is at the end of the network, so the streams of all layers are kept. */
static fl_status reserve(fl_backward *backward, bool whole, size_t tokens, fl_error *error) {
    const fl_model_config *config = config_of(backward);
    fl_rope_set_length(&backward->rope, config, tokens);
    FL_TRY(fl_block_reserve(&backward->block, config, true, tokens, error));
    FL_TRY(reserve_index(backward, tokens, error));
    if (tokens <= backward->tokens && (backward->whole || !whole)) return FL_OK;
    size_t model = config->model_dim, mlp = whole ? config->mlp_dim : 0,
           streams = whole ? config->layers * model : 0;
    size_t query = config->query_heads * config->head_dim, key = config->kv_heads * config->head_dim;
    const struct {
        float **member;
        size_t width;
    } parts[] = {
        {&backward->stream, model},           {&backward->layer_inputs, streams},
        {&backward->middles, streams},        {&backward->hidden, model},
        {&backward->target_hidden, model},    {&backward->key_rows, key},
        {&backward->value_rows, key},         {&backward->log_sum_exp, config->query_heads},
        {&backward->gradient_stream, model},  {&backward->gradient_input, model},
        {&backward->gradient_query, query},   {&backward->gradient_raw_query, query},
        {&backward->gradient_mix, query},     {&backward->gradient_key, key},
        {&backward->gradient_raw_key, key},   {&backward->gradient_value, key},
        {&backward->gradient_key_rows, key},  {&backward->gradient_value_rows, key},
        {&backward->gradient_gate, mlp},      {&backward->gradient_up, mlp},
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
    backward->whole = whole;
    backward->token_floats = width;
    return FL_OK;
}

/* [T][Hkv][D] <-> [Hkv][T][D] */
static void to_rows(const fl_backward *backward, size_t tokens, const float *x, float *rows) {
    size_t heads = config_of(backward)->kv_heads, dim = config_of(backward)->head_dim;
    for (size_t t = 0; t < tokens; t++) {
        for (size_t h = 0; h < heads; h++) {
            memcpy(rows + (h * tokens + t) * dim, x + (t * heads + h) * dim, dim * sizeof(float));
        }
    }
}

static void from_rows(const fl_backward *backward, size_t tokens, const float *rows, float *x) {
    size_t heads = config_of(backward)->kv_heads, dim = config_of(backward)->head_dim;
    for (size_t t = 0; t < tokens; t++) {
        for (size_t h = 0; h < heads; h++) {
            memcpy(x + (t * heads + h) * dim, rows + (h * tokens + t) * dim, dim * sizeof(float));
        }
    }
}

/* The frozen softmax of a layer over the whole sequence: fills block.mix and log_sum_exp. */
static fl_attention_call run_softmax(fl_backward *backward, size_t layer, size_t tokens) {
    fl_block *block = &backward->block;
    fl_compute *compute = backward->network->compute;
    size_t window = config_of(backward)->sliding_window[layer];
    to_rows(backward, tokens, block->key, backward->key_rows);
    to_rows(backward, tokens, block->value, backward->value_rows);
    fl_attention_call call = {
        .shape = backward->network->shape,
        .tokens = tokens,
        .query = block->query,
        .keys = tokens,
        .key = backward->key_rows,
        .value = backward->value_rows,
        .key_head_stride = tokens * config_of(backward)->head_dim,
        .position = backward->index,
        .expiry = window != 0 ? backward->index + window : NULL,
        .output = block->mix,
        .log_sum_exp = backward->log_sum_exp,
    };
    compute->ops->attention(compute, &call);
    return call;
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
        fl_block_project(network, l, &backward->rope, tokens, 0, backward->stream, &backward->block);
        if (frozen)
            run_softmax(backward, l, tokens);
        else
            FL_TRY(mix(backward, l, tokens, error));
        fl_block_attention_output(network, l, tokens, backward->stream, &backward->block);
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

/* gradient_mix -> gradients of query, key, value, attention input (gates only) and parameters. */
static fl_status mix_backward(fl_backward *backward, size_t layer, size_t tokens, fl_gradient *gradient,
                              fl_error *error) {
    const fl_network *network = backward->network;
    fl_compute *compute = network->compute;
    size_t rows = tokens * config_of(backward)->kv_heads * config_of(backward)->head_dim * sizeof(float);
    if (backward->mixers[layer] != NULL) {
        fl_mixer_call call = mixer_call(&backward->block, tokens, NULL);
        return fl_mixer_backward(compute, backward->mechanism, layer, &call, backward->gradient_mix,
                                 backward->gradient_query, backward->gradient_key, backward->gradient_value,
                                 backward->gradient_input, gradient->layer[layer], error);
    }
    fl_attention_call call = run_softmax(backward, layer, tokens);
    memset(backward->gradient_input, 0, tokens * config_of(backward)->model_dim * sizeof(float));
    memset(backward->gradient_key_rows, 0, rows);
    memset(backward->gradient_value_rows, 0, rows);
    compute->ops->attention_backward(compute, &call, backward->gradient_mix, NULL, backward->gradient_query,
                                     backward->gradient_key_rows, backward->gradient_value_rows);
    from_rows(backward, tokens, backward->gradient_key_rows, backward->gradient_key);
    from_rows(backward, tokens, backward->gradient_value_rows, backward->gradient_value);
    return FL_OK;
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

/* gradient_stream: of the stream after the attention -> of the stream before the layer (not in the lowest
 * layer). */
static fl_status attention_backward(fl_backward *backward, size_t layer, size_t tokens, fl_gradient *gradient,
                                    fl_error *error) {
    const fl_network *network = backward->network;
    const fl_model_config *config = config_of(backward);
    const fl_network_layer *weights = &network->layers[layer];
    fl_compute *compute = network->compute;
    const fl_compute_ops *ops = compute->ops;
    const float *stream = backward->layer_inputs + layer * tokens * config->model_dim;
    fl_block *block = &backward->block;
    fl_block_project(network, layer, &backward->rope, tokens, 0, stream, block);
    ops->linear_backward(compute, weights->output, tokens, backward->gradient_stream, backward->gradient_mix,
                         false);
    FL_TRY(mix_backward(backward, layer, tokens, gradient, error));
    if (layer == backward->lowest) return FL_OK;
    const float *query =
        rotate_back(backward, weights->query_norm, tokens, config->query_heads, block->raw_query,
                    backward->gradient_query, backward->gradient_raw_query);
    const float *key = rotate_back(backward, weights->key_norm, tokens, config->kv_heads, block->raw_key,
                                   backward->gradient_key, backward->gradient_raw_key);
    ops->linear_backward(compute, weights->query, tokens, query, backward->gradient_input, true);
    ops->linear_backward(compute, weights->key, tokens, key, backward->gradient_input, true);
    ops->linear_backward(compute, weights->value, tokens, backward->gradient_value, backward->gradient_input,
                         true);
    ops->rms_norm_backward(compute, tokens, config->model_dim, stream, weights->input_norm,
                           config->norm_epsilon, backward->gradient_input, backward->gradient_stream, true);
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
    FL_TRY(reserve(backward, true, tokens, error));
    FL_TRY(prepare_loss(backward, false, error));
    FL_TRY(forward(backward, false, ids, tokens, backward->hidden, error));
    *loss = fl_logit_loss_next_token(&backward->loss, ids, tokens, backward->hidden, weight,
                                     gradient != NULL ? backward->gradient_input : NULL);
    return gradient != NULL ? descend(backward, tokens, gradient, error) : FL_OK;
}

fl_status fl_backward_divergence(fl_backward *backward, const int32_t *ids, size_t tokens, double weight,
                                 fl_gradient *gradient, double *loss, fl_error *error) {
    FL_TRY(reserve(backward, true, tokens, error));
    FL_TRY(prepare_loss(backward, true, error));
    FL_TRY(forward(backward, true, ids, tokens, backward->target_hidden, error));
    FL_TRY(forward(backward, false, ids, tokens, backward->hidden, error));
    *loss = fl_logit_loss_divergence(&backward->loss, tokens, backward->target_hidden, backward->hidden,
                                     weight, gradient != NULL ? backward->gradient_input : NULL);
    return gradient != NULL ? descend(backward, tokens, gradient, error) : FL_OK;
}

/* Mean square and variance of the frozen attention output; the difference replaces the linearised output. */
static void compare_outputs(size_t count, const float *frozen, float *linearised, double *mean_square,
                            double *variance) {
    double squares = 0.0, sum = 0.0, sum_squares = 0.0;
    for (size_t i = 0; i < count; i++) {
        double value = (double)frozen[i], difference = (double)linearised[i] - value;
        squares += difference * difference;
        sum += value;
        sum_squares += value * value;
        linearised[i] = (float)difference;
    }
    double mean = sum / (double)count;
    *mean_square = squares / (double)count;
    *variance = sum_squares / (double)count - mean * mean;
}

/* The layer's inputs and frozen output are in the block; gradient_mix first holds the linearised mix. */
static fl_status layer_error(fl_backward *backward, size_t layer, size_t tokens, double weight,
                             bool normalise, fl_gradient *gradient, double *loss, fl_error *error) {
    const fl_network_layer *weights = &backward->network->layers[layer];
    fl_compute *compute = backward->network->compute;
    size_t count = tokens * config_of(backward)->model_dim;
    float *difference = backward->gradient_stream;
    double variance = 1.0;
    fl_mixer_call call = mixer_call(&backward->block, tokens, backward->gradient_mix);
    fl_mixer_reset(backward->mixers[layer]);
    FL_TRY(fl_mixer_forward(backward->mixers[layer], &call, error));
    compute->ops->linear(compute, weights->output, weights->output_bias, tokens, backward->gradient_mix,
                         difference);
    compare_outputs(count, backward->block.attention_output, difference, loss, &variance);
    if (!normalise) variance = 1.0;
    *loss /= variance;
    if (gradient == NULL) return FL_OK;
    float factor = (float)(2.0 * weight / ((double)count * variance));
    for (size_t i = 0; i < count; i++) difference[i] *= factor;
    compute->ops->linear_backward(compute, weights->output, tokens, difference, backward->gradient_mix,
                                  false);
    call.output = NULL;
    return fl_mixer_backward(compute, backward->mechanism, layer, &call, backward->gradient_mix, NULL, NULL,
                             NULL, NULL, gradient->layer[layer], error);
}

fl_status fl_backward_layer_error(fl_backward *backward, const int32_t *ids, size_t tokens, double weight,
                                  bool normalise, fl_gradient *gradient, double *losses, fl_error *error) {
    const fl_network *network = backward->network;
    FL_TRY(reserve(backward, false, tokens, error));
    network->compute->ops->embed(network->compute, network->embedding, tokens, ids, backward->stream);
    for (size_t l = 0; l < config_of(backward)->layers; l++) {
        losses[l] = 0.0;
        fl_block_project(network, l, &backward->rope, tokens, 0, backward->stream, &backward->block);
        run_softmax(backward, l, tokens);
        fl_block_attention_output(network, l, tokens, backward->stream, &backward->block);
        if (backward->mixers[l] != NULL) {
            FL_TRY(layer_error(backward, l, tokens, weight, normalise, gradient, &losses[l], error));
        }
        if (l + 1 < config_of(backward)->layers) {
            fl_block_feed_forward(network, l, tokens, backward->stream, &backward->block);
        }
    }
    return FL_OK;
}
