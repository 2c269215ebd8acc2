#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/tokenizer_parts.h"

typedef struct fl_added_entry {
    char *text; /* what is looked for: the token, normalised where it asks for it */
    size_t bytes;
    size_t token; /* index in the list */
    bool special;
} fl_added_entry;

fl_status fl_added_append(fl_added_list *list, fl_added_token token, fl_error *error) {
    if (fl_added_find(list, token.id) != NULL) return FL_OK;
    size_t id = (size_t)token.id;
    if (id >= list->by_id_count) {
        size_t grown = id + 1 + list->by_id_count / 2;
        FL_TRY(FL_RESIZE(&list->by_id, list->by_id_count, grown, error));
        list->by_id_count = grown;
    }
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 32 : 2 * list->capacity;
        FL_TRY(FL_RESIZE(&list->tokens, list->capacity, capacity, error));
        list->capacity = capacity;
    }
    list->tokens[list->count++] = token;
    list->by_id[id] = (uint32_t)list->count;
    return FL_OK;
}

fl_status fl_added_put(fl_added_list *list, fl_added_token token, fl_error *error) {
    const fl_added_token *found = fl_added_find(list, token.id);
    if (found == NULL) return fl_added_append(list, token, error);
    fl_added_token *known = &list->tokens[found - list->tokens];
    token.special = known->special || token.special;
    *known = token;
    return FL_OK;
}

const fl_added_token *fl_added_find(const fl_added_list *list, int32_t id) {
    if (id < 0 || (size_t)id >= list->by_id_count || list->by_id[id] == 0) return NULL;
    return &list->tokens[list->by_id[id] - 1];
}

static int compare_entries(const void *left, const void *right) {
    const fl_added_entry *a = left, *b = right;
    int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
    if (order != 0) return order;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    /* Of equal texts the special tokens count first, as in the list that Hugging Face builds. */
    if (a->special != b->special) return a->special ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

static fl_status add_entry(fl_added_pass *pass, size_t index, bool special, const char *text, size_t bytes,
                           fl_error *error) {
    if (bytes == 0)
        return fl_error_set(error, FL_ERROR_UNSUPPORTED, "an added token that normalises to nothing");
    fl_added_entry *entry = &pass->entries[pass->count];
    FL_TRY(FL_ALLOCATE(&entry->text, bytes, error));
    memcpy(entry->text, text, bytes);
    entry->bytes = bytes;
    entry->token = index;
    entry->special = special;
    pass->count++;
    pass->first_byte[(uint8_t)text[0]] = true;
    return FL_OK;
}

/* Tokens that become alike by normalisation are fine (the first wins); tokens that are written alike are not.
 */
static fl_status refuse_doubles(const fl_added_list *list, const fl_added_pass *pass,
                                const fl_tokenizer *tokenizer, fl_error *error) {
    for (size_t i = 1; i < pass->count; i++) {
        const fl_added_token *a = &list->tokens[pass->entries[i - 1].token],
                             *b = &list->tokens[pass->entries[i].token];
        size_t a_bytes = 0, b_bytes = 0;
        const char *a_text = fl_vocabulary_text(&tokenizer->vocabulary, a->id, &a_bytes);
        const char *b_text = fl_vocabulary_text(&tokenizer->vocabulary, b->id, &b_bytes);
        if (a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0)
            return fl_error_set(error, FL_ERROR_FORMAT, "added token \"%.*s\" has two ids, %d and %d",
                                (int)(a_bytes < 200 ? a_bytes : 200), a_text, (int)a->id, (int)b->id);
    }
    return FL_OK;
}

fl_status fl_added_finish(fl_added_list *list, const fl_tokenizer *tokenizer, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&list->raw.entries, list->count, error));
    FL_TRY(FL_ALLOCATE(&list->normalised.entries, list->count, error));
    for (size_t i = 0; i < list->count; i++) {
        size_t bytes;
        bool special = list->tokens[i].special;
        const char *text = fl_vocabulary_text(&tokenizer->vocabulary, list->tokens[i].id, &bytes);
        if (!list->tokens[i].normalized) {
            FL_TRY(add_entry(&list->raw, i, special, text, bytes, error));
            continue;
        }
        fl_text_buffer normalised = {0};
        fl_status status = fl_tokenizer_normalise(tokenizer, text, bytes, &normalised, error);
        if (status == FL_OK)
            status = add_entry(&list->normalised, i, special, normalised.bytes, normalised.count, error);
        fl_text_release(&normalised);
        FL_TRY(status);
    }
    qsort(list->raw.entries, list->raw.count, sizeof *list->raw.entries, compare_entries);
    qsort(list->normalised.entries, list->normalised.count, sizeof *list->normalised.entries,
          compare_entries);
    FL_TRY(refuse_doubles(list, &list->raw, tokenizer, error));
    return refuse_doubles(list, &list->normalised, tokenizer, error);
}

static void release_pass(fl_added_pass *pass) {
    for (size_t i = 0; i < pass->count; i++) fl_memory_free(pass->entries[i].text);
    fl_memory_free(pass->entries);
}

void fl_added_release(fl_added_list *list) {
    release_pass(&list->raw);
    release_pass(&list->normalised);
    fl_memory_free(list->tokens);
    fl_memory_free(list->by_id);
    *list = (fl_added_list){0};
}

/* First entry in [low, high) whose byte at `depth` is at least (or above) `byte`. Entries shorter than that
 * come first. */
static size_t bound(const fl_added_pass *pass, size_t low, size_t high, size_t depth, int byte, bool above) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const fl_added_entry *entry = &pass->entries[middle];
        int here = depth < entry->bytes ? (uint8_t)entry->text[depth] : -1;
        if (here < byte || (above && here == byte))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest entry that text begins with; the first given of equal ones. */
static const fl_added_entry *longest_match(const fl_added_pass *pass, const char *text, size_t bytes) {
    const fl_added_entry *best = NULL;
    size_t low = 0, high = pass->count;
    for (size_t depth = 0; depth < bytes && low < high; depth++) {
        int byte = (uint8_t)text[depth];
        low = bound(pass, low, high, depth, byte, false);
        high = bound(pass, low, high, depth, byte, true);
        if (low < high && pass->entries[low].bytes == depth + 1) best = &pass->entries[low];
    }
    return best;
}

static bool stands_alone(const char *text, size_t bytes, size_t start, size_t stop) {
    size_t before = start, after = stop;
    if (start > 0 && fl_text_is_word(fl_text_previous(text, &before))) return false;
    return stop == bytes || !fl_text_is_word(fl_text_next(text, bytes, &after));
}

static size_t spaces_before(const char *text, size_t start) {
    for (size_t position = start; position > 0; start = position)
        if (!fl_text_is_white_space(fl_text_previous(text, &position))) break;
    return start;
}

static size_t spaces_after(const char *text, size_t bytes, size_t stop) {
    for (size_t position = stop; position < bytes; stop = position)
        if (!fl_text_is_white_space(fl_text_next(text, bytes, &position))) break;
    return stop;
}

fl_status fl_added_split(const fl_added_list *list, const fl_added_pass *pass, const char *text, size_t bytes,
                         fl_added_sink sink, void *context, fl_error *error) {
    size_t done = 0;
    for (size_t position = 0; position < bytes && pass->count > 0;) {
        const fl_added_entry *entry = pass->first_byte[(uint8_t)text[position]]
                                          ? longest_match(pass, text + position, bytes - position)
                                          : NULL;
        if (entry == NULL) {
            position++;
            continue;
        }
        const fl_added_token *token = &list->tokens[entry->token];
        size_t start = position, stop = position + entry->bytes;
        position = stop;
        if (token->special && list->split_special) continue;
        if (token->single_word && !stands_alone(text, bytes, start, stop)) continue;
        if (token->lstrip) {
            size_t earlier = spaces_before(text, start);
            start = earlier > done ? earlier : done;
        }
        if (token->rstrip) stop = spaces_after(text, bytes, stop);
        /* White space that an earlier token took along may have held this whole token. */
        if (start >= stop) continue;
        if (done < start) FL_TRY(sink(context, NULL, text + done, start - done, error));
        FL_TRY(sink(context, token, text + start, stop - start, error));
        done = stop;
    }
    return done < bytes ? sink(context, NULL, text + done, bytes - done, error) : FL_OK;
}
