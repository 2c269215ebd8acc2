/* The file a training resumes from: a safetensors file with parameters (layers.<i>.<name>), moments (optimiser.first. ... and
 * optimiser.second. ...) and, as metadata, identity, steps, history. Written under a temporary name and renamed. Internal to
 * training.c. */
#ifndef FL_ENGINE_TRAINING_STATE_H
#define FL_ENGINE_TRAINING_STATE_H

#include "harness/engine/optimiser.h"
#include "harness/engine/training.h"

fl_status fl_training_state_save(const char *path, const char *identity, const fl_mechanism *mechanism,
                                 const fl_adamw *adamw, const fl_training_history *history, fl_error *error);

/* planned: steps of the training; history's arrays have that length and are filled. */
fl_status fl_training_state_load(const char *path, const char *identity, size_t planned, fl_mechanism *mechanism,
                                 fl_adamw *adamw, fl_training_history *history, fl_error *error);

#endif
