#include "harness/eval/metrics.h"

#include <math.h>
#include <stdbool.h>

#include "harness/base/memory.h"
#include "harness/eval/python_random.h"

enum { BOOTSTRAP_CHUNK = 1000 };

double fl_metric_mean(const double *values, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += values[i];
    return sum / (double)count;
}

static double sample_deviation(const double *values, size_t count) {
    const double mean = fl_metric_mean(values, count);
    double squares = 0.0;
    for (size_t i = 0; i < count; i++) squares += (values[i] - mean) * (values[i] - mean);
    return sqrt(squares / (double)(count - 1));
}

double fl_metric_mean_stderr(const double *values, size_t count) {
    return count < 2 ? (double)NAN : sample_deviation(values, count) / sqrt((double)count);
}

double fl_metric_perplexity(const double *log_likelihoods, size_t count) {
    return exp(-fl_metric_mean(log_likelihoods, count));
}

static double resampled_perplexity(fl_python_random *random, const double *values, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += values[(size_t)(fl_python_random_uniform(random) * (double)count)];
    }
    return exp(-(sum / (double)count));
}

fl_status fl_metric_perplexity_stderr(const double *log_likelihoods, size_t count, size_t iterations,
                                      double *stderr_out, fl_error *error) {
    *stderr_out = (double)NAN;
    if (count < 2 || iterations < 2) return FL_OK;
    const size_t chunk = iterations < BOOTSTRAP_CHUNK ? iterations : BOOTSTRAP_CHUNK;
    const size_t chunks = iterations / chunk;
    double *values = NULL;
    FL_TRY(FL_ALLOCATE(&values, chunk * chunks, error));
    for (size_t c = 0; c < chunks; c++) {
        fl_python_random random = {0};
        fl_python_random_seed(&random, c);
        for (size_t i = 0; i < chunk; i++) {
            values[c * chunk + i] = resampled_perplexity(&random, log_likelihoods, count);
        }
    }
    *stderr_out = sample_deviation(values, chunk * chunks);
    fl_memory_free(values);
    return FL_OK;
}

size_t fl_metric_best(const double *scores, const double *lengths, size_t count) {
    size_t best = 0;
    double best_score = (double)NAN;
    for (size_t i = 0; i < count; i++) {
        const double score = lengths == NULL ? scores[i] : scores[i] / lengths[i];
        if (score > best_score || (isnan(best_score) && !isnan(score))) best = i, best_score = score;
    }
    return best;
}

double fl_metric_group_micro(const double *values, const size_t *sizes, size_t leaves) {
    double sum = 0.0, items = 0.0;
    for (size_t i = 0; i < leaves; i++) {
        sum += values[i] * (double)sizes[i];
        items += (double)sizes[i];
    }
    return sum / items;
}

double fl_metric_group_macro(const double *values, size_t leaves) {
    return fl_metric_mean(values, leaves);
}

double fl_metric_group_stderr(const double *stderrs, const size_t *sizes, size_t leaves) {
    double squares = 0.0, items = 0.0;
    for (size_t i = 0; i < leaves; i++) {
        const double n = (double)sizes[i];
        squares += (n - 1.0) * n * stderrs[i] * stderrs[i];
        items += n;
    }
    return sqrt(squares / (items - (double)leaves) / items);
}

/* Two-sided exact binomial test of `smaller` or fewer in `n` at one half, by a stable recurrence on log
 * terms. */
static double binomial_two_sided(size_t smaller, size_t n) {
    if (n == 0) return 1.0;
    double log_term = -(double)n * log(2.0), sum = exp(log_term);
    for (size_t i = 1; i <= smaller; i++) {
        log_term += log((double)(n - i + 1)) - log((double)i);
        sum += exp(log_term);
    }
    return fmin(1.0, 2.0 * sum);
}

fl_status fl_metric_compare(const double *first, const double *second, size_t count,
                            fl_paired_comparison *out, fl_error *error) {
    double *differences = NULL;
    FL_TRY(FL_ALLOCATE(&differences, count, error));
    size_t only_first = 0, only_second = 0;
    for (size_t i = 0; i < count; i++) {
        differences[i] = second[i] - first[i];
        const bool first_right = first[i] > 0.5, second_right = second[i] > 0.5;
        only_first += first_right && !second_right;
        only_second += second_right && !first_right;
    }
    const size_t discordant = only_first + only_second;
    const size_t gap = only_first > only_second ? only_first - only_second : only_second - only_first;
    const double corrected = gap > 0 ? (double)gap - 1.0 : 0.0;
    const double chi_squared = discordant == 0 ? 0.0 : corrected * corrected / (double)discordant;
    *out = (fl_paired_comparison){
        .count = count,
        .difference = fl_metric_mean(differences, count),
        .difference_stderr = fl_metric_mean_stderr(differences, count),
        .only_first = only_first,
        .only_second = only_second,
        .exact_p = binomial_two_sided(only_first < only_second ? only_first : only_second, discordant),
        .chi_squared = chi_squared,
        .chi_squared_p = discordant == 0 ? 1.0 : erfc(sqrt(chi_squared / 2.0)),
    };
    fl_memory_free(differences);
    return FL_OK;
}
