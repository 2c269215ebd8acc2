#include "analysis/run_groups.h"

#include <math.h>
#include <string.h>

#include "analysis/run_label.h"
#include "harness/base/memory.h"

static bool is_ignored(const char *key) {
    return strcmp(key, "variant.seed") == 0 || strcmp(key, "train.seed") == 0 || strcmp(key, "name") == 0;
}

static size_t next_key(const fl_run_entry *run, size_t at) {
    while (at < run->key_count && is_ignored(run->keys[at])) at++;
    return at;
}

/* Keys are sorted: one walk over both. Runs without a configuration are alike in nothing. */
static bool same_but_seeds(const fl_run_entry *a, const fl_run_entry *b) {
    size_t i = next_key(a, 0), j = next_key(b, 0);
    if (a->key_count == 0 || b->key_count == 0) return false;
    for (; i < a->key_count && j < b->key_count; i = next_key(a, i + 1), j = next_key(b, j + 1)) {
        if (strcmp(a->keys[i], b->keys[j]) != 0 || strcmp(a->values[i], b->values[j]) != 0) return false;
    }
    return i == a->key_count && j == b->key_count;
}

static fl_status add_to_group(fl_run_group *group, const fl_run_set *set, size_t run, fl_error *error) {
    FL_TRY(FL_RESIZE(&group->runs, group->count, group->count + 1, error));
    group->runs[group->count++] = run;
    group->older = group->older || set->runs[run].older;
    group->diverged = group->diverged || set->runs[run].diverged;
    return FL_OK;
}

static fl_status place_run(fl_run_groups *groups, size_t run, bool each, fl_error *error) {
    const fl_run_set *set = groups->set;
    size_t at = each ? groups->count : 0;
    while (at < groups->count && !same_but_seeds(&set->runs[groups->items[at].runs[0]], &set->runs[run]))
        at++;
    if (at == groups->count) {
        FL_TRY(FL_RESIZE(&groups->items, groups->count, groups->count + 1, error));
        groups->items[groups->count++] = (fl_run_group){0};
    }
    return add_to_group(&groups->items[at], set, run, error);
}

static fl_status name_groups(fl_run_groups *groups, bool each, fl_error *error) {
    size_t *first = NULL;
    char **labels = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&first, groups->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&labels, groups->count, error));
    for (size_t i = 0; i < groups->count; i++) first[i] = groups->items[i].runs[0];
    bool seedless = !each && fl_run_groups_any_seeds(groups);
    FL_TRY_DONE(status, fl_run_label_some(groups->set, first, groups->count, seedless, labels, error));
    for (size_t i = 0; i < groups->count; i++) groups->items[i].label = labels[i];
done:
    fl_memory_free(labels);
    fl_memory_free(first);
    return status;
}

fl_status fl_run_groups_make(const fl_run_set *set, bool each, fl_run_groups **out, fl_error *error) {
    fl_run_groups *groups = NULL;
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&groups, 1, error));
    groups->set = set;
    for (size_t i = 0; i < set->count; i++) FL_TRY_DONE(status, place_run(groups, i, each, error));
    FL_TRY_DONE(status, name_groups(groups, each, error));
    *out = groups;
    return FL_OK;
done:
    fl_run_groups_destroy(groups);
    return status;
}

void fl_run_groups_destroy(fl_run_groups *groups) {
    if (groups == NULL) return;
    for (size_t i = 0; i < groups->count; i++) {
        fl_memory_free(groups->items[i].label);
        fl_memory_free(groups->items[i].runs);
    }
    fl_memory_free(groups->items);
    fl_memory_free(groups);
}

const fl_run_entry *fl_run_group_first(const fl_run_groups *groups, size_t index) {
    return &groups->set->runs[groups->items[index].runs[0]];
}

bool fl_run_groups_any_seeds(const fl_run_groups *groups) {
    for (size_t i = 0; i < groups->count; i++) {
        if (groups->items[i].count > 1) return true;
    }
    return false;
}

/* What no seed touches (the full model's figures) differs by rounding at most: that is no spread. */
static double without_rounding(double sd, double mean) {
    return sd <= 1e-9 * fabs(mean) ? 0.0 : sd;
}

fl_run_spread fl_run_spread_of(const double *values, size_t count) {
    fl_run_spread spread = {.n = count, .mean = (double)NAN, .sd = (double)NAN};
    double sum = 0, squares = 0;
    if (count == 0) return spread;
    for (size_t i = 0; i < count; i++) sum += values[i];
    spread.mean = sum / (double)count;
    for (size_t i = 0; i < count; i++) squares += (values[i] - spread.mean) * (values[i] - spread.mean);
    if (count > 1) spread.sd = without_rounding(sqrt(squares / (double)(count - 1)), spread.mean);
    return spread;
}

/* As fl_run_spread_of, without an array of the values. */
fl_run_spread fl_run_group_metric(const fl_run_groups *groups, size_t index, const char *metric) {
    const fl_run_group *group = &groups->items[index];
    fl_run_spread spread = {.mean = (double)NAN, .sd = (double)NAN};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < group->count; i++) {
        const fl_run_entry *run = &groups->set->runs[group->runs[i]];
        if (!fl_run_has_metric(run, metric)) continue;
        spread.n++;
        sum += fl_run_metric_value(run, metric);
    }
    if (spread.n == 0) return spread;
    spread.mean = sum / (double)spread.n;
    for (size_t i = 0; i < group->count && spread.n > 1; i++) {
        const fl_run_entry *run = &groups->set->runs[group->runs[i]];
        if (!fl_run_has_metric(run, metric)) continue;
        double distance = fl_run_metric_value(run, metric) - spread.mean;
        squares += distance * distance;
    }
    if (spread.n > 1) spread.sd = without_rounding(sqrt(squares / (double)(spread.n - 1)), spread.mean);
    return spread;
}
