#include "harness/eval/log_softmax.h"

#include <math.h>

fl_log_softmax_row fl_log_softmax_of(const float *logits, size_t vocabulary) {
    size_t best = 0;
    for (size_t i = 1; i < vocabulary; i++) {
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i]))) best = i;
    }
    const double largest = (double)logits[best];
    double sum = 1.0; /* the largest one's own term */
    for (size_t i = 0; i < vocabulary; i++) {
        if (i != best) sum += exp((double)logits[i] - largest);
    }
    return (fl_log_softmax_row){.log_sum_exp = largest + log(sum), .best = best};
}
