#include "attn_variants/exact_set.h"

#include <assert.h>
#include <string.h>

#include "harness/base/memory.h"

enum { BATCH = 64 }; /* entries of room, or of expired ones, that are worth moving the rest for */

void fl_exact_set_init(fl_exact_set *set, fl_compute *compute, size_t kv_heads, size_t head_dim,
                       bool per_head, bool weighs) {
    *set = (fl_exact_set){.compute = compute,
                          .kv_heads = kv_heads,
                          .head_dim = head_dim,
                          .per_head = per_head,
                          .weighs = weighs};
}

static void release_arrays(fl_exact_set *set) {
    fl_compute_release(set->compute, set->key);
    fl_compute_release(set->compute, set->value);
    fl_memory_free(set->position);
    fl_memory_free(set->expiry);
    fl_memory_free(set->mass);
}

void fl_exact_set_release(fl_exact_set *set) {
    release_arrays(set);
    fl_exact_set_init(set, set->compute, set->kv_heads, set->head_dim, set->per_head, set->weighs);
}

void fl_exact_set_clear(fl_exact_set *set) {
    set->count = 0;
}

static size_t lists(const fl_exact_set *set) {
    return set->per_head ? set->kv_heads : 1;
}

static fl_status allocate_arrays(fl_exact_set *set, size_t capacity, fl_error *error) {
    size_t entries = 0, floats = 0;
    FL_TRY(fl_memory_multiply(set->kv_heads, capacity, &entries, "exact set", error));
    FL_TRY(fl_memory_multiply(entries, set->head_dim, &floats, "exact set", error));
    set->capacity = capacity;
    FL_TRY(fl_compute_floats(set->compute, floats, &set->key, error));
    FL_TRY(fl_compute_floats(set->compute, floats, &set->value, error));
    FL_TRY(FL_ALLOCATE(&set->position, lists(set) * capacity, error));
    FL_TRY(FL_ALLOCATE(&set->expiry, lists(set) * capacity, error));
    if (set->weighs) FL_TRY(FL_ALLOCATE(&set->mass, entries, error));
    return FL_OK;
}

/* Entry `from_index` of `from` becomes entry `to_index` of `to`, for one KV head (its lifetimes with the list
 * it owns). */
static void move_entry(fl_exact_set *to, size_t to_index, const fl_exact_set *from, size_t from_index,
                       size_t kv_head) {
    size_t bytes = to->head_dim * sizeof(float);
    size_t target = kv_head * to->capacity + to_index, source = kv_head * from->capacity + from_index;
    memmove(fl_array_host(to->key) + target * to->head_dim, fl_array_host(from->key) + source * to->head_dim,
            bytes);
    memmove(fl_array_host(to->value) + target * to->head_dim,
            fl_array_host(from->value) + source * to->head_dim, bytes);
    if (to->weighs) to->mass[target] = from->mass[source];
    if (!to->per_head && kv_head > 0) return;
    to->position[target] = from->position[source];
    to->expiry[target] = from->expiry[source];
}

static void copy_entries(fl_exact_set *to, const fl_exact_set *from) {
    to->count = from->count;
    for (size_t head = 0; head < from->kv_heads; head++) {
        for (size_t i = 0; i < from->count; i++) move_entry(to, i, from, i, head);
    }
}

static void drop_expired(fl_exact_set *set, size_t position) {
    size_t count = set->count;
    for (size_t head = set->kv_heads; head-- > 0;) { /* head 0 last: it may own the lifetimes of all */
        const size_t *expiry = set->expiry + (set->per_head ? head * set->capacity : 0);
        set->count = 0;
        for (size_t i = 0; i < count; i++) {
            if (expiry[i] > position) move_entry(set, set->count++, set, i, head);
        }
    }
}

static size_t count_expired(const fl_exact_set *set, size_t position) {
    size_t expired = 0;
    for (size_t i = 0; i < set->count; i++) expired += set->expiry[i] <= position;
    return expired;
}

static fl_status grow(fl_exact_set *set, size_t capacity, fl_error *error) {
    fl_exact_set larger;
    fl_exact_set_init(&larger, set->compute, set->kv_heads, set->head_dim, set->per_head, set->weighs);
    fl_status status = allocate_arrays(&larger, capacity, error);
    if (status != FL_OK) {
        fl_exact_set_release(&larger);
        return status;
    }
    copy_entries(&larger, set);
    release_arrays(set);
    *set = larger;
    return FL_OK;
}

fl_status fl_exact_set_reserve(fl_exact_set *set, size_t extra, size_t position, fl_error *error) {
    if (set->count >= BATCH) {
        size_t expired = count_expired(set, position);
        if (expired >= BATCH && expired >= (set->count - expired) / 2) drop_expired(set, position);
    }
    if (set->count + extra <= set->capacity) return FL_OK;
    size_t slack = set->count / 2 > BATCH ? set->count / 2 : BATCH;
    return grow(set, set->count + (extra > slack ? extra : slack), error);
}

void fl_exact_set_append(fl_exact_set *set, const float *key, const float *value, size_t position,
                         size_t expiry) {
    assert(set->count < set->capacity);
    size_t at = set->count++;
    size_t bytes = set->head_dim * sizeof(float);
    for (size_t head = 0; head < set->kv_heads; head++) {
        size_t entry = head * set->capacity + at;
        memcpy(fl_array_host(set->key) + entry * set->head_dim, key + head * set->head_dim, bytes);
        memcpy(fl_array_host(set->value) + entry * set->head_dim, value + head * set->head_dim, bytes);
        if (set->weighs) set->mass[entry] = 0.0;
        if (!set->per_head && head > 0) continue;
        set->position[entry] = position;
        set->expiry[entry] = expiry;
    }
}

size_t fl_exact_set_find(const fl_exact_set *set, size_t kv_head, size_t position) {
    const size_t *positions = set->position + (set->per_head ? kv_head * set->capacity : 0);
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (positions[middle] < position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    assert(low < set->count && positions[low] == position);
    return low;
}

fl_array fl_exact_set_key(const fl_exact_set *set, size_t kv_head, size_t index) {
    return fl_array_from(set->key, (kv_head * set->capacity + index) * set->head_dim);
}

fl_array fl_exact_set_value(const fl_exact_set *set, size_t kv_head, size_t index) {
    return fl_array_from(set->value, (kv_head * set->capacity + index) * set->head_dim);
}

void fl_exact_set_expire(fl_exact_set *set, size_t kv_head, size_t position, size_t step) {
    assert(set->per_head);
    set->expiry[kv_head * set->capacity + fl_exact_set_find(set, kv_head, position)] = step;
}

size_t fl_exact_set_lifetimes(const fl_exact_set *set) {
    return set->per_head ? set->kv_heads * set->count : 0;
}

void fl_exact_set_describe(const fl_exact_set *set, size_t *lifetimes, fl_attention_call *call) {
    call->keys = set->count;
    call->key = set->key;
    call->value = set->value;
    call->key_head_stride = set->capacity * set->head_dim;
    call->lifetimes_per_head = set->per_head;
    call->position = set->position;
    call->expiry = set->expiry;
    if (!set->per_head) return;
    size_t *position = lifetimes, *expiry = lifetimes + fl_exact_set_lifetimes(set);
    for (size_t head = 0; head < set->kv_heads; head++) {
        memcpy(position + head * set->count, set->position + head * set->capacity,
               set->count * sizeof *position);
        memcpy(expiry + head * set->count, set->expiry + head * set->capacity, set->count * sizeof *expiry);
    }
    call->position = position;
    call->expiry = expiry;
}

fl_status fl_exact_set_copy(fl_exact_set *to, const fl_exact_set *from, fl_error *error) {
    to->count = 0;
    if (to->capacity < from->count) FL_TRY(grow(to, from->count + BATCH, error));
    copy_entries(to, from);
    return FL_OK;
}
