/* Cell training: fits a cell's mechanism before it is measured.
 *
 * The training state is kept in <out>/<run id>.training.safetensors, so that an interrupted cell goes on
 * where it stopped, and the fitted parameters in <out>/<run id>.mechanism.safetensors, which
 * `variant.mechanism` loads. */
#ifndef FL_RUN_CELL_TRAINING_H
#define FL_RUN_CELL_TRAINING_H

#include "harness/run/cell_list.h"
#include "harness/base/progress.h"

enum { FL_CELL_TRAINING_MOST = 16 };

/* Whether two cells that train can be fitted together: layer_mse on the same draws from the same data. */
bool fl_cell_trains_with(const fl_cell_work *a, const fl_cell_work *b);

/* Trains cell->linearised.mechanism (equipped; network prepared) and fills cell->history of every cell;
 * several cells share the frozen pass and must all train with the first. Divergence is a result:
 * cell->history.diverged. The training text is loaded once a group. count <= FL_CELL_TRAINING_MOST. */
fl_status fl_cells_train(const fl_cell_list *list, fl_cell_group *group, fl_cell_work *const *cells,
                         size_t count, const fl_progress *progress, fl_error *error);

#endif
