/* Cell training: fits a cell's mechanism before it is measured.
 *
 * The training state is kept in <out>/<run id>.training.safetensors, so that an interrupted cell goes on
 * where it stopped, and the fitted parameters in <out>/<run id>.mechanism.safetensors, which
 * `variant.mechanism` loads. */
#ifndef FL_CLI_CELL_TRAINING_H
#define FL_CLI_CELL_TRAINING_H

#include "harness/cli/cell_list.h"
#include "harness/cli/console.h"

/* Trains cell->linearised.mechanism (equipped; network prepared) and fills cell->history. Divergence is a
 * result: cell->history.diverged. The training text is loaded once a group. */
fl_status fl_cell_train(const fl_cell_list *list, fl_cell_group *group, fl_cell_work *cell,
                        const fl_progress *progress, fl_error *error);

#endif
