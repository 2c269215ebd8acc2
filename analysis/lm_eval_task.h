/* One task of a run file in lm-evaluation-harness's terms: parts of lm_eval_files.h. */
#ifndef FL_ANALYSIS_LM_EVAL_TASK_H
#define FL_ANALYSIS_LM_EVAL_TASK_H

#include <stddef.h>
#include <stdio.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"
#include "harness/store/run_file.h"

/* Arrays are fl_memory blocks, NULL where the run file has no such column. n items, C choices. */
typedef struct fl_lm_eval_task {
    char *label;
    size_t count, choices;
    double *document, *gold, *greedy, *correct, *correct_norm, *correct_bytes; /* [n] */
    double *log_likelihood;                                                    /* [n][C] */
    char **subject, **answer;                                                  /* [n] */
    size_t subject_texts, answer_texts;
    size_t subject_count; /* a task of one subject has no leaves */
    char **subjects;      /* [subject_count] */
    double *subject_n, *subject_acc, *subject_acc_stderr, *subject_acc_norm, *subject_acc_norm_stderr;
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

/* samples_<task>_<stamp>.jsonl of each leaf, into `folder`. */
fl_status fl_lm_eval_write_samples(const fl_lm_eval_task *task, const char *folder, const char *stamp,
                                   fl_error *error);

#endif
