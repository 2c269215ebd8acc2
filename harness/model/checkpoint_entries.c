#include "harness/model/checkpoint_entries.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"

bool fl_checkpoint_name_is_clean(const char *name, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)name[i];
        if (byte < 0x20 || byte == 0x7f) return false;
    }
    return true;
}

bool fl_checkpoint_name_ends_with(const char *name, const char *suffix) {
    size_t length = strlen(name), tail = strlen(suffix);
    return length >= tail && strcmp(name + length - tail, suffix) == 0;
}

/* Rows and columns as tensor.h states them; a rank above the largest is folded into the slowest axis. */
static void set_shape(fl_tensor *tensor, const size_t *shape, size_t rank) {
    size_t folded = rank > FL_TENSOR_MAX_RANK ? rank - FL_TENSOR_MAX_RANK : 0;
    tensor->rank = rank - folded;
    for (size_t i = 0; i < tensor->rank; i++) tensor->shape[i] = shape[folded + i];
    for (size_t i = 0; i < folded; i++) tensor->shape[0] *= shape[i];
    tensor->rows = 1;
    for (size_t i = 0; i + 1 < tensor->rank; i++) tensor->rows *= tensor->shape[i];
    tensor->columns = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
}

/* One block for both texts: the type's name follows the tensor's when it is not in the table. */
static fl_status copy_texts(fl_checkpoint_entry *entry, const fl_checkpoint_listing *listing,
                            fl_error *error) {
    size_t type_bytes = listing->type == NULL ? strlen(listing->type_name) + 1 : 0;
    char *texts = NULL;
    FL_TRY(FL_ALLOCATE(&texts, listing->name_bytes + 1 + type_bytes, error));
    memcpy(texts, listing->name, listing->name_bytes);
    entry->tensor.name = texts;
    entry->type_name = listing->type != NULL ? listing->type->name : texts + listing->name_bytes + 1;
    if (type_bytes > 0) memcpy(texts + listing->name_bytes + 1, listing->type_name, type_bytes);
    return FL_OK;
}

fl_status fl_checkpoint_entries_add(fl_checkpoint_entries *entries, const fl_checkpoint_listing *listing,
                                    fl_error *error) {
    if (entries->count == entries->room) {
        size_t room = entries->room == 0 ? 64 : 2 * entries->room;
        FL_TRY(FL_RESIZE(&entries->items, entries->room, room, error));
        entries->room = room;
    }
    fl_checkpoint_entry *entry = &entries->items[entries->count];
    memset(entry, 0, sizeof *entry);
    FL_TRY(copy_texts(entry, listing, error));
    set_shape(&entry->tensor, listing->shape, listing->rank);
    fl_tensor *tensor = &entry->tensor;
    tensor->type = fl_stored_type_dtype(listing->type);
    tensor->data = listing->bytes;
    entry->bytes = listing->bytes;
    entry->byte_count = listing->byte_count;
    entry->readable = tensor->type != FL_DTYPE_COUNT && listing->rank <= FL_TENSOR_MAX_RANK;
    entries->count++;
    return FL_OK;
}

static int compare_names(const void *a, const void *b) {
    const fl_checkpoint_entry *first = *(const fl_checkpoint_entry *const *)a;
    const fl_checkpoint_entry *second = *(const fl_checkpoint_entry *const *)b;
    return strcmp(first->tensor.name, second->tensor.name);
}

fl_status fl_checkpoint_entries_index(fl_checkpoint_entries *entries, const char *path, fl_error *error) {
    fl_memory_free(entries->by_name);
    FL_TRY(FL_ALLOCATE(&entries->by_name, entries->count, error));
    for (size_t i = 0; i < entries->count; i++) entries->by_name[i] = &entries->items[i];
    qsort(entries->by_name, entries->count, sizeof *entries->by_name, compare_names);
    for (size_t i = 1; i < entries->count; i++) {
        if (compare_names(&entries->by_name[i - 1], &entries->by_name[i]) != 0) continue;
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: tensor %s is listed twice", path,
                            entries->by_name[i]->tensor.name);
    }
    return FL_OK;
}

static int compare_name_with_entry(const void *key, const void *element) {
    return strcmp(key, (*(const fl_checkpoint_entry *const *)element)->tensor.name);
}

const fl_checkpoint_entry *fl_checkpoint_entries_find(const fl_checkpoint_entries *entries,
                                                      const char *name) {
    if (entries->count == 0) return NULL;
    const fl_checkpoint_entry *const *found =
        bsearch(name, entries->by_name, entries->count, sizeof *entries->by_name, compare_name_with_entry);
    return found != NULL ? *found : NULL;
}

void fl_checkpoint_entries_free(fl_checkpoint_entries *entries) {
    for (size_t i = 0; i < entries->count; i++) fl_memory_free((void *)(size_t)entries->items[i].tensor.name);
    fl_memory_free(entries->items);
    fl_memory_free(entries->by_name);
    memset(entries, 0, sizeof *entries);
}
