/* Log-softmax of one row of logits.
 *
 * Float64 is the exact form. Float32 is what lm-evaluation-harness scores with at dtype float32: PyTorch's
 * CPU kernel adds the exponentials in eight running float32 sums (one a vector lane) and those pairwise, so
 * that terms far below the largest are lost; on a vocabulary of 49,152 that shifts a token by about 1.6e-5.
 */
#ifndef FL_COMPUTE_LOG_SOFTMAX_H
#define FL_COMPUTE_LOG_SOFTMAX_H

#include <stddef.h>

typedef enum fl_log_softmax_precision {
    FL_LOG_SOFTMAX_FLOAT64 = 0,
    FL_LOG_SOFTMAX_FLOAT32
} fl_log_softmax_precision;

typedef struct fl_log_softmax_row {
    double log_sum_exp; /* natural log; not finite when a logit is NaN or +infinity */
    double sum;         /* of exp(logit - the largest) */
    size_t best;        /* index of the largest logit, the lowest of equal ones; 0 when all are NaN */
} fl_log_softmax_row;

/* logits [V] */
fl_log_softmax_row fl_log_softmax_of(const float *logits, size_t vocabulary,
                                     fl_log_softmax_precision precision);

/* The float64 form; terms [V] = exp(logit - the largest), which over `sum` are the probabilities, or NULL. */
fl_log_softmax_row fl_log_softmax_exact(const float *logits, size_t vocabulary, double *terms);

#endif
