#include "analysis/run_axes.h"

#include <string.h>

#include "harness/base/memory.h"
#include "harness/config/axis_name.h"
#include "harness/config/cell_label.h"

/* Axis numbers of settings that a run's own sweep did not have. */
enum { FOREIGN_AXIS = 1000000 };

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

static bool same_text(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : is(a, b);
}

/* The keys of the set's sweeps, borrowed from runs or constant. */
typedef struct key_list {
    size_t count;
    const char **keys;
} key_list;

static bool is_listed(const key_list *list, const char *key) {
    for (size_t i = 0; i < list->count; i++) {
        if (is(list->keys[i], key)) return true;
    }
    return false;
}

/* Whether an axis covers the key, or lies in it. A seed is an axis of its own beside a mapping that was
 * swept. */
static bool is_covered(const key_list *list, const char *key) {
    for (size_t i = 0; i < list->count; i++) {
        if (fl_axis_is_under(list->keys[i], key)) return true;
        if (fl_axis_is_under(key, list->keys[i]) && !is(key, "train.seed")) return true;
    }
    return false;
}

static fl_status add_key(key_list *list, const char *key, fl_error *error) {
    if (is_listed(list, key)) return FL_OK;
    FL_TRY(FL_RESIZE(&list->keys, list->count, list->count + 1, error));
    list->keys[list->count++] = key;
    return FL_OK;
}

/* Two runs have different values, or two of one rule differ in having it. */
static bool differs(const fl_run_set *set, const char *key, const fl_run_entry *owner) {
    const char *value = fl_run_entry_value(owner, key), *rule = fl_run_entry_value(owner, "variant.rule");
    if (is(key, "name")) return false;
    for (size_t i = 0; i < set->count; i++) {
        const char *other = fl_run_entry_value(&set->runs[i], key);
        if (other != NULL && !is(other, value)) return true;
        if (other == NULL && same_text(rule, fl_run_entry_value(&set->runs[i], "variant.rule"))) return true;
    }
    return false;
}

/* The mapping that is named as a whole when a key of it differs; the key itself where there is none. */
static const char *mapping_of(const char *key) {
    static const char *const mappings[] = {"train",        "variant.short_conv", "variant.cache",
                                           "variant.gate", "variant.beta",       "variant.softmax_layers"};
    for (size_t i = 0; i < sizeof mappings / sizeof mappings[0]; i++) {
        if (fl_axis_is_under(key, mappings[i]) && !is(key, "train.seed")) return mappings[i];
    }
    return key;
}

static fl_status list_declared(const fl_run_set *set, key_list *list, fl_error *error) {
    for (size_t r = 0; r < set->count; r++) {
        for (size_t i = 0; i < set->runs[r].axes.count; i++)
            FL_TRY(add_key(list, set->runs[r].axes.items[i].key, error));
    }
    return FL_OK;
}

static fl_status list_differing(const fl_run_set *set, key_list *list, fl_error *error) {
    for (size_t r = 0; r < set->count; r++) {
        for (size_t i = 0; i < set->runs[r].key_count; i++) {
            const char *key = set->runs[r].keys[i];
            if (!is_listed(list, mapping_of(key)) && differs(set, key, &set->runs[r]))
                FL_TRY(add_key(list, mapping_of(key), error));
        }
    }
    return FL_OK;
}

/* What must be said of sweeps put side by side, also when none of them walked along it. */
static fl_status list_essential(const fl_run_set *set, key_list *list, fl_error *error) {
    static const char *const keys[] = {"variant.rule", "model.path", "text.path", "text.ids"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        bool differ = false;
        for (size_t r = 1; r < set->count; r++) {
            differ = differ || !same_text(fl_run_entry_value(&set->runs[0], keys[k]),
                                          fl_run_entry_value(&set->runs[r], keys[k]));
        }
        if (differ && !is_covered(list, keys[k])) FL_TRY(add_key(list, keys[k], error));
    }
    return FL_OK;
}

/* The run's configuration under a key. */
static fl_status value_from_config(const fl_run_entry *run, const char *key, fl_axis_value *out,
                                   fl_error *error) {
    for (size_t i = 0; i < run->key_count; i++) {
        bool seed = is(run->keys[i], "train.seed") && !is(key, "train.seed");
        if (!fl_axis_is_under(run->keys[i], key) || seed || is(run->values[i], "null")) continue;
        FL_TRY(fl_axis_value_add(out, run->keys[i], run->values[i], error));
    }
    return FL_OK;
}

static fl_status collect(const fl_run_set *set, const char *key, fl_axis_value *values, fl_error *error) {
    for (size_t r = 0; r < set->count; r++) FL_TRY(value_from_config(&set->runs[r], key, &values[r], error));
    return FL_OK;
}

static fl_status add_missing(const char *key, size_t axis, const fl_axis_value *values, size_t count,
                             size_t index, fl_cell_axes *out, fl_error *error) {
    const fl_axis_value *value = &values[index];
    char *name = NULL;
    FL_TRY(fl_axis_name(key, values, count, index, &name, error));
    bool plain = value->count == 1 && is(value->leaves[0].key, key);
    const char *text = plain ? value->leaves[0].text : name[0] != '\0' ? name : "null";
    fl_status status = fl_cell_axes_add(out, axis, key, text, name, "", error);
    fl_memory_free(name);
    return status;
}

/* One key of every run, into made[runs]. */
static fl_status complete_key(const fl_run_set *set, const char *key, size_t axis, fl_cell_axes *made,
                              fl_error *error) {
    fl_axis_value *values = NULL;
    FL_TRY(FL_ALLOCATE(&values, set->count, error));
    fl_status status = collect(set, key, values, error);
    for (size_t r = 0; r < set->count && status == FL_OK; r++) {
        const fl_cell_setting *own = fl_cell_axes_find(&set->runs[r].axes, key);
        if (own == NULL) {
            status = add_missing(key, axis, values, set->count, r, &made[r], error);
        } else {
            status = fl_cell_axes_add(&made[r], own->axis, key, own->value, own->name, own->label, error);
        }
    }
    for (size_t r = 0; r < set->count; r++) fl_axis_value_release(&values[r]);
    fl_memory_free(values);
    return status;
}

/* The list borrows keys of the axes that are replaced: it is pointed to the new ones. */
static fl_status complete(fl_run_set *set, key_list *list, fl_error *error) {
    fl_cell_axes *made = NULL;
    FL_TRY(FL_ALLOCATE(&made, set->count, error));
    fl_status status = FL_OK;
    for (size_t k = 0; k < list->count && status == FL_OK; k++)
        status = complete_key(set, list->keys[k], FOREIGN_AXIS + k, made, error);
    for (size_t k = 0; k < list->count && status == FL_OK; k++) list->keys[k] = made[0].items[k].key;
    for (size_t r = 0; r < set->count; r++) {
        fl_cell_axes old = made[r];
        if (status == FL_OK) {
            old = set->runs[r].axes;
            set->runs[r].axes = made[r];
        }
        fl_cell_axes_release(&old);
    }
    fl_memory_free(made);
    return status;
}

static bool same_settings(const fl_run_entry *a, const fl_run_entry *b) {
    for (size_t i = 0; i < a->axes.count; i++) {
        if (!is(a->axes.items[i].value, b->axes.items[i].value)) return false;
    }
    return true;
}

/* Runs that agree in all axes have different values of the key, or they are of experiments of different
 * names. */
static bool is_further_axis(const fl_run_set *set, const char *key, const fl_run_entry *owner) {
    const char *value = fl_run_entry_value(owner, key);
    if (!differs(set, key, owner)) return false;
    for (size_t r = 0; r < set->count; r++) {
        const fl_run_entry *run = &set->runs[r];
        if (!is(run->name, owner->name)) return true;
        if (same_settings(owner, run) && !same_text(value, fl_run_entry_value(run, key))) return true;
    }
    return false;
}

static fl_status list_further(const fl_run_set *set, key_list *list, fl_error *error) {
    for (size_t r = 0; r < set->count; r++) {
        for (size_t i = 0; i < set->runs[r].key_count; i++) {
            const char *key = set->runs[r].keys[i];
            if (!is_covered(list, key) && is_further_axis(set, key, &set->runs[r]))
                FL_TRY(add_key(list, key, error));
        }
    }
    return FL_OK;
}

fl_status fl_run_axes_find(fl_run_set *set, fl_error *error) {
    key_list list = {0};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, list_declared(set, &list, error));
    FL_TRY_DONE(status,
                list.count > 0 ? list_essential(set, &list, error) : list_differing(set, &list, error));
    if (set->count > 0) FL_TRY_DONE(status, complete(set, &list, error));
    FL_TRY_DONE(status, list_further(set, &list, error));
    set->axes = list.keys;
    set->axis_count = list.count;
    return FL_OK;
done:
    fl_memory_free(list.keys);
    return status;
}
