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
    FL_TRY_DONE(status, fl_gradient_create(mechanism, NULL, &adamw->first, error));
    FL_TRY_DONE(status, fl_gradient_create(mechanism, NULL, &adamw->second, error));
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

/* What a step of one tensor needs. */
typedef struct fl_adamw_rates {
    double rate, keep, second_correction;
} fl_adamw_rates;

static void step_tensor(const fl_adamw *adamw, const fl_adamw_rates *rates, size_t count,
                        const float *gradients, float *first, float *second, float *parameters) {
    for (size_t i = 0; i < count; i++) {
        double g = (double)gradients[i];
        first[i] = (float)(adamw->beta1 * (double)first[i] + (1.0 - adamw->beta1) * g);
        second[i] = (float)(adamw->beta2 * (double)second[i] + (1.0 - adamw->beta2) * g * g);
        double denominator = sqrt((double)second[i]) / rates->second_correction + adamw->epsilon;
        parameters[i] =
            (float)((double)parameters[i] * rates->keep - rates->rate * (double)first[i] / denominator);
    }
}

void fl_adamw_step(fl_adamw *adamw, fl_mechanism *mechanism, const fl_gradient *gradient,
                   double learning_rate, double adapter_rate) {
    adamw->steps++;
    double first_correction = 1.0 - pow(adamw->beta1, (double)adamw->steps);
    double second_correction = sqrt(1.0 - pow(adamw->beta2, (double)adamw->steps));
    for (size_t i = 0; i < mechanism->tensor_count; i++) {
        const fl_mechanism_tensor *tensor = &mechanism->tensors[i];
        double base = fl_mechanism_tensor_is_lora(tensor) ? adapter_rate : learning_rate;
        const fl_adamw_rates rates = {base / first_correction, 1.0 - base * adamw->weight_decay,
                                      second_correction};
        for (size_t l = 0; l < mechanism->layers; l++) {
            if (mechanism->layer[l] == NULL) continue;
            step_tensor(adamw, &rates, tensor->count, gradient->layer[l] + tensor->offset,
                        adamw->first->layer[l] + tensor->offset, adamw->second->layer[l] + tensor->offset,
                        mechanism->layer[l] + tensor->offset);
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
