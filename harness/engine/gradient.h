/* Gradient: numbers laid out like a mechanism's parameters, for gradients and for an optimiser's moments. */
#ifndef FL_ENGINE_GRADIENT_H
#define FL_ENGINE_GRADIENT_H

#include <stddef.h>

#include "attn_variants/mechanism.h"
#include "harness/base/status.h"

typedef struct fl_gradient {
    size_t layers, layer_floats;
    float **layer; /* [L] block of layer_floats like fl_mechanism.layer, NULL for softmax layers */
} fl_gradient;

/* All zero. */
fl_status fl_gradient_create(const fl_mechanism *mechanism, fl_gradient **out, fl_error *error);
void fl_gradient_destroy(fl_gradient *gradient);
void fl_gradient_clear(fl_gradient *gradient);

/* Global L2 norm over all layers, summed in float64. */
double fl_gradient_norm(const fl_gradient *gradient);
void fl_gradient_scale(fl_gradient *gradient, double factor);

#endif
