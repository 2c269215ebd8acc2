/* Optimiser: AdamW as torch.optim.AdamW defines it, gradient clipping as torch.nn.utils.clip_grad_norm_, and the schedule of the
 * paper (linear warm-up, then cosine to 0). Parameters and moments are float32, the arithmetic of a step float64. */
#ifndef FL_ENGINE_OPTIMISER_H
#define FL_ENGINE_OPTIMISER_H

#include <stddef.h>

#include "attn_variants/mechanism.h"
#include "harness/base/status.h"
#include "harness/engine/gradient.h"

typedef struct fl_adamw {
    double beta1, beta2, epsilon, weight_decay;
    size_t steps;         /* taken so far */
    fl_gradient *first, *second; /* moments */
} fl_adamw;

fl_status fl_adamw_create(const fl_mechanism *mechanism, double beta1, double beta2, double epsilon,
                          double weight_decay, fl_adamw **out, fl_error *error);
void fl_adamw_destroy(fl_adamw *adamw);

/* p -= lr wd p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
 * p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
 * adapter_rate is the lr of LoRA tensors. */
void fl_adamw_step(fl_adamw *adamw, fl_mechanism *mechanism, const fl_gradient *gradient, double learning_rate,
                   double adapter_rate);

/* Scales the gradient by min(1, clip / (norm + 1e-6)) and returns the norm it had; clip 0 = leave it. */
double fl_gradient_clip(fl_gradient *gradient, double clip);

/* Step s of `steps`, counted from 0: base min(1, (s + 1) / warmup) (1 + cos(pi max(0, s - warmup) / (steps - warmup))) / 2. */
double fl_learning_rate(double base, size_t warmup, size_t steps, size_t step);

#endif
