/* lm-evaluation-harness files: task results as its results_<time>.json and samples_<task>_<time>.jsonl.
 *
 * Made from run files alone, so a folder can be converted long after the run. What a run file does not hold
 * is null: the texts of documents and prompts and their hashes, and whether a wrong choice would have been
 * the greedy one. The time in names and in `date` is the run's, so the same run file gives the same bytes. */
#ifndef FL_ANALYSIS_LM_EVAL_FILES_H
#define FL_ANALYSIS_LM_EVAL_FILES_H

#include <stddef.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"

/* Writes <folder>/<model>__<run id>/results_....json and one samples file a task (a subject of MMLU is a task
 * of its own, <label>_<subject>, and <label> the group). *written = runs that have tasks; 0 is
 * FL_ERROR_ARGUMENT. */
fl_status fl_lm_eval_files_write(const fl_run_set *set, const char *folder, size_t *written, fl_error *error);

#endif
