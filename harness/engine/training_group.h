/* Training group: mechanisms trained in step with one another on the same draws, each with its own gradient, optimiser, history
 * and checkpoint. What a step computes is the objective's affair. Internal to training.c and layer_fit.c. */
#ifndef FL_ENGINE_TRAINING_GROUP_H
#define FL_ENGINE_TRAINING_GROUP_H

#include "harness/engine/layer_fit.h"
#include "harness/engine/optimiser.h"

typedef struct fl_training_member {
    const fl_training_job *job;
    fl_gradient *gradient;
    fl_adamw *adamw;
    size_t linearised; /* layers */
    bool active;       /* takes part in the step at hand */
    double loss;       /* of this step, summed over its sequences */
    double seconds;    /* of this step, spent on this member alone */
} fl_training_member;

typedef struct fl_training_group fl_training_group;

/* Adds, for every active member, weight * gradient and the loss of one sequence of the data, and counts `seconds`. */
typedef fl_status (*fl_training_add)(void *context, fl_training_group *group, size_t sequence, double weight,
                                     fl_error *error);

struct fl_training_group {
    const fl_network *network;
    const fl_sequences *sequences;
    const fl_progress *progress;
    size_t count;
    fl_training_member *members; /* [count] */
    size_t draws;                /* sequences a step */
    size_t *drawn;               /* [draws] */
    size_t seen;                 /* tokens of this step */
};

/* Checks the data and the mechanisms, empties the histories, and reads the checkpoints that are there. The jobs are borrowed.
 * Members whose checkpoints differ in steps go on one after another until they are level. */
fl_status fl_training_group_create(const fl_network *network, const fl_training_job *jobs, size_t count,
                                   const fl_sequences *sequences, const fl_progress *progress,
                                   fl_training_group *group, fl_error *error);
fl_status fl_training_group_run(fl_training_group *group, fl_training_add add, void *context, fl_error *error);
/* *keep = bytes left for keeping activations: the largest activation budget of the members, and within the smallest memory
 * budget what is left beside `needed` bytes of activations and the members' gradients and optimisers. FL_ERROR_MEMORY, with the
 * figure, when a memory budget is too small. */
fl_status fl_training_group_budget(const fl_training_group *group, size_t needed, size_t *keep, fl_error *error);
/* Tokens of the data's longest sequence. */
size_t fl_training_group_longest(const fl_training_group *group);
/* status: of the run. Histories survive success and cancellation. activation_bytes: beside gradients and optimisers. */
void fl_training_group_release(fl_training_group *group, size_t activation_bytes, fl_status status);

#endif
