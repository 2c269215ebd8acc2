#include "harness/eval/log_softmax.h"

#include <math.h>

enum { LANES = 8 };

static double log_sum_float64(const float *logits, size_t vocabulary, size_t best) {
    const double largest = (double)logits[best];
    double sum = 1.0; /* the largest one's own term */
    for (size_t i = 0; i < vocabulary; i++) {
        if (i != best) sum += exp((double)logits[i] - largest);
    }
    return largest + log(sum);
}

static double log_sum_float32(const float *logits, size_t vocabulary, size_t best) {
    const float largest = logits[best];
    float lanes[LANES] = {0};
    for (size_t i = 0; i < vocabulary; i++) lanes[i % LANES] += expf(logits[i] - largest);
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) lanes[i] += lanes[i + width];
    }
    return (double)largest + (double)logf(lanes[0]);
}

fl_log_softmax_row fl_log_softmax_of(const float *logits, size_t vocabulary,
                                     fl_log_softmax_precision precision) {
    size_t best = 0;
    for (size_t i = 1; i < vocabulary; i++) {
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i]))) best = i;
    }
    const double sum = precision == FL_LOG_SOFTMAX_FLOAT32 ? log_sum_float32(logits, vocabulary, best)
                                                           : log_sum_float64(logits, vocabulary, best);
    return (fl_log_softmax_row){.log_sum_exp = sum, .best = best};
}
