#include "harness/config/options.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/config/scalar.h"
#include "harness/config/text_builder.h"

enum { SHOWN_BYTES = 120 };

static const char *const kind_names[] = {"nothing", "a value", "a list", "a mapping"};

/* The error points at the key, not at its value. */
static fl_node key_place(const fl_node *node) {
    fl_node place = *node;
    place.line = node->key_line;
    place.column = node->key_column;
    return place;
}

static void describe(const fl_node *node, char out[SHOWN_BYTES + 16]) {
    if (node->kind == FL_NODE_SCALAR) {
        snprintf(out, SHOWN_BYTES + 16, "%s%.*s%s", node->quoted ? "\"" : "'", SHOWN_BYTES, node->text,
                 node->quoted ? "\"" : "'");
    } else {
        snprintf(out, SHOWN_BYTES + 16, "%s", kind_names[node->kind]);
    }
}

/* "variant.window: expected a whole number, found 'wide'"; `reason` (may be NULL) says why the text is not
 * one. */
static fl_status mistyped(const fl_node *node, const char *expected, const char *reason, fl_error *error) {
    char found[SHOWN_BYTES + 16];
    describe(node, found);
    const char *key = node->key != NULL ? node->key : "";
    const char *colon = node->key != NULL ? ": " : "";
    if (node->kind == FL_NODE_SCALAR && node->quoted && reason == NULL) reason = "is text in quotes";
    if (reason != NULL) {
        return fl_node_error(node, error, "%.100s%sexpected %s, but %s %s", key, colon, expected, found,
                             reason);
    }
    return fl_node_error(node, error, "%.100s%sexpected %s, found %s", key, colon, expected, found);
}

static bool has_range(double minimum, double maximum) {
    return minimum != 0.0 || maximum != 0.0;
}

static fl_status check_range(const fl_node *node, double value, double minimum, double maximum,
                             fl_error *error) {
    if (!has_range(minimum, maximum)) return FL_OK;
    bool open = maximum < minimum;
    if (value >= minimum && (open || value <= maximum)) return FL_OK;
    char low[FL_NUMBER_TEXT_BYTES], high[FL_NUMBER_TEXT_BYTES];
    fl_scalar_write_number(minimum, low);
    fl_scalar_write_number(maximum, high);
    const char *key = node->key != NULL ? node->key : "value";
    if (value < minimum)
        return fl_node_error(node, error, "%.100s: %.*s is below the minimum %s", key, SHOWN_BYTES,
                             node->text, low);
    return fl_node_error(node, error, "%.100s: %.*s is above the maximum %s", key, SHOWN_BYTES, node->text,
                         high);
}

static fl_status read_unsigned(const fl_node *node, uint64_t *out, fl_error *error) {
    static const char expected[] = "a whole number, 0 or more";
    if (node->kind != FL_NODE_SCALAR || node->quoted) return mistyped(node, expected, NULL, error);
    const char *reason = fl_scalar_integer(node->text);
    if (reason == NULL && (node->text[0] == '-' || node->text[0] == '+')) reason = "has a sign";
    if (reason != NULL) return mistyped(node, expected, reason, error);
    errno = 0;
    unsigned long long value = strtoull(node->text, NULL, 10);
    if (errno == ERANGE) return mistyped(node, expected, "does not fit in 64 bits", error);
    *out = value;
    return FL_OK;
}

static fl_status read_signed(const fl_node *node, int64_t *out, fl_error *error) {
    static const char expected[] = "a whole number";
    if (node->kind != FL_NODE_SCALAR || node->quoted) return mistyped(node, expected, NULL, error);
    const char *reason = fl_scalar_integer(node->text);
    if (reason != NULL) return mistyped(node, expected, reason, error);
    errno = 0;
    long long value = strtoll(node->text, NULL, 10);
    if (errno == ERANGE) return mistyped(node, expected, "does not fit in 64 bits", error);
    *out = value;
    return FL_OK;
}

fl_status fl_node_to_size(const fl_node *node, size_t minimum, size_t maximum, size_t *out, fl_error *error) {
    uint64_t value = 0;
    FL_TRY(read_unsigned(node, &value, error));
    const char *key = node->key != NULL ? node->key : "value";
    if (value < minimum || value > maximum) {
        return fl_node_error(node, error, "%.100s: %.*s is not between %zu and %zu", key, SHOWN_BYTES,
                             node->text, minimum, maximum);
    }
    *out = (size_t)value;
    return FL_OK;
}

static fl_status read_number(const fl_node *node, double *out, fl_error *error) {
    if (node->kind != FL_NODE_SCALAR || node->quoted) return mistyped(node, "a number", NULL, error);
    const char *reason = fl_scalar_number(node->text, out);
    return reason == NULL ? FL_OK : mistyped(node, "a number", reason, error);
}

fl_status fl_node_to_number(const fl_node *node, double minimum, double maximum, double *out,
                            fl_error *error) {
    double value = 0.0;
    FL_TRY(read_number(node, &value, error));
    FL_TRY(check_range(node, value, minimum, maximum, error));
    *out = value;
    return FL_OK;
}

fl_status fl_node_to_bool(const fl_node *node, bool *out, fl_error *error) {
    if (node->kind != FL_NODE_SCALAR || node->quoted) return mistyped(node, "true or false", NULL, error);
    bool value = false;
    if (!fl_scalar_is_bool(node->text, &value)) return mistyped(node, "true or false", NULL, error);
    *out = value;
    return FL_OK;
}

static fl_status list_names(const char *const *names, size_t count, fl_text_builder *buffer,
                            fl_error *error) {
    for (size_t i = 0; i < count; i++)
        FL_TRY(fl_text_builder_format(buffer, error, "%s%s", i > 0 ? ", " : "", names[i]));
    return FL_OK;
}

fl_status fl_node_to_choice(const fl_node *node, const char *const *choices, int *out, fl_error *error) {
    size_t count = 0;
    while (choices[count] != NULL) count++;
    if (node->kind == FL_NODE_SCALAR) {
        for (size_t i = 0; i < count; i++) {
            if (strcmp(node->text, choices[i]) != 0) continue;
            *out = (int)i;
            return FL_OK;
        }
    }
    fl_text_builder expected = {0};
    fl_status status = fl_text_builder_add(&expected, "one of ", error);
    if (status == FL_OK) status = list_names(choices, count, &expected, error);
    if (status == FL_OK) {
        const char *near = node->kind == FL_NODE_SCALAR ? fl_suggest(node->text, choices, count) : NULL;
        status =
            mistyped(node, expected.text, node->kind == FL_NODE_SCALAR ? "is none of them" : NULL, error);
        if (near != NULL && error != NULL) {
            size_t used = strlen(error->message);
            snprintf(error->message + used, sizeof error->message - used, "; did you mean '%s'?", near);
        }
    }
    fl_text_builder_release(&expected);
    return status;
}

static char folded(char c) {
    if (c >= 'A' && c <= 'Z') return (char)(c - 'A' + 'a');
    return c == '-' || c == ' ' ? '_' : c;
}

enum { SUGGEST_BYTES = 64 };

/* Edit distance with swaps of neighbours; case and - against _ cost nothing. */
static size_t edit_distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    size_t rows[3][SUGGEST_BYTES + 1];
    for (size_t j = 0; j <= b_bytes; j++) rows[0][j] = j;
    for (size_t i = 1; i <= a_bytes; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_bytes; j++) {
            size_t change = above[j - 1] + (folded(a[i - 1]) != folded(b[j - 1]));
            size_t shift = (above[j] < row[j - 1] ? above[j] : row[j - 1]) + 1;
            row[j] = change < shift ? change : shift;
            bool swapped = i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
                           folded(a[i - 2]) == folded(b[j - 1]);
            if (swapped && two_above[j - 2] + 1 < row[j]) row[j] = two_above[j - 2] + 1;
        }
    }
    return rows[a_bytes % 3][b_bytes];
}

const char *fl_suggest(const char *word, const char *const *names, size_t count) {
    size_t length = strlen(word);
    if (length == 0 || length > SUGGEST_BYTES) return NULL;
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(names[i]);
        if (bytes > SUGGEST_BYTES) continue;
        size_t longer = bytes > length ? bytes : length;
        size_t limit = longer < 3 ? 0 : longer < 6 ? 1 : longer / 3;
        size_t distance = edit_distance(word, length, names[i], bytes);
        if (distance > limit || distance >= best_distance) continue;
        best = names[i];
        best_distance = distance;
    }
    return best;
}

fl_status fl_unknown_name(const fl_node *node, const char *what, const char *word, const char *const *names,
                          size_t count, fl_error *error) {
    const char *near = fl_suggest(word, names, count);
    if (near != NULL)
        return fl_node_error(node, error, "%s \"%.200s\"; did you mean \"%s\"?", what, word, near);
    fl_text_builder list = {0};
    fl_status status = FL_OK;
    for (size_t i = 0; i < count && status == FL_OK; i++)
        status = fl_text_builder_format(&list, error, "%s%s", i > 0 ? ", " : "", names[i]);
    if (status == FL_OK)
        status = fl_node_error(node, error, "%s \"%.200s\"; there are %s", what, word,
                               count > 0 ? list.text : "none");
    fl_text_builder_release(&list);
    return status;
}

/* One key of one table, and where its value comes from. */
typedef struct binding {
    const fl_option *option;
    void *member;
    const char *path; /* dotted key for `resolved` */
    bool is_default;
    fl_resolved *resolved;
} binding;

static fl_status record(const binding *b, const char *value, fl_error *error) {
    return b->resolved == NULL ? FL_OK : fl_resolved_add(b->resolved, b->path, value, b->is_default, error);
}

static fl_status bind_string(const binding *b, const fl_node *node, fl_error *error) {
    if (node->kind != FL_NODE_SCALAR) return mistyped(node, "text", NULL, error);
    char *text = NULL, *value = NULL;
    FL_TRY(fl_memory_copy_string(&text, node->text, error));
    fl_status status = fl_resolved_string(text, &value, error);
    if (status == FL_OK) status = record(b, value, error);
    fl_memory_free(value);
    if (status != FL_OK) {
        fl_memory_free(text);
        return status;
    }
    *(char **)b->member = text;
    return FL_OK;
}

static fl_status read_sizes(const binding *b, const fl_node *node, fl_size_list *list, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&list->values, node->count, error));
    list->count = node->count;
    for (size_t i = 0; i < node->count; i++) {
        FL_TRY(fl_node_to_size(node->children[i], 0, SIZE_MAX, &list->values[i], error));
        FL_TRY(check_range(node->children[i], (double)list->values[i], b->option->minimum, b->option->maximum,
                           error));
    }
    return FL_OK;
}

static fl_status bind_sizes(const binding *b, const fl_node *node, fl_error *error) {
    if (node->kind != FL_NODE_SEQUENCE) return mistyped(node, "a list of whole numbers", NULL, error);
    fl_size_list list = {0};
    char *text = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, read_sizes(b, node, &list, error));
    FL_TRY_DONE(status, fl_node_text(node, &text, error));
    FL_TRY_DONE(status, record(b, text, error));
    *(fl_size_list *)b->member = list;
    list.values = NULL;
done:
    fl_memory_free(list.values);
    fl_memory_free(text);
    return status;
}

static fl_status bind_whole(const binding *b, const fl_node *node, fl_error *error) {
    const fl_option *option = b->option;
    char text[FL_NUMBER_TEXT_BYTES];
    if (option->type == FL_OPTION_INTEGER) {
        int64_t value = 0;
        FL_TRY(read_signed(node, &value, error));
        FL_TRY(check_range(node, (double)value, option->minimum, option->maximum, error));
        *(int64_t *)b->member = value;
        snprintf(text, sizeof text, "%lld", (long long)value);
        return record(b, text, error);
    }
    uint64_t value = 0;
    FL_TRY(read_unsigned(node, &value, error));
    FL_TRY(check_range(node, (double)value, option->minimum, option->maximum, error));
    if (option->type == FL_OPTION_SEED)
        *(uint64_t *)b->member = value;
    else
        *(size_t *)b->member = (size_t)value;
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return record(b, text, error);
}

static fl_status bind_value(const binding *b, const fl_node *node, fl_error *error) {
    const fl_option *option = b->option;
    switch (option->type) {
    case FL_OPTION_BOOL: {
        FL_TRY(fl_node_to_bool(node, (bool *)b->member, error));
        return record(b, *(bool *)b->member ? "true" : "false", error);
    }
    case FL_OPTION_NUMBER: {
        FL_TRY(fl_node_to_number(node, option->minimum, option->maximum, (double *)b->member, error));
        char text[FL_NUMBER_TEXT_BYTES];
        fl_scalar_write_number(*(double *)b->member, text);
        return record(b, text, error);
    }
    case FL_OPTION_CHOICE:
        FL_TRY(fl_node_to_choice(node, option->choices, (int *)b->member, error));
        return record(b, option->choices[*(int *)b->member], error);
    case FL_OPTION_SIZE:
    case FL_OPTION_INTEGER:
    case FL_OPTION_SEED:
        return bind_whole(b, node, error);
    case FL_OPTION_STRING:
        return bind_string(b, node, error);
    case FL_OPTION_SIZES:
        return bind_sizes(b, node, error);
    case FL_OPTION_NODE:
        *(const fl_node **)b->member = node;
        return FL_OK;
    }
    return FL_OK;
}

/* The default written in the table goes through the same reader; a table without one means zero. */
static fl_status bind_default(const binding *b, fl_error *error) {
    const fl_option *option = b->option;
    if (option->default_text != NULL) {
        fl_document *document = NULL;
        FL_TRY(fl_document_parse_text(option->default_text, strlen(option->default_text), "default",
                                      &document, error));
        const fl_node *root = fl_document_root(document);
        fl_status status = root->kind == FL_NODE_NULL ? FL_OK : bind_value(b, root, error);
        bool bound = root->kind != FL_NODE_NULL;
        fl_document_destroy(document);
        if (bound || status != FL_OK) return status;
    }
    switch (option->type) {
    case FL_OPTION_BOOL:
        *(bool *)b->member = false;
        return record(b, "false", error);
    case FL_OPTION_SIZE:
        *(size_t *)b->member = 0;
        return record(b, "0", error);
    case FL_OPTION_INTEGER:
        *(int64_t *)b->member = 0;
        return record(b, "0", error);
    case FL_OPTION_SEED:
        *(uint64_t *)b->member = 0;
        return record(b, "0", error);
    case FL_OPTION_NUMBER:
        *(double *)b->member = 0.0;
        return record(b, "0", error);
    case FL_OPTION_CHOICE:
        *(int *)b->member = 0;
        return record(b, option->choices[0], error);
    case FL_OPTION_STRING:
        return record(b, "null", error);
    case FL_OPTION_SIZES:
        return record(b, "[]", error);
    case FL_OPTION_NODE:
        *(const fl_node **)b->member = NULL;
        return FL_OK;
    }
    return FL_OK;
}

static bool is_required(const fl_option *option) {
    return option->default_text != NULL && strcmp(option->default_text, "!") == 0;
}

static fl_status bind_option(const fl_node *mapping, const fl_option *option, void *target,
                             const char *prefix, fl_resolved *resolved, fl_error *error) {
    fl_text_builder path = {0};
    fl_status status = FL_OK;
    if (prefix != NULL && prefix[0] != '\0')
        FL_TRY_DONE(status, fl_text_builder_format(&path, error, "%s.", prefix));
    FL_TRY_DONE(status, fl_text_builder_add(&path, option->key, error));
    const fl_node *node = fl_node_get(mapping, option->key);
    bool given = node != NULL && node->kind != FL_NODE_NULL;
    binding b = {option, (char *)target + option->offset, path.text, !given, resolved};
    if (given) {
        status = bind_value(&b, node, error);
    } else if (is_required(option)) {
        const fl_node *place = node != NULL ? node : mapping;
        status = fl_node_error(place, error, "%.200s is missing: %.300s", path.text,
                               option->help != NULL ? option->help : "");
    } else {
        status = bind_default(&b, error);
    }
done:
    fl_text_builder_release(&path);
    return status;
}

static fl_status collect_names(const fl_option_table *tables, size_t table_count, const char ***names,
                               size_t *count, fl_error *error) {
    *count = 0;
    for (size_t t = 0; t < table_count; t++) *count += tables[t].count;
    FL_TRY(FL_ALLOCATE(names, *count, error));
    size_t at = 0;
    for (size_t t = 0; t < table_count; t++) {
        for (size_t i = 0; i < tables[t].count; i++) (*names)[at++] = tables[t].options[i].key;
    }
    return FL_OK;
}

static fl_status unknown_key(const fl_node *child, const char *prefix, const char *const *names, size_t count,
                             fl_error *error) {
    const char *near = fl_suggest(child->key, names, count);
    const char *dot = prefix != NULL && prefix[0] != '\0' ? "." : "";
    fl_node place = key_place(child);
    if (near != NULL) {
        return fl_node_error(&place, error, "unknown key '%s%s%.200s'; did you mean '%s'?",
                             dot[0] ? prefix : "", dot, child->key, near);
    }
    fl_text_builder known = {0};
    fl_status status = list_names(names, count, &known, error);
    if (status == FL_OK) {
        status = fl_node_error(&place, error, "unknown key '%s%s%.200s'; known are: %s", dot[0] ? prefix : "",
                               dot, child->key, known.text != NULL ? known.text : "none");
    }
    fl_text_builder_release(&known);
    return status;
}

static fl_status check_keys(const fl_node *mapping, const fl_option_table *tables, size_t table_count,
                            const char *prefix, fl_error *error) {
    if (mapping == NULL || mapping->count == 0) return FL_OK;
    const char **names = NULL;
    size_t count = 0;
    FL_TRY(collect_names(tables, table_count, &names, &count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < mapping->count && status == FL_OK; i++) {
        bool known = false;
        for (size_t n = 0; n < count && !known; n++) known = strcmp(mapping->children[i]->key, names[n]) == 0;
        if (!known) status = unknown_key(mapping->children[i], prefix, names, count, error);
    }
    fl_memory_free(names);
    return status;
}

/* Members that own memory start out empty, so that a failure can release all of them. */
static void clear_owned(const fl_option *options, size_t count, void *target) {
    for (size_t i = 0; i < count; i++) {
        void *member = (char *)target + options[i].offset;
        if (options[i].type == FL_OPTION_STRING) *(char **)member = NULL;
        if (options[i].type == FL_OPTION_SIZES) *(fl_size_list *)member = (fl_size_list){0};
    }
}

void fl_options_release(const fl_option *options, size_t count, void *target) {
    for (size_t i = 0; i < count; i++) {
        void *member = (char *)target + options[i].offset;
        if (options[i].type == FL_OPTION_STRING) fl_memory_free(*(char **)member);
        if (options[i].type == FL_OPTION_SIZES) fl_memory_free(((fl_size_list *)member)->values);
    }
    clear_owned(options, count, target);
}

fl_status fl_options_bind(const fl_node *mapping, const fl_option_table *tables, size_t table_count,
                          const char *prefix, fl_resolved *resolved, fl_error *error) {
    for (size_t t = 0; t < table_count; t++)
        clear_owned(tables[t].options, tables[t].count, tables[t].target);
    if (mapping != NULL && mapping->kind != FL_NODE_MAPPING && mapping->kind != FL_NODE_NULL) {
        return mistyped(mapping, "a mapping (key: value)", NULL, error);
    }
    FL_TRY(check_keys(mapping, tables, table_count, prefix, error));
    for (size_t t = 0; t < table_count; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            fl_status status =
                bind_option(mapping, &tables[t].options[i], tables[t].target, prefix, resolved, error);
            if (status == FL_OK) continue;
            for (size_t u = 0; u < table_count; u++) {
                fl_options_release(tables[u].options, tables[u].count, tables[u].target);
            }
            return status;
        }
    }
    return FL_OK;
}
