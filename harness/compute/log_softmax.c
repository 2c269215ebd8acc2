#include "harness/compute/log_softmax.h"

#include <math.h>

enum { LANES = 8 };

static size_t largest_of(const float *logits, size_t vocabulary) {
    size_t best = 0;
    for (size_t i = 1; i < vocabulary; i++) {
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i]))) best = i;
    }
    return best;
}

fl_log_softmax_row fl_log_softmax_exact(const float *logits, size_t vocabulary, double *terms) {
    const size_t best = largest_of(logits, vocabulary);
    const double largest = (double)logits[best];
    double sum = 1.0; /* the largest one's own term */
    for (size_t i = 0; i < vocabulary; i++) {
        const double term = i == best ? 1.0 : exp((double)logits[i] - largest);
        if (terms != NULL) terms[i] = term;
        if (i != best) sum += term;
    }
    return (fl_log_softmax_row){.log_sum_exp = largest + log(sum), .sum = sum, .best = best};
}

/* Terms far below the largest are lost as PyTorch loses them. */
static fl_log_softmax_row log_softmax_float32(const float *logits, size_t vocabulary) {
    const size_t best = largest_of(logits, vocabulary);
    const float largest = logits[best];
    float lanes[LANES] = {0};
    for (size_t i = 0; i < vocabulary; i++) lanes[i % LANES] += expf(logits[i] - largest);
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) lanes[i] += lanes[i + width];
    }
    return (fl_log_softmax_row){
        .log_sum_exp = (double)largest + (double)logf(lanes[0]), .sum = (double)lanes[0], .best = best};
}

fl_log_softmax_row fl_log_softmax_of(const float *logits, size_t vocabulary,
                                     fl_log_softmax_precision precision) {
    return precision == FL_LOG_SOFTMAX_FLOAT32 ? log_softmax_float32(logits, vocabulary)
                                               : fl_log_softmax_exact(logits, vocabulary, NULL);
}
