#define FL_WIDTH 8
#define FL_KERNEL_TABLE fl_kernels_avx2
#define FL_KERNEL_NAME "avx2"
#include "harness/compute/cpu_kernels.inc"
