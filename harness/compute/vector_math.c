#include "harness/compute/vector_math.h"

#include "harness/compute/cpu_kernels.h"

const fl_kernels *fl_kernels_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &fl_kernels_avx2;
#endif
    return &fl_kernels_baseline;
}

void fl_vector_exp(size_t n, const float *x, float *y) {
    fl_kernels_best()->exp(n, x, y);
}
void fl_vector_sigmoid(size_t n, const float *x, float *y) {
    fl_kernels_best()->sigmoid(n, x, y);
}
void fl_vector_silu(size_t n, const float *x, float *y) {
    fl_kernels_best()->silu(n, x, y);
}
void fl_vector_log_sigmoid(size_t n, const float *x, float *y) {
    fl_kernels_best()->log_sigmoid(n, x, y);
}
void fl_vector_softplus(size_t n, const float *x, float *y) {
    fl_kernels_best()->softplus(n, x, y);
}
float fl_vector_dot(size_t n, const float *x, const float *y) {
    return fl_kernels_best()->dot(n, x, y);
}
double fl_vector_sum_of_squares(size_t n, const float *x) {
    return fl_kernels_best()->sum_of_squares(n, x);
}
