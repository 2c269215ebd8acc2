#include "harness/compute/log_softmax.h"

#include <math.h>

#include "harness/compute/cpu_kernels.h"

enum { LANES = 8, PIECE = 512 };

static size_t largest_of(const float *logits, size_t vocabulary) {
    const float largest = fl_kernels_current()->maximum(vocabulary, logits);
    size_t best = 0;
    while (best < vocabulary && logits[best] != largest) best++;
    return best < vocabulary ? best : 0; /* all are NaN */
}

static double sum_of(size_t count, const double *x) {
    double lanes[LANES] = {0};
    for (size_t i = 0; i < count; i++) lanes[i % LANES] += x[i];
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) lanes[i] += lanes[i + width];
    }
    return lanes[0];
}

fl_log_softmax_row fl_log_softmax_exact(const float *logits, size_t vocabulary, double *terms) {
    const size_t best = largest_of(logits, vocabulary);
    const double largest = (double)logits[best];
    const fl_kernels *kernels = fl_kernels_current();
    double piece[PIECE], sum = 0.0;
    for (size_t first = 0; first < vocabulary; first += PIECE) {
        const size_t count = vocabulary - first < PIECE ? vocabulary - first : PIECE;
        double *to = terms != NULL ? terms + first : piece;
        kernels->exp_wide(count, logits + first, largest, to);
        if (best >= first && best - first < count) to[best - first] = 1.0; /* also where it is infinite */
        sum += sum_of(count, to);
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
