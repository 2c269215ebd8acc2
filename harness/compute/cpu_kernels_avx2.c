#define FL_WIDTH 8
#define FL_KERNEL_TABLE fl_kernels_avx2
#define FL_KERNEL_NAME "avx2"
#include "harness/compute/cpu_kernels.inc"

void fl_recurrence_step_avx2(size_t value_dim, size_t key_dim, const fl_step_inputs *inputs, float *state,
                             float *output) {
    recurrence_step_kernel(value_dim, key_dim, inputs, state, output);
}
