/* Metrics: the numbers lm-evaluation-harness reports, with its definitions of error, and paired comparisons.
 *
 * All in float64, summed in the order given. A standard error that does not exist (one item) is NaN. */
#ifndef FL_EVAL_METRICS_H
#define FL_EVAL_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"

double fl_metric_mean(const double *values, size_t count);

/* sqrt(sum (x - m)^2 / (n - 1)) / sqrt(n); NaN for n < 2. */
double fl_metric_mean_stderr(const double *values, size_t count);

/* exp(-mean). */
double fl_metric_perplexity(const double *log_likelihoods, size_t count);

/* Standard error of exp(-mean) as lm-evaluation-harness bootstraps it: resamples in chunks of min(1000,
 * iterations), chunk i drawn by Python's random.Random(i).choices, then the sample standard deviation of all
 * of them. NaN when count or iterations is below 2. Takes iterations * count draws. */
fl_status fl_metric_perplexity_stderr(const double *log_likelihoods, size_t count, size_t iterations,
                                      double *stderr_out, fl_error *error);

/* Index of the largest value of scores[i] / lengths[i] (lengths NULL: scores alone); the first of equal ones.
 * A NaN never wins; a zero length counts as the division says (infinity). */
size_t fl_metric_best(const double *scores, const double *lengths, size_t count);

/* Groups of leaf tasks: value weighted by size, unweighted value, pooled standard error
 * sqrt([sum (n_i - 1) n_i se_i^2 / (sum n_i - T)] / sum n_i), NaN as soon as one leaf's is. */
double fl_metric_group_micro(const double *values, const size_t *sizes, size_t leaves);
double fl_metric_group_macro(const double *values, size_t leaves);
double fl_metric_group_stderr(const double *stderrs, const size_t *sizes, size_t leaves);

/* Two variants on the same items. difference = mean(second - first), stderr its standard error. McNemar on
 * 0/1 values: only_first = right in the first alone, only_second likewise; exact two-sided binomial p, and
 * chi-squared (with Yates' correction, one degree of freedom) with its p. p = 1 when nothing differs. */
typedef struct fl_paired_comparison {
    size_t count;
    double difference, difference_stderr;
    size_t only_first, only_second;
    double exact_p, chi_squared, chi_squared_p;
} fl_paired_comparison;

fl_status fl_metric_compare(const double *first, const double *second, size_t count,
                            fl_paired_comparison *out, fl_error *error);

#endif
