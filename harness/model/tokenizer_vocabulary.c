#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_parts.h"

enum { FIRST_SLOTS = 1 << 10 };

fl_status fl_id_list_append(fl_id_list *list, int32_t id, fl_error *error) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        FL_TRY(FL_RESIZE(&list->ids, list->capacity, capacity, error));
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return FL_OK;
}

static uint64_t slot_value(uint64_t hash, size_t id) {
    return (hash & 0xFFFFFFFF00000000u) | (id + 1);
}

static size_t slot_id(uint64_t slot) {
    return (uint32_t)slot - 1;
}

/* The slot that holds this text, or the free one where it belongs. */
static size_t slot_of(const fl_vocabulary *vocabulary, const char *text, size_t bytes, uint64_t hash) {
    size_t mask = vocabulary->slot_count - 1, slot = (size_t)hash & mask;
    for (; vocabulary->slots[slot] != 0; slot = (slot + 1) & mask) {
        if ((vocabulary->slots[slot] ^ hash) >> 32 != 0) continue;
        const fl_vocabulary_token *token = &vocabulary->tokens[slot_id(vocabulary->slots[slot])];
        if (token->bytes == bytes && memcmp(vocabulary->text.bytes + token->offset, text, bytes) == 0) break;
    }
    return slot;
}

static fl_status grow_index(fl_vocabulary *vocabulary, fl_error *error) {
    size_t slot_count = vocabulary->slot_count == 0 ? FIRST_SLOTS : 2 * vocabulary->slot_count;
    uint64_t *slots;
    FL_TRY(FL_ALLOCATE(&slots, slot_count, error));
    fl_memory_free(vocabulary->slots);
    vocabulary->slots = slots;
    vocabulary->slot_count = slot_count;
    for (size_t id = 0; id < vocabulary->count; id++) {
        const fl_vocabulary_token *token = &vocabulary->tokens[id];
        if (!token->indexed) continue;
        const char *text = vocabulary->text.bytes + token->offset;
        uint64_t hash = XXH3_64bits(text, token->bytes);
        vocabulary->slots[slot_of(vocabulary, text, token->bytes, hash)] = slot_value(hash, id);
    }
    return FL_OK;
}

static fl_status make_room(fl_vocabulary *vocabulary, size_t id, fl_error *error) {
    if (id < vocabulary->count) return FL_OK;
    if (id >= vocabulary->capacity) {
        size_t capacity = vocabulary->capacity == 0 ? FIRST_SLOTS : 2 * vocabulary->capacity;
        if (capacity <= id) capacity = id + 1;
        FL_TRY(FL_RESIZE(&vocabulary->tokens, vocabulary->capacity, capacity, error));
        vocabulary->capacity = capacity;
    }
    vocabulary->count = id + 1;
    return FL_OK;
}

fl_status fl_vocabulary_add(fl_vocabulary *vocabulary, int64_t id, const char *text, size_t bytes,
                            bool indexed, fl_error *error) {
    int shown = (int)(bytes < 200 ? bytes : 200);
    const int64_t limit = vocabulary->id_limit > 0 ? (int64_t)vocabulary->id_limit : FL_TOKEN_ID_LIMIT;
    if (id < 0 || id >= limit)
        return fl_error_set(error, FL_ERROR_FORMAT, "token \"%.*s\" has id %" PRId64 ", outside 0 ... %d",
                            shown, text, id, (int)limit - 1);
    if ((size_t)id < vocabulary->count && vocabulary->tokens[id].present)
        return fl_error_set(error, FL_ERROR_FORMAT,
                            "id %" PRId64 " is given to two tokens, the second is \"%.*s\"", id, shown, text);
    if (2 * (vocabulary->indexed_count + 1) > vocabulary->slot_count) FL_TRY(grow_index(vocabulary, error));
    uint64_t hash = XXH3_64bits(text, bytes);
    size_t slot = indexed ? slot_of(vocabulary, text, bytes, hash) : 0;
    if (indexed && vocabulary->slots[slot] != 0)
        return fl_error_set(error, FL_ERROR_FORMAT, "token \"%.*s\" has two ids, %d and %" PRId64, shown,
                            text, (int)slot_id(vocabulary->slots[slot]), id);
    FL_TRY(make_room(vocabulary, (size_t)id, error));
    size_t offset = vocabulary->text.count;
    FL_TRY(fl_text_append(&vocabulary->text, text, bytes, error));
    vocabulary->tokens[id] = (fl_vocabulary_token){offset, bytes, true, indexed};
    if (indexed) {
        vocabulary->slots[slot] = slot_value(hash, (size_t)id);
        vocabulary->indexed_count++;
    }
    return FL_OK;
}

int32_t fl_vocabulary_find(const fl_vocabulary *vocabulary, const char *text, size_t bytes) {
    if (vocabulary->slot_count == 0) return -1;
    uint64_t slot = vocabulary->slots[slot_of(vocabulary, text, bytes, XXH3_64bits(text, bytes))];
    return slot != 0 ? (int32_t)slot_id(slot) : -1;
}

const char *fl_vocabulary_text(const fl_vocabulary *vocabulary, int32_t id, size_t *bytes) {
    if (id < 0 || (size_t)id >= vocabulary->count || !vocabulary->tokens[id].present) return NULL;
    *bytes = vocabulary->tokens[id].bytes;
    return vocabulary->text.bytes + vocabulary->tokens[id].offset;
}

void fl_vocabulary_release(fl_vocabulary *vocabulary) {
    fl_text_release(&vocabulary->text);
    fl_memory_free(vocabulary->tokens);
    fl_memory_free(vocabulary->slots);
    *vocabulary = (fl_vocabulary){0};
}
