/* Cell file: the run file of one cell, from its results. */
#ifndef FL_RUN_CELL_FILE_H
#define FL_RUN_CELL_FILE_H

#include "harness/base/status.h"
#include "harness/run/cell_list.h"
#include "harness/run/cell_tasks.h"
#include "harness/measure/self_check.h"

typedef struct fl_cell_file {
    const fl_cell_list *list;
    const fl_cell_work *cell;
    const fl_cell_group *group;
    fl_hash weights_after;
    const fl_text_result *result, *linear_off;        /* NULL: not measured, or no such baseline */
    const fl_text_result *ablations[FL_BRANCH_COUNT]; /* NULL: not asked for, or no such part */
    const fl_self_check_report *self_check;           /* NULL: not asked for */
    const fl_task_table *tasks;                       /* NULL: no tasks */
    size_t task_row, linear_off_row;                  /* rows of the table; SIZE_MAX: no baseline */
    const char *started;                              /* of its batch, as fl_provenance_now writes it */
    double seconds;                                   /* the cell's share of its batch, and its training */
    double frozen_seconds;                            /* of the frozen passes that `sharing` cells shared */
    size_t sharing;
} fl_cell_file;

/* Writes <out>/<run id>.h5, whole or not at all. */
fl_status fl_cell_file_write(const fl_cell_file *content, fl_error *error);

#endif
