#include "harness/config/axis_name.h"

#include <string.h>

#include "harness/base/memory.h"
#include "harness/config/text_builder.h"

/* Values of one axis, and leaves of a mapping, beyond which a mapping's leaves are not compared with all
 * others. */
enum { COMPARED_MOST = 512, COMPARED_LEAVES_MOST = 64, LIST_BYTES_MOST = 24 };

typedef struct word {
    const char *key;
    const char *name; /* said before the value; "" = the value alone */
    const char *off;  /* the value that switches it off, or NULL */
    bool is_head;     /* tells a mapping that holds it */
    bool is_path;     /* only the last component is said */
} word;

static const word words[] = {
    {"variant.rule", "", NULL, true, false},
    {"variant.mechanism", "", NULL, false, true},
    {"variant.short_conv", "conv", NULL, false, false},
    {"variant.short_conv.kernel", "conv", "0", true, false},
    {"variant.short_conv.init", "", NULL, false, false},
    {"variant.cache", "cache", NULL, false, false},
    {"variant.cache.budget", "cache", "0", true, false},
    {"variant.cache.route", "", NULL, false, false},
    {"variant.gate.source", "gate", NULL, true, false},
    {"variant.gate.value", "gate", NULL, false, false},
    {"variant.beta.source", "beta", NULL, true, false},
    {"variant.beta.value", "beta", NULL, false, false},
    {"variant.softmax_layers", "softmax layers", "[]", true, false},
    {"variant.softmax_layers.every", "softmax every", NULL, true, false},
    {"variant.softmax_layers.hardest", "softmax hardest", "0", true, false},
    {"train", "training", NULL, false, false},
    {"train.objective", "", "none", true, false},
    {"train.path", "", NULL, false, true},
    {"train.ids", "", NULL, false, true},
    {"model.path", "", NULL, true, true},
    {"text.path", "", NULL, true, true},
    {"text.ids", "", NULL, true, true},
    {"text.sequence_length", "length", NULL, false, false},
};

static const word *find_word(const char *key) {
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i].key, key) == 0) return &words[i];
    }
    return NULL;
}

bool fl_axis_is_under(const char *key, const char *prefix) {
    size_t bytes = strlen(prefix);
    return strncmp(key, prefix, bytes) == 0 && (key[bytes] == '\0' || key[bytes] == '.');
}

fl_status fl_axis_value_add(fl_axis_value *value, const char *key, const char *text, fl_error *error) {
    /* Room doubles whenever the count reaches a power of two, so it need not be stored. */
    if ((value->count & (value->count - 1)) == 0)
        FL_TRY(FL_RESIZE(&value->leaves, value->count, value->count == 0 ? 1 : 2 * value->count, error));
    fl_axis_leaf *leaf = &value->leaves[value->count++];
    *leaf = (fl_axis_leaf){0};
    FL_TRY(fl_memory_copy_string(&leaf->key, key, error));
    return fl_memory_copy_string(&leaf->text, text, error);
}

void fl_axis_value_release(fl_axis_value *value) {
    for (size_t i = 0; i < value->count; i++) {
        fl_memory_free(value->leaves[i].key);
        fl_memory_free(value->leaves[i].text);
    }
    fl_memory_free(value->leaves);
    *value = (fl_axis_value){0};
}

/* A list of mappings (tasks) by the names of its elements, others as they are: "[mmlu, piqa]", "[0, 3]". */
static fl_status add_list(const char *key, const fl_node *node, fl_axis_value *out, fl_error *error) {
    fl_text_builder text = {0};
    fl_status status = fl_text_builder_add(&text, "[", error);
    for (size_t i = 0; i < node->count && status == FL_OK; i++) {
        char *element = NULL;
        const fl_node *name = fl_node_get(node->children[i], "label");
        if (name == NULL) name = fl_node_get(node->children[i], "name");
        status = fl_node_text(name != NULL ? name : node->children[i], &element, error);
        if (status == FL_OK)
            status = fl_text_builder_format(&text, error, "%s%s", i > 0 ? ", " : "", element);
        fl_memory_free(element);
    }
    if (status == FL_OK) status = fl_text_builder_add(&text, "]", error);
    if (status == FL_OK) status = fl_axis_value_add(out, key, text.text, error);
    fl_text_builder_release(&text);
    return status;
}

static fl_status add_node(const char *key, const fl_node *node, fl_axis_value *out, fl_error *error) {
    char *text = NULL;
    fl_text_builder inner = {0};
    fl_status status = FL_OK;
    if (node == NULL || node->kind == FL_NODE_NULL) return FL_OK;
    if (node->kind == FL_NODE_SEQUENCE) return add_list(key, node, out, error);
    if (node->kind == FL_NODE_SCALAR) {
        if (node->quoted) return fl_axis_value_add(out, key, node->text, error);
        FL_TRY(fl_node_text(node, &text, error));
        status = fl_axis_value_add(out, key, text, error);
        fl_memory_free(text);
        return status;
    }
    for (size_t i = 0; i < node->count && status == FL_OK; i++) {
        fl_text_builder_release(&inner);
        status = fl_text_builder_format(&inner, error, "%s.%s", key, node->children[i]->key);
        if (status == FL_OK) status = add_node(inner.text, node->children[i], out, error);
    }
    fl_text_builder_release(&inner);
    return status;
}

fl_status fl_axis_value_read(const char *key, const fl_node *node, fl_axis_value *out, fl_error *error) {
    *out = (fl_axis_value){0};
    fl_status status = add_node(key, node, out, error);
    if (status != FL_OK) fl_axis_value_release(out);
    return status;
}

fl_status fl_axis_value_parse(const char *key, const char *text, fl_axis_value *out, fl_error *error) {
    fl_document *document = NULL;
    *out = (fl_axis_value){0};
    FL_TRY(fl_document_parse_text(text, strlen(text), key, &document, error));
    fl_status status = fl_axis_value_read(key, fl_document_root(document), out, error);
    fl_document_destroy(document);
    return status;
}

static const char *find_leaf(const fl_axis_value *value, const char *key) {
    for (size_t i = 0; i < value->count; i++) {
        if (strcmp(value->leaves[i].key, key) == 0) return value->leaves[i].text;
    }
    return NULL;
}

static bool same_text(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool is_head(const char *key) {
    const word *w = find_word(key);
    return w != NULL && w->is_head;
}

static bool same_heads(const fl_axis_value *a, const fl_axis_value *b) {
    for (size_t i = 0; i < a->count; i++) {
        const char *key = a->leaves[i].key;
        if (is_head(key) && !same_text(a->leaves[i].text, find_leaf(b, key))) return false;
    }
    for (size_t i = 0; i < b->count; i++) {
        if (is_head(b->leaves[i].key) && find_leaf(a, b->leaves[i].key) == NULL) return false;
    }
    return true;
}

/* Whether a leaf tells its value from the others: a head from any, other leaves from those with the same
 * head. */
static bool tells_apart(const fl_axis_value *values, size_t count, size_t index, const fl_axis_leaf *leaf) {
    bool head = is_head(leaf->key);
    if (count == 1) return head;
    if (count > COMPARED_MOST || values[index].count > COMPARED_LEAVES_MOST) return true;
    for (size_t i = 0; i < count; i++) {
        if (i == index || (!head && !same_heads(&values[index], &values[i]))) continue;
        if (!same_text(leaf->text, find_leaf(&values[i], leaf->key))) return true;
    }
    return false;
}

static fl_status add_words(fl_text_builder *out, const char *key, fl_error *error) {
    const word *w = find_word(key);
    if (w != NULL && w->name[0] != '\0') return fl_text_builder_add(out, w->name, error);
    const char *dot = strrchr(key, '.');
    for (const char *at = dot != NULL ? dot + 1 : key; *at != '\0'; at++)
        FL_TRY(fl_text_builder_add_bytes(out, *at == '_' ? " " : at, 1, error));
    return FL_OK;
}

/* models/a.gguf -> a; a folder's trailing slash is no component. */
static fl_status add_last_component(fl_text_builder *out, const char *path, fl_error *error) {
    static const char gguf[] = ".gguf";
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    size_t tail = sizeof gguf - 1;
    if (end - start > tail && strncmp(path + end - tail, gguf, tail) == 0) end -= tail;
    return fl_text_builder_add_bytes(out, path + start, end - start, error);
}

/* "[0, 3, 7]" -> "0 3 7"; what is long is counted. */
static fl_status add_list_value(fl_text_builder *out, const char *text, bool whole, fl_error *error) {
    size_t elements = 1;
    for (const char *at = text; *at != '\0'; at++) elements += *at == ',';
    if (!whole && strlen(text) > LIST_BYTES_MOST)
        return fl_text_builder_format(out, error, "%zu listed", elements);
    for (const char *at = text; *at != '\0'; at++) {
        if (strchr("[],", *at) == NULL) FL_TRY(fl_text_builder_add_bytes(out, at, 1, error));
    }
    return FL_OK;
}

/* "gate constant" goes on with the value alone: "gate constant 0.97". */
static bool begins_with(const fl_text_builder *out, const char *name) {
    return out->length > 0 && strncmp(out->text, name, strlen(name)) == 0;
}

static fl_status add_leaf(fl_text_builder *out, const fl_axis_leaf *leaf, bool whole, fl_error *error) {
    const word *w = find_word(leaf->key);
    if (out->length > 0) FL_TRY(fl_text_builder_add(out, " ", error));
    if (strcmp(leaf->text, "true") == 0) return add_words(out, leaf->key, error);
    if (strcmp(leaf->text, "false") == 0) {
        FL_TRY(fl_text_builder_add(out, "no ", error));
        return add_words(out, leaf->key, error);
    }
    if (w == NULL || (w->name[0] != '\0' && !begins_with(out, w->name))) {
        FL_TRY(add_words(out, leaf->key, error));
        FL_TRY(fl_text_builder_add(out, " ", error));
    }
    if (leaf->text[0] == '[') return add_list_value(out, leaf->text, whole, error);
    if (w != NULL && w->is_path && !whole) return add_last_component(out, leaf->text, error);
    return fl_text_builder_add(out, leaf->text, error);
}

static bool is_off(const fl_axis_value *value) {
    for (size_t i = 0; i < value->count; i++) {
        const word *w = find_word(value->leaves[i].key);
        if (w != NULL && w->off != NULL && strcmp(w->off, value->leaves[i].text) == 0) return true;
    }
    return value->count == 0;
}

static bool is_plain(const char *key, const fl_axis_value *value) {
    return value->count == 1 && strcmp(value->leaves[0].key, key) == 0;
}

static fl_status add_leaves(fl_text_builder *out, const fl_axis_value *values, size_t count, size_t index,
                            bool heads, fl_error *error) {
    for (size_t i = 0; i < values[index].count; i++) {
        const fl_axis_leaf *leaf = &values[index].leaves[i];
        if (is_head(leaf->key) == heads && tells_apart(values, count, index, leaf))
            FL_TRY(add_leaf(out, leaf, false, error));
    }
    return FL_OK;
}

fl_status fl_axis_name(const char *key, const fl_axis_value *values, size_t count, size_t index, char **out,
                       fl_error *error) {
    fl_text_builder name = {0};
    const fl_axis_value *value = &values[index];
    fl_status status = fl_text_builder_add(&name, "", error);
    if (status == FL_OK && is_plain(key, value) && !is_off(value)) {
        status = add_leaf(&name, &value->leaves[0], false, error);
    } else if (status == FL_OK && !is_off(value)) {
        status = add_leaves(&name, values, count, index, true, error);
        if (status == FL_OK) status = add_leaves(&name, values, count, index, false, error);
        if (status == FL_OK && name.length == 0) status = add_words(&name, key, error);
    }
    if (status != FL_OK) fl_text_builder_release(&name);
    *out = name.text;
    return status;
}

fl_status fl_axis_name_whole(const char *key, const fl_axis_value *value, char **out, fl_error *error) {
    fl_text_builder name = {0};
    fl_status status = fl_text_builder_add(&name, "", error);
    if (status == FL_OK && is_off(value)) {
        status = fl_text_builder_add(&name, "no ", error);
        if (status == FL_OK)
            status = add_words(&name, strcmp(key, "train.objective") == 0 ? "train" : key, error);
    } else {
        for (size_t i = 0; i < value->count && status == FL_OK; i++)
            status = add_leaf(&name, &value->leaves[i], true, error);
    }
    if (status != FL_OK) fl_text_builder_release(&name);
    *out = name.text;
    return status;
}
