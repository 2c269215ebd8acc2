/* One task of a run file in lm-evaluation-harness's terms: parts of lm_eval_files.h. */
#ifndef FL_ANALYSIS_LM_EVAL_TASK_H
#define FL_ANALYSIS_LM_EVAL_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"
#include "harness/eval/task_texts.h"
#include "harness/store/run_file.h"

enum { FL_LM_EVAL_NAME_BYTES = 512 };

/* Arrays are fl_memory blocks, NULL where the run file has no such column. n items, C choices. */
typedef struct fl_lm_eval_task {
    char *label;
    size_t count, choices;
    double *document, *gold, *greedy, *correct, *correct_norm, *correct_bytes; /* [n] */
    double *log_likelihood;                                                    /* [n][C] */
    double *choice_greedy;                                                     /* [n][C] */
    double *words, *bytes, *shots_left;                                        /* [n] */
    char **subject, **answer, **document_hash;                                 /* [n] */
    size_t subject_count; /* a task of one subject has no leaves */
    char **subjects;      /* [subject_count] */
    double *subject_n, *subject_acc, *subject_acc_stderr, *subject_acc_norm, *subject_acc_norm_stderr;
    fl_task_texts *texts;      /* set by whoever wants texts in the samples; NULL: they are null */
    const fl_task_kind *kind;  /* likewise */
    const char *shots, *limit; /* from the configuration; borrowed from the run, NULL when unknown */
} fl_lm_eval_task;

fl_status fl_lm_eval_task_read(fl_run_reader *reader, const fl_run_entry *run, const char *label,
                               fl_lm_eval_task *out, fl_error *error);
void fl_lm_eval_task_release(fl_lm_eval_task *task);

/* Top-level members of the results file, in the order they are written. */
typedef enum fl_lm_eval_part {
    FL_LM_EVAL_RESULTS = 0,
    FL_LM_EVAL_GROUPS,
    FL_LM_EVAL_GROUP_SUBTASKS,
    FL_LM_EVAL_CONFIGS,
    FL_LM_EVAL_VERSIONS,
    FL_LM_EVAL_SHOTS,
    FL_LM_EVAL_HIGHER_IS_BETTER,
    FL_LM_EVAL_SAMPLE_COUNTS,
    FL_LM_EVAL_PARTS
} fl_lm_eval_part;

/* `"name": {...},` with its newline. */
void fl_lm_eval_write_part(FILE *stream, fl_lm_eval_part part, const fl_run_entry *run,
                           const fl_lm_eval_task *tasks, size_t count);

/* A task of more than one subject is a group, its subjects are the leaves; others are their own leaf. */
bool fl_lm_eval_is_group(const fl_lm_eval_task *task);
size_t fl_lm_eval_leaf_count(const fl_lm_eval_task *task);
void fl_lm_eval_leaf_name(const fl_lm_eval_task *task, size_t leaf, char out[FL_LM_EVAL_NAME_BYTES]);

#endif
