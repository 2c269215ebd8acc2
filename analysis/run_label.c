#include "analysis/run_label.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/config/text_builder.h"

static bool is(const char *key, const char *other) {
    return strcmp(key, other) == 0;
}

static const char *value_of(const fl_run_entry *run, const char *key) {
    const char *value = fl_run_entry_value(run, key);
    return value != NULL ? value : "";
}

static bool varies(const fl_run_set *set, const char *key) {
    for (size_t i = 0; i < set->axis_count; i++) {
        if (is(set->axes[i], key)) return true;
    }
    return false;
}

/* Numbers are padded so that their order as text is their order as numbers. */
static fl_status add_sortable(fl_text_builder *text, const char *value, fl_error *error) {
    char *end = NULL;
    double number = strtod(value, &end);
    if (value[0] != '\0' && *end == '\0' && isfinite(number) && fabs(number) < 1e15)
        return fl_text_builder_format(text, error, "|%d%030.9f", number >= 0,
                                      number >= 0 ? number : 1e16 + number);
    return fl_text_builder_format(text, error, "|~%s", value);
}

static fl_status make_order(const fl_run_set *set, const fl_run_entry *run, char **out, fl_error *error) {
    fl_text_builder text = {0};
    const char *rule = value_of(run, "variant.rule");
    int rank = is(rule, "softmax") ? 0 : is(rule, "none") ? 1 : 2;
    fl_status status = fl_text_builder_format(&text, error, "%d|%s", rank, rule);
    if (status == FL_OK) status = add_sortable(&text, value_of(run, "variant.window"), error);
    if (status == FL_OK) status = add_sortable(&text, value_of(run, "variant.sinks"), error);
    for (size_t i = 0; i < set->axis_count && status == FL_OK; i++)
        status = add_sortable(&text, value_of(run, set->axes[i]), error);
    if (status == FL_OK) status = fl_text_builder_format(&text, error, "|%s|%s", run->run_id, run->path);
    if (status != FL_OK) {
        fl_text_builder_release(&text);
        return status;
    }
    *out = text.text;
    return FL_OK;
}

typedef struct ordered_run {
    char *order;
    fl_run_entry run;
} ordered_run;

static int compare(const void *a, const void *b) {
    return strcmp(((const ordered_run *)a)->order, ((const ordered_run *)b)->order);
}

static fl_status sort_runs(fl_run_set *set, fl_error *error) {
    ordered_run *ordered = NULL;
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&ordered, set->count, error));
    for (size_t i = 0; i < set->count; i++) {
        ordered[i].run = set->runs[i];
        FL_TRY_DONE(status, make_order(set, &set->runs[i], &ordered[i].order, error));
    }
    if (set->count > 0) qsort(ordered, set->count, sizeof ordered[0], compare);
    for (size_t i = 0; i < set->count; i++) set->runs[i] = ordered[i].run;
done:
    for (size_t i = 0; i < set->count; i++) fl_memory_free(ordered[i].order);
    fl_memory_free(ordered);
    return status;
}

/* Whether the sweep's cell has an axis called by the first `bytes` of `key`. */
static bool has_axis(const char *cell, const char *key, size_t bytes) {
    for (const char *at = cell; *at != '\0'; at++) {
        bool starts = at == cell || at[-1] == ' ';
        if (starts && strncmp(at, key, bytes) == 0 && at[bytes] == '=') return true;
    }
    return false;
}

/* Whether the sweep walked along `key` or a mapping that holds it. */
static bool is_axis(const fl_run_entry *run, const char *key) {
    for (size_t bytes = strlen(key); bytes > 0; bytes--) {
        if ((key[bytes] == '\0' || key[bytes] == '.') && has_axis(run->cell, key, bytes)) return true;
    }
    return false;
}

static bool belongs_to_rule(const char *key) {
    static const char *const keys[] = {"variant.rule", "variant.window", "variant.sinks",
                                       "variant.mechanism"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (is(key, keys[i])) return true;
    }
    return false;
}

/* Only axes of sweeps are named, unless no run has one. */
static bool is_named(const fl_run_set *set, const char *key) {
    bool any_sweep = false;
    if (belongs_to_rule(key)) return false;
    for (size_t i = 0; i < set->count; i++) {
        if (is_axis(&set->runs[i], key)) return true;
        any_sweep = any_sweep || set->runs[i].cell[0] != '\0';
    }
    return !any_sweep;
}

static fl_status add_exact_set(const fl_run_set *set, const fl_run_entry *run, fl_text_builder *text,
                               fl_error *error) {
    const char *window = value_of(run, "variant.window"), *sinks = value_of(run, "variant.sinks");
    if (!varies(set, "variant.window") && !varies(set, "variant.sinks")) return FL_OK;
    if (is(value_of(run, "variant.rule"), "softmax")) return FL_OK;
    if (is(window, "0") && is(sinks, "0")) return fl_text_builder_add(text, ", pure", error);
    return fl_text_builder_format(text, error, ", %s + %s", sinks, window);
}

/* Mappings that read better as a few words: "conv 4", "cache 32 recency". The first key is always said, the
 * others where runs differ in them. */
typedef struct {
    const char *prefix, *name, *keys[3];
} short_mapping;

static const short_mapping short_mappings[] = {
    {"variant.short_conv.", "conv", {"variant.short_conv.kernel", "variant.short_conv.init", NULL}},
    {"variant.cache.", "cache", {"variant.cache.budget", "variant.cache.route", NULL}},
};

enum { SHORT_MAPPINGS = sizeof short_mappings / sizeof short_mappings[0] };

static bool is_in_short_mapping(const char *key) {
    for (size_t i = 0; i < SHORT_MAPPINGS; i++) {
        if (strncmp(key, short_mappings[i].prefix, strlen(short_mappings[i].prefix)) == 0) return true;
    }
    return false;
}

/* Whether two runs that have the key have different values of it. */
static bool differs(const fl_run_set *set, const char *key) {
    const char *first = NULL;
    for (size_t i = 0; i < set->count; i++) {
        const char *value = fl_run_entry_value(&set->runs[i], key);
        if (value == NULL) continue;
        if (first != NULL && !is(first, value)) return true;
        first = value;
    }
    return false;
}

static fl_status add_short_mapping(const fl_run_set *set, const fl_run_entry *run,
                                   const short_mapping *mapping, fl_text_builder *text, fl_error *error) {
    const char *const *key = mapping->keys, *first = fl_run_entry_value(run, key[0]);
    bool named = false;
    for (size_t i = 0; key[i] != NULL; i++) named = named || (varies(set, key[i]) && is_named(set, key[i]));
    if (!named || first == NULL || is(first, "0")) return FL_OK;
    FL_TRY(fl_text_builder_format(text, error, ", %s %s", mapping->name, first));
    while (*++key != NULL) {
        const char *value = fl_run_entry_value(run, *key);
        if (value != NULL && differs(set, *key)) FL_TRY(fl_text_builder_format(text, error, " %s", value));
    }
    return FL_OK;
}

static fl_status make_label(const fl_run_set *set, fl_run_entry *run, fl_error *error) {
    fl_text_builder text = {0};
    const char *rule = value_of(run, "variant.rule");
    fl_status status = fl_text_builder_add(&text, rule[0] != '\0' ? rule : run->run_id, error);
    if (status == FL_OK) status = add_exact_set(set, run, &text, error);
    for (size_t i = 0; i < SHORT_MAPPINGS && status == FL_OK; i++)
        status = add_short_mapping(set, run, &short_mappings[i], &text, error);
    for (size_t i = 0; i < set->axis_count && status == FL_OK; i++) {
        const char *key = set->axes[i], *value = fl_run_entry_value(run, key);
        if (value == NULL || is(value, "[]") || is(value, "null") || !is_named(set, key)) continue;
        if (is_in_short_mapping(key)) continue;
        status = fl_text_builder_format(&text, error, ", %s=%s", fl_run_set_short_key(key), value);
    }
    if (status != FL_OK) {
        fl_text_builder_release(&text);
        return status;
    }
    run->label = text.text;
    return FL_OK;
}

static fl_status add_run_id(fl_run_entry *run, fl_error *error) {
    fl_text_builder text = {0};
    fl_status status = fl_text_builder_format(&text, error, "%s, %s", run->label, run->run_id);
    if (status != FL_OK) {
        fl_text_builder_release(&text);
        return status;
    }
    fl_memory_free(run->label);
    run->label = text.text;
    return FL_OK;
}

fl_status fl_run_label_all(fl_run_set *set, fl_error *error) {
    bool *shared = NULL;
    FL_TRY(sort_runs(set, error));
    for (size_t i = 0; i < set->count; i++) FL_TRY(make_label(set, &set->runs[i], error));
    FL_TRY(FL_ALLOCATE(&shared, set->count, error));
    for (size_t i = 0; i < set->count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (is(set->runs[i].label, set->runs[j].label)) shared[i] = shared[j] = true;
        }
    }
    fl_status status = FL_OK;
    for (size_t i = 0; i < set->count && status == FL_OK; i++) {
        if (shared[i]) status = add_run_id(&set->runs[i], error);
    }
    fl_memory_free(shared);
    return status;
}
