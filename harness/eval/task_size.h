/* Task size: about how many tokens one variant's evaluation computes, for plans; nothing is tokenised. */
#ifndef FL_EVAL_TASK_SIZE_H
#define FL_EVAL_TASK_SIZE_H

#include "harness/base/status.h"
#include "harness/eval/task_config.h"

/* English text in the vocabularies of today: bytes of a token, which is what makes this an estimate. */
#define FL_TASK_BYTES_PER_TOKEN 4.0

typedef struct fl_task_size {
    double tokens;  /* computed; a prompt's beginning that the one before it has as well counts once, unless
                       `share` is off */
    double longest; /* of one prompt */
} fl_task_size;

/* Reads the task's data. Errors are the readers'. */
fl_status fl_task_size_estimate(const fl_task_config *config, fl_task_size *out, fl_error *error);

#endif
