/* Recall: associative recall over random token ids, scored as a choice among all values of the sequence.
 *
 *   mqar                zoology's multi-query associative recall: k v k v ..., then every key once more at
 * twice a gap drawn without replacement with probability proportional to 0.01 x^(-0.99), filler between; keys
 * from the lower half of the id range, values from the upper associative_recall  n keys with a value each,
 * written anew `overwrites` times under the same keys, then every key asked in a prompt of its own; choices
 * that are older values of the asked key are marked as stale */
#ifndef FL_EVAL_RECALL_H
#define FL_EVAL_RECALL_H

#include "harness/base/status.h"
#include "harness/eval/task_config.h"
#include "harness/eval/task_requests.h"

/* Adds the items and requests of config->samples sequences (mqar: of every length) to the task. */
fl_status fl_recall_build(const fl_task_config *config, fl_task_requests *task, fl_error *error);

#endif
