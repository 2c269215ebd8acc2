/* Run scores: which figures of a set are compared as scores, and where their baselines are. */
#ifndef FL_ANALYSIS_RUN_SCORES_H
#define FL_ANALYSIS_RUN_SCORES_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"

enum { FL_SCORE_BYTES = 256 };

/* Names of metrics; "" where there is none. */
typedef struct fl_run_score {
    char task[FL_SCORE_BYTES];  /* label; "" for the perplexity of the evaluation text */
    char title[FL_SCORE_BYTES]; /* "mmlu, acc" */
    char axis[FL_SCORE_BYTES];  /* "acc" */
    char value[FL_SCORE_BYTES], error[FL_SCORE_BYTES], full[FL_SCORE_BYTES], linear_off[FL_SCORE_BYTES],
        chance[FL_SCORE_BYTES];
    bool higher_is_better, log; /* perplexities are compared on a logarithmic axis */
} fl_run_score;

/* Perplexity when a run has it, then one score a task: its accuracy (length-normalised where the field
 * reports it so: arc_challenge, hellaswag, openbookqa, mmlu_cloze), else its perplexity. *scores = fl_memory
 * block. */
fl_status fl_run_scores_list(const fl_run_set *set, fl_run_score **scores, size_t *count, fl_error *error);

/* A finite value of `metric` that all runs that have it share (to nine digits); NaN otherwise. */
double fl_run_scores_shared(const fl_run_set *set, const char *metric);

#endif
