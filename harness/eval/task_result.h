/* Task results: from scores of requests to items (fl_task_result_summarise of task.h
 * makes metrics of those). Private to the evaluation. */
#ifndef FL_EVAL_TASK_RESULT_H
#define FL_EVAL_TASK_RESULT_H

#include "harness/base/status.h"
#include "harness/eval/scoring.h"
#include "harness/eval/task.h"
#include "harness/eval/task_requests.h"

/* Columns of *result (zeroed by the caller) from scores [requests->request_count]. */
fl_status fl_task_result_fill(const fl_task_config *config, const fl_task_requests *requests,
                              const fl_score *scores, fl_task_result *result, fl_error *error);

/* Names, subjects, what is known of the items beforehand and the columns every task has; the rest is left to
 * the caller. */
fl_status fl_task_result_create(const fl_task_config *config, const fl_task_requests *requests,
                                size_t choices, fl_task_result *result, fl_error *error);

#endif
