#include "attn_variants/cache_routing.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"

fl_status fl_routed_cache_create(fl_routed_cache *cache, size_t budget, size_t kv_heads, fl_error *error) {
    *cache = (fl_routed_cache){.budget = budget, .kv_heads = kv_heads};
    fl_status status = FL_OK;
    size_t slots = 0;
    FL_TRY_DONE(status, fl_memory_multiply(budget, kv_heads, &slots, "cache budget", error));
    FL_TRY_DONE(status, FL_ALLOCATE(&cache->used, kv_heads, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&cache->position, slots, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&cache->score, slots, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&cache->heap, slots, error));
done:
    if (status != FL_OK) fl_routed_cache_release(cache);
    return status;
}

void fl_routed_cache_release(fl_routed_cache *cache) {
    fl_memory_free(cache->used);
    fl_memory_free(cache->position);
    fl_memory_free(cache->score);
    fl_memory_free(cache->heap);
    *cache = (fl_routed_cache){0};
}

void fl_routed_cache_clear(fl_routed_cache *cache) {
    if (cache->used != NULL) memset(cache->used, 0, cache->kv_heads * sizeof *cache->used);
}

void fl_routed_cache_copy(fl_routed_cache *to, const fl_routed_cache *from) {
    assert(to->budget == from->budget && to->kv_heads == from->kv_heads);
    size_t slots = from->budget * from->kv_heads;
    memcpy(to->used, from->used, from->kv_heads * sizeof *to->used);
    memcpy(to->position, from->position, slots * sizeof *to->position);
    memcpy(to->score, from->score, slots * sizeof *to->score);
    memcpy(to->heap, from->heap, slots * sizeof *to->heap);
}

bool fl_routed_cache_full(const fl_routed_cache *cache, size_t kv_head) {
    return cache->used[kv_head] == cache->budget;
}

static double ordered(double score) {
    return isnan(score) ? -INFINITY : score;
}

static bool goes_before(double score, size_t position, double other_score, size_t other_position) {
    return score < other_score || (score == other_score && position < other_position);
}

/* Heap of one KV head's slots. */
typedef struct fl_slot_heap {
    size_t *slots;
    const double *score;
    const size_t *position;
    size_t count;
} fl_slot_heap;

static bool slot_before(const fl_slot_heap *heap, size_t a, size_t b) {
    return goes_before(heap->score[a], heap->position[a], heap->score[b], heap->position[b]);
}

static void exchange(size_t *a, size_t *b) {
    size_t kept = *a;
    *a = *b;
    *b = kept;
}

static void sift_down(const fl_slot_heap *heap, size_t at) {
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < heap->count; child++) {
            if (slot_before(heap, heap->slots[child], heap->slots[least])) least = child;
        }
        if (least == at) return;
        exchange(&heap->slots[at], &heap->slots[least]);
        at = least;
    }
}

static void sift_up(const fl_slot_heap *heap, size_t at) {
    while (at > 0 && slot_before(heap, heap->slots[at], heap->slots[(at - 1) / 2])) {
        exchange(&heap->slots[at], &heap->slots[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
}

static fl_slot_heap heap_of(const fl_routed_cache *cache, size_t kv_head) {
    size_t at = kv_head * cache->budget;
    return (fl_slot_heap){cache->heap + at, cache->score + at, cache->position + at, cache->used[kv_head]};
}

fl_route_step fl_routed_cache_fill(fl_routed_cache *cache, size_t kv_head, size_t position) {
    assert(!fl_routed_cache_full(cache, kv_head));
    size_t slot = cache->used[kv_head]++;
    cache->position[kv_head * cache->budget + slot] = position;
    return (fl_route_step){FL_ROUTE_FILLED, slot, FL_POSITION_NONE};
}

fl_route_step fl_routed_cache_offer(fl_routed_cache *cache, size_t kv_head, size_t position, double score) {
    size_t base = kv_head * cache->budget;
    score = ordered(score);
    if (!fl_routed_cache_full(cache, kv_head)) {
        fl_route_step step = fl_routed_cache_fill(cache, kv_head, position);
        cache->score[base + step.slot] = score;
        cache->heap[base + step.slot] = step.slot;
        fl_slot_heap heap = heap_of(cache, kv_head);
        sift_up(&heap, step.slot);
        return step;
    }
    fl_slot_heap heap = heap_of(cache, kv_head);
    size_t slot = heap.slots[0];
    size_t written = cache->position[base + slot];
    if (goes_before(score, position, cache->score[base + slot], written)) {
        return (fl_route_step){FL_ROUTE_PASSED, 0, position};
    }
    cache->position[base + slot] = position;
    cache->score[base + slot] = score;
    sift_down(&heap, 0);
    return (fl_route_step){FL_ROUTE_REPLACED, slot, written};
}

fl_route_step fl_routed_cache_choose(fl_routed_cache *cache, size_t kv_head, size_t position,
                                     const double *scores, double leaving_score) {
    assert(fl_routed_cache_full(cache, kv_head));
    size_t *positions = cache->position + kv_head * cache->budget;
    size_t lowest = cache->budget;
    double lowest_score = ordered(leaving_score);
    size_t written = position;
    for (size_t slot = 0; slot < cache->budget; slot++) {
        if (!goes_before(ordered(scores[slot]), positions[slot], lowest_score, written)) continue;
        lowest = slot;
        lowest_score = ordered(scores[slot]);
        written = positions[slot];
    }
    if (lowest == cache->budget) return (fl_route_step){FL_ROUTE_PASSED, 0, position};
    positions[lowest] = position;
    return (fl_route_step){FL_ROUTE_REPLACED, lowest, written};
}

double fl_route_static_score(fl_route route, uint64_t seed, size_t layer, size_t kv_head, size_t position,
                             double length) {
    switch (route) {
    case FL_ROUTE_KEY_NORM:
    case FL_ROUTE_VALUE_NORM:
        return length;
    case FL_ROUTE_RANDOM:
        return (double)(fl_random_hash(seed, layer, kv_head, position) >> 11) * 0x1.0p-53;
    case FL_ROUTE_RECENCY:
    case FL_ROUTE_SELF_RECALL:
    case FL_ROUTE_ATTENTION_MASS:
        break;
    }
    return (double)position;
}
