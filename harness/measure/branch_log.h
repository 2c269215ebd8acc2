/* Branch log: what the linear branch of one variant did over an evaluation, per layer, teacher forced.
 *
 *   gate, beta       quantiles over tokens (and channels) per query head, from a histogram in log-odds of 0.005 (so a quantile
 *                    is within 0.13 per cent of a): where do gates sit, and do they saturate?
 *   effective rank   exp(entropy of the singular values over their sum) of the state at a sequence's end (Roy & Vetterli 2007),
 *                    mean over sequences: how much of the state is in use?
 *   routing          per KV head and position: `kept`, the share of sequences in which the token that left the window was still
 *                    in the cache at the end; `lifetime`, the mean number of steps it stayed after leaving the window. */
#ifndef FL_MEASURE_BRANCH_LOG_H
#define FL_MEASURE_BRANCH_LOG_H

#include "attn_variants/mixer.h"
#include "harness/base/status.h"
#include "harness/measure/text_evaluation.h"

typedef struct fl_branch_log fl_branch_log;

/* positions: of the longest sequence; block: the most tokens of one call. */
fl_status fl_branch_log_create(fl_compute *compute, const fl_mechanism *mechanism, size_t positions, size_t block,
                               fl_branch_log **out, fl_error *error);
void fl_branch_log_destroy(fl_branch_log *log);

void fl_branch_log_start_sequence(fl_branch_log *log);
/* Points the call's optional outputs at this log's buffers ... */
void fl_branch_log_attach(fl_branch_log *log, fl_mixer_call *call);
/* ... and takes what the mixer left there; first: position of the call's first token. */
fl_status fl_branch_log_take(fl_branch_log *log, size_t layer, const fl_mixer_call *call, size_t first,
                             fl_error *error);
/* mixers [L] at the end of a sequence of that length. */
fl_status fl_branch_log_end_sequence(fl_branch_log *log, fl_mixer *const *mixers, size_t length, fl_error *error);

/* Fills the result's arrays; those of parts that the variant lacks are released and set to NULL. */
void fl_branch_log_finish(const fl_branch_log *log, fl_text_result *result);

#endif
