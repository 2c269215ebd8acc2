#include "analysis/item_pairs.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "analysis/distributions.h"
#include "harness/base/memory.h"
#include "harness/eval/metrics.h"
#include "harness/store/sweep.h"

enum { PATH_BYTES = 512 };

/* One run's items. */
typedef struct item_column {
    size_t count;
    double *values; /* [count]; NULL: the run has none of this name */
    char **hashes;  /* [count]; NULL likewise */
    bool *used;     /* [count] */
} item_column;

static void release(item_column *items) {
    fl_memory_free(items->values);
    fl_sweep_list_release(items->hashes, items->hashes != NULL ? items->count : 0);
    fl_memory_free(items->used);
}

static fl_status read_items(fl_run_reader *reader, const char *task, const char *column, item_column *out,
                            fl_error *error) {
    char path[PATH_BYTES];
    size_t rank = 0, shape[4] = {0}, hashes = 0;
    snprintf(path, sizeof path, "/tasks/%s/items/%s", task, column);
    if (!fl_run_reader_has(reader, path)) return FL_OK;
    FL_TRY(fl_run_reader_doubles(reader, path, &out->values, &rank, shape, error));
    out->count = rank == 1 ? shape[0] : 0;
    FL_TRY(FL_ALLOCATE(&out->used, out->count, error));
    snprintf(path, sizeof path, "/tasks/%s/items/document_hash", task);
    if (!fl_run_reader_has(reader, path)) return FL_OK;
    char **texts = NULL;
    FL_TRY(fl_run_reader_texts(reader, path, &texts, &hashes, error));
    if (hashes == out->count) {
        out->hashes = texts;
        return FL_OK;
    }
    fl_sweep_list_release(texts, hashes);
    return fl_error_set(error, FL_ERROR_FORMAT, "%s: does not fit the other columns", path);
}

/* The first unused item of this hash, looked for from `start` on and round; count: none. */
static size_t find_item(const item_column *items, const char *hash, size_t start) {
    for (size_t i = 0; i < items->count; i++) {
        const size_t at = (start + i) % items->count;
        if (!items->used[at] && strcmp(items->hashes[at], hash) == 0) return at;
    }
    return items->count;
}

/* a, b [first->count]: values of the items in common. Returns how many. */
static size_t pair_items(const item_column *first, item_column *second, double *a, double *b) {
    size_t pairs = 0, next = 0;
    for (size_t i = 0; i < first->count; i++) {
        const size_t at = find_item(second, first->hashes[i], next);
        if (at == second->count) continue;
        second->used[at] = true;
        next = at + 1;
        a[pairs] = first->values[i];
        b[pairs++] = second->values[at];
    }
    return pairs;
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

fl_status fl_item_pairs_compare(fl_run_reader *first, fl_run_reader *second, const char *task,
                                const char *column, fl_interval *out, fl_error *error) {
    item_column a = {0}, b = {0};
    double *x = NULL, *y = NULL;
    fl_status status = FL_OK;
    *out = (fl_interval){(double)NAN, (double)NAN, (double)NAN, FL_BOOTSTRAP_LEVEL,
                         (double)NAN, 0,           false,       "no item in common"};
    FL_TRY_DONE(status, read_items(first, task, column, &a, error));
    FL_TRY_DONE(status, read_items(second, task, column, &b, error));
    if (a.values == NULL || b.values == NULL) {
        out->why_not = "one of the two has no such items";
    } else if (a.hashes == NULL || b.hashes == NULL) {
        out->why_not = "the items have no hashes to be matched by";
    } else {
        FL_TRY_DONE(status, FL_ALLOCATE(&x, a.count, error));
        FL_TRY_DONE(status, FL_ALLOCATE(&y, a.count, error));
        const size_t pairs = pair_items(&a, &b, x, y);
        fl_paired_comparison paired;
        if (pairs > 0) FL_TRY_DONE(status, fl_metric_compare(x, y, pairs, &paired, error));
        if (pairs > 0)
            *out = fl_item_pairs_interval(paired.difference, paired.difference_stderr, paired.exact_p,
                                          (double)pairs);
    }
done:
    fl_memory_free(x);
    fl_memory_free(y);
    release(&a);
    release(&b);
    return status;
}
