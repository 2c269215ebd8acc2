#include "harness/engine/gradient.h"

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"

fl_status fl_gradient_create(const fl_mechanism *mechanism, fl_gradient **out, fl_error *error) {
    *out = NULL;
    fl_gradient *gradient = NULL;
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&gradient, 1, error));
    gradient->layers = mechanism->layers;
    gradient->layer_floats = mechanism->layer_floats;
    FL_TRY_DONE(status, FL_ALLOCATE(&gradient->layer, gradient->layers, error));
    for (size_t l = 0; l < gradient->layers; l++) {
        if (mechanism->layer[l] == NULL) continue;
        FL_TRY_DONE(status, FL_ALLOCATE(&gradient->layer[l], gradient->layer_floats, error));
    }
    *out = gradient;
    return FL_OK;
done:
    fl_gradient_destroy(gradient);
    return status;
}

void fl_gradient_destroy(fl_gradient *gradient) {
    if (gradient == NULL) return;
    for (size_t l = 0; gradient->layer != NULL && l < gradient->layers; l++)
        fl_memory_free(gradient->layer[l]);
    fl_memory_free(gradient->layer);
    fl_memory_free(gradient);
}

void fl_gradient_clear(fl_gradient *gradient) {
    for (size_t l = 0; l < gradient->layers; l++) {
        if (gradient->layer[l] != NULL) memset(gradient->layer[l], 0, gradient->layer_floats * sizeof(float));
    }
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
