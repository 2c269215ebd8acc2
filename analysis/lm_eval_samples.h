/* The samples files of lm_eval_files.h: one line an item. */
#ifndef FL_ANALYSIS_LM_EVAL_SAMPLES_H
#define FL_ANALYSIS_LM_EVAL_SAMPLES_H

#include "analysis/lm_eval_task.h"
#include "harness/base/status.h"

/* samples_<task>_<stamp>.jsonl of each leaf, into `folder`. With task->texts, FL_ERROR_FORMAT when an item's
 * document is not there or not the recorded one. */
fl_status fl_lm_eval_write_samples(const fl_lm_eval_task *task, const char *folder, const char *stamp,
                                   fl_error *error);

#endif
