#include "analysis/run_compare.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "analysis/item_pairs.h"
#include "harness/base/memory.h"

void fl_run_comparison_destroy(fl_run_comparison *c) {
    if (c == NULL) return;
    fl_memory_free(c->pairs);
    fl_memory_free(c->keys);
    fl_memory_free(c->figures);
    fl_memory_free(c->alone);
    fl_memory_free(c);
}

static bool same_text(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* The name says nothing of what was measured. */
static bool is_compared(const char *key) {
    return strcmp(key, "name") != 0;
}

/* The value that all runs of a set have; false when they differ. NULL: none has the key. */
static bool value_throughout(const fl_run_set *set, const char *key, const char **value) {
    *value = set->count > 0 ? fl_run_entry_value(&set->runs[0], key) : NULL;
    for (size_t r = 1; r < set->count; r++) {
        if (!same_text(fl_run_entry_value(&set->runs[r], key), *value)) return false;
    }
    return true;
}

static bool is_listed(const fl_run_comparison *c, const char *key) {
    for (size_t i = 0; i < c->key_count; i++) {
        if (strcmp(c->keys[i].key, key) == 0) return true;
    }
    return false;
}

static fl_status add_keys(fl_run_comparison *c, const fl_run_set *set, fl_error *error) {
    for (size_t r = 0; r < set->count; r++) {
        for (size_t i = 0; i < set->runs[r].key_count; i++) {
            fl_key_difference key = {.key = set->runs[r].keys[i]};
            if (!is_compared(key.key) || is_listed(c, key.key)) continue;
            if (!value_throughout(c->first, key.key, &key.first) ||
                !value_throughout(c->second, key.key, &key.second) || same_text(key.first, key.second))
                continue;
            FL_TRY(FL_RESIZE(&c->keys, c->key_count, c->key_count + 1, error));
            c->keys[c->key_count++] = key;
        }
    }
    return FL_OK;
}

/* Every key of `a` that is compared and not listed as differing throughout has the same value in `b`. */
static bool covers(const fl_run_comparison *c, const fl_run_entry *a, const fl_run_entry *b) {
    for (size_t i = 0; i < a->key_count; i++) {
        if (!is_compared(a->keys[i]) || is_listed(c, a->keys[i])) continue;
        if (!same_text(a->values[i], fl_run_entry_value(b, a->keys[i]))) return false;
    }
    return true;
}

static bool same_cell(const fl_run_comparison *c, const fl_run_entry *a, const fl_run_entry *b, bool by_id) {
    if (by_id) return strcmp(a->run_id, b->run_id) == 0;
    return covers(c, a, b) && covers(c, b, a);
}

static fl_status add_pair(fl_run_comparison *c, const fl_run_entry *first, const fl_run_entry *second,
                          fl_error *error) {
    FL_TRY(FL_RESIZE(&c->pairs, c->pair_count, c->pair_count + 1, error));
    c->pairs[c->pair_count++] = (fl_run_pair){first, second};
    return FL_OK;
}

static bool is_paired(const fl_run_comparison *c, const fl_run_entry *run) {
    for (size_t i = 0; i < c->pair_count; i++) {
        if (c->pairs[i].first == run || c->pairs[i].second == run) return true;
    }
    return false;
}

/* One run against each of the others, itself left out. */
static fl_status pair_with_all(fl_run_comparison *c, fl_error *error) {
    for (size_t a = 0; a < c->first->count; a++) {
        for (size_t b = 0; b < c->second->count; b++) {
            const fl_run_entry *first = &c->first->runs[a], *second = &c->second->runs[b];
            const bool itself = c->first->count + c->second->count > 2 && same_cell(c, first, second, true);
            if (!itself) FL_TRY(add_pair(c, first, second, error));
        }
    }
    return FL_OK;
}

static fl_status pair_cells(fl_run_comparison *c, bool by_id, fl_error *error) {
    for (size_t a = 0; a < c->first->count; a++) {
        const fl_run_entry *first = &c->first->runs[a];
        for (size_t b = 0; b < c->second->count && !is_paired(c, first); b++) {
            const fl_run_entry *second = &c->second->runs[b];
            if (!is_paired(c, second) && same_cell(c, first, second, by_id))
                FL_TRY(add_pair(c, first, second, error));
        }
    }
    return FL_OK;
}

static fl_status add_alone(fl_run_comparison *c, const fl_run_set *set, fl_error *error) {
    for (size_t r = 0; r < set->count; r++) {
        if (is_paired(c, &set->runs[r])) continue;
        FL_TRY(FL_RESIZE(&c->alone, c->alone_count, c->alone_count + 1, error));
        c->alone[c->alone_count++] = &set->runs[r];
    }
    return FL_OK;
}

static fl_status match(fl_run_comparison *c, fl_error *error) {
    FL_TRY(add_keys(c, c->first, error));
    FL_TRY(add_keys(c, c->second, error));
    if (c->first->count == 1 || c->second->count == 1) return pair_with_all(c, error);
    FL_TRY(pair_cells(c, true, error));
    FL_TRY(pair_cells(c, false, error));
    FL_TRY(add_alone(c, c->first, error));
    c->alone_first = c->alone_count;
    return add_alone(c, c->second, error);
}

static fl_status add_figure(fl_run_comparison *c, const fl_figure_difference *figure, fl_error *error) {
    FL_TRY(FL_RESIZE(&c->figures, c->figure_count, c->figure_count + 1, error));
    c->figures[c->figure_count++] = *figure;
    return FL_OK;
}

/* Second minus first. What neither has measured is left out. */
static fl_status compare_texts(fl_run_comparison *c, size_t pair, const fl_run_sums *first,
                               const fl_run_sums *second, fl_error *error) {
    fl_interval_metric metric;
    for (size_t m = 0; fl_interval_metric_at(m, &metric); m++) {
        fl_figure_difference row = {.pair = pair, .units = metric.units, .test = "bootstrap"};
        if (strncmp(metric.name, "full_", 5) == 0) continue;
        row.first = fl_run_metric_value(c->pairs[pair].first, metric.name);
        row.second = fl_run_metric_value(c->pairs[pair].second, metric.name);
        if (!fl_run_has_metric(c->pairs[pair].first, metric.name) &&
            !fl_run_has_metric(c->pairs[pair].second, metric.name))
            continue;
        snprintf(row.figure, sizeof row.figure, "%s", metric.heading);
        FL_TRY(fl_interval_between(second, first, metric.name, &row.difference, NULL, error));
        FL_TRY(add_figure(c, &row, error));
    }
    return FL_OK;
}

static bool has_task(const fl_run_entry *run, const char *task) {
    for (size_t t = 0; t < run->task_count; t++) {
        if (strcmp(run->tasks[t], task) == 0) return true;
    }
    return false;
}

/* A score of a task: what it is made of, and how it is compared. */
static const struct task_score {
    const char *metric, *column; /* column: of rightness; NULL: a perplexity */
    const char *weights;         /* of a perplexity; NULL: items weigh the same */
    const char *marker;          /* a column that tasks scored so have and others have not; NULL: none */
} scores[] = {
    {"acc", "correct", NULL, NULL},
    {"acc_norm", "correct_norm", NULL, NULL},
    {"word_perplexity", NULL, "words", "words"},
    {"perplexity", NULL, "choice_tokens", "square_sum"},
    {"perplexity", NULL, NULL, "correct"},
};

enum { SCORES = sizeof scores / sizeof scores[0] };

static bool is_scored_so(fl_run_reader *reader, const char *task, const struct task_score *score) {
    char path[2 * FL_FIGURE_BYTES];
    snprintf(path, sizeof path, "/tasks/%.256s/items/%s", task, score->marker != NULL ? score->marker : "");
    return score->marker == NULL || fl_run_reader_has(reader, path);
}

static fl_status compare_score(fl_run_comparison *c, size_t pair, const char *task,
                               const struct task_score *score, fl_run_reader *first, fl_run_reader *second,
                               fl_error *error) {
    fl_figure_difference row = {.pair = pair, .units = "1"};
    char name[2 * FL_FIGURE_BYTES];
    snprintf(name, sizeof name, "tasks/%.256s/%s", task, score->metric);
    row.first = fl_run_metric_value(c->pairs[pair].first, name);
    row.second = fl_run_metric_value(c->pairs[pair].second, name);
    if (isnan(row.first) && isnan(row.second)) return FL_OK;
    snprintf(row.figure, sizeof row.figure, "%.150s, %s", task, score->metric);
    row.test = score->column != NULL ? "McNemar" : "bootstrap";
    if (score->column != NULL)
        FL_TRY(fl_item_pairs_accuracy(first, second, task, score->column, &row.difference, error));
    else
        FL_TRY(fl_item_pairs_perplexity(first, second, task, score->weights, &row.difference, error));
    return add_figure(c, &row, error);
}

static fl_status compare_tasks(fl_run_comparison *c, size_t pair, fl_run_reader *first, fl_run_reader *second,
                               fl_error *error) {
    const fl_run_pair *p = &c->pairs[pair];
    for (size_t t = 0; t < p->first->task_count; t++) {
        const char *task = p->first->tasks[t];
        for (size_t s = 0; s < SCORES && has_task(p->second, task); s++) {
            if (is_scored_so(first, task, &scores[s]))
                FL_TRY(compare_score(c, pair, task, &scores[s], first, second, error));
        }
    }
    return FL_OK;
}

static fl_status compare_pair(fl_run_comparison *c, size_t pair, fl_error *error) {
    const fl_run_pair *p = &c->pairs[pair];
    fl_run_sums *first_sums = NULL, *second_sums = NULL;
    fl_run_reader *first = NULL, *second = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_run_sums_read(p->first->path, &first_sums, error));
    FL_TRY_DONE(status, fl_run_sums_read(p->second->path, &second_sums, error));
    FL_TRY_DONE(status, compare_texts(c, pair, first_sums, second_sums, error));
    FL_TRY_DONE(status, fl_run_reader_open(p->first->path, &first, error));
    FL_TRY_DONE(status, fl_run_reader_open(p->second->path, &second, error));
    status = compare_tasks(c, pair, first, second, error);
done:
    fl_run_reader_close(first);
    fl_run_reader_close(second);
    fl_run_sums_destroy(first_sums);
    fl_run_sums_destroy(second_sums);
    return status;
}

fl_status fl_run_compare(const fl_run_set *first, const fl_run_set *second, fl_run_comparison **out,
                         fl_error *error) {
    fl_run_comparison *c = NULL;
    FL_TRY(FL_ALLOCATE(&c, 1, error));
    c->sides[0] = "A";
    c->sides[1] = "B";
    c->first = first;
    c->second = second;
    fl_status status = match(c, error);
    for (size_t i = 0; i < c->pair_count && status == FL_OK; i++) status = compare_pair(c, i, error);
    if (status == FL_OK)
        *out = c;
    else
        fl_run_comparison_destroy(c);
    return status;
}

/* The run file's own figure of the baseline: "linear_off/nmse", "full_perplexity". */
static double baseline_value(const fl_run_entry *run, fl_interval_side baseline, const char *metric) {
    char name[FL_FIGURE_BYTES];
    snprintf(name, sizeof name, "%s%s", baseline == FL_SIDE_FULL ? "full_" : "linear_off/", metric);
    return fl_run_metric_value(run, name);
}

static fl_status baseline_texts(fl_run_comparison *c, size_t pair, fl_interval_side baseline,
                                const fl_run_sums *sums, fl_error *error) {
    const fl_run_entry *run = c->pairs[pair].second;
    fl_interval_metric metric;
    for (size_t m = 0; fl_interval_metric_at(m, &metric); m++) {
        fl_figure_difference row = {.pair = pair, .units = metric.units, .test = "bootstrap"};
        row.first = baseline_value(run, baseline, metric.name);
        row.second = fl_run_metric_value(run, metric.name);
        FL_TRY(fl_interval_against(sums, baseline, metric.name, &row.difference, NULL, error));
        if (isnan(row.first) && isnan(row.difference.estimate)) continue;       /* it has no such baseline */
        if (isnan(row.first)) row.first = row.second - row.difference.estimate; /* kept as sums alone */
        snprintf(row.figure, sizeof row.figure, "%s", metric.heading);
        FL_TRY(add_figure(c, &row, error));
    }
    return FL_OK;
}

static double task_value(const fl_run_entry *run, const char *place, const char *task, const char *metric) {
    char name[2 * FL_FIGURE_BYTES];
    snprintf(name, sizeof name, "%s%.256s/%s", place, task, metric);
    return fl_run_metric_value(run, name);
}

static fl_status baseline_tasks(fl_run_comparison *c, size_t pair, fl_interval_side baseline,
                                fl_error *error) {
    const fl_run_entry *run = c->pairs[pair].second;
    const char *place = baseline == FL_SIDE_FULL ? "full/tasks/" : "linear_off/tasks/";
    for (size_t t = 0; t < run->task_count; t++) {
        const char *task = run->tasks[t];
        const double difference = task_value(run, place, task, "difference");
        fl_figure_difference row = {.pair = pair, .units = "1", .test = "McNemar"};
        if (isnan(difference)) continue;
        row.first = task_value(run, place, task, "acc");
        row.second = task_value(run, "tasks/", task, "acc");
        row.difference = fl_item_pairs_interval(difference, task_value(run, place, task, "difference_stderr"),
                                                task_value(run, place, task, "mcnemar_exact_p"),
                                                task_value(run, place, task, "n"));
        snprintf(row.figure, sizeof row.figure, "%.170s, acc", task);
        FL_TRY(add_figure(c, &row, error));
    }
    return FL_OK;
}

static fl_status compare_with_baseline(fl_run_comparison *c, fl_interval_side baseline, fl_error *error) {
    for (size_t r = 0; r < c->first->count; r++) {
        fl_run_sums *sums = NULL;
        FL_TRY(add_pair(c, &c->first->runs[r], &c->first->runs[r], error));
        FL_TRY(fl_run_sums_read(c->first->runs[r].path, &sums, error));
        fl_status status = baseline_texts(c, r, baseline, sums, error);
        fl_run_sums_destroy(sums);
        FL_TRY(status);
        FL_TRY(baseline_tasks(c, r, baseline, error));
    }
    return FL_OK;
}

fl_status fl_run_compare_baseline(const fl_run_set *set, fl_interval_side baseline, fl_run_comparison **out,
                                  fl_error *error) {
    fl_run_comparison *c = NULL;
    FL_TRY(FL_ALLOCATE(&c, 1, error));
    c->sides[0] = baseline == FL_SIDE_FULL ? "full model" : "linear off";
    c->sides[1] = "run";
    c->first = c->second = set;
    fl_status status = compare_with_baseline(c, baseline, error);
    if (status == FL_OK)
        *out = c;
    else
        fl_run_comparison_destroy(c);
    return status;
}
