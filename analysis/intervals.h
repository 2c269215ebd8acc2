/* Intervals: how sure a run's figures are, from the sums that its run file keeps of every sequence (/sequences).
 *
 * The unit that is drawn again is a text: sequences of equal token ids (the same text measured with several seeds and merged)
 * are one unit. The method, its level and the fewest units are bootstrap.h's; docs/statistics.md says how to read it. Two
 * sides are paired over the units that both have measured.
 *
 * Metrics: perplexity, cross_entropy, full_perplexity, full_cross_entropy, kl, agreement, and nmse, propagated_nmse,
 * residual_nmse (mean over the layers of the pooled ratio; also by layer). Items of tasks have their own standard errors and
 * McNemar's test (eval/metrics.h). */
#ifndef FL_ANALYSIS_INTERVALS_H
#define FL_ANALYSIS_INTERVALS_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/bootstrap.h"
#include "analysis/run_set.h"
#include "harness/base/status.h"

typedef struct fl_interval {
    double estimate;     /* the figure, or the difference; NaN when there is none */
    double low, high;    /* NaN unless known */
    double level;        /* FL_BOOTSTRAP_LEVEL */
    double p;            /* of a difference: two-sided, that it is 0; NaN of a figure, or unless known */
    size_t sequences;    /* distinct ones that were drawn from */
    bool known;          /* low and high are there */
    const char *why_not; /* "" when known: a static text, "1 sequence ..." */
} fl_interval;

/* The sums of one run file, read once and asked often. */
typedef struct fl_run_sums fl_run_sums;
/* A run without sums (older files, no text) is no error: what is asked of it is not known. */
fl_status fl_run_sums_read(const char *path, fl_run_sums **out, fl_error *error);
void fl_run_sums_destroy(fl_run_sums *sums);
size_t fl_run_sums_layers(const fl_run_sums *sums);
/* Distinct texts; of both: that the two have in common. */
size_t fl_run_sums_sequences(const fl_run_sums *sums);
size_t fl_run_sums_common(const fl_run_sums *a, const fl_run_sums *b);

/* A side of a comparison: the run itself, the frozen model, or the run with its linear part off. */
typedef enum fl_interval_side { FL_SIDE_RUN, FL_SIDE_FULL, FL_SIDE_LINEAR_OFF } fl_interval_side;

/* The figure of one side. layers [L]: of an nmse by layer; may be NULL. FL_ERROR_ARGUMENT for a metric that is none. */
fl_status fl_interval_of(const fl_run_sums *run, fl_interval_side side, const char *metric, fl_interval *out,
                         fl_interval *layers, fl_error *error);
/* The run minus the other side, paired. The full model has cross entropy and perplexity only. */
fl_status fl_interval_against(const fl_run_sums *run, fl_interval_side other, const char *metric, fl_interval *out,
                              fl_interval *layers, fl_error *error);
/* Run a minus run b, paired over the texts in common; without any, why_not says so. */
fl_status fl_interval_between(const fl_run_sums *a, const fl_run_sums *b, const char *metric, fl_interval *out,
                              fl_interval *layers, fl_error *error);

/* The same, reading the file: for one question. `metric` may begin with "linear_off/". */
fl_status fl_interval_of_run(const fl_run_entry *run, const char *metric, fl_interval *out, fl_error *error);

/* The metrics, in the order of tables; false past the end. lower_is_better: of two values. */
typedef struct fl_interval_metric {
    const char *name, *heading, *units;
    bool lower_is_better;
} fl_interval_metric;
bool fl_interval_metric_at(size_t index, fl_interval_metric *out);

#endif
