/* Evaluation: measures the pending cells of an open group and writes one run file each.
 *
 * A batch of cells is claimed at a time (cell_claim.h); what other processes hold is left to them. Cells that
 * train are trained first. Up to FL_EVALUATION_BATCH cells then share a frozen pass and opened
 * tasks, together with their baselines (the same cells with the linear part off, each distinct one measured
 * once) and the ablations asked for. The weights are hashed before and after; had they changed, nothing is
 * written. When a batch fails as a whole its cells are tried one by one, so that one cell's trouble stays its
 * own. The text and each task that a cell has finished survive a kill (finished_stage.h). */
#ifndef FL_RUN_EVALUATION_H
#define FL_RUN_EVALUATION_H

#include "harness/base/progress.h"
#include "harness/base/status.h"
#include "harness/run/cell_list.h"
#include "harness/measure/self_check.h"

enum { FL_EVALUATION_BATCH = 16 };

/* Told after every cell that was computed, failed, or turned out to be another process's. */
typedef void (*fl_evaluation_listener)(void *context, const fl_cell_work *cell);

typedef struct fl_evaluation_options {
    size_t threads;
    size_t batch; /* cells claimed at a time, at most FL_EVALUATION_BATCH; 0: that many */
    const fl_progress *progress;
    int (*interrupts)(void); /* > 0: start no further batch */
    /* Told of the cells that are measured together next; may be NULL. */
    void (*begun)(void *context, fl_cell_work *const *cells, size_t count);
    fl_evaluation_listener listener;
    /* Told the outcome of a cell's self check; may be NULL. */
    void (*checked)(void *context, const fl_cell_work *cell, const fl_self_check_report *report);
    void *context; /* of the listener */
} fl_evaluation_options;

/* FL_ERROR_CANCELLED when interrupted, FL_ERROR_DISK when the disk is full: what is still pending was not done and is as it
 * was. Other failures are the cells' own. */
fl_status fl_evaluation_run(fl_cell_list *list, size_t group_index, fl_cell_group *group,
                            const fl_evaluation_options *options, fl_error *error);

#endif
