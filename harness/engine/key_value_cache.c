#include "harness/engine/key_value_cache.h"

enum { SMALLEST_CAPACITY = 64 };

void fl_key_value_cache_init(fl_key_value_cache *cache, fl_compute *compute, size_t kv_heads, size_t head_dim,
                             size_t window) {
    *cache = (fl_key_value_cache){.window = window};
    fl_key_value_rows_init(&cache->rows, compute, kv_heads, head_dim);
}

void fl_key_value_cache_release(fl_key_value_cache *cache) {
    fl_key_value_rows_release(&cache->rows);
    fl_key_value_cache_clear(cache);
}

void fl_key_value_cache_clear(fl_key_value_cache *cache) {
    cache->start = cache->count = 0;
}

/* Memory for `capacity` rows, the live ones first. */
static fl_status reallocate(fl_key_value_cache *cache, size_t capacity, fl_error *error) {
    const size_t live = cache->count - cache->start;
    FL_TRY(fl_key_value_rows_resize(&cache->rows, capacity, cache->start, live, error));
    cache->count = live;
    cache->start = 0;
    return FL_OK;
}

fl_status fl_key_value_cache_reserve(fl_key_value_cache *cache, size_t tokens, fl_error *error) {
    return tokens <= cache->rows.capacity ? FL_OK : reallocate(cache, tokens, error);
}

static fl_status make_room(fl_key_value_cache *cache, size_t tokens, fl_error *error) {
    const size_t capacity = cache->rows.capacity, needed = cache->count - cache->start + tokens;
    if (cache->count + tokens <= capacity) return FL_OK;
    if (cache->start > 0 && 2 * needed <= capacity) return reallocate(cache, capacity, error);
    return reallocate(cache, 2 * needed < SMALLEST_CAPACITY ? SMALLEST_CAPACITY : 2 * needed, error);
}

fl_status fl_key_value_cache_append(fl_key_value_cache *cache, size_t tokens, fl_array key, fl_array value,
                                    size_t *past, fl_error *error) {
    size_t live = cache->count - cache->start;
    if (cache->window != 0 && live > cache->window - 1) cache->start = cache->count - (cache->window - 1);
    FL_TRY(make_room(cache, tokens, error));
    *past = cache->count - cache->start;
    fl_key_value_rows_put(&cache->rows, cache->count, tokens, key, value);
    cache->count += tokens;
    return FL_OK;
}

void fl_key_value_cache_take_back(fl_key_value_cache *cache, size_t tokens) {
    cache->count -= tokens;
}

fl_status fl_key_value_cache_copy(fl_key_value_cache *cache, const fl_key_value_cache *source,
                                  fl_error *error) {
    fl_key_value_cache_clear(cache);
    if (cache->rows.capacity < source->rows.capacity) FL_TRY(reallocate(cache, source->rows.capacity, error));
    fl_key_value_rows_copy(&cache->rows, &source->rows, source->start, source->count - source->start);
    cache->count = source->count - source->start;
    return FL_OK;
}
