/* Task results: from scores of requests to items, and from items to metrics. Private to the evaluation. */
#ifndef FL_EVAL_TASK_RESULT_H
#define FL_EVAL_TASK_RESULT_H

#include "harness/base/status.h"
#include "harness/eval/scoring.h"
#include "harness/eval/task.h"
#include "harness/eval/task_requests.h"

/* Columns of *result (zeroed by the caller) from scores [requests->request_count]. */
fl_status fl_task_result_fill(const fl_task_config *config, const fl_task_requests *requests,
                              const fl_score *scores, fl_task_result *result, fl_error *error);

/* Names, items and the columns every task has; the rest is left to the caller. */
fl_status fl_task_result_create(const fl_task_config *config, size_t count, size_t choices,
                                fl_task_result *result, fl_error *error);

/* Metrics and subjects from the columns. square_sum and tokens: of all scored tokens (texts). */
fl_status fl_task_result_summarise(const fl_task_config *config, const fl_task_requests *requests,
                                   const fl_score *scores, fl_task_result *result, fl_error *error);

/* Adds a metric; silently full after FL_TASK_MAX_METRICS (the tables here never get there). */
void fl_task_result_add(fl_task_result *result, const char *name, double value);

#endif
