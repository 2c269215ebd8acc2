#include "harness/engine/key_value_cache.h"

#include "harness/base/memory.h"

enum { SMALLEST_CAPACITY = 64 };

void fl_key_value_cache_init(fl_key_value_cache *cache, fl_compute *compute, size_t kv_heads, size_t head_dim,
                             size_t window) {
    *cache = (fl_key_value_cache){
        .compute = compute, .kv_heads = kv_heads, .head_dim = head_dim, .window = window};
}

void fl_key_value_cache_release(fl_key_value_cache *cache) {
    fl_compute_release(cache->compute, cache->key);
    fl_compute_release(cache->compute, cache->value);
    fl_key_value_cache_init(cache, cache->compute, cache->kv_heads, cache->head_dim, cache->window);
}

void fl_key_value_cache_clear(fl_key_value_cache *cache) {
    cache->start = cache->count = 0;
}

/* Rows start .. count - 1 of every head are copied to the front of `target`, whose heads are `capacity` rows
 * apart. */
static void copy_live(const fl_key_value_cache *cache, fl_array source, fl_array target, size_t capacity) {
    const size_t row = cache->head_dim;
    fl_compute_copy_rows(cache->compute, target, capacity * row, fl_array_from(source, cache->start * row),
                         cache->capacity * row, cache->kv_heads, (cache->count - cache->start) * row);
}

static fl_status reallocate(fl_key_value_cache *cache, size_t capacity, fl_error *error) {
    size_t floats = 0;
    fl_array key = fl_array_none, value = fl_array_none;
    fl_status status = FL_OK;
    FL_TRY(
        fl_memory_multiply(capacity, cache->kv_heads * cache->head_dim, &floats, "key/value cache", error));
    FL_TRY_DONE(status, fl_compute_floats(cache->compute, floats, &key, error));
    FL_TRY_DONE(status, fl_compute_floats(cache->compute, floats, &value, error));
    if (cache->count > cache->start) {
        copy_live(cache, cache->key, key, capacity);
        copy_live(cache, cache->value, value, capacity);
    }
    fl_compute_release(cache->compute, cache->key);
    fl_compute_release(cache->compute, cache->value);
    cache->key = key;
    cache->value = value;
    cache->count -= cache->start;
    cache->start = 0;
    cache->capacity = capacity;
    return FL_OK;
done:
    fl_compute_release(cache->compute, key);
    fl_compute_release(cache->compute, value);
    return status;
}

fl_status fl_key_value_cache_reserve(fl_key_value_cache *cache, size_t tokens, fl_error *error) {
    return tokens <= cache->capacity ? FL_OK : reallocate(cache, tokens, error);
}

static fl_status make_room(fl_key_value_cache *cache, size_t tokens, fl_error *error) {
    if (cache->count + tokens <= cache->capacity) return FL_OK;
    size_t needed = cache->count - cache->start + tokens;
    if (cache->start > 0 && 2 * needed <= cache->capacity) return reallocate(cache, cache->capacity, error);
    size_t capacity = 2 * needed < SMALLEST_CAPACITY ? SMALLEST_CAPACITY : 2 * needed;
    return reallocate(cache, capacity, error);
}

fl_status fl_key_value_cache_append(fl_key_value_cache *cache, size_t tokens, fl_array key, fl_array value,
                                    size_t *past, fl_error *error) {
    size_t live = cache->count - cache->start;
    if (cache->window != 0 && live > cache->window - 1) cache->start = cache->count - (cache->window - 1);
    FL_TRY(make_room(cache, tokens, error));
    *past = cache->count - cache->start;
    size_t row = cache->head_dim, token = cache->kv_heads * row;
    for (size_t head = 0; head < cache->kv_heads; head++) {
        const size_t at = (head * cache->capacity + cache->count) * row;
        fl_compute_copy_rows(cache->compute, fl_array_from(cache->key, at), row,
                             fl_array_from(key, head * row), token, tokens, row);
        fl_compute_copy_rows(cache->compute, fl_array_from(cache->value, at), row,
                             fl_array_from(value, head * row), token, tokens, row);
    }
    cache->count += tokens;
    return FL_OK;
}

void fl_key_value_cache_take_back(fl_key_value_cache *cache, size_t tokens) {
    cache->count -= tokens;
}

fl_status fl_key_value_cache_copy(fl_key_value_cache *cache, const fl_key_value_cache *source,
                                  fl_error *error) {
    fl_key_value_cache_clear(cache);
    if (cache->capacity < source->capacity) FL_TRY(reallocate(cache, source->capacity, error));
    if (source->count == source->start) return FL_OK;
    copy_live(source, source->key, cache->key, cache->capacity);
    copy_live(source, source->value, cache->value, cache->capacity);
    cache->count = source->count - source->start;
    return FL_OK;
}
