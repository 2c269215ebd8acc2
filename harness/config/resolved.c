/* Resolved configuration (declared in options.h): a flat list of dotted keys, written back as nested YAML. */
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/config/options.h"
#include "harness/config/scalar.h"
#include "harness/config/text_builder.h"

typedef struct entry {
    char *key, *value;
    bool is_default;
} entry;

struct fl_resolved {
    size_t count, room;
    entry *entries;
};

fl_status fl_resolved_create(fl_resolved **out, fl_error *error) {
    return FL_ALLOCATE(out, 1, error);
}

static void release_entry(entry *e) {
    fl_memory_free(e->key);
    fl_memory_free(e->value);
}

void fl_resolved_destroy(fl_resolved *resolved) {
    if (resolved == NULL) return;
    for (size_t i = 0; i < resolved->count; i++) release_entry(&resolved->entries[i]);
    fl_memory_free(resolved->entries);
    fl_memory_free(resolved);
}

/* "a.b" is under "a" and under itself. */
static bool is_under(const char *key, const char *prefix) {
    size_t length = strlen(prefix);
    return strncmp(key, prefix, length) == 0 && (key[length] == '\0' || key[length] == '.');
}

static void drop_conflicts(fl_resolved *resolved, const char *key) {
    size_t kept = 0;
    for (size_t i = 0; i < resolved->count; i++) {
        entry *e = &resolved->entries[i];
        bool same = strcmp(e->key, key) == 0;
        if (!same && (is_under(e->key, key) || is_under(key, e->key)))
            release_entry(e);
        else
            resolved->entries[kept++] = *e;
    }
    resolved->count = kept;
}

static entry *lookup(const fl_resolved *resolved, const char *key) {
    for (size_t i = 0; i < resolved->count; i++) {
        if (strcmp(resolved->entries[i].key, key) == 0) return &resolved->entries[i];
    }
    return NULL;
}

static fl_status check_key(const char *key, fl_error *error) {
    size_t dots = 0;
    for (const char *c = key; *c != '\0'; c++) dots += *c == '.';
    if (key[0] == '\0' || dots >= FL_NODE_MAX_DEPTH) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "resolved configuration: '%.200s' is not a key", key);
    }
    return FL_OK;
}

fl_status fl_resolved_add(fl_resolved *resolved, const char *dotted_key, const char *value, bool is_default,
                          fl_error *error) {
    FL_TRY(check_key(dotted_key, error));
    if (resolved->count == resolved->room) {
        size_t room = resolved->room == 0 ? 32 : 2 * resolved->room;
        FL_TRY(FL_RESIZE(&resolved->entries, resolved->room, room, error));
        resolved->room = room;
    }
    entry fresh = {.is_default = is_default};
    FL_TRY(fl_memory_copy_string(&fresh.key, dotted_key, error));
    fl_status status = fl_memory_copy_string(&fresh.value, value, error);
    if (status != FL_OK) {
        release_entry(&fresh);
        return status;
    }
    drop_conflicts(resolved, dotted_key);
    entry *existing = lookup(resolved, dotted_key);
    if (existing != NULL) {
        release_entry(existing);
        *existing = fresh;
    } else {
        resolved->entries[resolved->count++] = fresh;
    }
    return FL_OK;
}

void fl_resolved_remove(fl_resolved *resolved, const char *dotted_key) {
    entry *found = lookup(resolved, dotted_key);
    if (found == NULL) return;
    release_entry(found);
    *found = resolved->entries[--resolved->count];
}

size_t fl_resolved_count(const fl_resolved *resolved) {
    return resolved->count;
}

void fl_resolved_at(const fl_resolved *resolved, size_t index, const char **key, const char **value,
                    bool *is_default) {
    const entry *e = &resolved->entries[index];
    if (key != NULL) *key = e->key;
    if (value != NULL) *value = e->value;
    if (is_default != NULL) *is_default = e->is_default;
}

const char *fl_resolved_find(const fl_resolved *resolved, const char *dotted_key) {
    const entry *e = lookup(resolved, dotted_key);
    return e != NULL ? e->value : NULL;
}

fl_status fl_resolved_string(const char *text, char **out, fl_error *error) {
    *out = NULL;
    fl_text_builder buffer = {0};
    fl_status status = text == NULL ? fl_text_builder_add(&buffer, "null", error)
                                    : fl_scalar_write_string(&buffer, text, error);
    if (status != FL_OK) {
        fl_text_builder_release(&buffer);
        return status;
    }
    *out = buffer.text;
    return FL_OK;
}

static bool is_index(const char *part, size_t length) {
    if (length == 0 || length > 9 || (length > 1 && part[0] == '0')) return false;
    for (size_t i = 0; i < length; i++) {
        if (part[i] < '0' || part[i] > '9') return false;
    }
    return true;
}

/* Part by part; list elements by number. */
static int compare_keys(const char *a, const char *b) {
    for (;;) {
        size_t a_bytes = strcspn(a, "."), b_bytes = strcspn(b, ".");
        int order;
        if (is_index(a, a_bytes) && is_index(b, b_bytes) && a_bytes != b_bytes) {
            order = a_bytes < b_bytes ? -1 : 1;
        } else {
            order = strncmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
            if (order == 0 && a_bytes != b_bytes) order = a_bytes < b_bytes ? -1 : 1;
        }
        if (order != 0) return order;
        if (a[a_bytes] == '\0' || b[b_bytes] == '\0') return (a[a_bytes] != '\0') - (b[b_bytes] != '\0');
        a += a_bytes + 1;
        b += b_bytes + 1;
    }
}

static int order_entries(const void *a, const void *b) {
    return compare_keys(((const entry *)a)->key, ((const entry *)b)->key);
}

/* Sorted entries that share the first `offset` bytes of their keys. */
typedef struct group {
    const entry *entries;
    size_t count, offset;
} group;

/* The next group of `g` from `at` that shares one more name. */
static size_t group_end(const group *g, size_t at, size_t *name_bytes) {
    const char *name = g->entries[at].key + g->offset;
    *name_bytes = strcspn(name, ".");
    size_t end = at + 1;
    while (end < g->count && strncmp(g->entries[end].key + g->offset, name, *name_bytes) == 0 &&
           strchr(".", g->entries[end].key[g->offset + *name_bytes]) != NULL) {
        end++;
    }
    return end;
}

/* Whether the names are 0, 1, 2, ...: then it is a list. */
static bool is_list(const group *g) {
    size_t expected = 0, name_bytes = 0;
    for (size_t at = 0; at < g->count; at = group_end(g, at, &name_bytes)) {
        const char *name = g->entries[at].key + g->offset;
        size_t length = strcspn(name, ".");
        if (!is_index(name, length) || strtoul(name, NULL, 10) != expected++) return false;
    }
    return true;
}

static fl_status indent(fl_text_builder *buffer, size_t level, fl_error *error) {
    for (size_t i = 0; i < level; i++) FL_TRY(fl_text_builder_add(buffer, "  ", error));
    return FL_OK;
}

static fl_status write_name(fl_text_builder *buffer, const char *name, size_t bytes, fl_error *error) {
    char *copy = NULL;
    FL_TRY(FL_ALLOCATE(&copy, bytes + 1, error));
    memcpy(copy, name, bytes);
    fl_status status = fl_scalar_write_string(buffer, copy, error);
    fl_memory_free(copy);
    return status;
}

static fl_status write_group(fl_text_builder *buffer, const group *g, size_t level, fl_error *error) {
    bool list = is_list(g);
    for (size_t at = 0; at < g->count;) {
        size_t name_bytes = 0;
        size_t end = group_end(g, at, &name_bytes);
        FL_TRY(indent(buffer, level, error));
        if (list) {
            FL_TRY(fl_text_builder_add(buffer, "-", error));
        } else {
            FL_TRY(write_name(buffer, g->entries[at].key + g->offset, name_bytes, error));
            FL_TRY(fl_text_builder_add(buffer, ":", error));
        }
        if (g->entries[at].key[g->offset + name_bytes] == '\0') {
            FL_TRY(fl_text_builder_format(buffer, error, " %s\n", g->entries[at].value));
        } else {
            group inner = {g->entries + at, end - at, g->offset + name_bytes + 1};
            FL_TRY(fl_text_builder_add(buffer, "\n", error));
            FL_TRY(write_group(buffer, &inner, level + 1, error));
        }
        at = end;
    }
    return FL_OK;
}

static bool is_excluded(const char *key, const char *const *excluded) {
    for (; excluded != NULL && *excluded != NULL; excluded++) {
        if (is_under(key, *excluded)) return true;
    }
    return false;
}

fl_status fl_resolved_text(const fl_resolved *resolved, const char *const *excluded, char **text,
                           fl_error *error) {
    *text = NULL;
    entry *sorted = NULL;
    FL_TRY(FL_ALLOCATE(&sorted, resolved->count, error));
    size_t count = 0;
    for (size_t i = 0; i < resolved->count; i++) {
        if (!is_excluded(resolved->entries[i].key, excluded)) sorted[count++] = resolved->entries[i];
    }
    if (count > 0) qsort(sorted, count, sizeof *sorted, order_entries);
    fl_text_builder buffer = {0};
    group all = {sorted, count, 0};
    fl_status status = fl_text_builder_add(&buffer, count == 0 ? "{}\n" : "", error);
    if (status == FL_OK && count > 0) status = write_group(&buffer, &all, 0, error);
    fl_memory_free(sorted);
    if (status != FL_OK) {
        fl_text_builder_release(&buffer);
        return status;
    }
    *text = buffer.text;
    return FL_OK;
}
