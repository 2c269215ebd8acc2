#include "harness/measure/moments.h"

void fl_moments_add(fl_moments *moments, double count, double sum, double sum_squares) {
    moments->count += count;
    moments->sum += sum;
    moments->sum_squares += sum_squares;
}

double fl_moments_variance(const fl_moments *moments) {
    double mean = moments->sum / moments->count;
    return moments->sum_squares / moments->count - mean * mean;
}
