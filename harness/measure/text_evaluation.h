/* Text evaluation: approximation errors and language-model figures of many variants on one text, from one frozen pass.
 *
 * For every sequence the frozen model runs once; every variant is then measured teacher-forced on the same q, k, v, h of every
 * layer and against the same softmax output, and (if asked) propagated: its own session end to end, compared with the
 * frozen model's streams and logits. Definitions are method.md section 5 and 10; pooling over sequences adds sums of squared
 * errors and moments (weights = tokens), then divides. Sums are float64.
 *
 * A variant that produces NaN or infinity is a result: the affected entries hold it, `diverged` and the first place are set, and
 * the run goes on. */
#ifndef FL_MEASURE_TEXT_EVALUATION_H
#define FL_MEASURE_TEXT_EVALUATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"
#include "harness/base/progress.h"
#include "harness/base/status.h"
#include "harness/engine/network.h"
#include "harness/engine/sequences.h"

/* Quantile levels of gates and betas, and the number of bins of a trend. */
enum { FL_GATE_QUANTILES = 7, FL_TREND_BINS = 16 };
extern const double fl_gate_quantile_levels[FL_GATE_QUANTILES]; /* 0, 0.05, 0.25, 0.5, 0.75, 0.95, 1 */

typedef struct fl_text_evaluation_options {
    bool teacher_forced, propagated, diagnostics, language_model;
} fl_text_evaluation_options;

/* Every measured array and figure is a member; measurements.inc says of each its shape, units and meaning. Arrays are fl_memory
 * blocks, float64, NULL when not asked for; figures that were not measured are NaN. */
typedef struct fl_text_result {
    size_t layers, query_heads, kv_heads, positions, head_dim, sequences; /* positions: of the longest sequence */
    bool diverged;
    char diverged_at[96]; /* "teacher forced, layer 3, head 2, position 17" */
#define ARRAY(member, ...) double *member;
#define ALIAS(...)
#define FIGURE(member, ...) double member;
#define COUNT(member, ...) size_t member;
#include "harness/measure/measurements.inc"
#undef ARRAY
#undef ALIAS
#undef FIGURE
#undef COUNT
} fl_text_result;

void fl_text_result_release(fl_text_result *result);

/* results [count], one a mechanism, zeroed by this function first. frozen_seconds: time of the shared frozen passes. */
fl_status fl_text_evaluation_run(const fl_network *network, const fl_sequences *sequences,
                                 const fl_mechanism *const *mechanisms, size_t count,
                                 const fl_text_evaluation_options *options, const fl_progress *progress,
                                 fl_text_result *results, double *frozen_seconds, fl_error *error);

#endif
