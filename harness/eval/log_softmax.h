/* Log-softmax of one row of logits, in float64. */
#ifndef FL_EVAL_LOG_SOFTMAX_H
#define FL_EVAL_LOG_SOFTMAX_H

#include <stddef.h>

typedef struct fl_log_softmax_row {
    double log_sum_exp; /* natural log; not finite when a logit is NaN or +infinity */
    size_t best;        /* index of the largest logit, the lowest of equal ones; 0 when all are NaN */
} fl_log_softmax_row;

/* logits [V] */
fl_log_softmax_row fl_log_softmax_of(const float *logits, size_t vocabulary);

#endif
