#include "attn_variants/exact_set.h"

#include <assert.h>
#include <string.h>

#include "harness/base/memory.h"

enum { BATCH = 64 }; /* entries of room, or of expired ones, that are worth moving the rest for */

void fl_exact_set_init(fl_exact_set *set, fl_compute *compute, const fl_exact_set_kind *kind) {
    *set = (fl_exact_set){
        .sinks = kind->sinks, .window = kind->window, .per_head = kind->per_head, .weighs = kind->weighs};
    fl_key_value_rows_init(&set->rows, compute, kind->kv_heads, kind->head_dim);
}

static void release_lists(fl_exact_set *set) {
    fl_memory_free(set->position);
    fl_memory_free(set->expiry);
    fl_memory_free(set->mass);
    fl_compute_release(set->rows.compute, set->lifetimes);
    set->position = set->expiry = NULL;
    set->mass = NULL;
    set->lifetimes = fl_array_none;
}

void fl_exact_set_release(fl_exact_set *set) {
    release_lists(set);
    fl_key_value_rows_release(&set->rows);
    set->count = 0;
}

void fl_exact_set_clear(fl_exact_set *set) {
    set->count = 0;
}

static size_t lists(const fl_exact_set *set) {
    return set->per_head ? set->rows.kv_heads : 1;
}

static fl_status allocate_lists(fl_exact_set *set, size_t capacity, fl_error *error) {
    fl_compute *compute = set->rows.compute;
    const size_t entries = lists(set) * capacity;
    FL_TRY(FL_ALLOCATE(&set->position, entries, error));
    FL_TRY(FL_ALLOCATE(&set->expiry, entries, error));
    if (set->weighs) FL_TRY(FL_ALLOCATE(&set->mass, set->rows.kv_heads * capacity, error));
    return compute->ops->allocate(compute, 2 * entries, FL_INT32, &set->lifetimes, error);
}

/* The lists of `from`, whose heads are as far apart as its rows. */
static void copy_lists(fl_exact_set *to, size_t capacity, const fl_exact_set *from) {
    const size_t stride = from->rows.capacity, count = from->count;
    for (size_t list = 0; count > 0 && list < lists(from); list++) {
        memcpy(to->position + list * capacity, from->position + list * stride, count * sizeof *to->position);
        memcpy(to->expiry + list * capacity, from->expiry + list * stride, count * sizeof *to->expiry);
    }
    for (size_t head = 0; count > 0 && from->weighs && head < from->rows.kv_heads; head++)
        memcpy(to->mass + head * capacity, from->mass + head * stride, count * sizeof *to->mass);
}

static fl_status grow(fl_exact_set *set, size_t capacity, fl_error *error) {
    fl_exact_set larger = *set;
    fl_status status = FL_OK;
    larger.position = larger.expiry = NULL;
    larger.mass = NULL;
    larger.lifetimes = fl_array_none;
    FL_TRY_DONE(status, allocate_lists(&larger, capacity, error));
    copy_lists(&larger, capacity, set);
    FL_TRY_DONE(status, fl_key_value_rows_resize(&larger.rows, capacity, 0, set->count, error));
    release_lists(set);
    *set = larger;
    return FL_OK;
done:
    release_lists(&larger);
    return status;
}

/* Entry `from` of a head's becomes entry `to`, in the lists that it owns. */
static void move_entry(fl_exact_set *set, size_t head, size_t to, size_t from) {
    const size_t at = head * set->rows.capacity;
    if (set->weighs) set->mass[at + to] = set->mass[at + from];
    if (!set->per_head && head > 0) return;
    set->position[at + to] = set->position[at + from];
    set->expiry[at + to] = set->expiry[at + from];
}

static const int32_t *expiries(const fl_exact_set *set, size_t head) {
    return set->expiry + (set->per_head ? head * set->rows.capacity : 0);
}

static size_t count_expired(const fl_exact_set *set, size_t position) {
    size_t expired = 0;
    for (size_t i = 0; i < set->count; i++) expired += (size_t)set->expiry[i] <= position;
    return expired;
}

static fl_status drop_expired(fl_exact_set *set, size_t position, size_t living, fl_error *error) {
    int32_t *index = NULL;
    FL_TRY(FL_ALLOCATE(&index, set->rows.kv_heads * living, error));
    for (size_t head = set->rows.kv_heads; head-- > 0;) { /* head 0 last: it may own the lifetimes of all */
        const int32_t *expiry = expiries(set, head);
        size_t kept = 0;
        for (size_t i = 0; i < set->count; i++) {
            if ((size_t)expiry[i] <= position) continue;
            index[head * living + kept] = (int32_t)i;
            move_entry(set, head, kept++, i);
        }
        assert(kept == living);
    }
    set->count = living;
    fl_status status = fl_key_value_rows_select(&set->rows, index, living, error);
    fl_memory_free(index);
    return status;
}

fl_status fl_exact_set_reserve(fl_exact_set *set, size_t extra, size_t position, fl_error *error) {
    if (set->count >= BATCH) {
        const size_t expired = count_expired(set, position), living = set->count - expired;
        if (expired >= BATCH && expired >= living / 2) FL_TRY(drop_expired(set, position, living, error));
    }
    if (set->count + extra <= set->rows.capacity) return FL_OK;
    size_t slack = set->count / 2 > BATCH ? set->count / 2 : BATCH;
    return grow(set, set->count + (extra > slack ? extra : slack), error);
}

static int32_t expiry_of(const fl_exact_set *set, size_t position) {
    return position < set->sinks || set->per_head ? (int32_t)FL_NEVER : (int32_t)(position + set->window);
}

void fl_exact_set_append(fl_exact_set *set, size_t tokens, size_t position, fl_array key, fl_array value) {
    const size_t capacity = set->rows.capacity, first = set->count;
    if (set->window == 0 && !set->per_head) /* sinks alone are ever seen */
        tokens = position >= set->sinks ? 0 : set->sinks - position < tokens ? set->sinks - position : tokens;
    assert(first + tokens <= capacity);
    fl_key_value_rows_put(&set->rows, first, tokens, key, value);
    for (size_t i = first; i < first + tokens; i++) {
        for (size_t list = 0; list < lists(set); list++) {
            set->position[list * capacity + i] = (int32_t)(position + i - first);
            set->expiry[list * capacity + i] = expiry_of(set, position + i - first);
        }
        for (size_t head = 0; set->weighs && head < set->rows.kv_heads; head++)
            set->mass[head * capacity + i] = 0.0;
    }
    set->count += tokens;
}

size_t fl_exact_set_find(const fl_exact_set *set, size_t kv_head, size_t position) {
    const int32_t *positions = set->position + (set->per_head ? kv_head * set->rows.capacity : 0);
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((size_t)positions[middle] < position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    assert(low < set->count && (size_t)positions[low] == position);
    return low;
}

void fl_exact_set_expire(fl_exact_set *set, size_t kv_head, size_t position, size_t step) {
    assert(set->per_head);
    set->expiry[kv_head * set->rows.capacity + fl_exact_set_find(set, kv_head, position)] = (int32_t)step;
}

void fl_exact_set_lifetimes(const fl_exact_set *set, fl_array *position, fl_array *expiry) {
    fl_compute *compute = set->rows.compute;
    const size_t count = set->count, capacity = set->rows.capacity;
    *position = set->lifetimes;
    *expiry = fl_array_from(set->lifetimes, lists(set) * capacity);
    for (size_t list = 0; list < lists(set); list++) {
        compute->ops->upload(compute, fl_array_from(*position, list * count), set->position + list * capacity,
                             count);
        compute->ops->upload(compute, fl_array_from(*expiry, list * count), set->expiry + list * capacity,
                             count);
    }
}

void fl_exact_set_describe(const fl_exact_set *set, fl_attention_call *call) {
    call->keys = set->count;
    call->key = set->rows.key;
    call->value = set->rows.value;
    call->key_head_stride = fl_key_value_rows_stride(&set->rows);
    call->lifetimes_per_head = set->per_head;
    fl_exact_set_lifetimes(set, &call->position, &call->expiry);
}

fl_status fl_exact_set_copy(fl_exact_set *to, const fl_exact_set *from, fl_error *error) {
    to->count = 0;
    if (to->rows.capacity < from->count) FL_TRY(grow(to, from->count + BATCH, error));
    copy_lists(to, to->rows.capacity, from);
    fl_key_value_rows_copy(&to->rows, &from->rows, 0, from->count);
    to->count = from->count;
    return FL_OK;
}
