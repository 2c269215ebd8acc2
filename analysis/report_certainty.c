#include "analysis/report_certainty.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "analysis/item_pairs.h"
#include "harness/base/memory.h"

enum { NAME_BYTES = 512 };

void fl_report_certainty_destroy(fl_report_certainty *certainty) {
    if (certainty == NULL) return;
    for (size_t i = 0; certainty->sums != NULL && i < certainty->set->count; i++)
        fl_run_sums_destroy(certainty->sums[i]);
    fl_memory_free(certainty->sums);
    fl_memory_free(certainty->perplexity);
    fl_memory_free(certainty->gain);
    fl_memory_free(certainty);
}

static fl_interval unknown(const char *why_not) {
    const double nan = (double)NAN;
    return (fl_interval){
        .estimate = nan, .low = nan, .high = nan, .level = FL_BOOTSTRAP_LEVEL, .p = nan, .why_not = why_not};
}

/* Widens *all, of `count` intervals so far, by another. */
static void join(fl_interval *all, const fl_interval *one, size_t count) {
    if (count == 0) {
        *all = *one;
        return;
    }
    all->estimate += (one->estimate - all->estimate) / (double)(count + 1);
    all->low = fmin(all->low, one->low);
    all->high = fmax(all->high, one->high);
    all->p = fmax(all->p, one->p);
    if (one->sequences < all->sequences) all->sequences = one->sequences;
    if (!one->known && all->known) all->why_not = one->why_not;
    all->known = all->known && one->known;
}

/* One interval of every run of a group, joined. */
typedef fl_status (*interval_of)(const fl_report_certainty *c, const fl_run_score *score, size_t run,
                                 fl_interval *out, fl_error *error);

static fl_status join_runs(const fl_report_certainty *c, const fl_run_score *score, size_t group,
                           interval_of find, fl_interval *out, fl_error *error) {
    const fl_run_group *runs = &c->groups->items[group];
    for (size_t i = 0; i < runs->count; i++) {
        fl_interval one;
        FL_TRY(find(c, score, runs->runs[i], &one, error));
        join(out, &one, i);
    }
    return FL_OK;
}

static fl_status own_perplexity(const fl_report_certainty *c, const fl_run_score *score, size_t run,
                                fl_interval *out, fl_error *error) {
    (void)score;
    return fl_interval_of(c->sums[run], FL_SIDE_RUN, "perplexity", out, NULL, error);
}

static fl_status fill(fl_report_certainty *c, fl_error *error) {
    static const fl_run_score perplexity = {.value = "perplexity"};
    for (size_t i = 0; i < c->set->count; i++)
        FL_TRY(fl_run_sums_read(c->set->runs[i].path, &c->sums[i], error));
    for (size_t i = 0; i < c->groups->count; i++) {
        FL_TRY(join_runs(c, NULL, i, own_perplexity, &c->perplexity[i], error));
        c->gain[i] = unknown("there is no linear part");
        if (fl_run_has_linear_part(fl_run_group_first(c->groups, i)))
            FL_TRY(fl_report_against_off(c, &perplexity, i, &c->gain[i], error));
    }
    return FL_OK;
}

fl_status fl_report_certainty_create(const fl_run_groups *groups, fl_report_certainty **out,
                                     fl_error *error) {
    fl_report_certainty *c = NULL;
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&c, 1, error));
    c->groups = groups;
    c->set = groups->set;
    FL_TRY_DONE(status, FL_ALLOCATE(&c->sums, c->set->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&c->perplexity, groups->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&c->gain, groups->count, error));
    FL_TRY_DONE(status, fill(c, error));
    *out = c;
    return FL_OK;
done:
    fl_report_certainty_destroy(c);
    return status;
}

/* The column of items that an accuracy is the mean of; NULL for other figures. */
static const char *item_column(const fl_run_score *score) {
    if (strcmp(score->axis, "acc") == 0) return "correct";
    return strcmp(score->axis, "acc_norm") == 0 ? "correct_norm" : NULL;
}

/* What a task's perplexity is taken over; NULL: items weigh the same. */
static const char *item_weights(fl_run_reader *reader, const fl_run_score *score) {
    char path[NAME_BYTES];
    if (strcmp(score->axis, "word_perplexity") == 0) return "words";
    snprintf(path, sizeof path, "/tasks/%.200s/items/square_sum", score->task);
    return fl_run_reader_has(reader, path) ? "choice_tokens" : NULL;
}

static fl_status between_items(const fl_run_entry *a, const fl_run_entry *b, const fl_run_score *score,
                               fl_interval *out, fl_error *error) {
    fl_run_reader *first = NULL, *second = NULL;
    const char *column = item_column(score);
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_run_reader_open(b->path, &first, error));
    FL_TRY_DONE(status, fl_run_reader_open(a->path, &second, error));
    status = column != NULL ? fl_item_pairs_accuracy(first, second, score->task, column, out, error)
                            : fl_item_pairs_perplexity(first, second, score->task, item_weights(first, score),
                                                       out, error);
done:
    fl_run_reader_close(first);
    fl_run_reader_close(second);
    return status;
}

static fl_status between_runs(const fl_report_certainty *c, const fl_run_score *score, size_t a, size_t b,
                              fl_interval *out, fl_error *error) {
    if (score->task[0] != '\0') return between_items(&c->set->runs[a], &c->set->runs[b], score, out, error);
    return fl_interval_between(c->sums[a], c->sums[b], score->value, out, NULL, error);
}

fl_status fl_report_between(const fl_report_certainty *certainty, const fl_run_score *score, size_t a,
                            size_t b, fl_interval *out, fl_error *error) {
    const fl_run_group *first = &certainty->groups->items[a], *second = &certainty->groups->items[b];
    size_t count = 0;
    for (size_t i = 0; i < first->count; i++) {
        for (size_t j = 0; j < second->count; j++) {
            fl_interval one;
            FL_TRY(between_runs(certainty, score, first->runs[i], second->runs[j], &one, error));
            join(out, &one, count++);
        }
    }
    return FL_OK;
}

static double against_off(const fl_run_entry *run, const fl_run_score *score, const char *metric) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "linear_off/tasks/%.200s/%s", score->task, metric);
    return fl_run_metric_value(run, name);
}

/* Of accuracies the run file has the difference, its standard error and McNemar's p. */
static fl_status run_against_off(const fl_report_certainty *c, const fl_run_score *score, size_t run,
                                 fl_interval *out, fl_error *error) {
    const fl_run_entry *entry = &c->set->runs[run];
    if (score->task[0] == '\0')
        return fl_interval_against(c->sums[run], FL_SIDE_LINEAR_OFF, score->value, out, NULL, error);
    *out = unknown("the run file has no paired difference");
    if (strcmp(score->axis, "acc") == 0 && !isnan(against_off(entry, score, "difference")))
        *out = fl_item_pairs_interval(
            against_off(entry, score, "difference"), against_off(entry, score, "difference_stderr"),
            against_off(entry, score, "mcnemar_exact_p"), against_off(entry, score, "n"));
    return FL_OK;
}

fl_status fl_report_against_off(const fl_report_certainty *certainty, const fl_run_score *score, size_t group,
                                fl_interval *out, fl_error *error) {
    return join_runs(certainty, score, group, run_against_off, out, error);
}

fl_verdict fl_interval_verdict(const fl_interval *difference) {
    bool is_told = difference->known && (difference->low > 0 || difference->high < 0);
    if (!is_told || difference->p >= 1 - difference->level) return FL_CANNOT_BE_TOLD;
    return difference->high < 0 ? FL_BELOW_ZERO : FL_ABOVE_ZERO;
}
