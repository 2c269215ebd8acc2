#include "harness/config/expansion.h"

#include <stdint.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/config/axis_name.h"
#include "harness/config/options.h"
#include "harness/config/text_builder.h"

/* Of all cells together, each a bound on what a small hostile file costs: their nodes and swept keys (about
 * 500 bytes and a microsecond each), and the comparisons with entries of sweep.exclude. */
enum { MAX_CELL_NODES = 1000000, MAX_EXCLUDE_TESTS = 1000000 };

/* One assignment of one choice of an axis. */
typedef struct setting {
    const char *path;
    const fl_node *value;
} setting;

typedef struct choice {
    size_t count;
    setting *settings;
    const char *label; /* the user's name for it, or NULL */
    fl_cell_axes axes; /* what a cell with this choice records of it */
} choice;

typedef struct axis {
    size_t count;
    choice *choices;
    bool written_out; /* its choices were written cell by cell: sweep.zip, sweep.list */
    bool is_list;
} axis;

typedef struct axis_key {
    const char *path;
    size_t owner; /* keys of one sweep.list may repeat; all others are claimed once */
    size_t axis;  /* the one it belongs to, also when an override has taken its place */
} axis_key;

typedef struct plan {
    fl_document *base;  /* overrides applied, sweep removed */
    fl_document *sweep; /* the same with the sweep: owns what the axes point to */
    const char *const *overrides;
    size_t override_count;
    size_t axis_count;
    axis *axes;
    size_t key_count;
    axis_key *keys;
    const fl_node *exclude, *labels;
} plan;

static bool is_under(const char *key, size_t key_bytes, const char *prefix, size_t prefix_bytes) {
    return key_bytes >= prefix_bytes && strncmp(key, prefix, prefix_bytes) == 0 &&
           (key_bytes == prefix_bytes || key[prefix_bytes] == '.');
}

/* Whether an override decides this key or something it lies in. */
static bool is_overridden(const plan *p, const char *path) {
    for (size_t i = 0; i < p->override_count; i++) {
        if (is_under(path, strlen(path), p->overrides[i], strcspn(p->overrides[i], "="))) return true;
    }
    return false;
}

static fl_status key_error(const fl_node *node, fl_error *error, const char *message, const char *argument) {
    fl_node place = *node;
    if (node->key != NULL) {
        place.line = node->key_line;
        place.column = node->key_column;
    }
    return fl_node_error(&place, error, message, argument);
}

/* No key may be set by two axes, nor a mapping replaced after a key inside it was set. */
static fl_status claim_key(plan *p, const fl_node *node, size_t owner, fl_error *error) {
    size_t bytes = strlen(node->key);
    if (is_under(node->key, bytes, "sweep", 5))
        return key_error(node, error, "'%.200s' cannot be swept", node->key);
    for (size_t i = 0; i < p->key_count; i++) {
        const axis_key *other = &p->keys[i];
        if (other->owner == owner && strcmp(other->path, node->key) == 0) return FL_OK;
        if (other->owner != owner && is_under(other->path, strlen(other->path), node->key, bytes)) {
            return key_error(node, error, "the sweep already sets '%.200s'", other->path);
        }
    }
    if (p->key_count == FL_SWEEP_MAX_KEYS)
        return key_error(node, error, "'%.200s': the sweep sets more than 256 different keys", node->key);
    FL_TRY(FL_RESIZE(&p->keys, p->key_count, p->key_count + 1, error));
    p->keys[p->key_count++] = (axis_key){node->key, owner, SIZE_MAX};
    return FL_OK;
}

static fl_status add_axis(plan *p, size_t choices, axis **out, fl_error *error) {
    FL_TRY(FL_RESIZE(&p->axes, p->axis_count, p->axis_count + 1, error));
    axis *fresh = &p->axes[p->axis_count];
    FL_TRY(FL_ALLOCATE(&fresh->choices, choices, error));
    fresh->count = choices;
    p->axis_count++;
    *out = fresh;
    return FL_OK;
}

static fl_status add_setting(const plan *p, choice *c, const char *path, const fl_node *value,
                             fl_error *error) {
    if (is_overridden(p, path)) return FL_OK;
    FL_TRY(FL_RESIZE(&c->settings, c->count, c->count + 1, error));
    c->settings[c->count++] = (setting){path, value};
    return FL_OK;
}

static fl_status check_widths(const fl_node *node, fl_error *error) {
    if (node->kind == FL_NODE_MAPPING && node->count > FL_SWEEP_MAX_MAPPING)
        return key_error(node->children[FL_SWEEP_MAX_MAPPING], error,
                         "'%.200s': a mapping with more than 1024 keys",
                         node->children[FL_SWEEP_MAX_MAPPING]->key);
    for (size_t i = 0; i < node->count; i++) FL_TRY(check_widths(node->children[i], error));
    return FL_OK;
}

static fl_status too_many_cells(const fl_node *place, fl_error *error) {
    return fl_node_error(place, error, "the sweep has more than %d cells", FL_SWEEP_MAX_CELLS);
}

static fl_status check_values(const fl_node *node, fl_error *error) {
    if (node->kind != FL_NODE_SEQUENCE) {
        return key_error(node, error,
                         "sweep axis '%s' needs a list of values: [a, b]; nested keys are joined by dots",
                         node->key);
    }
    if (node->count == 0) return key_error(node, error, "sweep axis '%s' has no values", node->key);
    if (node->count > FL_SWEEP_MAX_CELLS)
        return key_error(node, error, "sweep axis '%s' has too many values", node->key);
    return FL_OK;
}

static fl_status check_kind(const fl_node *node, fl_node_kind kind, const char *message, fl_error *error) {
    return node->kind == kind ? FL_OK : key_error(node, error, "%s", message);
}

/* Names are one line, short, and tell the choices of an axis apart. */
static fl_status add_choice_label(axis *a, size_t index, const fl_node *node, fl_error *error) {
    enum { LABEL_BYTES_MOST = 60 };
    const char *text = node->text;
    if (node->kind != FL_NODE_SCALAR || text[0] == '\0' || text[strcspn(text, "\n\r\t")] != '\0')
        return fl_node_error(node, error, "label: expected a name in one line");
    if (strlen(text) > LABEL_BYTES_MOST)
        return fl_node_error(node, error, "label: a name has at most %d bytes", LABEL_BYTES_MOST);
    for (size_t i = 0; i < a->count; i++) {
        const char *other = a->choices[i].label;
        if (i == index || other == NULL || strcmp(other, text) != 0) continue;
        return fl_node_error(node, error, "label: '%s' is the name of another choice of this axis", text);
    }
    a->choices[index].label = text;
    return FL_OK;
}

static fl_status read_grid(plan *p, const fl_node *grid, fl_error *error) {
    FL_TRY(check_kind(grid, FL_NODE_MAPPING, "sweep.grid is a mapping: {dotted.key: [values]}", error));
    for (size_t i = 0; i < grid->count; i++) {
        const fl_node *values = grid->children[i];
        FL_TRY(check_values(values, error));
        FL_TRY(claim_key(p, values, p->key_count, error));
        if (is_overridden(p, values->key)) continue;
        axis *a = NULL;
        p->keys[p->key_count - 1].axis = p->axis_count;
        FL_TRY(add_axis(p, values->count, &a, error));
        for (size_t v = 0; v < values->count; v++) {
            FL_TRY(add_setting(p, &a->choices[v], values->key, values->children[v], error));
        }
    }
    return FL_OK;
}

static fl_status read_zip(plan *p, const fl_node *zip, fl_error *error) {
    FL_TRY(check_kind(zip, FL_NODE_MAPPING, "sweep.zip is a mapping: {dotted.key: [values]}", error));
    if (zip->count == 0) return FL_OK;
    const fl_node *first = zip->children[0];
    FL_TRY(check_values(first, error));
    axis *a = NULL;
    FL_TRY(add_axis(p, first->count, &a, error));
    a->written_out = true;
    for (size_t i = 0; i < zip->count; i++) {
        const fl_node *values = zip->children[i];
        FL_TRY(check_values(values, error));
        FL_TRY(claim_key(p, values, p->key_count, error));
        p->keys[p->key_count - 1].axis = p->axis_count - 1;
        if (values->count != first->count) {
            return fl_node_error(
                values, error,
                "sweep.zip: '%s' has %zu values but '%s' has %zu; zipped lists are of one length",
                values->key, values->count, first->key, first->count);
        }
        for (size_t v = 0; v < values->count; v++) {
            FL_TRY(add_setting(p, &a->choices[v], values->key, values->children[v], error));
        }
    }
    return FL_OK;
}

static fl_status read_list(plan *p, const fl_node *list, fl_error *error) {
    FL_TRY(
        check_kind(list, FL_NODE_SEQUENCE, "sweep.list is a list of mappings: [{dotted.key: value}]", error));
    if (list->count == 0) return key_error(list, error, "%s", "sweep.list is empty");
    if (list->count > FL_SWEEP_MAX_CELLS) return too_many_cells(list, error);
    size_t owner = p->key_count;
    axis *a = NULL;
    FL_TRY(add_axis(p, list->count, &a, error));
    a->written_out = true;
    a->is_list = true;
    for (size_t i = 0; i < list->count; i++) {
        const fl_node *cell = list->children[i];
        FL_TRY(check_kind(cell, FL_NODE_MAPPING, "an entry of sweep.list is a mapping: {dotted.key: value}",
                          error));
        for (size_t k = 0; k < cell->count; k++) {
            const fl_node *value = cell->children[k];
            if (strcmp(value->key, "label") == 0) {
                FL_TRY(add_choice_label(a, i, value, error));
                continue;
            }
            FL_TRY(claim_key(p, value, owner, error));
            p->keys[p->key_count - 1].axis = p->axis_count - 1;
            FL_TRY(add_setting(p, &a->choices[i], value->key, value, error));
        }
    }
    return FL_OK;
}

/* The axis with a key in sweep.labels; NULL when an override has taken its place. */
static fl_status find_labelled(const plan *p, const fl_node *names, axis **out, fl_error *error) {
    *out = NULL;
    for (size_t i = 0; i < p->key_count; i++) {
        if (strcmp(p->keys[i].path, names->key) != 0) continue;
        if (p->keys[i].axis != SIZE_MAX) *out = &p->axes[p->keys[i].axis];
        if (*out != NULL && (*out)->is_list)
            return key_error(names, error, "'%.200s' is of sweep.list, whose entries take a `label:` each",
                             names->key);
        return FL_OK;
    }
    return key_error(names, error, "sweep.labels: no axis of the sweep has the key '%.200s'", names->key);
}

/* sweep.labels: {dotted.key: [a name a value, null where the program finds one]}. */
static fl_status read_labels(plan *p, fl_error *error) {
    if (p->labels == NULL) return FL_OK;
    FL_TRY(check_kind(p->labels, FL_NODE_MAPPING, "sweep.labels is a mapping: {dotted.key: [names]}", error));
    for (size_t i = 0; i < p->labels->count; i++) {
        const fl_node *names = p->labels->children[i];
        axis *a = NULL;
        FL_TRY(find_labelled(p, names, &a, error));
        FL_TRY(check_kind(names, FL_NODE_SEQUENCE, "sweep.labels has a list of names for each axis", error));
        if (a == NULL) continue;
        if (names->count != a->count)
            return fl_node_error(names, error, "sweep.labels: %zu names for the %zu values of '%.200s'",
                                 names->count, a->count, names->key);
        for (size_t v = 0; v < a->count; v++) {
            if (names->children[v]->kind != FL_NODE_NULL)
                FL_TRY(add_choice_label(a, v, names->children[v], error));
        }
    }
    return FL_OK;
}

static fl_status read_exclude(plan *p, const fl_node *exclude, fl_error *error) {
    FL_TRY(check_kind(exclude, FL_NODE_SEQUENCE, "sweep.exclude is a list of mappings: [{dotted.key: value}]",
                      error));
    for (size_t i = 0; i < exclude->count; i++) {
        const fl_node *rule = exclude->children[i];
        FL_TRY(check_kind(rule, FL_NODE_MAPPING,
                          "an entry of sweep.exclude is a mapping: {dotted.key: value}", error));
        if (rule->count == 0)
            return key_error(rule, error, "%s", "an empty entry of sweep.exclude would drop every cell");
    }
    p->exclude = exclude;
    return FL_OK;
}

static const fl_option sweep_options[] = {
    {.key = "grid",
     .type = FL_OPTION_NODE,
     .help = "every combination: {dotted.key: [values], ...}; each key is an axis, the last one fastest"},
    {.key = "zip",
     .type = FL_OPTION_NODE,
     .help = "one axis of lists of one length, walked together: {dotted.key: [values], ...}"},
    {.key = "list",
     .type = FL_OPTION_NODE,
     .help = "one axis of settings written out: [{dotted.key: value, ...}, ...]; `label: name` in an entry "
             "names it"},
    {.key = "exclude",
     .type = FL_OPTION_NODE,
     .help = "cells in which all of these hold are dropped: [{dotted.key: value, ...}, ...]"},
    {.key = "labels",
     .type = FL_OPTION_NODE,
     .help =
         "names of the values of an axis of grid or zip, in their order: {dotted.key: [names]}; null: the "
         "program finds one"},
};
enum { PARTS = sizeof sweep_options / sizeof sweep_options[0] };

const fl_option_section *fl_expansion_sections(size_t *count) {
    static const fl_option_section sections[] = {{"sweep", NULL, sweep_options, PARTS}};
    *count = 1;
    return sections;
}

/* Read when every axis is known, wherever they stand in the file. */
static fl_status keep_labels(plan *p, const fl_node *labels, fl_error *error) {
    (void)error;
    p->labels = labels;
    return FL_OK;
}

static fl_status read_axes(plan *p, const fl_node *sweep, fl_error *error) {
    /* In the order of the table. */
    static fl_status (*const read[PARTS])(plan *, const fl_node *, fl_error *) = {
        read_grid, read_zip, read_list, read_exclude, keep_labels};
    if (sweep == NULL || sweep->kind == FL_NODE_NULL) return FL_OK;
    FL_TRY(check_kind(sweep, FL_NODE_MAPPING, "sweep is a mapping with grid, zip, list, exclude or labels",
                      error));
    const char *names[PARTS];
    for (size_t i = 0; i < PARTS; i++) names[i] = sweep_options[i].key;
    for (size_t c = 0; c < sweep->count; c++) {
        const fl_node *child = sweep->children[c];
        size_t part = 0;
        while (part < PARTS && strcmp(child->key, names[part]) != 0) part++;
        if (part < PARTS) {
            if (child->kind != FL_NODE_NULL) FL_TRY(read[part](p, child, error));
            continue;
        }
        const char *near = fl_suggest(child->key, names, PARTS);
        if (near != NULL) return key_error(child, error, "unknown key in sweep; did you mean '%s'?", near);
        return key_error(child, error,
                         "unknown key 'sweep.%.200s'; known are: grid, zip, list, exclude, labels",
                         child->key);
    }
    return read_labels(p, error);
}

/* The values of one key of an axis, a choice each: what the choice sets, or else the common part has. */
typedef struct key_values {
    const char *key;
    size_t count;
    char **texts; /* canonical */
    fl_axis_value *values;
} key_values;

static void release_values(key_values *v) {
    for (size_t c = 0; c < v->count; c++) {
        if (v->texts != NULL) fl_memory_free(v->texts[c]);
        if (v->values != NULL) fl_axis_value_release(&v->values[c]);
    }
    fl_memory_free(v->texts);
    fl_memory_free(v->values);
}

static const fl_node *value_of(const plan *p, const choice *c, const char *key) {
    for (size_t s = 0; s < c->count; s++) {
        if (strcmp(c->settings[s].path, key) == 0) return c->settings[s].value;
    }
    return fl_node_find(fl_document_root(p->base), key);
}

static fl_status collect_values(const plan *p, const axis *a, key_values *v, bool *varies, fl_error *error) {
    v->count = a->count;
    *varies = false;
    FL_TRY(FL_ALLOCATE(&v->texts, a->count, error));
    FL_TRY(FL_ALLOCATE(&v->values, a->count, error));
    for (size_t c = 0; c < a->count; c++) {
        const fl_node *node = value_of(p, &a->choices[c], v->key);
        FL_TRY(fl_node_text(node, &v->texts[c], error));
        FL_TRY(fl_axis_value_read(v->key, node, &v->values[c], error));
        *varies = *varies || strcmp(v->texts[c], v->texts[0]) != 0;
    }
    return FL_OK;
}

/* What the choices of an axis record of one of its keys (cell_label.h). */
static fl_status describe_key(plan *p, size_t index, const char *key, fl_error *error) {
    axis *a = &p->axes[index];
    key_values v = {.key = key};
    bool varies = false;
    fl_status status = collect_values(p, a, &v, &varies, error);
    for (size_t c = 0; c < a->count && status == FL_OK; c++) {
        const char *label = a->choices[c].label;
        char *name = NULL;
        if (!varies && label == NULL) continue;
        status = fl_axis_name(key, v.values, v.count, c, &name, error);
        if (status == FL_OK)
            status = fl_cell_axes_add(&a->choices[c].axes, index, key, v.texts[c], name,
                                      label != NULL ? label : "", error);
        fl_memory_free(name);
    }
    release_values(&v);
    return status;
}

static fl_status describe_axes(plan *p, fl_error *error) {
    for (size_t i = 0; i < p->axis_count; i++) {
        for (size_t k = 0; k < p->key_count; k++) {
            const axis_key *key = &p->keys[k];
            if (key->axis == i && !is_overridden(p, key->path)) FL_TRY(describe_key(p, i, key->path, error));
        }
    }
    return FL_OK;
}

static size_t count_nodes(const fl_node *node) {
    size_t count = 1;
    for (size_t i = 0; i < node->count; i++) count += count_nodes(node->children[i]);
    return count;
}

static size_t largest_choice(const axis *a) {
    size_t largest = 0;
    for (size_t c = 0; c < a->count; c++) {
        size_t nodes = 0;
        for (size_t s = 0; s < a->choices[c].count; s++)
            nodes += count_nodes(a->choices[c].settings[s].value);
        if (nodes > largest) largest = nodes;
    }
    return largest;
}

static fl_status count_cells(const plan *p, const fl_node *sweep, size_t *cells, fl_error *error) {
    *cells = 1;
    size_t nodes = count_nodes(fl_document_root(p->base)) + p->key_count;
    for (size_t i = 0; i < p->axis_count; i++) {
        *cells *= p->axes[i].count;
        nodes += largest_choice(&p->axes[i]);
        if (*cells > FL_SWEEP_MAX_CELLS) {
            return too_many_cells(sweep, error);
        }
    }
    if (*cells > 1 && *cells > MAX_CELL_NODES / nodes) {
        return fl_node_error(sweep, error,
                             "the sweep is too large: %zu cells of %zu values (at most %d together)", *cells,
                             nodes, MAX_CELL_NODES);
    }
    return FL_OK;
}

static fl_status add_label(fl_text_builder *label, const setting *s, fl_error *error) {
    char *text = NULL;
    FL_TRY(fl_node_text(s->value, &text, error));
    fl_status status =
        fl_text_builder_format(label, error, "%s%s=%s", label->length > 0 ? " " : "", s->path, text);
    fl_memory_free(text);
    return status;
}

static bool is_about_sweep(const char *override) {
    return is_under(override, strcspn(override, "="), "sweep", 5);
}

static fl_status add_own_key(fl_cell *cell, const char *key, fl_error *error) {
    FL_TRY(FL_RESIZE(&cell->own_keys, cell->own_key_count, cell->own_key_count + 1, error));
    return fl_memory_copy_string(&cell->own_keys[cell->own_key_count++], key, error);
}

/* Cell number `index` in the mixed radix of the axes, the last one fastest. */
static fl_status build_cell(const plan *p, size_t index, fl_cell *cell, fl_error *error) {
    fl_text_builder label = {0};
    fl_status status = FL_OK;
    size_t block = 1;
    for (size_t i = 0; i < p->axis_count; i++) block *= p->axes[i].count;
    FL_TRY(fl_document_copy(p->base, &cell->document, error));
    FL_TRY_DONE(status, fl_text_builder_add(&label, "", error));
    for (size_t i = 0; i < p->axis_count; i++) {
        block /= p->axes[i].count;
        const choice *c = &p->axes[i].choices[index / block % p->axes[i].count];
        for (size_t s = 0; s < c->count; s++) {
            FL_TRY_DONE(status,
                        fl_document_set(cell->document, c->settings[s].path, c->settings[s].value, error));
            FL_TRY_DONE(status, add_label(&label, &c->settings[s], error));
            if (p->axes[i].written_out) FL_TRY_DONE(status, add_own_key(cell, c->settings[s].path, error));
        }
        for (size_t s = 0; s < c->axes.count; s++) {
            const fl_cell_setting *own = &c->axes.items[s];
            FL_TRY_DONE(status, fl_cell_axes_add(&cell->axes, own->axis, own->key, own->value, own->name,
                                                 own->label, error));
        }
    }
    for (size_t i = 0; i < p->override_count && p->axis_count > 0; i++) {
        if (is_about_sweep(p->overrides[i])) continue;
        FL_TRY_DONE(status, fl_document_override(cell->document, p->overrides[i], error));
    }
    cell->label = label.text;
    return FL_OK;
done:
    fl_text_builder_release(&label);
    return status;
}

static void release_cell(fl_cell *cell) {
    fl_document_destroy(cell->document);
    fl_memory_free(cell->label);
    for (size_t i = 0; i < cell->own_key_count; i++) fl_memory_free(cell->own_keys[i]);
    fl_memory_free(cell->own_keys);
    fl_cell_axes_release(&cell->axes);
    *cell = (fl_cell){0};
}

/* Equal by value; an absent key equals null. */
static fl_status holds(const fl_node *found, const fl_node *wanted, bool *equal, fl_error *error) {
    char *a = NULL, *b = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_node_text(found, &a, error));
    FL_TRY_DONE(status, fl_node_text(wanted, &b, error));
    *equal = strcmp(a, b) == 0;
done:
    fl_memory_free(a);
    fl_memory_free(b);
    return status;
}

static fl_status matches_rule(const fl_document *cell, const fl_node *rule, bool *match, fl_error *error) {
    *match = true;
    for (size_t k = 0; k < rule->count && *match; k++) {
        const fl_node *wanted = rule->children[k];
        FL_TRY(holds(fl_node_find(fl_document_root(cell), wanted->key), wanted, match, error));
    }
    return FL_OK;
}

/* Without an override, which may have taken away what was to be excluded, an entry that drops nothing is a
 * mistake. */
static fl_status check_excluded(const plan *p, const bool *dropped, fl_error *error) {
    for (size_t i = 0; i < p->exclude->count && p->override_count == 0; i++) {
        if (!dropped[i])
            return fl_node_error(p->exclude->children[i], error, "sweep.exclude: no cell is like this entry");
    }
    return FL_OK;
}

static fl_status drop_excluded(const plan *p, fl_expansion *e, bool *dropped, fl_error *error) {
    size_t kept = 0;
    for (size_t c = 0; c < e->count; c++) {
        bool match = false;
        for (size_t i = 0; i < p->exclude->count; i++) {
            bool this_one = false;
            FL_TRY(matches_rule(e->cells[c].document, p->exclude->children[i], &this_one, error));
            dropped[i] = dropped[i] || this_one;
            match = match || this_one;
        }
        if (match) {
            release_cell(&e->cells[c]);
            continue;
        }
        fl_cell cell = e->cells[c];
        e->cells[c] = (fl_cell){0};
        e->cells[kept++] = cell;
    }
    e->excluded = e->count - kept;
    e->count = kept;
    if (kept == 0) return fl_node_error(p->exclude, error, "sweep.exclude drops every cell");
    return FL_OK;
}

static fl_status exclude_cells(const plan *p, fl_expansion *e, fl_error *error) {
    bool *dropped = NULL;
    FL_TRY(FL_ALLOCATE(&dropped, p->exclude->count, error));
    fl_status status = drop_excluded(p, e, dropped, error);
    if (status == FL_OK) status = check_excluded(p, dropped, error);
    fl_memory_free(dropped);
    return status;
}

/* A misspelt key in an exclusion would silently drop nothing. */
static fl_status check_exclude_keys(const plan *p, const fl_expansion *e, fl_error *error) {
    for (size_t i = 0; i < p->exclude->count; i++) {
        const fl_node *rule = p->exclude->children[i];
        for (size_t k = 0; k < rule->count; k++) {
            bool found = false;
            for (size_t c = 0; c < e->count && !found; c++) {
                found = fl_node_find(fl_document_root(e->cells[c].document), rule->children[k]->key) != NULL;
            }
            if (!found)
                return key_error(rule->children[k], error, "no cell has the key '%.200s'",
                                 rule->children[k]->key);
        }
    }
    return FL_OK;
}

static fl_status check_exclude_size(const plan *p, size_t cells, fl_error *error) {
    size_t keys = 0;
    for (size_t i = 0; i < p->exclude->count; i++) keys += p->exclude->children[i]->count;
    if (keys <= MAX_EXCLUDE_TESTS / cells) return FL_OK;
    return key_error(p->exclude, error, "%s", "sweep.exclude has too many entries for so many cells");
}

static fl_status build_cells(const plan *p, size_t cells, fl_expansion *e, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&e->cells, cells, error));
    e->count = cells;
    for (size_t i = 0; i < cells; i++) FL_TRY(build_cell(p, i, &e->cells[i], error));
    if (p->exclude != NULL && p->exclude->count > 0) {
        FL_TRY(check_exclude_size(p, cells, error));
        FL_TRY(check_exclude_keys(p, e, error));
        FL_TRY(exclude_cells(p, e, error));
    }
    return FL_OK;
}

static void release_plan(plan *p) {
    for (size_t i = 0; i < p->axis_count; i++) {
        for (size_t c = 0; c < p->axes[i].count; c++) {
            fl_memory_free(p->axes[i].choices[c].settings);
            fl_cell_axes_release(&p->axes[i].choices[c].axes);
        }
        fl_memory_free(p->axes[i].choices);
    }
    fl_memory_free(p->axes);
    fl_memory_free(p->keys);
    fl_document_destroy(p->base);
    fl_document_destroy(p->sweep);
}

fl_status fl_expansion_create(const fl_document *document, const char *const *overrides,
                              size_t override_count, fl_expansion **out, fl_error *error) {
    *out = NULL;
    plan p = {.overrides = overrides, .override_count = override_count};
    fl_expansion *e = NULL;
    size_t cells = 0;
    fl_status status = FL_OK;
    FL_TRY(check_widths(fl_document_root(document), error));
    FL_TRY_DONE(status, fl_document_copy(document, &p.sweep, error));
    for (size_t i = 0; i < override_count; i++)
        FL_TRY_DONE(status, fl_document_override(p.sweep, overrides[i], error));
    FL_TRY_DONE(status, fl_document_copy(p.sweep, &p.base, error));
    FL_TRY_DONE(status, fl_document_remove(p.base, "sweep", error));
    const fl_node *sweep = fl_node_get(fl_document_root(p.sweep), "sweep");
    FL_TRY_DONE(status, read_axes(&p, sweep, error));
    FL_TRY_DONE(status, count_cells(&p, sweep, &cells, error));
    FL_TRY_DONE(status, describe_axes(&p, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&e, 1, error));
    FL_TRY_DONE(status, build_cells(&p, cells, e, error));
    *out = e;
    e = NULL;
done:
    fl_expansion_destroy(e);
    release_plan(&p);
    return status;
}

void fl_expansion_destroy(fl_expansion *expansion) {
    if (expansion == NULL) return;
    for (size_t i = 0; i < expansion->count; i++) release_cell(&expansion->cells[i]);
    fl_memory_free(expansion->cells);
    fl_memory_free(expansion);
}
