/* Plan estimate: how long the cells that are left will take one worker, and how much memory at once.
 *
 * A group in which cells of the same kind (trained or not) are done: the mean of their recorded seconds. Else
 * arithmetic: the products of the frozen passes, of each cell's own passes, of its training and of its tasks
 * (by the bytes of their prompts, task_size.h), divided by the speed of a matrix product measured here. That
 * is rough (a factor of two). */
#ifndef FL_RUN_PLAN_ESTIMATE_H
#define FL_RUN_PLAN_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"
#include "harness/run/cell_list.h"

typedef struct fl_plan_estimate {
    size_t recorded;                    /* cells left whose time is known from done ones, ... */
    double seconds;                     /* ... and their time */
    size_t worked_out;                  /* the others, ... */
    double operations;                  /* ... and their floating point operations */
    double bytes;                       /* most at once */
    bool without_tasks;                 /* the data of some task could not be read */
    char tasks_key[FL_HASH_TEXT_BYTES]; /* of the tasks looked at last, ... */
    double task_operations;             /* ... which one variant takes so much for */
} fl_plan_estimate;

/* Adds an open group. */
void fl_plan_estimate_add(fl_plan_estimate *estimate, const fl_cell_list *list, size_t group_index,
                          const fl_cell_group *group);

/* Seconds of one worker with `threads` threads (0: all processors) on this machine, whose speed is measured
 * for a fifth of a second when that is needed. */
fl_status fl_plan_estimate_seconds(const fl_plan_estimate *estimate, size_t threads, double *seconds,
                                   fl_error *error);

#endif
