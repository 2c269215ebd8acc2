#include "harness/config/node.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/config/node_build.h"
#include "harness/config/scalar.h"

static const char command_line[] = "command line";

fl_status fl_node_create(fl_node_kind kind, fl_place place, fl_node **out, fl_error *error) {
    FL_TRY(FL_ALLOCATE(out, 1, error));
    (*out)->kind = kind;
    (*out)->file = place.file;
    (*out)->line = place.line;
    (*out)->column = place.column;
    return FL_OK;
}

void fl_node_destroy(fl_node *node) {
    if (node == NULL) return;
    for (size_t i = 0; i < node->count; i++) fl_node_destroy(node->children[i]);
    fl_memory_free(node->children);
    fl_memory_free(node->text);
    fl_memory_free(node->key);
    fl_memory_free(node);
}

/* Room doubles whenever the count reaches a power of two from 4 on, so it need not be stored. */
fl_status fl_node_append(fl_node *parent, fl_node *child, fl_error *error) {
    size_t count = parent->count;
    bool full = count == 0 || (count >= 4 && (count & (count - 1)) == 0);
    if (full) FL_TRY(FL_RESIZE(&parent->children, count, count == 0 ? 4 : 2 * count, error));
    parent->children[parent->count++] = child;
    return FL_OK;
}

fl_status fl_node_set_key(fl_node *node, const char *key, size_t line, size_t column, fl_error *error) {
    char *copy = NULL;
    FL_TRY(fl_memory_copy_string(&copy, key, error));
    fl_memory_free(node->key);
    node->key = copy;
    node->key_line = line;
    node->key_column = column;
    return FL_OK;
}

static fl_status too_deep(const fl_node *node, fl_error *error) {
    return fl_node_error(node, error, "nested too deeply (more than %d levels)", FL_NODE_MAX_DEPTH);
}

fl_status fl_node_copy(const fl_node *node, fl_document *document, size_t levels, fl_node **out,
                       fl_error *error) {
    *out = NULL;
    if (levels == 0) return too_deep(node, error);
    fl_place place = {NULL, node->line, node->column};
    FL_TRY(fl_document_own_file(document, node->file, &place.file, error));
    fl_node *copy = NULL;
    FL_TRY(fl_node_create(node->kind, place, &copy, error));
    copy->quoted = node->quoted;
    copy->key_line = node->key_line;
    copy->key_column = node->key_column;
    fl_status status = FL_OK;
    if (node->text != NULL) FL_TRY_DONE(status, fl_memory_copy_string(&copy->text, node->text, error));
    if (node->key != NULL) {
        FL_TRY_DONE(status, fl_node_set_key(copy, node->key, node->key_line, node->key_column, error));
    }
    for (size_t i = 0; i < node->count; i++) {
        fl_node *child = NULL;
        FL_TRY_DONE(status, fl_node_copy(node->children[i], document, levels - 1, &child, error));
        status = fl_node_append(copy, child, error);
        if (status != FL_OK) {
            fl_node_destroy(child);
            goto done;
        }
    }
    *out = copy;
    return FL_OK;
done:
    fl_node_destroy(copy);
    return status;
}

fl_status fl_document_own_file(fl_document *document, const char *name, const char **out, fl_error *error) {
    for (size_t i = 0; i < document->file_count; i++) {
        if (strcmp(document->files[i], name) != 0) continue;
        *out = document->files[i];
        return FL_OK;
    }
    size_t count = document->file_count;
    FL_TRY(FL_RESIZE(&document->files, count, count + 1, error));
    FL_TRY(fl_memory_copy_string(&document->files[count], name, error));
    document->file_count++;
    *out = document->files[count];
    return FL_OK;
}

fl_status fl_document_create(const char *file_name, fl_document **out, fl_error *error) {
    *out = NULL;
    fl_document *document = NULL;
    FL_TRY(FL_ALLOCATE(&document, 1, error));
    fl_place place = {NULL, 1, 1};
    fl_status status = fl_document_own_file(document, file_name, &place.file, error);
    if (status == FL_OK) status = fl_node_create(FL_NODE_NULL, place, &document->root, error);
    if (status != FL_OK) {
        fl_document_destroy(document);
        return status;
    }
    *out = document;
    return FL_OK;
}

fl_status fl_document_copy(const fl_document *document, fl_document **out, fl_error *error) {
    *out = NULL;
    fl_document *copy = NULL;
    FL_TRY(fl_document_create(document->files[0], &copy, error));
    fl_node *root = NULL;
    fl_status status = fl_node_copy(document->root, copy, FL_NODE_MAX_DEPTH + 1, &root, error);
    if (status != FL_OK) {
        fl_document_destroy(copy);
        return status;
    }
    fl_node_destroy(copy->root);
    copy->root = root;
    *out = copy;
    return FL_OK;
}

void fl_document_destroy(fl_document *document) {
    if (document == NULL) return;
    fl_node_destroy(document->root);
    for (size_t i = 0; i < document->file_count; i++) fl_memory_free(document->files[i]);
    fl_memory_free(document->files);
    fl_memory_free(document);
}

fl_node *fl_document_root(const fl_document *document) {
    return document->root;
}

/* Slot of a child, or NULL. A sequence's children are named by their numbers. */
static fl_node **child_slot(const fl_node *parent, const char *name, size_t length) {
    if (parent == NULL) return NULL;
    if (parent->kind == FL_NODE_MAPPING) {
        for (size_t i = 0; i < parent->count; i++) {
            const char *key = parent->children[i]->key;
            if (strncmp(key, name, length) == 0 && key[length] == '\0') return &parent->children[i];
        }
    } else if (parent->kind == FL_NODE_SEQUENCE && length > 0 && length < 10) {
        size_t index = 0;
        for (size_t i = 0; i < length; i++) {
            if (name[i] < '0' || name[i] > '9' || (i > 0 && name[0] == '0')) return NULL;
            index = 10 * index + (size_t)(name[i] - '0');
        }
        if (index < parent->count) return &parent->children[index];
    }
    return NULL;
}

const fl_node *fl_node_get(const fl_node *mapping, const char *key) {
    if (mapping == NULL || mapping->kind != FL_NODE_MAPPING) return NULL;
    fl_node **slot = child_slot(mapping, key, strlen(key));
    return slot != NULL ? *slot : NULL;
}

const fl_node *fl_node_find(const fl_node *root, const char *dotted_path) {
    const fl_node *node = root;
    const char *part = dotted_path;
    for (;;) {
        size_t length = strcspn(part, ".");
        fl_node **slot = child_slot(node, part, length);
        if (slot == NULL) return NULL;
        node = *slot;
        if (part[length] == '\0') return node;
        part += length + 1;
    }
}

/* A dotted path, taken apart. The keys of sweep.grid and sweep.zip have dots themselves, so all behind those
 * is one name. */
typedef struct path_parts {
    size_t count;
    struct {
        const char *name;
        size_t bytes;
    } part[FL_NODE_MAX_DEPTH];
} path_parts;

static bool names_an_axis(const char *path, const char *rest) {
    size_t bytes = (size_t)(rest - path);
    return (bytes == 11 && strncmp(path, "sweep.grid.", bytes) == 0) ||
           (bytes == 10 && strncmp(path, "sweep.zip.", bytes) == 0);
}

static fl_status split_path(const fl_node *place, const char *path, path_parts *parts, fl_error *error) {
    parts->count = 0;
    for (const char *rest = path;;) {
        size_t bytes = names_an_axis(path, rest) ? strlen(rest) : strcspn(rest, ".");
        if (bytes == 0)
            return fl_node_error(place, error, "'%.200s' is not a key (names joined by dots)", path);
        if (parts->count == FL_NODE_MAX_DEPTH) return too_deep(place, error);
        parts->part[parts->count].name = rest;
        parts->part[parts->count++].bytes = bytes;
        if (rest[bytes] == '\0') return FL_OK;
        rest += bytes + 1;
    }
}

static fl_status name_node(fl_node *node, const char *name, size_t bytes, fl_error *error) {
    char *key = NULL;
    FL_TRY(FL_ALLOCATE(&key, bytes + 1, error));
    memcpy(key, name, bytes);
    fl_memory_free(node->key);
    node->key = key;
    if (node->key_line == 0) {
        node->key_line = node->line;
        node->key_column = node->column;
    }
    return FL_OK;
}

/* Names *node after the last part and puts it into one mapping for each part from `first` on but the last. */
static fl_status wrap(const path_parts *parts, size_t first, fl_node **node, fl_error *error) {
    for (size_t i = parts->count; i-- > first;) {
        FL_TRY(name_node(*node, parts->part[i].name, parts->part[i].bytes, error));
        if (i == first) break;
        fl_node *mapping = NULL;
        fl_place place = {(*node)->file, (*node)->key_line, (*node)->key_column};
        FL_TRY(fl_node_create(FL_NODE_MAPPING, place, &mapping, error));
        fl_status status = fl_node_append(mapping, *node, error);
        if (status != FL_OK) {
            fl_node_destroy(mapping);
            return status;
        }
        *node = mapping;
    }
    return FL_OK;
}

/* A mapping in place of the null node in *slot, holding `child`. */
static fl_status replace_null(fl_node **slot, fl_node *child, fl_error *error) {
    fl_node *null = *slot, *mapping = NULL;
    FL_TRY(
        fl_node_create(FL_NODE_MAPPING, (fl_place){null->file, null->line, null->column}, &mapping, error));
    fl_status status = FL_OK;
    if (null->key != NULL)
        status = fl_node_set_key(mapping, null->key, null->key_line, null->key_column, error);
    if (status == FL_OK) status = fl_node_append(mapping, child, error);
    if (status != FL_OK) {
        fl_node_destroy(mapping);
        return status;
    }
    *slot = mapping;
    fl_node_destroy(null);
    return FL_OK;
}

/* Puts *value, which the document owns after success, at `path`. The tree changes at one point, last, or not
 * at all. */
static fl_status put(fl_document *document, const char *path, fl_node **value, fl_error *error) {
    path_parts parts;
    FL_TRY(split_path(*value, path, &parts, error));
    fl_node **slot = &document->root;
    size_t known = 0;
    for (; known < parts.count; known++) {
        fl_node **next = child_slot(*slot, parts.part[known].name, parts.part[known].bytes);
        if (next == NULL) break;
        slot = next;
    }
    fl_node *parent = *slot;
    int walked = known == 0 ? 0 : (int)(parts.part[known - 1].name + parts.part[known - 1].bytes - path);
    if (known == parts.count) { /* the whole path exists: replace */
        if (parent->key != NULL) {
            FL_TRY(fl_node_set_key(*value, parent->key, (*value)->line, (*value)->column, error));
        }
        *slot = *value;
        fl_node_destroy(parent);
        return FL_OK;
    }
    if (parent->kind == FL_NODE_SCALAR) {
        return fl_node_error(*value, error, "cannot set '%s': '%.*s' is a single value, not a mapping", path,
                             walked, path);
    }
    if (parent->kind == FL_NODE_SEQUENCE) {
        return fl_node_error(*value, error,
                             "cannot set '%s': '%.*s' is a list of %zu; name an element by its number from 0",
                             path, walked, path, parent->count);
    }
    FL_TRY(wrap(&parts, known, value, error));
    return parent->kind == FL_NODE_NULL ? replace_null(slot, *value, error)
                                        : fl_node_append(parent, *value, error);
}

/* Puts a copy: that is where the depth is checked. */
static fl_status put_copy(fl_document *document, const char *path, const fl_node *value, fl_error *error) {
    path_parts parts;
    FL_TRY(split_path(value, path, &parts, error));
    fl_node *copy = NULL;
    FL_TRY(fl_node_copy(value, document, FL_NODE_MAX_DEPTH + 1 - parts.count, &copy, error));
    fl_memory_free(copy->key);
    copy->key = NULL;
    fl_status status = put(document, path, &copy, error);
    if (status != FL_OK) fl_node_destroy(copy);
    return status;
}

fl_status fl_document_set(fl_document *document, const char *dotted_path, const fl_node *value,
                          fl_error *error) {
    return put_copy(document, dotted_path, value, error);
}

fl_status fl_document_override(fl_document *document, const char *assignment, fl_error *error) {
    const char *equals = strchr(assignment, '=');
    if (equals == NULL || equals == assignment) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: '%.200s' is not key=value", command_line,
                            assignment);
    }
    size_t key_bytes = (size_t)(equals - assignment);
    char *path = NULL;
    fl_node *value = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&path, key_bytes + 1, error));
    memcpy(path, assignment, key_bytes);
    FL_TRY_DONE(status,
                fl_yaml_parse(equals + 1, strlen(equals + 1), command_line, key_bytes + 1, &value, error));
    if (value->kind == FL_NODE_NULL) value->column = key_bytes + 2;
    value->key_line = 1;
    value->key_column = 1;
    FL_TRY_DONE(status, put_copy(document, path, value, error));
done:
    if (status != FL_OK) fl_error_prepend(error, status, "%.200s", assignment);
    fl_node_destroy(value);
    fl_memory_free(path);
    return status;
}

fl_status fl_document_remove(fl_document *document, const char *dotted_path, fl_error *error) {
    path_parts parts;
    FL_TRY(split_path(document->root, dotted_path, &parts, error));
    fl_node *parent = NULL, **slot = &document->root;
    for (size_t i = 0; i < parts.count; i++) {
        parent = *slot;
        slot = child_slot(parent, parts.part[i].name, parts.part[i].bytes);
        if (slot == NULL) return FL_OK;
    }
    if (parent == NULL) return FL_OK; /* an empty path names nothing */
    fl_node_destroy(*slot);
    size_t index = (size_t)(slot - parent->children);
    memmove(slot, slot + 1, (parent->count - index - 1) * sizeof *slot);
    parent->children[--parent->count] = NULL;
    return FL_OK;
}

static int order_by_key(const void *a, const void *b) {
    return strcmp((*(fl_node *const *)a)->key, (*(fl_node *const *)b)->key);
}

static fl_status write_node(fl_text_builder *buffer, const fl_node *node, fl_error *error);

static fl_status write_mapping(fl_text_builder *buffer, const fl_node *node, fl_error *error) {
    fl_node **sorted = NULL;
    FL_TRY(FL_ALLOCATE(&sorted, node->count, error));
    if (node->count > 0) memcpy(sorted, node->children, node->count * sizeof *sorted);
    qsort(sorted, node->count, sizeof *sorted, order_by_key);
    fl_status status = fl_text_builder_add(buffer, "{", error);
    for (size_t i = 0; i < node->count && status == FL_OK; i++) {
        if (i > 0) FL_TRY_DONE(status, fl_text_builder_add(buffer, ", ", error));
        FL_TRY_DONE(status, fl_scalar_write_string(buffer, sorted[i]->key, error));
        FL_TRY_DONE(status, fl_text_builder_add(buffer, ": ", error));
        FL_TRY_DONE(status, write_node(buffer, sorted[i], error));
    }
done:
    fl_memory_free(sorted);
    return status == FL_OK ? fl_text_builder_add(buffer, "}", error) : status;
}

static fl_status write_scalar(fl_text_builder *buffer, const fl_node *node, fl_error *error) {
    double number = 0.0;
    bool truth = false;
    if (!node->quoted && fl_scalar_is_bool(node->text, &truth)) {
        return fl_text_builder_add(buffer, truth ? "true" : "false", error);
    }
    /* Integers keep all their digits: a seed may have more than a double holds. */
    if (!node->quoted && fl_scalar_integer(node->text) == NULL) {
        const char *digits = node->text + (node->text[0] == '+');
        return fl_text_builder_add(buffer, strcmp(digits, "-0") == 0 ? "0" : digits, error);
    }
    if (!node->quoted && fl_scalar_number(node->text, &number) == NULL) {
        char text[FL_NUMBER_TEXT_BYTES];
        fl_scalar_write_number(number, text);
        return fl_text_builder_add(buffer, text, error);
    }
    return fl_scalar_write_string(buffer, node->text, error);
}

static fl_status write_node(fl_text_builder *buffer, const fl_node *node, fl_error *error) {
    switch (node->kind) {
    case FL_NODE_NULL:
        return fl_text_builder_add(buffer, "null", error);
    case FL_NODE_SCALAR:
        return write_scalar(buffer, node, error);
    case FL_NODE_MAPPING:
        return write_mapping(buffer, node, error);
    case FL_NODE_SEQUENCE:
        break;
    }
    FL_TRY(fl_text_builder_add(buffer, "[", error));
    for (size_t i = 0; i < node->count; i++) {
        if (i > 0) FL_TRY(fl_text_builder_add(buffer, ", ", error));
        FL_TRY(write_node(buffer, node->children[i], error));
    }
    return fl_text_builder_add(buffer, "]", error);
}

fl_status fl_node_text(const fl_node *node, char **text, fl_error *error) {
    *text = NULL;
    fl_text_builder buffer = {0};
    fl_status status =
        node == NULL ? fl_text_builder_add(&buffer, "null", error) : write_node(&buffer, node, error);
    if (status != FL_OK) {
        fl_text_builder_release(&buffer);
        return status;
    }
    *text = buffer.text;
    return FL_OK;
}

fl_status fl_node_error(const fl_node *node, fl_error *error, const char *format, ...) {
    char message[FL_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (node == NULL) return fl_error_set(error, FL_ERROR_ARGUMENT, "%s", message);
    return fl_error_set(error, FL_ERROR_ARGUMENT, "%s:%zu:%zu: %s", node->file, node->line, node->column,
                        message);
}

fl_status fl_node_place_error(const fl_node *node, const char *what, fl_status status, fl_error *error) {
    bool elsewhere = status == FL_OK || status == FL_ERROR_CANCELLED || status == FL_ERROR_DISK ||
                     status == FL_ERROR_MEMORY;
    if (elsewhere || node == NULL) return status;
    return fl_error_prepend(error, status, "%s:%zu:%zu: %s", node->file, node->line, node->column, what);
}
