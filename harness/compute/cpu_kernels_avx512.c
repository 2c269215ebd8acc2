#define FL_WIDTH 16
#define FL_KERNEL_TABLE fl_kernels_avx512
#define FL_KERNEL_NAME "avx512"
/* Rows of 64 floats are over before wider sums pay: the step is slower at 512 bits. */
#define FL_STEP_KERNEL fl_recurrence_step_avx2
#include "harness/compute/cpu_kernels.inc"
