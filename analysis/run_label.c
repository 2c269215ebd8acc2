#include "analysis/run_label.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/config/cell_label.h"
#include "harness/config/text_builder.h"

static bool is(const char *key, const char *other) {
    return strcmp(key, other) == 0;
}

static const char *value_of(const fl_run_entry *run, const char *key) {
    const char *value = fl_run_entry_value(run, key);
    return value != NULL ? value : "";
}

/* A mapping that is off comes before every name. */
static const char *order_of(const fl_run_entry *run, const char *key) {
    const fl_cell_setting *setting = fl_cell_axes_find(&run->axes, key);
    return setting != NULL && setting->name[0] == '\0' ? "" : value_of(run, key);
}

/* Numbers are padded so that their order as text is their order as numbers. */
static fl_status add_sortable(fl_text_builder *text, const char *value, fl_error *error) {
    char *end = NULL;
    double number = strtod(value, &end);
    if (value[0] != '\0' && *end == '\0' && isfinite(number) && fabs(number) < 1e15)
        return fl_text_builder_format(text, error, "|%d%030.9f", number >= 0,
                                      number >= 0 ? number : 1e16 + number);
    if (value[0] == '\0') return fl_text_builder_add(text, "|!", error);
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
        status = add_sortable(&text, order_of(run, set->axes[i]), error);
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

/* The configuration as leaves that borrow the run's texts. */
static fl_status borrow_config(const fl_run_entry *run, fl_axis_value *out, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&out->leaves, run->key_count, error));
    out->count = run->key_count;
    for (size_t i = 0; i < run->key_count; i++) out->leaves[i] = (fl_axis_leaf){run->keys[i], run->values[i]};
    return FL_OK;
}

fl_status fl_run_label_some(const fl_run_set *set, const size_t *runs, size_t count, bool without_seeds,
                            char **labels, fl_error *error) {
    fl_cell_label_source *sources = NULL;
    fl_axis_value *configs = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&sources, count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&configs, count, error));
    for (size_t i = 0; i < count; i++) {
        const fl_run_entry *run = &set->runs[runs[i]];
        FL_TRY_DONE(status, borrow_config(run, &configs[i], error));
        sources[i] = (fl_cell_label_source){.axes = &run->axes,
                                            .rule = fl_run_entry_value(run, "variant.rule"),
                                            .experiment = run->name,
                                            .id = run->run_id,
                                            .config = &configs[i],
                                            .without_seeds = without_seeds};
    }
    status = fl_cell_label_make(sources, count, labels, error);
done:
    for (size_t i = 0; configs != NULL && i < count; i++) fl_memory_free(configs[i].leaves);
    fl_memory_free(configs);
    fl_memory_free(sources);
    return status;
}

fl_status fl_run_label_all(fl_run_set *set, fl_error *error) {
    size_t *runs = NULL;
    char **labels = NULL;
    fl_status status = FL_OK;
    FL_TRY(sort_runs(set, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&runs, set->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&labels, set->count, error));
    for (size_t i = 0; i < set->count; i++) runs[i] = i;
    FL_TRY_DONE(status, fl_run_label_some(set, runs, set->count, false, labels, error));
    for (size_t i = 0; i < set->count; i++) set->runs[i].label = labels[i];
done:
    fl_memory_free(labels);
    fl_memory_free(runs);
    return status;
}
