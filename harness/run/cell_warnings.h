/* Cell warnings: what a cell measures and its user can hardly have meant. They are printed by `plan` and `run`, kept in the run
 * file (/warnings) and shown by the report; the cell is measured all the same. What can only be a mistake is an error. */
#ifndef FL_RUN_CELL_WARNINGS_H
#define FL_RUN_CELL_WARNINGS_H

#include <stdio.h>

#include "harness/base/status.h"
#include "harness/run/cell_list.h"

/* What the configuration, the model and the texts say, once the cell is set up: fewer sequences than asked for, sequences
 * longer than the model's context, an exact set that covers all, layers all left softmax, untrained parts that change nothing,
 * a training of nothing, a warm-up as long as the training, tasks with fewer documents than asked for. FL_ERROR_ARGUMENT when
 * nothing at all would be measured. */
fl_status fl_cell_warnings_collect(const fl_cell_list *list, fl_cell_work *cell, const fl_cell_group *group,
                                   fl_error *error);

/* What only the training text tells, once it is loaded as group->training: fewer sequences than asked for, or than are drawn. */
fl_status fl_cell_warnings_of_training(fl_cell_work *cell, const fl_cell_group *group, fl_error *error);

/* Those of all cells, each text once with its cells. */
fl_status fl_cell_warnings_print(FILE *stream, const fl_cell_list *list, fl_error *error);

#endif
