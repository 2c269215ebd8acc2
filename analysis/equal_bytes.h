/* Equal bytes: which run of a set (or group of runs that differ in seeds only) is best among those that hold no more of a
 * sequence than a budget.
 *
 * What a run holds of one sequence is its linear state and its exact keys and values (/memory). Only runs of one model on one
 * text are compared; the frozen model itself (rule `softmax`) is no contender. Holdings within 2 % of each other are one
 * budget. */
#ifndef FL_ANALYSIS_EQUAL_BYTES_H
#define FL_ANALYSIS_EQUAL_BYTES_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/run_groups.h"
#include "analysis/run_scores.h"
#include "analysis/run_set.h"
#include "harness/base/status.h"

typedef struct fl_contender {
    size_t group; /* index; a run alone is a group of one */
    double score; /* mean over seeds; may be NaN or infinite: never best */
    double bytes; /* NaN: not recorded, and then never within a budget */
} fl_contender;

typedef struct fl_budget {
    double bytes; /* the most that one of its runs holds */
    size_t runs;  /* that hold this much */
    size_t best;  /* index of a contender that holds no more; FL_NO_CONTENDER when no score is finite */
    size_t next;  /* of the best whose score differs from the best's, likewise */
} fl_budget;

#define FL_NO_CONTENDER ((size_t)-1)

/* One model, one text: their configurations agree in all keys under `model` and `text`. */
bool fl_run_same_setting(const fl_run_entry *a, const fl_run_entry *b);

/* What a run holds of a sequence; NaN when the file does not say. */
double fl_run_bytes(const fl_run_entry *run);

/* The groups that share the setting of group `first` and have the score, by bytes, then in their order. *out = fl_memory
 * block. */
fl_status fl_contenders_find(const fl_run_groups *groups, size_t first, const fl_run_score *score, fl_contender **out,
                             size_t *count, fl_error *error);

/* Ascending budgets. *out = fl_memory block. Of equal scores the one that holds less is the better. */
fl_status fl_budgets_find(const fl_contender *contenders, size_t count, bool higher_is_better, fl_budget **out,
                          size_t *budget_count, fl_error *error);

/* The best and the next of all contenders, whatever they hold. */
void fl_contenders_best(const fl_contender *contenders, size_t count, bool higher_is_better, size_t *best, size_t *next);

#endif
