#include "harness/engine/gradient.h"

#include <math.h>

#include "harness/base/memory.h"

static fl_status allocate(fl_gradient *gradient, const fl_mechanism *mechanism, fl_error *error) {
    fl_compute *compute = gradient->compute;
    FL_TRY(FL_ALLOCATE(&gradient->layer, gradient->layers, error));
    if (compute != NULL) FL_TRY(FL_ALLOCATE(&gradient->sum, gradient->layers, error));
    for (size_t l = 0; l < gradient->layers; l++) {
        if (mechanism->layer[l] == NULL) continue;
        FL_TRY(FL_ALLOCATE(&gradient->layer[l], gradient->layer_floats, error));
        if (compute != NULL)
            FL_TRY(fl_compute_floats(compute, gradient->layer_floats, &gradient->sum[l], error));
    }
    fl_gradient_clear(gradient);
    return FL_OK;
}

fl_status fl_gradient_create(const fl_mechanism *mechanism, fl_compute *compute, fl_gradient **out,
                             fl_error *error) {
    *out = NULL;
    fl_gradient *gradient = NULL;
    FL_TRY(FL_ALLOCATE(&gradient, 1, error));
    gradient->layers = mechanism->layers;
    gradient->layer_floats = mechanism->layer_floats;
    gradient->compute = compute;
    fl_status status = allocate(gradient, mechanism, error);
    if (status != FL_OK) {
        fl_gradient_destroy(gradient);
        return status;
    }
    *out = gradient;
    return FL_OK;
}

void fl_gradient_destroy(fl_gradient *gradient) {
    if (gradient == NULL) return;
    for (size_t l = 0; gradient->layer != NULL && l < gradient->layers; l++) {
        fl_memory_free(gradient->layer[l]);
        if (gradient->sum != NULL) fl_compute_release(gradient->compute, gradient->sum[l]);
    }
    fl_memory_free(gradient->layer);
    fl_memory_free(gradient->sum);
    fl_memory_free(gradient);
}

void fl_gradient_clear(fl_gradient *gradient) {
    for (size_t l = 0; gradient->sum != NULL && l < gradient->layers; l++) {
        if (fl_array_is(gradient->sum[l]))
            fl_compute_fill(gradient->compute, gradient->sum[l], gradient->layer_floats, 0.0);
    }
}

fl_status fl_gradient_collect(fl_gradient *gradient, fl_error *error) {
    for (size_t l = 0; l < gradient->layers; l++) {
        if (!fl_array_is(gradient->sum[l])) continue;
        FL_TRY(fl_compute_download(gradient->compute, gradient->layer[l], gradient->sum[l],
                                   gradient->layer_floats, error));
    }
    return FL_OK;
}

double fl_gradient_norm(const fl_gradient *gradient) {
    double sum = 0.0;
    for (size_t l = 0; l < gradient->layers; l++) {
        const float *block = gradient->layer[l];
        for (size_t i = 0; block != NULL && i < gradient->layer_floats; i++)
            sum += (double)block[i] * (double)block[i];
    }
    return sqrt(sum);
}

void fl_gradient_scale(fl_gradient *gradient, double factor) {
    for (size_t l = 0; l < gradient->layers; l++) {
        float *block = gradient->layer[l];
        for (size_t i = 0; block != NULL && i < gradient->layer_floats; i++) {
            block[i] = (float)((double)block[i] * factor);
        }
    }
}
