/* Logit scorer: next-token figures of the frozen model and of its replacements, a few rows of logits at a time, so that
 * [T][V] is never held. The frozen rows come first (fl_logit_scorer_reference); every replacement is then compared with
 * them. Logits are float32, everything derived from them float64. */
#ifndef FL_MEASURE_LOGIT_SCORER_H
#define FL_MEASURE_LOGIT_SCORER_H

#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/compute/array.h"
#include "harness/engine/network.h"

/* What one model's rows say, on the host. [rows] each. */
typedef struct fl_logit_figures {
    double *log_sum_exp;   /* NaN or infinite: the row holds NaN or +infinity */
    int32_t *largest;      /* index of the largest logit, the lowest among equals; meaningless where log_sum_exp is not finite */
    double *cross_entropy; /* -log probability of the row's target */
} fl_logit_figures;

typedef struct fl_logit_scorer {
    const fl_network *network; /* borrowed */
    size_t rows;               /* the most rows of one call */
    fl_logit_figures reference, compared;
    double *divergence;        /* [rows] KL(reference || compared), nats */
    int32_t *target_places;    /* [rows] of the targets in the logits as one array */
    float *target_logits;      /* [rows] */
    fl_array places;           /* [rows] int32 */
    fl_array of_targets;       /* [rows] float32 */
    fl_array reference_logits, logits; /* [rows][V] float32 */
    fl_array probabilities;            /* [rows][V] float64, of the reference */
    fl_array reference_log_sum_exp, log_sum_exp, made_divergence; /* [rows] float64 */
    fl_array best;                                                /* [rows] int32 */
} fl_logit_scorer;

fl_status fl_logit_scorer_create(const fl_network *network, fl_logit_scorer *out, fl_error *error);
void fl_logit_scorer_release(fl_logit_scorer *scorer);

/* hidden [rows][E] after the final norm; targets: the token after row i for i < scored, the rows that have one. The first fills
 * `reference`, the second `compared` and `divergence`. */
fl_status fl_logit_scorer_reference(fl_logit_scorer *scorer, size_t rows, fl_array hidden, const int32_t *targets,
                                    size_t scored, fl_error *error);
fl_status fl_logit_scorer_compare(fl_logit_scorer *scorer, size_t rows, fl_array hidden, const int32_t *targets,
                                  size_t scored, fl_error *error);

#endif
