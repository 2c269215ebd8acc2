#include "analysis/item_pairs.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "analysis/distributions.h"
#include "harness/base/memory.h"
#include "harness/eval/metrics.h"
#include "harness/eval/task_columns.h"
#include "harness/store/sweep.h"

enum { PATH_BYTES = 512 };

/* One run's items. */
typedef struct item_column {
    size_t count;
    double *values;  /* [count]; NULL: the run has none of this name */
    double *weights; /* [count]; NULL: not asked for */
    char **hashes;   /* [count]; NULL: the run has none */
    bool *used;      /* [count] */
} item_column;

/* The items of two runs, and which belong together. */
typedef struct item_pairs {
    item_column first, second;
    size_t count;
    size_t *left, *right; /* [count] */
} item_pairs;

static void release(item_column *items) {
    fl_memory_free(items->values);
    fl_memory_free(items->weights);
    fl_sweep_list_release(items->hashes, items->hashes != NULL ? items->count : 0);
    fl_memory_free(items->used);
}

static void release_pairs(item_pairs *pairs) {
    release(&pairs->first);
    release(&pairs->second);
    fl_memory_free(pairs->left);
    fl_memory_free(pairs->right);
}

/* A column [n], or the first of [n][choices]; *values stays NULL when there is none of this name. *count: 0
 * or the rows expected. */
static fl_status read_column(fl_run_reader *reader, const char *task, const char *column, double **values,
                             size_t *count, fl_error *error) {
    char path[PATH_BYTES];
    const fl_task_column *known = fl_task_column_find(column);
    const bool by_choice = known != NULL && known->per_choice;
    size_t shape[2] = {*count, 0};
    snprintf(path, sizeof path, "/tasks/%s/items/%s", task, column);
    if (!fl_run_reader_has(reader, path)) return FL_OK;
    FL_TRY(fl_run_reader_array(reader, path, by_choice ? 2 : 1, shape, values, error));
    *count = shape[0];
    for (size_t i = 0; by_choice && i < *count; i++) (*values)[i] = (*values)[i * shape[1]];
    return FL_OK;
}

static fl_status read_items(fl_run_reader *reader, const char *task, const char *column, const char *weights,
                            item_column *out, fl_error *error) {
    char path[PATH_BYTES];
    FL_TRY(read_column(reader, task, column, &out->values, &out->count, error));
    if (out->values == NULL) return FL_OK;
    if (weights != NULL) FL_TRY(read_column(reader, task, weights, &out->weights, &out->count, error));
    FL_TRY(FL_ALLOCATE(&out->used, out->count, error));
    snprintf(path, sizeof path, "/tasks/%s/items/document_hash", task);
    if (!fl_run_reader_has(reader, path)) return FL_OK;
    return fl_run_reader_column(reader, path, out->count, &out->hashes, error);
}

/* The first unused item of this hash, looked for from `start` on and round; count: none. */
static size_t find_item(const item_column *items, const char *hash, size_t start) {
    for (size_t i = 0; i < items->count; i++) {
        const size_t at = (start + i) % items->count;
        if (!items->used[at] && strcmp(items->hashes[at], hash) == 0) return at;
    }
    return items->count;
}

static fl_status match_items(item_pairs *pairs, fl_error *error) {
    size_t next = 0;
    FL_TRY(FL_ALLOCATE(&pairs->left, pairs->first.count, error));
    FL_TRY(FL_ALLOCATE(&pairs->right, pairs->first.count, error));
    for (size_t i = 0; i < pairs->first.count; i++) {
        const size_t at = find_item(&pairs->second, pairs->first.hashes[i], next);
        if (at == pairs->second.count) continue;
        pairs->second.used[at] = true;
        next = at + 1;
        pairs->left[pairs->count] = i;
        pairs->right[pairs->count++] = at;
    }
    return FL_OK;
}

static bool lacks(const item_column *items, const char *weights) {
    return items->values == NULL || (weights != NULL && items->weights == NULL);
}

/* *why_not: NULL, or why there is no pair. */
static fl_status pair_items(fl_run_reader *first, fl_run_reader *second, const char *task, const char *column,
                            const char *weights, item_pairs *pairs, const char **why_not, fl_error *error) {
    *pairs = (item_pairs){0};
    *why_not = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, read_items(first, task, column, weights, &pairs->first, error));
    FL_TRY_DONE(status, read_items(second, task, column, weights, &pairs->second, error));
    if (lacks(&pairs->first, weights) || lacks(&pairs->second, weights)) {
        *why_not = "one of the two has no such items";
    } else if (pairs->first.hashes == NULL || pairs->second.hashes == NULL) {
        *why_not = "the items have no hashes to be matched by";
    } else {
        FL_TRY_DONE(status, match_items(pairs, error));
        if (pairs->count == 0) *why_not = "no item in common";
    }
done:
    if (status != FL_OK) release_pairs(pairs);
    return status;
}

static fl_interval unknown(const char *why_not) {
    return (fl_interval){(double)NAN, (double)NAN, (double)NAN, FL_BOOTSTRAP_LEVEL,
                         (double)NAN, 0,           false,       why_not};
}

fl_interval fl_item_pairs_interval(double difference, double difference_stderr, double exact_p,
                                   double items) {
    const double half = fl_normal_quantile(0.5 * (1.0 + FL_BOOTSTRAP_LEVEL)) * difference_stderr;
    fl_interval out = {.estimate = difference, .level = FL_BOOTSTRAP_LEVEL, .p = exact_p};
    out.low = difference - half;
    out.high = difference + half;
    out.sequences = items >= 0 && items < 1e15 ? (size_t)items : 0;
    out.known = isfinite(out.low);
    out.why_not = out.known ? "" : "one item alone says nothing of its spread";
    return out;
}

static fl_status compare_accuracy(const item_pairs *pairs, fl_interval *out, fl_error *error) {
    double *a = NULL, *b = NULL;
    fl_paired_comparison paired;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&a, pairs->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&b, pairs->count, error));
    for (size_t i = 0; i < pairs->count; i++) {
        a[i] = pairs->first.values[pairs->left[i]];
        b[i] = pairs->second.values[pairs->right[i]];
    }
    FL_TRY_DONE(status, fl_metric_compare(a, b, pairs->count, &paired, error));
    *out = fl_item_pairs_interval(paired.difference, paired.difference_stderr, paired.exact_p,
                                  (double)pairs->count);
done:
    fl_memory_free(a);
    fl_memory_free(b);
    return status;
}

fl_status fl_item_pairs_accuracy(fl_run_reader *first, fl_run_reader *second, const char *task,
                                 const char *column, fl_interval *out, fl_error *error) {
    item_pairs pairs;
    const char *why_not = NULL;
    FL_TRY(pair_items(first, second, task, column, NULL, &pairs, &why_not, error));
    *out = unknown(why_not);
    fl_status status = why_not == NULL ? compare_accuracy(&pairs, out, error) : FL_OK;
    release_pairs(&pairs);
    return status;
}

/* totals: log-likelihood and weight of the first, then of the second. */
static void perplexity_difference(const void *context, const double *totals, double *out) {
    (void)context;
    *out = exp(-totals[2] / totals[3]) - exp(-totals[0] / totals[1]);
}

static void fill_sums(const item_column *items, size_t item, double *sums) {
    sums[0] = items->values[item];
    sums[1] = items->weights != NULL ? items->weights[item] : 1.0;
}

static fl_status compare_perplexity(const item_pairs *pairs, fl_interval *out, fl_error *error) {
    double *sums = NULL;
    FL_TRY(FL_ALLOCATE(&sums, 4 * pairs->count, error));
    for (size_t i = 0; i < pairs->count; i++) {
        fill_sums(&pairs->first, pairs->left[i], sums + 4 * i);
        fill_sums(&pairs->second, pairs->right[i], sums + 4 * i + 2);
    }
    const fl_bootstrap bootstrap = {.units = pairs->count,
                                    .columns = 4,
                                    .sums = sums,
                                    .statistics = 1,
                                    .statistic = perplexity_difference};
    fl_bootstrap_result result;
    fl_status status = fl_bootstrap_run(&bootstrap, &result, error);
    fl_memory_free(sums);
    FL_TRY(status);
    const bool known = isfinite(result.low) && isfinite(result.high);
    const char *why_not =
        pairs->count < FL_BOOTSTRAP_FEWEST ? "fewer than 5 items" : "a value that is not finite";
    *out = (fl_interval){result.estimate, result.low,   result.high, FL_BOOTSTRAP_LEVEL,
                         result.p,        pairs->count, known,       known ? "" : why_not};
    return FL_OK;
}

fl_status fl_item_pairs_perplexity(fl_run_reader *first, fl_run_reader *second, const char *task,
                                   const char *weights, fl_interval *out, fl_error *error) {
    item_pairs pairs;
    const char *why_not = NULL;
    FL_TRY(pair_items(first, second, task, "log_likelihood", weights, &pairs, &why_not, error));
    *out = unknown(why_not);
    fl_status status = why_not == NULL ? compare_perplexity(&pairs, out, error) : FL_OK;
    release_pairs(&pairs);
    return status;
}
