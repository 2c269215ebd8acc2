/* Trends: teacher-forced error within quantile bins of a signal of the keys (key concentration C, projection residual R;
 * method.md section 5), per layer, pooled over sequences, positions and heads.
 *
 * A sample is one token of one query head: its squared error before the output projection over D and that head's variance, and
 * the signal of its KV head at that token. Bins hold equal numbers of (token, KV head) signals, up to ties. To bound memory
 * every n-th token is taken, so that at most FL_TREND_TOKENS are kept. */
#ifndef FL_MEASURE_TRENDS_H
#define FL_MEASURE_TRENDS_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/measure/text_evaluation.h"
#include "harness/measure/text_result.h"

enum { FL_TREND_TOKENS = 1 << 16 };

/* The signals, shared by all variants of an evaluation. */
typedef struct fl_trend_signals {
    size_t layers, query_heads, kv_heads;
    size_t stride, room;          /* every stride-th token is kept, at most room */
    size_t *kept;                 /* [L] tokens kept so far */
    size_t *seen;                 /* [L] */
    float *concentration, *residual; /* [L][room][Hkv] */
} fl_trend_signals;

fl_status fl_trend_signals_create(size_t layers, size_t query_heads, size_t kv_heads, size_t total_tokens,
                                  fl_trend_signals *out, fl_error *error);
void fl_trend_signals_release(fl_trend_signals *signals);

/* One variant's errors beside them: [L][room][H]. */
fl_status fl_trend_errors_create(const fl_trend_signals *signals, float **out, fl_error *error);

/* squared [T][H]: errors of the same tokens that the next fl_trend_signals_append takes for this layer. */
void fl_trend_errors_append(const fl_trend_signals *signals, size_t layer, size_t tokens, const double *squared,
                            float *of_variant);
/* concentration, residual [Hkv][T]; called once a layer and block, after all variants. */
void fl_trend_signals_append(fl_trend_signals *signals, size_t layer, size_t tokens, const double *concentration,
                             const double *residual);

/* Fills the result's trend arrays. */
fl_status fl_trends_finish(const fl_trend_signals *signals, const float *of_variant, const fl_text_totals *totals,
                           fl_text_result *result, fl_error *error);

#endif
