/* Logit scorer: next-token figures of the frozen model and of its replacements, a few rows of logits at a time, so that
 * [T][V] is never held. The frozen rows come first (fl_logit_scorer_reference); every replacement is then compared with
 * them. Logits are float32, everything derived from them float64. */
#ifndef FL_MEASURE_LOGIT_SCORER_H
#define FL_MEASURE_LOGIT_SCORER_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/engine/network.h"
#include "harness/measure/statistics.h"

typedef struct fl_logit_scorer {
    const fl_network *network; /* borrowed */
    size_t rows;               /* the most rows of one call */
    float *reference_logits, *logits; /* [rows][V] */
    double *probabilities;            /* [rows][V] of the reference */
    fl_logit_row *reference_row, *row; /* [rows] */
    double *divergence;                /* [rows] KL(reference || row), nats */
} fl_logit_scorer;

fl_status fl_logit_scorer_create(const fl_network *network, fl_logit_scorer *out, fl_error *error);
void fl_logit_scorer_release(fl_logit_scorer *scorer);

/* hidden [rows][E] after the final norm. The first fills reference_*, the second logits, row and divergence. */
void fl_logit_scorer_reference(fl_logit_scorer *scorer, size_t rows, const float *hidden);
void fl_logit_scorer_compare(fl_logit_scorer *scorer, size_t rows, const float *hidden);

/* -log probability of `target` in a row of logits. */
double fl_logit_scorer_cross_entropy(const fl_logit_scorer *scorer, const float *logits, const fl_logit_row *rows,
                                     size_t row, int32_t target);

#endif
