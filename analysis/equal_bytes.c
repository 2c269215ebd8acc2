#include "analysis/equal_bytes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"

/* Holdings that differ by rounding up to whole blocks are meant to be equal. */
static const double same_budget = 1.02;

static bool is_of_setting(const char *key) {
    return strncmp(key, "model.", 6) == 0 || strncmp(key, "text.", 5) == 0;
}

static bool agrees(const fl_run_entry *a, const fl_run_entry *b) {
    for (size_t i = 0; i < a->key_count; i++) {
        const char *other = is_of_setting(a->keys[i]) ? fl_run_entry_value(b, a->keys[i]) : a->values[i];
        if (other == NULL || strcmp(other, a->values[i]) != 0) return false;
    }
    return true;
}

bool fl_run_same_setting(const fl_run_entry *a, const fl_run_entry *b) {
    return agrees(a, b) && agrees(b, a);
}

double fl_run_bytes(const fl_run_entry *run) {
    return fl_run_metric_value(run, "state_bytes") + fl_run_metric_value(run, "exact_bytes");
}

static int by_bytes(const void *a, const void *b) {
    const fl_contender *x = a, *y = b;
    if (isnan(x->bytes) != isnan(y->bytes)) return isnan(x->bytes) ? 1 : -1;
    if (x->bytes != y->bytes && !isnan(x->bytes)) return x->bytes < y->bytes ? -1 : 1;
    return x->group < y->group ? -1 : x->group > y->group;
}

fl_status fl_contenders_find(const fl_run_groups *groups, size_t first, const fl_run_score *score,
                             fl_contender **out, size_t *count, fl_error *error) {
    *count = 0;
    FL_TRY(FL_ALLOCATE(out, groups->count, error));
    for (size_t i = 0; i < groups->count; i++) {
        const fl_run_entry *run = fl_run_group_first(groups, i);
        const char *rule = fl_run_entry_value(run, "variant.rule");
        bool is_frozen = rule == NULL || strcmp(rule, "softmax") == 0;
        fl_run_spread spread = fl_run_group_metric(groups, i, score->value);
        if (is_frozen || spread.n == 0) continue;
        if (!fl_run_same_setting(run, fl_run_group_first(groups, first))) continue;
        (*out)[(*count)++] = (fl_contender){.group = i, .score = spread.mean, .bytes = fl_run_bytes(run)};
    }
    if (*count > 0) qsort(*out, *count, sizeof(*out)[0], by_bytes);
    return FL_OK;
}

/* The best finite score that is not `other`. */
static size_t find_best(const fl_contender *contenders, size_t count, bool higher_is_better, double other) {
    size_t best = FL_NO_CONTENDER;
    for (size_t i = 0; i < count; i++) {
        double score = contenders[i].score, kept = best != FL_NO_CONTENDER ? contenders[best].score : score;
        if (!isfinite(score) || score == other) continue;
        if (best == FL_NO_CONTENDER || (higher_is_better ? score > kept : score < kept)) best = i;
    }
    return best;
}

void fl_contenders_best(const fl_contender *contenders, size_t count, bool higher_is_better, size_t *best,
                        size_t *next) {
    *best = find_best(contenders, count, higher_is_better, (double)NAN);
    *next = FL_NO_CONTENDER;
    if (*best != FL_NO_CONTENDER)
        *next = find_best(contenders, count, higher_is_better, contenders[*best].score);
}

fl_status fl_budgets_find(const fl_contender *contenders, size_t count, bool higher_is_better,
                          fl_budget **out, size_t *budget_count, fl_error *error) {
    size_t first = 0;
    *budget_count = 0;
    FL_TRY(FL_ALLOCATE(out, count, error));
    while (first < count && !isnan(contenders[first].bytes)) {
        size_t end = first;
        while (end < count && contenders[end].bytes <= same_budget * contenders[first].bytes) end++;
        fl_budget *budget = &(*out)[(*budget_count)++];
        *budget = (fl_budget){.bytes = contenders[end - 1].bytes, .runs = end - first};
        fl_contenders_best(contenders, end, higher_is_better, &budget->best, &budget->next);
        first = end;
    }
    return FL_OK;
}
