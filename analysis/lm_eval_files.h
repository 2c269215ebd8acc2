/* lm-evaluation-harness files: task results as its results_<time>.json and samples_<task>_<time>.jsonl.
 *
 * Made from run files, so a folder can be converted long after the run. The texts (doc, target, arguments)
 * and their hashes come from the task's data files, found where the configuration says and read again when
 * their hash is the recorded one; else they are null and a note says why. Tasks that make their items have
 * none. prompt_hash and target_hash are lm-evaluation-harness's: SHA-256 of the first context and of
 * str(target). So is doc_hash, of the `doc` that stands beside it; it equals the harness's own where the file
 * holds the rows its data set has (exported as JSON Lines; MMLU's CSV, raw WikiText), and is null where our
 * reader knows no such row. frostline_document_hash is ours in any case: XXH3-128 of the document as read
 * (results/README.md). The time in names and in `date` is the run's, so the same run file and data give the
 * same bytes. */
#ifndef FL_ANALYSIS_LM_EVAL_FILES_H
#define FL_ANALYSIS_LM_EVAL_FILES_H

#include <stddef.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"
#include "harness/config/text_builder.h"

/* Writes <folder>/<model>__<run id>/results_....json and one samples file a task (a subject of MMLU is a task
 * of its own, <label>_<subject>, and <label> the group). *written = runs that have tasks; 0 is
 * FL_ERROR_ARGUMENT. Appends to *notes a line for every task without texts. */
fl_status fl_lm_eval_files_write(const fl_run_set *set, const char *folder, size_t *written,
                                 fl_text_builder *notes, fl_error *error);

#endif
