#define FL_WIDTH 4
#define FL_KERNEL_TABLE fl_kernels_baseline
#define FL_KERNEL_NAME "baseline"
#include "harness/compute/cpu_kernels.inc"
