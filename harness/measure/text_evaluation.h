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

/* All arrays are fl_memory blocks, float64; NULL when not asked for. P = longest sequence. */
typedef struct fl_text_result {
    size_t layers, query_heads, kv_heads, positions, head_dim;
    /* teacher forced */
    double *mse, *variance, *nmse, *cosine;   /* [L] after the output projection */
    double *mean;                             /* [L] of the frozen output: with variance and tokens, what pooling runs needs */
    double *head_nmse;                        /* [L][H] before it */
    double *head_mean, *head_variance;        /* [L][H] of the frozen heads' outputs */
    double *position_nmse;                    /* [L][P] MSE at that position over the layer's variance */
    double *position_count;                   /* [P] sequences that reach it */
    double *head_position_mse;                /* [L][H][P] before the output projection, not divided */
    /* propagated */
    double *attention_nmse, *residual_nmse;   /* [L] against the full model's */
    double *attention_mse, *residual_mse, *attention_variance, *residual_variance; /* [L] */
    double *attention_mean, *residual_mean;   /* [L] of the full model's */
    double *attention_position_nmse, *residual_position_nmse; /* [L][P] */
    /* language model, next token, whole text; NaN when not measured */
    double perplexity, cross_entropy, full_perplexity, full_cross_entropy, kl, agreement;
    double *position_kl, *position_cross_entropy, *full_position_cross_entropy; /* [P] (position P-1 of ce: NaN) */
    /* diagnostics */
    double *key_concentration, *projection_residual; /* [L][Hkv][P] mean over sequences */
    double *state_norm;                              /* [L][H][P] mean over sequences */
    double *effective_rank;                          /* [L][H] of the state after a sequence, mean over sequences */
    double *gate_quantiles, *beta_quantiles;         /* [L][H][Q] over tokens (and channels); NULL without such a part */
    double *routing_kept, *routing_lifetime;         /* [L][Hkv][P] branch_log.h; NULL without a cache */
    double *concentration_edges, *residual_edges;    /* [L][bins + 1] trends.h */
    double *concentration_trend_nmse, *residual_trend_nmse;   /* [L][bins] */
    double *concentration_count, *residual_count;    /* [L][bins] */
    /* bookkeeping */
    size_t tokens, scored_tokens;
    double linear_share;       /* share of scored tokens whose context reached the linear state */
    size_t state_bytes, exact_bytes; /* per sequence at its end, largest over sequences */
    bool diverged;
    char diverged_at[96];      /* "teacher forced, layer 3, head 2, position 17" */
    double seconds_teacher_forced, seconds_propagated;
} fl_text_result;

void fl_text_result_release(fl_text_result *result);

/* results [count], one a mechanism, zeroed by this function first. frozen_seconds: time of the shared frozen passes. */
fl_status fl_text_evaluation_run(const fl_network *network, const fl_sequences *sequences,
                                 const fl_mechanism *const *mechanisms, size_t count,
                                 const fl_text_evaluation_options *options, const fl_progress *progress,
                                 fl_text_result *results, double *frozen_seconds, fl_error *error);

#endif
