#include "harness/engine/full_attention.h"

#include "harness/base/memory.h"

static size_t largest_window(const fl_model_config *config) {
    size_t largest = 0;
    for (size_t l = 0; l < config->layers; l++) {
        if (config->sliding_window[l] > largest) largest = config->sliding_window[l];
    }
    return largest;
}

static size_t floats_per_token(const fl_model_config *config) {
    return 2 * config->kv_heads * config->head_dim + config->query_heads;
}

static fl_status reserve_index(fl_full_attention *attention, size_t count, fl_error *error) {
    if (count <= attention->index_count) return FL_OK;
    FL_TRY(FL_RESIZE(&attention->index, attention->index_count, count, error));
    for (size_t i = attention->index_count; i < count; i++) attention->index[i] = i;
    attention->index_count = count;
    return FL_OK;
}

fl_status fl_full_attention_reserve(fl_full_attention *attention, const fl_network *network, size_t tokens,
                                    fl_error *error) {
    const fl_model_config *config = &network->model->config;
    FL_TRY(reserve_index(attention, tokens + largest_window(config), error));
    if (tokens <= attention->capacity) return FL_OK;
    size_t floats = 0, key = config->kv_heads * config->head_dim;
    fl_compute_release(attention->compute, attention->storage);
    attention->compute = network->compute;
    attention->storage = fl_array_none;
    attention->capacity = 0;
    FL_TRY(fl_memory_multiply(tokens, floats_per_token(config), &floats, "attention of a sequence", error));
    FL_TRY(fl_compute_floats(attention->compute, floats, &attention->storage, error));
    attention->key_rows = attention->storage;
    attention->value_rows = fl_array_from(attention->key_rows, tokens * key);
    attention->log_sum_exp = fl_array_from(attention->value_rows, tokens * key);
    attention->capacity = tokens;
    return FL_OK;
}

void fl_full_attention_release(fl_full_attention *attention) {
    fl_compute_release(attention->compute, attention->storage);
    fl_memory_free(attention->index);
    *attention = (fl_full_attention){0};
}

size_t fl_full_attention_bytes(const fl_full_attention *attention, const fl_model_config *config) {
    return attention->capacity * floats_per_token(config) * sizeof(float) +
           attention->index_count * sizeof(size_t);
}

size_t fl_full_attention_bytes_of(const fl_model_config *config, size_t tokens) {
    const fl_full_attention attention = {.capacity = tokens, .index_count = tokens + largest_window(config)};
    return fl_full_attention_bytes(&attention, config);
}

/* [T][Hkv][D] -> [Hkv][T][D] */
static void to_rows(const fl_network *network, size_t tokens, fl_array x, fl_array rows) {
    const size_t heads = network->shape.kv_heads, dim = network->shape.head_dim;
    for (size_t h = 0; h < heads; h++) {
        fl_compute_copy_rows(network->compute, fl_array_from(rows, h * tokens * dim), dim,
                             fl_array_from(x, h * dim), heads * dim, tokens, dim);
    }
}

void fl_full_attention_from_rows(const fl_network *network, size_t tokens, fl_array rows, fl_array x) {
    const size_t heads = network->shape.kv_heads, dim = network->shape.head_dim;
    for (size_t h = 0; h < heads; h++) {
        fl_compute_copy_rows(network->compute, fl_array_from(x, h * dim), heads * dim,
                             fl_array_from(rows, h * tokens * dim), dim, tokens, dim);
    }
}

fl_attention_call fl_full_attention_run(fl_full_attention *attention, const fl_network *network, size_t layer,
                                        size_t tokens, fl_block *block) {
    const fl_model_config *config = &network->model->config;
    size_t window = config->sliding_window[layer];
    to_rows(network, tokens, block->key, attention->key_rows);
    to_rows(network, tokens, block->value, attention->value_rows);
    fl_attention_call call = {
        .shape = network->shape,
        .tokens = tokens,
        .query = block->query,
        .keys = tokens,
        .key = attention->key_rows,
        .value = attention->value_rows,
        .key_head_stride = tokens * config->head_dim,
        .position = attention->index,
        .expiry = window != 0 ? attention->index + window : NULL,
        .output = block->mix,
        .log_sum_exp = attention->log_sum_exp,
    };
    network->compute->ops->attention(network->compute, &call);
    return call;
}
