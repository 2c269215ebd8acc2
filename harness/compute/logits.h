/* Calls on rows of logits [rows][V]: log-softmax, divergence of two models, losses with their gradients. Logits are float32,
 * what is derived from them float64. */
#ifndef FL_COMPUTE_LOGITS_H
#define FL_COMPUTE_LOGITS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/compute/array.h"

/* Float64 is the exact form. Float32 is what lm-evaluation-harness scores with at dtype float32: PyTorch's CPU kernel adds the
 * exponentials in eight running float32 sums (one a vector lane) and those pairwise, so that terms far below the largest are
 * lost; on a vocabulary of 49,152 that shifts a token by about 1.6e-5. */
typedef enum fl_log_softmax_precision {
    FL_LOG_SOFTMAX_FLOAT64 = 0,
    FL_LOG_SOFTMAX_FLOAT32
} fl_log_softmax_precision;

typedef struct fl_logit_rows_call {
    size_t rows, vocabulary;
    fl_log_softmax_precision precision;
    fl_array logits;    /* [rows][V] */
    fl_array log_sum_exp;   /* [rows] float64: natural log of sum exp(logit); not finite when a logit is NaN or +infinity */
    fl_array best;          /* [rows] int32: of the largest logit, the lowest of equal ones; 0 when all are NaN; or none */
    fl_array probabilities; /* [rows][V] float64: the softmax, with precision float64; or none */
} fl_logit_rows_call;

/* KL(p || q) of each row, in nats: sum_i p_i ((l_i - log_sum_exp) - (m_i - log_sum_exp')) for the logits l of p and m of q.
 * Terms with p_i = 0 are left out. */
typedef struct fl_logit_divergence_call {
    size_t rows, vocabulary;
    fl_array probabilities;        /* p [rows][V] float64 */
    fl_array logits;           /* of p [rows][V] */
    fl_array log_sum_exp;          /* of p [rows] float64 */
    fl_array other_logits;     /* of q */
    fl_array other_log_sum_exp;
    fl_array divergence;           /* [rows] float64 */
} fl_logit_divergence_call;

/* Loss of each row, and its gradient in place of the logits. One of two targets:
 *   targets        next tokens:           loss = log sum exp(l) - l_target,    gradient_i = softmax(l)_i - [i = target]
 *   target_logits  another model's t:     loss = KL(softmax(t) || softmax(l)), gradient_i = softmax(l)_i - softmax(t)_i
 * Exponentials are float32, within a few units in the last place, their sum float64. */
typedef struct fl_logit_gradient_call {
    size_t rows, vocabulary;
    fl_array targets;           /* [rows] int32, or none */
    fl_array target_logits; /* [rows][V], or NULL */
    double weight;              /* of the gradient */
    bool gradient;              /* false: the losses alone */
    fl_array logits;              /* [rows][V]; after the call weight * gradient, or anything without it */
    fl_array loss;              /* [rows] float64 */
} fl_logit_gradient_call;

#endif
