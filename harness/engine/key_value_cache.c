#include "harness/engine/key_value_cache.h"

#include <string.h>

#include "harness/base/memory.h"

enum { SMALLEST_CAPACITY = 64 };

void fl_key_value_cache_init(fl_key_value_cache *cache, size_t kv_heads, size_t head_dim, size_t window) {
    *cache = (fl_key_value_cache){.kv_heads = kv_heads, .head_dim = head_dim, .window = window};
}

void fl_key_value_cache_release(fl_key_value_cache *cache) {
    fl_memory_free(cache->key);
    fl_memory_free(cache->value);
    fl_key_value_cache_init(cache, cache->kv_heads, cache->head_dim, cache->window);
}

void fl_key_value_cache_clear(fl_key_value_cache *cache) {
    cache->start = cache->count = 0;
}

/* Rows start .. count - 1 of every head move to the front of `target`, whose heads are `capacity` rows apart.
 */
static void move_live(const fl_key_value_cache *cache, const float *source, float *target, size_t capacity) {
    size_t live = cache->count - cache->start;
    for (size_t head = 0; head < cache->kv_heads; head++) {
        memmove(target + head * capacity * cache->head_dim,
                source + (head * cache->capacity + cache->start) * cache->head_dim,
                live * cache->head_dim * sizeof(float));
    }
}

static void compact(fl_key_value_cache *cache) {
    move_live(cache, cache->key, cache->key, cache->capacity);
    move_live(cache, cache->value, cache->value, cache->capacity);
    cache->count -= cache->start;
    cache->start = 0;
}

static fl_status reallocate(fl_key_value_cache *cache, size_t capacity, fl_error *error) {
    size_t floats = 0;
    float *key = NULL, *value = NULL;
    fl_status status = FL_OK;
    FL_TRY(
        fl_memory_multiply(capacity, cache->kv_heads * cache->head_dim, &floats, "key/value cache", error));
    FL_TRY_DONE(status, FL_ALLOCATE(&key, floats, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&value, floats, error));
    if (cache->count > cache->start) {
        move_live(cache, cache->key, key, capacity);
        move_live(cache, cache->value, value, capacity);
    }
    fl_memory_free(cache->key);
    fl_memory_free(cache->value);
    cache->key = key;
    cache->value = value;
    cache->count -= cache->start;
    cache->start = 0;
    cache->capacity = capacity;
    return FL_OK;
done:
    fl_memory_free(key);
    fl_memory_free(value);
    return status;
}

fl_status fl_key_value_cache_reserve(fl_key_value_cache *cache, size_t tokens, fl_error *error) {
    return tokens <= cache->capacity ? FL_OK : reallocate(cache, tokens, error);
}

static fl_status make_room(fl_key_value_cache *cache, size_t tokens, fl_error *error) {
    if (cache->count + tokens <= cache->capacity) return FL_OK;
    size_t needed = cache->count - cache->start + tokens;
    if (cache->start > 0 && 2 * needed <= cache->capacity) {
        compact(cache);
        return FL_OK;
    }
    size_t capacity = 2 * needed < SMALLEST_CAPACITY ? SMALLEST_CAPACITY : 2 * needed;
    return reallocate(cache, capacity, error);
}

fl_status fl_key_value_cache_append(fl_key_value_cache *cache, size_t tokens, const float *key,
                                    const float *value, size_t *past, fl_error *error) {
    size_t live = cache->count - cache->start;
    if (cache->window != 0 && live > cache->window - 1) cache->start = cache->count - (cache->window - 1);
    FL_TRY(make_room(cache, tokens, error));
    *past = cache->count - cache->start;
    size_t row = cache->head_dim, token = cache->kv_heads * row;
    for (size_t head = 0; head < cache->kv_heads; head++) {
        float *key_rows = cache->key + (head * cache->capacity + cache->count) * row;
        float *value_rows = cache->value + (head * cache->capacity + cache->count) * row;
        for (size_t t = 0; t < tokens; t++) {
            memcpy(key_rows + t * row, key + t * token + head * row, row * sizeof(float));
            memcpy(value_rows + t * row, value + t * token + head * row, row * sizeof(float));
        }
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
    move_live(source, source->key, cache->key, cache->capacity);
    move_live(source, source->value, cache->value, cache->capacity);
    cache->count = source->count - source->start;
    return FL_OK;
}
