#include "analysis/run_scores.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"

static bool any_has(const fl_run_set *set, const char *task, const char *metric) {
    char name[2 * FL_SCORE_BYTES];
    snprintf(name, sizeof name, "tasks/%s/%s", task, metric);
    for (size_t i = 0; i < set->count; i++) {
        if (fl_run_has_metric(&set->runs[i], name)) return true;
    }
    return false;
}

static const char *choose_metric(const fl_run_set *set, const char *task) {
    static const char *const by_length[] = {"arc_challenge", "hellaswag", "openbookqa", "mmlu_cloze"};
    static const char *const metrics[] = {"acc", "perplexity", "word_perplexity"};
    for (size_t i = 0; i < sizeof by_length / sizeof by_length[0]; i++) {
        bool is_it = strncmp(task, by_length[i], strlen(by_length[i])) == 0;
        if (is_it && any_has(set, task, "acc_norm")) return "acc_norm";
    }
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        if (any_has(set, task, metrics[i])) return metrics[i];
    }
    return NULL;
}

static void fill_task(const fl_run_set *set, const char *task, const char *metric, fl_run_score *out) {
    out->higher_is_better = strncmp(metric, "acc", 3) == 0;
    out->log = !out->higher_is_better;
    snprintf(out->task, sizeof out->task, "%s", task);
    snprintf(out->title, sizeof out->title, "%.200s, %s", task, metric);
    snprintf(out->axis, sizeof out->axis, "%s", metric);
    snprintf(out->value, sizeof out->value, "tasks/%.200s/%s", task, metric);
    snprintf(out->error, sizeof out->error, "tasks/%.200s/%s_stderr", task, metric);
    snprintf(out->full, sizeof out->full, "full/tasks/%.200s/%s", task, metric);
    snprintf(out->linear_off, sizeof out->linear_off, "linear_off/tasks/%.200s/%s", task, metric);
    if (out->higher_is_better && any_has(set, task, "chance"))
        snprintf(out->chance, sizeof out->chance, "tasks/%.200s/chance", task);
}

static bool is_listed(const fl_run_score *scores, size_t count, const char *task) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(scores[i].task, task) == 0) return true;
    }
    return false;
}

fl_status fl_run_scores_list(const fl_run_set *set, fl_run_score **scores, size_t *count, fl_error *error) {
    size_t most = 1;
    *scores = NULL;
    *count = 0;
    for (size_t i = 0; i < set->count; i++) most += set->runs[i].task_count;
    FL_TRY(FL_ALLOCATE(scores, most, error));
    for (size_t i = 0; i < set->count && *count == 0; i++) {
        if (!fl_run_has_metric(&set->runs[i], "perplexity")) continue;
        (*scores)[(*count)++] = (fl_run_score){.title = "perplexity of the evaluation text",
                                               .axis = "perplexity",
                                               .value = "perplexity",
                                               .full = "full_perplexity",
                                               .linear_off = "linear_off/perplexity",
                                               .log = true};
    }
    for (size_t i = 0; i < set->count; i++) {
        for (size_t t = 0; t < set->runs[i].task_count; t++) {
            const char *task = set->runs[i].tasks[t], *metric = choose_metric(set, task);
            if (metric != NULL && !is_listed(*scores, *count, task))
                fill_task(set, task, metric, &(*scores)[(*count)++]);
        }
    }
    return FL_OK;
}

double fl_run_scores_shared(const fl_run_set *set, const char *metric) {
    double shared = (double)NAN;
    for (size_t i = 0; i < set->count; i++) {
        double value = fl_run_metric_value(&set->runs[i], metric);
        if (isnan(value)) continue;
        if (isnan(shared)) shared = value;
        if (!(fabs(value - shared) <= 1e-9 * fabs(shared))) return (double)NAN;
    }
    return isfinite(shared) ? shared : (double)NAN;
}
