#include "harness/engine/optimiser.h"

#include <math.h>

#include "harness/base/memory.h"

static const double CLIP_EPSILON = 1e-6;
static const double PI = 3.14159265358979323846;

fl_status fl_adamw_create(const fl_mechanism *mechanism, double beta1, double beta2, double epsilon,
                          double weight_decay, fl_adamw **out, fl_error *error) {
    *out = NULL;
    fl_adamw *adamw = NULL;
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&adamw, 1, error));
    adamw->beta1 = beta1;
    adamw->beta2 = beta2;
    adamw->epsilon = epsilon;
    adamw->weight_decay = weight_decay;
    FL_TRY_DONE(status, fl_gradient_create(mechanism, &adamw->first, error));
    FL_TRY_DONE(status, fl_gradient_create(mechanism, &adamw->second, error));
    *out = adamw;
    return FL_OK;
done:
    fl_adamw_destroy(adamw);
    return status;
}

void fl_adamw_destroy(fl_adamw *adamw) {
    if (adamw == NULL) return;
    fl_gradient_destroy(adamw->first);
    fl_gradient_destroy(adamw->second);
    fl_memory_free(adamw);
}

void fl_adamw_step(fl_adamw *adamw, fl_mechanism *mechanism, const fl_gradient *gradient,
                   double learning_rate) {
    adamw->steps++;
    double first_correction = 1.0 - pow(adamw->beta1, (double)adamw->steps);
    double second_correction = sqrt(1.0 - pow(adamw->beta2, (double)adamw->steps));
    double rate = learning_rate / first_correction, keep = 1.0 - learning_rate * adamw->weight_decay;
    for (size_t l = 0; l < mechanism->layers; l++) {
        if (mechanism->layer[l] == NULL) continue;
        float *parameters = mechanism->layer[l], *first = adamw->first->layer[l],
              *second = adamw->second->layer[l];
        const float *gradients = gradient->layer[l];
        for (size_t i = 0; i < mechanism->layer_floats; i++) {
            double g = (double)gradients[i];
            first[i] = (float)(adamw->beta1 * (double)first[i] + (1.0 - adamw->beta1) * g);
            second[i] = (float)(adamw->beta2 * (double)second[i] + (1.0 - adamw->beta2) * g * g);
            double denominator = sqrt((double)second[i]) / second_correction + adamw->epsilon;
            parameters[i] = (float)((double)parameters[i] * keep - rate * (double)first[i] / denominator);
        }
    }
}

double fl_gradient_clip(fl_gradient *gradient, double clip) {
    double norm = fl_gradient_norm(gradient);
    double factor = clip / (norm + CLIP_EPSILON);
    if (clip > 0.0 && factor < 1.0) fl_gradient_scale(gradient, factor);
    return norm;
}

double fl_learning_rate(double base, size_t warmup, size_t steps, size_t step) {
    if (step < warmup) return base * (double)(step + 1) / (double)warmup;
    double progress = (double)(step - warmup) / (double)(steps > warmup ? steps - warmup : 1);
    return base * 0.5 * (1.0 + cos(PI * progress));
}
