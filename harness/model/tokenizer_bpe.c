/* Byte-pair merging with a heap of candidates: n log n in the length of a pre-token, so that a whole document
 * may be one. The lowest rank is merged first, the leftmost of equals; a candidate whose neighbours have
 * changed is passed over. */
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_parts.h"

enum { FIRST_MERGE_SLOTS = 1 << 10, NO_SYMBOL = -1, HEAP_WIDTH = 4 };

typedef struct fl_bpe_symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t previous, next;
} fl_bpe_symbol;

/* The slot that holds this pair, or the free one where it belongs. */
static fl_bpe_merge *merge_slot(const fl_bpe *bpe, int32_t left, int32_t right) {
    size_t mask = bpe->merge_slots - 1;
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key = (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
    size_t slot = (size_t)(key >> 32) & mask;
    while (bpe->merges[slot].rank >= 0 &&
           (bpe->merges[slot].left != left || bpe->merges[slot].right != right))
        slot = (slot + 1) & mask;
    return &bpe->merges[slot];
}

static const fl_bpe_merge *find_merge(const fl_bpe *bpe, int32_t left, int32_t right) {
    if (bpe->merge_slots == 0) return NULL;
    const fl_bpe_merge *merge = merge_slot(bpe, left, right);
    return merge->rank >= 0 ? merge : NULL;
}

static fl_status grow_merges(fl_bpe *bpe, fl_error *error) {
    fl_bpe grown = {.merge_slots = bpe->merge_slots == 0 ? FIRST_MERGE_SLOTS : 2 * bpe->merge_slots};
    FL_TRY(FL_ALLOCATE(&grown.merges, grown.merge_slots, error));
    for (size_t i = 0; i < grown.merge_slots; i++) grown.merges[i].rank = -1;
    for (size_t i = 0; i < bpe->merge_slots; i++) {
        const fl_bpe_merge *merge = &bpe->merges[i];
        if (merge->rank >= 0) *merge_slot(&grown, merge->left, merge->right) = *merge;
    }
    fl_memory_free(bpe->merges);
    bpe->merges = grown.merges;
    bpe->merge_slots = grown.merge_slots;
    return FL_OK;
}

static fl_status find_part(const fl_vocabulary *vocabulary, size_t rank, const char *text, size_t bytes,
                           int32_t *id, fl_error *error) {
    *id = fl_vocabulary_find(vocabulary, text, bytes);
    if (*id >= 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_FORMAT, "merge %zu needs \"%.*s\", which is not in the vocabulary",
                        rank, (int)(bytes > 200 ? 200 : bytes), text);
}

/* Bytes of b that the merged token keeps: all but as many characters as the continuing prefix has. */
static size_t continuing_bytes(const fl_bpe *bpe, const char *right, size_t right_bytes) {
    size_t skipped = 0, position = 0;
    const char *prefix = bpe->continuing_prefix;
    if (prefix == NULL) return right_bytes;
    for (size_t bytes = strlen(prefix); position < bytes && skipped < right_bytes;) {
        fl_text_next(prefix, bytes, &position);
        fl_text_next(right, right_bytes, &skipped);
    }
    return right_bytes - skipped;
}

fl_status fl_bpe_add_merge(fl_bpe *bpe, const fl_vocabulary *vocabulary, size_t rank, const char *left,
                           size_t left_bytes, const char *right, size_t right_bytes, fl_error *error) {
    int32_t left_id, right_id, result = -1;
    FL_TRY(find_part(vocabulary, rank, left, left_bytes, &left_id, error));
    FL_TRY(find_part(vocabulary, rank, right, right_bytes, &right_id, error));
    size_t kept = continuing_bytes(bpe, right, right_bytes);
    fl_text_buffer whole = {0};
    fl_status status = fl_text_append(&whole, left, left_bytes, error);
    if (status == FL_OK) status = fl_text_append(&whole, right + right_bytes - kept, kept, error);
    if (status == FL_OK) status = find_part(vocabulary, rank, whole.bytes, whole.count, &result, error);
    fl_text_release(&whole);
    FL_TRY(status);
    return fl_bpe_add_merge_ids(bpe, rank, left_id, right_id, result, error);
}

fl_status fl_bpe_add_merge_ids(fl_bpe *bpe, size_t rank, int32_t left, int32_t right, int32_t result,
                               fl_error *error) {
    if (rank >= INT32_MAX) return fl_error_set(error, FL_ERROR_FORMAT, "more than %d merges", INT32_MAX);
    if (2 * (bpe->merge_count + 1) > bpe->merge_slots) FL_TRY(grow_merges(bpe, error));
    fl_bpe_merge *merge = merge_slot(bpe, left, right);
    if (merge->rank < 0) bpe->merge_count++;
    /* Of a pair given twice the last one counts. */
    *merge = (fl_bpe_merge){left, right, (int32_t)rank, result};
    return FL_OK;
}

void fl_bpe_finish(fl_bpe *bpe, const fl_vocabulary *vocabulary) {
    for (int byte = 0; byte < 256; byte++) {
        char text[4];
        size_t bytes = 0;
        int32_t character = fl_text_byte_character((uint8_t)byte);
        if (character < 0x80) {
            text[bytes++] = (char)character;
        } else {
            text[bytes++] = (char)(0xC0 | character >> 6);
            text[bytes++] = (char)(0x80 | (character & 0x3F));
        }
        bpe->byte_ids[byte] = fl_vocabulary_find(vocabulary, text, bytes);
    }
}

static bool has_text(const char *text) {
    return text != NULL && text[0] != '\0';
}

bool fl_bpe_takes_bytes(const fl_bpe *bpe) {
    return bpe->unknown < 0 && !bpe->byte_fallback && !has_text(bpe->continuing_prefix) &&
           !has_text(bpe->word_suffix);
}

void fl_bpe_release(fl_bpe *bpe) {
    fl_memory_free(bpe->merges);
    fl_memory_free(bpe->continuing_prefix);
    fl_memory_free(bpe->word_suffix);
    *bpe = (fl_bpe){0};
}

void fl_bpe_scratch_release(fl_bpe_scratch *scratch) {
    fl_memory_free(scratch->symbols);
    fl_memory_free(scratch->heap);
    fl_text_release(&scratch->text);
    *scratch = (fl_bpe_scratch){0};
}

static fl_status add_symbol(fl_bpe_scratch *scratch, int32_t id, fl_error *error) {
    if (scratch->symbol_count == scratch->symbol_capacity) {
        size_t capacity = scratch->symbol_capacity == 0 ? 256 : 2 * scratch->symbol_capacity;
        if (capacity > INT32_MAX)
            return fl_error_set(error, FL_ERROR_MEMORY, "a pre-token of %zu characters", capacity);
        FL_TRY(FL_RESIZE(&scratch->symbols, scratch->symbol_capacity, capacity, error));
        scratch->symbol_capacity = capacity;
    }
    int32_t position = (int32_t)scratch->symbol_count++;
    scratch->symbols[position] = (fl_bpe_symbol){id, position - 1, NO_SYMBOL};
    if (position > 0) scratch->symbols[position - 1].next = position;
    return FL_OK;
}

static fl_status push_candidate(const fl_bpe *bpe, fl_bpe_scratch *scratch, int32_t position,
                                fl_error *error) {
    const fl_bpe_symbol *left = &scratch->symbols[position];
    const fl_bpe_merge *merge = find_merge(bpe, left->id, scratch->symbols[left->next].id);
    if (merge == NULL) return FL_OK;
    if (scratch->heap_count == scratch->heap_capacity) {
        size_t capacity = scratch->heap_capacity == 0 ? 256 : 2 * scratch->heap_capacity;
        FL_TRY(FL_RESIZE(&scratch->heap, scratch->heap_capacity, capacity, error));
        scratch->heap_capacity = capacity;
    }
    uint64_t candidate = (uint64_t)merge->rank << 32 | (uint32_t)position;
    size_t at = scratch->heap_count++;
    for (size_t parent; at > 0 && candidate < scratch->heap[parent = (at - 1) / HEAP_WIDTH]; at = parent)
        scratch->heap[at] = scratch->heap[parent];
    scratch->heap[at] = candidate;
    return FL_OK;
}

static uint64_t pop_candidate(fl_bpe_scratch *scratch) {
    uint64_t *heap = scratch->heap, top = heap[0], last = heap[--scratch->heap_count];
    size_t at = 0;
    for (size_t first; (first = HEAP_WIDTH * at + 1) < scratch->heap_count;) {
        size_t least = first, end = first + HEAP_WIDTH;
        if (end > scratch->heap_count) end = scratch->heap_count;
        for (size_t child = first + 1; child < end; child++)
            if (heap[child] < heap[least]) least = child;
        if (heap[least] >= last) break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = last;
    return top;
}

static fl_status merge_symbols(const fl_bpe *bpe, fl_bpe_scratch *scratch, fl_error *error) {
    fl_bpe_symbol *symbols = scratch->symbols;
    scratch->heap_count = 0;
    for (size_t i = 0; i + 1 < scratch->symbol_count; i++)
        FL_TRY(push_candidate(bpe, scratch, (int32_t)i, error));
    while (scratch->heap_count > 0) {
        uint64_t candidate = pop_candidate(scratch);
        int32_t position = (int32_t)(uint32_t)candidate;
        fl_bpe_symbol *left = &symbols[position];
        if (left->id < 0 || left->next == NO_SYMBOL) continue;
        fl_bpe_symbol *right = &symbols[left->next];
        const fl_bpe_merge *merge = find_merge(bpe, left->id, right->id);
        if (merge == NULL || (uint64_t)merge->rank != candidate >> 32) continue;
        left->id = merge->result;
        left->next = right->next;
        right->id = -1;
        if (left->next != NO_SYMBOL) symbols[left->next].previous = position;
        if (left->previous != NO_SYMBOL) FL_TRY(push_candidate(bpe, scratch, left->previous, error));
        if (left->next != NO_SYMBOL) FL_TRY(push_candidate(bpe, scratch, position, error));
    }
    return FL_OK;
}

static fl_status add_raw_symbols(const fl_bpe *bpe, fl_bpe_scratch *scratch, const char *text, size_t bytes,
                                 fl_error *error) {
    for (size_t i = 0; i < bytes; i++) {
        int32_t id = bpe->byte_ids[(uint8_t)text[i]];
        /* A byte without a token vanishes before merging. */
        if (id >= 0) FL_TRY(add_symbol(scratch, id, error));
    }
    return FL_OK;
}

/* The ids of <0x..> for every byte, when all of them exist. */
static fl_status add_fallback(const fl_vocabulary *vocabulary, fl_bpe_scratch *scratch, const char *text,
                              size_t bytes, bool *done, fl_error *error) {
    size_t start = scratch->symbol_count;
    *done = true;
    for (size_t i = 0; i < bytes && *done; i++) {
        char name[8];
        int length = snprintf(name, sizeof name, "<0x%02X>", (unsigned)(uint8_t)text[i]);
        int32_t id = fl_vocabulary_find(vocabulary, name, (size_t)length);
        *done = id >= 0;
        if (*done) FL_TRY(add_symbol(scratch, id, error));
    }
    if (*done) return FL_OK;
    scratch->symbol_count = start;
    if (start > 0) scratch->symbols[start - 1].next = NO_SYMBOL;
    return FL_OK;
}

static fl_status add_character_symbols(const fl_bpe *bpe, const fl_vocabulary *vocabulary,
                                       fl_bpe_scratch *scratch, const char *text, size_t bytes,
                                       fl_error *error) {
    bool unknown_waits = false;
    for (size_t position = 0; position < bytes;) {
        size_t start = position;
        fl_text_next(text, bytes, &position);
        fl_text_buffer *piece = &scratch->text;
        piece->count = 0;
        if (start > 0 && has_text(bpe->continuing_prefix))
            FL_TRY(fl_text_append(piece, bpe->continuing_prefix, strlen(bpe->continuing_prefix), error));
        FL_TRY(fl_text_append(piece, text + start, position - start, error));
        if (position == bytes && has_text(bpe->word_suffix))
            FL_TRY(fl_text_append(piece, bpe->word_suffix, strlen(bpe->word_suffix), error));
        int32_t id = fl_vocabulary_find(vocabulary, piece->bytes, piece->count);
        bool fallen_back = false;
        if (id < 0 && bpe->byte_fallback)
            FL_TRY(add_fallback(vocabulary, scratch, piece->bytes, piece->count, &fallen_back, error));
        if (fallen_back) continue;
        /* An unknown token is written when the next known one, or the next unknown one unless they are fused,
         * comes. */
        if (unknown_waits && (id >= 0 || !bpe->fuse_unknown))
            FL_TRY(add_symbol(scratch, bpe->unknown, error));
        if (id >= 0) FL_TRY(add_symbol(scratch, id, error));
        unknown_waits = id < 0 && bpe->unknown >= 0;
    }
    return unknown_waits ? add_symbol(scratch, bpe->unknown, error) : FL_OK;
}

fl_status fl_bpe_encode(const fl_bpe *bpe, const fl_vocabulary *vocabulary, fl_bpe_scratch *scratch,
                        const char *text, size_t bytes, bool raw, fl_id_list *ids, fl_error *error) {
    if (bpe->ignore_merges) {
        const char *word = text;
        size_t word_bytes = bytes;
        if (raw) {
            scratch->text.count = 0;
            FL_TRY(fl_text_append_byte_level(&scratch->text, text, bytes, error));
            word = scratch->text.bytes;
            word_bytes = scratch->text.count;
        }
        int32_t id = fl_vocabulary_find(vocabulary, word, word_bytes);
        if (id >= 0) return fl_id_list_append(ids, id, error);
    }
    scratch->symbol_count = 0;
    if (raw)
        FL_TRY(add_raw_symbols(bpe, scratch, text, bytes, error));
    else
        FL_TRY(add_character_symbols(bpe, vocabulary, scratch, text, bytes, error));
    if (scratch->symbol_count == 0) return FL_OK;
    FL_TRY(merge_symbols(bpe, scratch, error));
    for (int32_t i = 0; i != NO_SYMBOL; i = scratch->symbols[i].next)
        FL_TRY(fl_id_list_append(ids, scratch->symbols[i].id, error));
    return FL_OK;
}
