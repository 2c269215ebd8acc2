#include "harness/engine/block.h"

#include "harness/base/memory.h"

fl_status fl_block_reserve(fl_block *block, const fl_network *network, bool keep, size_t tokens,
                           fl_error *error) {
    const fl_model_config *config = &network->model->config;
    if (tokens <= block->capacity && keep == block->keep) return FL_OK;
    fl_block_release(block);
    block->compute = network->compute;
    size_t query = config->query_heads * config->head_dim, key = config->kv_heads * config->head_dim;
    size_t model = config->model_dim, mlp = config->mlp_dim;
    const struct {
        fl_array *member;
        size_t width;
    } parts[] = {
        {&block->attention_input, model},
        {&block->query, query},
        {&block->key, key},
        {&block->value, key},
        {&block->mix, query},
        {&block->attention_output, model},
        {&block->mlp_input, model},
        {&block->gate, mlp},
        {&block->up, mlp},
        {&block->mlp_output, model},
        {&block->raw_query, keep ? query : 0},
        {&block->raw_key, keep ? key : 0},
        {&block->activated, keep ? mlp : 0},
    };
    size_t width = 0, floats = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) width += parts[i].width;
    FL_TRY(fl_memory_multiply(tokens, width, &floats, "activations of a layer", error));
    FL_TRY(fl_compute_floats(block->compute, floats, &block->storage, error));
    fl_array next = block->storage;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].member = next;
        next = fl_array_from(next, tokens * parts[i].width);
    }
    if (!keep) {
        block->raw_query = block->query;
        block->raw_key = block->key;
        block->activated = block->gate;
    }
    block->capacity = tokens;
    block->keep = keep;
    return FL_OK;
}

fl_status fl_block_reserve_adapter(fl_block *block, size_t rank, size_t tokens, fl_error *error) {
    size_t floats = 2 * rank * tokens;
    if (floats <= block->low_floats) return FL_OK;
    fl_compute_release(block->compute, block->low);
    block->low = fl_array_none;
    block->low_floats = 0;
    FL_TRY(fl_compute_floats(block->compute, floats, &block->low, error));
    block->low_floats = floats;
    return FL_OK;
}

void fl_block_release(fl_block *block) {
    fl_compute_release(block->compute, block->storage);
    fl_compute_release(block->compute, block->low);
    *block = (fl_block){0};
}

size_t fl_block_bytes(const fl_block *block, const fl_model_config *config) {
    size_t query = config->query_heads * config->head_dim, key = config->kv_heads * config->head_dim;
    size_t kept = block->keep ? query + key + config->mlp_dim : 0;
    size_t width = 4 * config->model_dim + 2 * query + 2 * key + 2 * config->mlp_dim + kept;
    return (block->capacity * width + block->low_floats) * sizeof(float);
}

size_t fl_block_bytes_of(const fl_model_config *config, bool keep, size_t rank, size_t tokens) {
    const fl_block block = {.capacity = tokens, .keep = keep, .low_floats = 2 * rank * tokens};
    return fl_block_bytes(&block, config);
}

fl_status fl_rope_create(const fl_model_config *config, fl_rope *out, fl_error *error) {
    *out = (fl_rope){0};
    FL_TRY(FL_ALLOCATE(&out->inverse_frequencies, config->rope.rotary_dim / 2, error));
    fl_rope_set_length(out, config, 0);
    return FL_OK;
}

void fl_rope_set_length(fl_rope *rope, const fl_model_config *config, size_t sequence_length) {
    fl_rope_inverse_frequencies(&config->rope, config->max_positions, sequence_length,
                                rope->inverse_frequencies, &rope->factor);
}

void fl_rope_release(fl_rope *rope) {
    fl_memory_free(rope->inverse_frequencies);
    *rope = (fl_rope){0};
}

/* q/k norm where the model has one; raw may be the same as normalised. */
static void normalise(const fl_network *network, fl_array norm, size_t tokens, size_t heads, fl_array raw,
                      fl_array normalised) {
    const fl_model_config *config = &network->model->config;
    if (!fl_array_is(norm)) return;
    network->compute->ops->rms_norm(network->compute, tokens * heads, config->head_dim, raw, norm,
                                    config->norm_epsilon, normalised);
}

void fl_block_rotate(const fl_network *network, const fl_rope *rope, size_t tokens, size_t first,
                     fl_array query, fl_array key) {
    const fl_model_config *config = &network->model->config;
    fl_compute *compute = network->compute;
    compute->ops->rope(compute, tokens, config->query_heads, config->head_dim, first, config->rope.rotary_dim,
                       fl_array_of(rope->inverse_frequencies), rope->factor, 1, query);
    compute->ops->rope(compute, tokens, config->kv_heads, config->head_dim, first, config->rope.rotary_dim,
                       fl_array_of(rope->inverse_frequencies), rope->factor, 1, key);
}

void fl_block_project(const fl_network *network, size_t layer, const fl_rope *rope, const fl_adapter *adapter,
                      size_t tokens, size_t first, fl_array stream, fl_block *block) {
    const fl_model_config *config = &network->model->config;
    network->compute->ops->rms_norm(network->compute, tokens, config->model_dim, stream,
                                    network->layers[layer].input_norm, config->norm_epsilon,
                                    block->attention_input);
    fl_block_project_input(network, layer, rope, adapter, tokens, first, block->attention_input, block);
}

/* A frozen projection and what an adapter adds to it. */
static void project(const fl_network *network, const fl_adapter *adapter, fl_lora_target target,
                    const fl_weight *weight, fl_array bias, size_t tokens, fl_array input, fl_array low,
                    fl_array output) {
    network->compute->ops->linear(network->compute, weight, bias, tokens, input, output);
    if (adapter != NULL && adapter->rank > 0)
        fl_adapter_forward(network->compute, adapter, target, tokens, input, low, output);
}

void fl_block_project_input(const fl_network *network, size_t layer, const fl_rope *rope,
                            const fl_adapter *adapter, size_t tokens, size_t first, fl_array input,
                            fl_block *block) {
    const fl_model_config *config = &network->model->config;
    const fl_network_layer *weights = &network->layers[layer];
    project(network, adapter, FL_LORA_QUERY, weights->query, weights->query_bias, tokens, input, block->low,
            fl_array_is(weights->query_norm) ? block->raw_query : block->query);
    project(network, adapter, FL_LORA_KEY, weights->key, weights->key_bias, tokens, input, block->low,
            fl_array_is(weights->key_norm) ? block->raw_key : block->key);
    project(network, adapter, FL_LORA_VALUE, weights->value, weights->value_bias, tokens, input, block->low,
            block->value);
    normalise(network, weights->query_norm, tokens, config->query_heads, block->raw_query, block->query);
    normalise(network, weights->key_norm, tokens, config->kv_heads, block->raw_key, block->key);
    if (rope != NULL) fl_block_rotate(network, rope, tokens, first, block->query, block->key);
}

void fl_block_attention_output(const fl_network *network, size_t layer, const fl_adapter *adapter,
                               size_t tokens, fl_array stream, fl_block *block) {
    const fl_network_layer *weights = &network->layers[layer];
    project(network, adapter, FL_LORA_OUTPUT, weights->output, weights->output_bias, tokens, block->mix,
            block->low, block->attention_output);
    network->compute->ops->add(network->compute, tokens * network->model->config.model_dim, stream,
                               block->attention_output);
}

void fl_block_expand(const fl_network *network, size_t layer, size_t tokens, fl_array stream,
                     fl_block *block) {
    const fl_model_config *config = &network->model->config;
    const fl_network_layer *weights = &network->layers[layer];
    fl_compute *compute = network->compute;
    const fl_compute_ops *ops = compute->ops;
    ops->rms_norm(compute, tokens, config->model_dim, stream, weights->post_attention_norm,
                  config->norm_epsilon, block->mlp_input);
    ops->linear(compute, weights->gate, weights->gate_bias, tokens, block->mlp_input, block->gate);
    ops->linear(compute, weights->up, weights->up_bias, tokens, block->mlp_input, block->up);
    ops->gated_activation(compute, config->activation, tokens * config->mlp_dim, block->gate, block->up,
                          block->activated);
}

void fl_block_feed_forward(const fl_network *network, size_t layer, size_t tokens, fl_array stream,
                           fl_block *block) {
    const fl_network_layer *weights = &network->layers[layer];
    fl_compute *compute = network->compute;
    fl_block_expand(network, layer, tokens, stream, block);
    compute->ops->linear(compute, weights->down, weights->down_bias, tokens, block->activated,
                         block->mlp_output);
    compute->ops->add(compute, tokens * network->model->config.model_dim, stream, block->mlp_output);
}
