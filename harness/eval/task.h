/* Task: one benchmark evaluated for any number of variants, and what comes of it.
 *
 * Data are read, worded and tokenised once (fl_task_open); every variant is then scored on the same requests.
 * Definitions are lm-evaluation-harness's unless a metric's name says otherwise; acc is per item over all
 * subjects (micro), acc_macro the plain mean over subjects. */
#ifndef FL_EVAL_TASK_H
#define FL_EVAL_TASK_H

#include <stddef.h>
#include <stdint.h>

#include "attn_variants/mechanism.h"
#include "harness/base/hash.h"
#include "harness/base/progress.h"
#include "harness/base/status.h"
#include "harness/engine/network.h"
#include "harness/eval/metrics.h"
#include "harness/eval/scoring.h"
#include "harness/eval/task_config.h"
#include "harness/model/tokenizer.h"

enum { FL_METRIC_NAME_BYTES = 48, FL_TASK_MAX_METRICS = 48 };

typedef struct fl_task_metric {
    char name[FL_METRIC_NAME_BYTES];
    double value; /* NaN: does not exist (a standard error of one item) */
} fl_task_metric;

typedef struct fl_task_subject_result {
    char *name;
    const char *category; /* MMLU's four groups, or NULL; static */
    size_t count;
    double acc, acc_stderr, acc_norm, acc_norm_stderr; /* NaN where the task has none */
} fl_task_subject_result;

/* One variant's results. n items, C = most choices of an item. All arrays are fl_memory blocks; NULL where
 * the task has no such column. */
typedef struct fl_task_result {
    char *name, *label;                    /* of the task */
    size_t count, choices;                 /* n, C */
    int64_t *document, *subject, *gold;    /* [n] document: index in its subject's file; gold -100: none */
    int64_t *prediction, *prediction_norm; /* [n] argmax of the log-likelihood, of it per character */
    int64_t *greedy; /* [n] 1: the right continuation was the greedy one (choices: the gold's) */
    double *correct; /* [n] what acc is the mean of */
    double *correct_norm, *correct_bytes; /* [n] */
    int64_t *stale;         /* [n] recall: 1: the prediction is an older value of the asked key */
    double *linear_share;   /* [n] share of scored tokens whose context had reached the linear state */
    double *log_likelihood; /* [n][C] natural log; NaN where an item has fewer choices */
    double *square_sum;     /* [n] texts: sum of the squared log-likelihoods of the tokens */
    int64_t *choice_greedy; /* [n][C] 1: the choice was the greedy continuation */
    int64_t *choice_tokens, *choice_characters; /* [n][C] 0 where there is none */
    int64_t *context_tokens;                    /* [n] longest context */
    int64_t *truncated;                         /* [n] tokens cut off on the left, most of its requests */
    int64_t *shots;         /* [n] tasks that drop shots: how many are left in the prompt */
    int64_t *words, *bytes; /* [n] pages: of the original */
    fl_hash *document_hash; /* [n] of the document as read; of made items and windows: of their tokens */
    int64_t *length;        /* [n] made tasks: tokens asked for */
    double *depth;          /* [n] made tasks: 0 .. 1 */
    char **answer;          /* [n] generation: the continuation as text */
    size_t metric_count;
    fl_task_metric metrics[FL_TASK_MAX_METRICS];
    size_t subject_count;
    fl_task_subject_result *subjects; /* in the order of `subject` */
    fl_score_counts counts;
    fl_hash data_hash; /* fl_task_data_hash */
} fl_task_result;

void fl_task_result_release(fl_task_result *result);
/* NaN when there is no metric of that name. */
double fl_task_result_metric(const fl_task_result *result, const char *name);

/* Metrics and the subjects' figures from the items' columns (and counts) alone: items pooled from several
 * runs or read back from a file give what their evaluation would have given. Replaces what was there.
 * `subject` must be in order. */
fl_status fl_task_result_summarise(const fl_task_config *config, fl_task_result *result, fl_error *error);

typedef struct fl_task fl_task;

/* network and tokenizer are borrowed and must outlive the task; config is copied where needed and may go.
 * tokenizer may be NULL for tasks that make token ids. */
fl_status fl_task_open(const fl_task_config *config, const fl_network *network, const fl_tokenizer *tokenizer,
                       fl_task **out, fl_error *error);
void fl_task_close(fl_task *task);

size_t fl_task_item_count(const fl_task *task);
/* Hash of the data files, for run ids. */
fl_hash fl_task_data_hash(const fl_task *task);
/* Findings of the readers: answers missing, prompts cut ... */
size_t fl_task_note_count(const fl_task *task);
const char *fl_task_note(const fl_task *task, size_t index);
/* The text of one request, as it was tokenised: for lm-evaluation-harness's samples file. FL_MEMORY blocks;
 * both NULL for tasks without texts. */
fl_status fl_task_request_texts(const fl_task *task, size_t item, size_t choice, char **context,
                                char **continuation, fl_error *error);

/* mechanism NULL: the frozen model. A variant that diverged gets NaN log-likelihoods and is scored as wrong.
 */
fl_status fl_task_evaluate(const fl_task *task, const fl_mechanism *mechanism, const fl_progress *progress,
                           fl_task_result *result, fl_error *error);

/* fl_task_open, fl_task_evaluate for each mechanism, fl_task_close. results [count] are released on failure.
 */
fl_status fl_task_run(const fl_network *network, const fl_tokenizer *tokenizer,
                      const fl_mechanism *const *mechanisms, size_t count, const fl_task_config *config,
                      const fl_progress *progress, fl_task_result *results, fl_error *error);

/* Two variants of the same task on the same items. FL_ERROR_ARGUMENT when the items differ. */
fl_status fl_task_compare(const fl_task_result *first, const fl_task_result *second,
                          fl_paired_comparison *out, fl_error *error);

#endif
