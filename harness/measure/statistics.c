#include "harness/measure/statistics.h"

#include <math.h>

#include "harness/compute/log_softmax.h"

void fl_moments_add(fl_moments *moments, const fl_moments *more) {
    moments->count += more->count;
    moments->sum += more->sum;
    moments->sum_squares += more->sum_squares;
}

fl_moments fl_moments_of(const float *x, size_t count) {
    fl_moments moments = {.count = (double)count};
    for (size_t i = 0; i < count; i++) {
        double value = (double)x[i];
        moments.sum += value;
        moments.sum_squares += value * value;
    }
    return moments;
}

double fl_moments_variance(const fl_moments *moments) {
    double mean = moments->sum / moments->count;
    return moments->sum_squares / moments->count - mean * mean;
}

fl_logit_row fl_logit_row_of(const float *logits, size_t vocabulary, double *probabilities) {
    const fl_log_softmax_row row = fl_log_softmax_exact(logits, vocabulary, probabilities);
    for (size_t i = 0; probabilities != NULL && i < vocabulary; i++) probabilities[i] /= row.sum;
    return (fl_logit_row){.log_sum_exp = row.log_sum_exp,
                          .largest = isfinite(row.log_sum_exp) ? row.best : SIZE_MAX};
}

double fl_logit_row_divergence(size_t vocabulary, const double *p, const float *p_logits,
                               double p_log_sum_exp, const float *q_logits, double q_log_sum_exp) {
    double shift = q_log_sum_exp - p_log_sum_exp, sum = 0.0;
    for (size_t i = 0; i < vocabulary; i++) {
        if (p[i] == 0.0) continue;
        sum += p[i] * ((double)p_logits[i] - (double)q_logits[i] + shift);
    }
    return sum;
}
