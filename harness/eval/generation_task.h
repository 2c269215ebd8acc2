/* Generation tasks: retrieval prompts made, continued greedily and scored. Private to the evaluation. */
#ifndef FL_EVAL_GENERATION_TASK_H
#define FL_EVAL_GENERATION_TASK_H

#include "harness/base/progress.h"
#include "harness/base/status.h"
#include "harness/eval/task.h"
#include "harness/eval/task_requests.h"

/* One item a length, depth and sample; its request's context is the prompt. The task's file, where it has
 * one, has been read. */
fl_status fl_generation_build(const fl_task_config *config, const fl_tokenizer *tokenizer,
                              fl_task_requests *task, fl_error *error);

/* Columns of *result (zeroed by the caller), counts included. */
fl_status fl_generation_evaluate(const fl_task_config *config, const fl_task_requests *task,
                                 const fl_network *network, const fl_tokenizer *tokenizer,
                                 const fl_mechanism *mechanism, const fl_progress *progress,
                                 fl_task_result *result, fl_error *error);

#endif
