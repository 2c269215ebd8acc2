/* Layer error: how far a linearised layer is from the frozen one on the same inputs, and the gradient of that with respect to
 * the layer's mechanism parameters. */
#ifndef FL_ENGINE_LAYER_ERROR_H
#define FL_ENGINE_LAYER_ERROR_H

#include <stdbool.h>
#include <stddef.h>

#include "attn_variants/mechanism.h"
#include "attn_variants/mixer.h"
#include "harness/base/status.h"
#include "harness/compute/array.h"
#include "harness/engine/frozen_pass.h"
#include "harness/engine/network.h"

/* Scratch, reused from call to call. Starts all zero. */
typedef struct fl_layer_error {
    fl_compute *compute; /* borrowed from the network of the first run */
    fl_array squares;    /* [1] float64 */
    size_t capacity;     /* tokens */
    fl_array mix;        /* [T][H][D] */
    fl_array difference; /* [T][E] */
} fl_layer_error;

void fl_layer_error_release(fl_layer_error *scratch);
size_t fl_layer_error_bytes(const fl_layer_error *scratch, const fl_model_config *config);

/* FL_ERROR_ARGUMENT for a mechanism with adapters (LoRA): they change the inputs that are compared, and are trained through the
 * whole network only. */
fl_status fl_layer_error_check(const fl_mechanism *mechanism, fl_error *error);

/* *loss = mean square of (linearised - frozen) attention block output, divided by target->variance when `normalise`. Adds
 * weight * its gradient to gradient_parameters (a block laid out as the layer's; NULL: the loss alone). exact: as in
 * fl_mixer_call, or NULL. */
fl_status fl_layer_error_run(fl_layer_error *scratch, const fl_network *network, const fl_mechanism *mechanism,
                             const fl_frozen_layer *target, fl_exact_share *exact, double weight, bool normalise,
                             fl_array gradient_parameters, double *loss, fl_error *error);

#endif
