/* Run comparison: two sets of runs, matched cell by cell, and how surely each figure differs.
 *
 * Cells are matched by run id, then by their configuration without the keys in which the two sets differ as wholes (one value,
 * or none, throughout the first set and another throughout the second). A set of one run is compared with every run of the
 * other. What remains is listed as without a partner. Differences are second minus first: of texts by intervals.h (bootstrap
 * over the sequences both have measured), of task items by McNemar's exact test or, of perplexities, the bootstrap over the
 * items both have (item_pairs.h). A set can also be compared with its own baselines. */
#ifndef FL_ANALYSIS_RUN_COMPARE_H
#define FL_ANALYSIS_RUN_COMPARE_H

#include <stddef.h>

#include "analysis/intervals.h"
#include "analysis/run_set.h"
#include "harness/base/status.h"

enum { FL_FIGURE_BYTES = 192 };

typedef struct fl_run_pair {
    const fl_run_entry *first, *second;
} fl_run_pair;

/* A key whose value differs between the sets as wholes; NULL: no run of that set has it. */
typedef struct fl_key_difference {
    const char *key, *first, *second;
} fl_key_difference;

/* One figure of one pair. */
typedef struct fl_figure_difference {
    size_t pair;
    char figure[FL_FIGURE_BYTES]; /* "nMSE", "mmlu, acc" */
    const char *units, *test;     /* test: "bootstrap", "McNemar" */
    double first, second;         /* over all that each has measured; the difference is over what they share */
    fl_interval difference;       /* sequences: or items */
} fl_figure_difference;

typedef struct fl_run_comparison {
    const char *sides[2]; /* what the columns of the two are called: "A", "B"; "linear off", "run" */
    const fl_run_set *first, *second; /* borrowed */
    size_t pair_count, key_count, figure_count, alone_count;
    fl_run_pair *pairs;
    fl_key_difference *keys;
    fl_figure_difference *figures;
    const fl_run_entry **alone; /* of the first set, then of the second */
    size_t alone_first;         /* how many are of the first */
} fl_run_comparison;

/* Both sets must outlive the comparison. No pair at all is no error. */
fl_status fl_run_compare(const fl_run_set *first, const fl_run_set *second, fl_run_comparison **out, fl_error *error);
/* Every run of a set with its linear part off (FL_SIDE_LINEAR_OFF), or the full model (FL_SIDE_FULL), against the run itself. Of
 * tasks the run file's own comparison (/baseline/.../tasks). Runs without such a baseline have no figures. */
fl_status fl_run_compare_baseline(const fl_run_set *set, fl_interval_side baseline, fl_run_comparison **out,
                                  fl_error *error);
/* NULL is fine. */
void fl_run_comparison_destroy(fl_run_comparison *comparison);

#endif
