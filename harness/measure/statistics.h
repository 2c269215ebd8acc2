/* Statistics: moments and the figures of one row of logits. All sums are float64. */
#ifndef FL_MEASURE_STATISTICS_H
#define FL_MEASURE_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

typedef struct fl_moments {
    double count, sum, sum_squares;
} fl_moments;

void fl_moments_add(fl_moments *moments, const fl_moments *more);
fl_moments fl_moments_of(const float *x, size_t count);
/* Population variance, one mean removed; NaN when empty. */
double fl_moments_variance(const fl_moments *moments);

/* What a row of logits says. A row with NaN or +inf has log_sum_exp NaN (or inf) and no largest entry. */
typedef struct fl_logit_row {
    double log_sum_exp;
    size_t largest; /* the lowest index among equals; SIZE_MAX: none */
} fl_logit_row;

/* probabilities [V]: the row's softmax, or NULL when not wanted. */
fl_logit_row fl_logit_row_of(const float *logits, size_t vocabulary, double *probabilities);

/* KL(p || q) in nats from p's probabilities and logits and q's logits. */
double fl_logit_row_divergence(size_t vocabulary, const double *p, const float *p_logits, double p_log_sum_exp,
                               const float *q_logits, double q_log_sum_exp);

#endif
