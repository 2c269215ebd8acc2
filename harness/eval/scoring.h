/* Scoring: log-likelihoods of continuations after contexts, for the frozen model or any mechanism.
 *
 * A request is a sequence context + continuation, cut on the left to max_length + 1 tokens; the model reads
 * all but the last token and the continuation's tokens are scored, each by the log-softmax of the
 * row before it. Rolling windows and perplexity chunks are requests as well.
 *
 * Work is shared through the requests' common prefixes: they are sorted, a prefix that several requests begin
 * with is run once and the session forked, identical inputs (the letters of a question) are one run, and only
 * rows that predict a scored token go through the head. Because the order is made here, results do not depend
 * on the order of the requests. Sharing is off (every request by itself, from an empty session) on request
 * and under dynamic RoPE scaling, where a prefix depends on what follows. */
#ifndef FL_EVAL_SCORING_H
#define FL_EVAL_SCORING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"
#include "harness/base/progress.h"
#include "harness/base/status.h"
#include "harness/engine/network.h"
#include "harness/compute/logits.h"

/* Borrowed ids. At least one context token and one continuation token. */
typedef struct fl_score_request {
    const int32_t *context, *continuation;
    size_t context_count, continuation_count;
} fl_score_request;

typedef struct fl_score {
    double log_likelihood; /* natural log, sum over the continuation; NaN when the model diverged */
    double square_sum;     /* sum of the squares of the tokens' log-likelihoods */
    bool greedy;           /* every token was the argmax; among equal logits the lowest id */
    size_t tokens;         /* scored */
    size_t reached;        /* scored tokens whose context had reached the linear state */
    size_t truncated;      /* context tokens cut off on the left */
} fl_score;

typedef struct fl_score_options {
    size_t max_length;    /* most tokens the model reads at once; 0: the model's own limit */
    bool share;           /* share common prefixes */
    size_t share_minimum; /* a shared stretch is run by itself only when that saves at least so many tokens; 0
                             = 32 */
    fl_log_softmax_precision precision; /* float64 unless said otherwise */
} fl_score_options;

/* Prompt tokens: what running every request alone takes, and what was computed. */
typedef struct fl_score_counts {
    size_t asked_tokens, computed_tokens, head_rows;
    double seconds;
} fl_score_counts;

/* A plan: the requests sorted and compared, reusable for any number of mechanisms. */
typedef struct fl_score_plan fl_score_plan;

/* The requests are borrowed and must outlive the plan. FL_ERROR_ARGUMENT names the number of a request that
 * is empty or whose continuation is longer than max_length. */
fl_status fl_score_plan_create(const fl_score_request *requests, size_t count,
                               const fl_score_options *options, const fl_network *network,
                               fl_score_plan **out, fl_error *error);
void fl_score_plan_destroy(fl_score_plan *plan);

/* scores [count] in the order of the requests. mechanism NULL: the frozen model. counts may be NULL. `stage`
 * heads the progress reports, which count requests. */
fl_status fl_score_run(const fl_score_plan *plan, const fl_network *network, const fl_mechanism *mechanism,
                       const fl_progress *progress, const char *stage, fl_score *scores,
                       fl_score_counts *counts, fl_error *error);

#endif
