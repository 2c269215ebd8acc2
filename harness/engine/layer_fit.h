/* Layer fit: the layer-wise objective for several mechanisms at once. Each step runs the frozen model forward once, and every
 * mechanism's layers are fitted to what its attention blocks gave on the same inputs, each layer by itself and without a
 * gradient through the backbone. Those with the same exact set share its softmax. A mechanism comes out bit for bit as it would
 * alone (fl_training_run is the case of one). */
#ifndef FL_ENGINE_LAYER_FIT_H
#define FL_ENGINE_LAYER_FIT_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/engine/training.h"

/* One of the mechanisms; members as in fl_training_options. */
typedef struct fl_training_job {
    const fl_train_config *config;
    fl_mechanism *mechanism; /* trained in place */
    const char *checkpoint_path, *identity;
    const fl_training_hooks *hooks; /* or NULL */
    fl_training_history *history;
} fl_training_job;

/* Whether two configurations may share a fit: layer_mse, and the same draws from the data. Learning rates, numbers of steps and
 * the rest may differ. The data itself is the caller's to compare. */
bool fl_layer_fit_compatible(const fl_train_config *a, const fl_train_config *b);

/* count > 0; FL_ERROR_ARGUMENT when two jobs are not compatible. The frozen pass keeps activations up to the largest
 * activation budget of the jobs, then in a scratch file up to their largest scratch budget. history->seconds: what was spent on the mechanism, and its share of the frozen pass, so that
 * the sum over the jobs is the time taken. history->bytes counts the shared activations in every job. */
fl_status fl_layer_fit_run(const fl_network *network, const fl_training_job *jobs, size_t count,
                           const fl_sequences *sequences, const fl_progress *progress, fl_error *error);

#endif
