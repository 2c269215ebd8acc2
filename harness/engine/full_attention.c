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

static size_t index_numbers(const fl_model_config *config, size_t tokens) {
    return tokens + largest_window(config);
}

fl_status fl_full_attention_reserve(fl_full_attention *attention, const fl_network *network, size_t tokens,
                                    fl_error *error) {
    const fl_model_config *config = &network->model->config;
    fl_compute *compute = network->compute;
    FL_TRY(fl_ascending_reserve(&attention->index, compute, index_numbers(config, tokens), error));
    if (tokens <= attention->capacity) return FL_OK;
    if (attention->capacity == 0)
        fl_key_value_rows_init(&attention->rows, compute, config->kv_heads, config->head_dim);
    fl_compute_release(compute, attention->log_sum_exp);
    attention->log_sum_exp = fl_array_none;
    attention->capacity = 0;
    FL_TRY(fl_key_value_rows_resize(&attention->rows, tokens, 0, 0, error));
    FL_TRY(fl_compute_floats(compute, tokens * config->query_heads, &attention->log_sum_exp, error));
    attention->capacity = tokens;
    return FL_OK;
}

void fl_full_attention_release(fl_full_attention *attention) {
    fl_compute *compute = attention->rows.compute;
    fl_compute_release(compute, attention->log_sum_exp);
    fl_compute_release(compute, attention->index.values);
    fl_key_value_rows_release(&attention->rows);
    *attention = (fl_full_attention){0};
}

size_t fl_full_attention_bytes(const fl_full_attention *attention, const fl_model_config *config) {
    return attention->capacity * floats_per_token(config) * sizeof(float) +
           attention->index.count * sizeof(int32_t);
}

size_t fl_full_attention_bytes_of(const fl_model_config *config, size_t tokens) {
    const fl_full_attention attention = {.capacity = tokens,
                                         .index.count = 2 * index_numbers(config, tokens)};
    return fl_full_attention_bytes(&attention, config);
}

fl_attention_call fl_full_attention_run(fl_full_attention *attention, const fl_network *network, size_t layer,
                                        size_t tokens, fl_block *block) {
    const size_t window = network->model->config.sliding_window[layer];
    const fl_array index = attention->index.values;
    fl_key_value_rows_put(&attention->rows, 0, tokens, block->key, block->value);
    fl_attention_call call = {
        .shape = network->shape,
        .tokens = tokens,
        .query = block->query,
        .keys = tokens,
        .key = attention->rows.key,
        .value = attention->rows.value,
        .key_head_stride = fl_key_value_rows_stride(&attention->rows),
        .position = index,
        .expiry = window != 0 ? fl_array_from(index, window) : fl_array_none,
        .output = block->mix,
        .log_sum_exp = attention->log_sum_exp,
    };
    network->compute->ops->attention(network->compute, &call);
    return call;
}
