/* Gradient: numbers laid out like a mechanism's parameters, for gradients and for an optimiser's moments.
 *
 * What passes add to lies with the compute instance (`sum`); fl_gradient_collect brings it to the host (`layer`), where it is measured,
 * clipped and stepped along. */
#ifndef FL_ENGINE_GRADIENT_H
#define FL_ENGINE_GRADIENT_H

#include <stddef.h>

#include "attn_variants/mechanism.h"
#include "harness/base/status.h"
#include "harness/compute/compute.h"

typedef struct fl_gradient {
    size_t layers, layer_floats;
    float **layer; /* [L] block of layer_floats like fl_mechanism.layer, NULL for softmax layers */
    fl_compute *compute; /* borrowed, NULL: numbers of the host alone */
    fl_array *sum;         /* [L] likewise, of the instance; NULL without one */
} fl_gradient;

/* All zero. compute NULL: nothing is added by passes. */
fl_status fl_gradient_create(const fl_mechanism *mechanism, fl_compute *compute, fl_gradient **out, fl_error *error);
void fl_gradient_destroy(fl_gradient *gradient);
/* Zeros what passes add to. */
void fl_gradient_clear(fl_gradient *gradient);
/* layer = sum. */
fl_status fl_gradient_collect(fl_gradient *gradient, fl_error *error);

/* Global L2 norm over all layers, summed in float64. */
double fl_gradient_norm(const fl_gradient *gradient);
void fl_gradient_scale(fl_gradient *gradient, double factor);

#endif
