/* Hardness: which layers are hardest to linearise, by a signal measured on the run's own text before the run
 * (method.md sections 4 and 5; figure 5 of arXiv 2607.07706).
 *
 *   key_concentration    mean of C over KV heads and positions; lower = harder
 *   projection_residual  mean of R; higher = harder
 *   nmse                 teacher-forced nMSE of the variant itself with no layer left softmax; higher =
 * harder */
#ifndef FL_MEASURE_HARDNESS_H
#define FL_MEASURE_HARDNESS_H

#include "attn_variants/variant.h"
#include "harness/base/progress.h"
#include "harness/measure/text_evaluation.h"

typedef enum fl_hardness {
    FL_HARDNESS_KEY_CONCENTRATION = 0,
    FL_HARDNESS_PROJECTION_RESIDUAL,
    FL_HARDNESS_NMSE
} fl_hardness;

const char *fl_hardness_name(fl_hardness signal);

/* signal [L], one figure a layer. */
fl_status fl_hardness_measure(const fl_network *network, const fl_sequences *sequences,
                              const fl_variant *variant, fl_hardness by, const fl_progress *progress,
                              double *signal, fl_error *error);

/* When the variant asks for its `softmax_hardest` layers: measures, ranks (ties: the lower layer first; NaN
 * is hardest) and sets variant->softmax_layers. signal [L] receives what was measured. Otherwise does
 * nothing. */
fl_status fl_hardness_resolve(const fl_network *network, const fl_sequences *sequences, fl_variant *variant,
                              const fl_progress *progress, double *signal, fl_error *error);

#endif
