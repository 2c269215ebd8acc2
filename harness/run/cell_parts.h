/* Cell parts: what a cell does beside measuring its text: training, tasks, ablations, the self check. */
#ifndef FL_RUN_CELL_PARTS_H
#define FL_RUN_CELL_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "attn_variants/ablation.h"
#include "harness/base/hash.h"
#include "harness/config/experiment.h"
#include "harness/engine/training.h"
#include "harness/eval/task_config.h"

typedef struct fl_cell_parts {
    bool has_train;
    fl_train_config train;
    fl_task_config_list tasks;
    size_t ablation_count;
    fl_branch ablations[FL_BRANCH_COUNT];
    fl_hash train_hash; /* of the training data's bytes; "" without training, or self-generated */
    fl_hash tasks_hash; /* of the data of all tasks; "" without tasks */
    fl_hash tasks_key;  /* of the tasks' configuration: cells with the same key share opened tasks */
} fl_cell_parts;

/* Binds `train`, `tasks` and `measure.ablate`, completes experiment->resolved, and hashes the data they name. A training whose
 * objective is none is taken out of the experiment. On failure *out is empty. */
fl_status fl_cell_parts_bind(fl_experiment *experiment, fl_cell_parts *out, fl_error *error);
void fl_cell_parts_release(fl_cell_parts *parts);

#endif
