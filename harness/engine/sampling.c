#include "harness/engine/sampling.h"

#include <math.h>
#include <stdlib.h>

size_t fl_logits_best(const float *logits, size_t vocabulary) {
    size_t best = 0;
    float largest = -INFINITY;
    for (size_t i = 0; i < vocabulary; i++) {
        if (logits[i] > largest) {
            largest = logits[i];
            best = i;
        }
    }
    return best;
}

/* exp((l - max) / temperature): at most 1, and 0 for NaN. */
static double weight_of(float logit, double largest, double temperature) {
    double weight = exp(((double)logit - largest) / temperature);
    return weight > 0.0 ? weight : 0.0;
}

static int descending(const void *a, const void *b) {
    const fl_sampling_candidate *x = a, *y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The candidate in whose share of the first `count` the number `uniform` falls. */
static int32_t draw(const fl_sampling_candidate *candidates, size_t count, double sum, double uniform) {
    double target = uniform * sum, passed = 0.0;
    for (size_t i = 0; i < count; i++) {
        passed += candidates[i].weight;
        if (target < passed) return candidates[i].id;
    }
    /* Rounding: the last one that is possible at all. */
    while (count > 1 && candidates[count - 1].weight <= 0.0) count--;
    return candidates[count - 1].id;
}

static double sum_of(const fl_sampling_candidate *candidates, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += candidates[i].weight;
    return sum;
}

/* Moves the candidates that top-p could keep to the front: those below (1 - p) / n of the sum make up less
 * than 1 - p together, so the others reach p without them. */
static size_t drop_hopeless(const fl_sampling *sampling, fl_sampling_candidate *candidates, size_t count,
                            double sum) {
    if (sampling->top_k > 0) return count;
    double least = (1.0 - sampling->top_p) * sum / (double)count * (1.0 - 1e-9);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (candidates[i].weight >= least) candidates[kept++] = candidates[i];
    }
    return kept;
}

static int32_t draw_filtered(const fl_sampling *sampling, fl_sampling_candidate *candidates, size_t count,
                             double uniform) {
    double sum = sum_of(candidates, count);
    count = drop_hopeless(sampling, candidates, count, sum);
    qsort(candidates, count, sizeof *candidates, descending);
    if (sampling->top_k > 0) {
        if (sampling->top_k < count) count = sampling->top_k;
        sum = sum_of(candidates, count);
    }
    double wanted = sampling->top_p * sum, reached = 0.0;
    size_t kept = 0;
    while (kept < count && (kept == 0 || reached < wanted)) reached += candidates[kept++].weight;
    return draw(candidates, kept, reached, uniform);
}

int32_t fl_sample(const fl_sampling *sampling, const float *logits, size_t vocabulary, double uniform,
                  fl_sampling_candidate *scratch) {
    size_t best = fl_logits_best(logits, vocabulary);
    if (!isfinite(logits[best])) return -1;
    if (sampling->temperature <= 0.0) return (int32_t)best;
    double largest = logits[best];
    for (size_t i = 0; i < vocabulary; i++) {
        scratch[i].weight = weight_of(logits[i], largest, sampling->temperature);
        scratch[i].id = (int32_t)i;
    }
    if (sampling->top_k > 0 || sampling->top_p < 1.0)
        return draw_filtered(sampling, scratch, vocabulary, uniform);
    return draw(scratch, vocabulary, sum_of(scratch, vocabulary), uniform);
}
