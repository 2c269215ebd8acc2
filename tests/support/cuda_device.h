/* The cuda backend in tests: the object that FROSTLINE_TEST_CUDA names (on a machine with a GPU), else the emulation that was built
 * with g++ beside the tests. Tests hand arrays to and fro as on a device. */
#ifndef FL_TESTS_SUPPORT_CUDA_DEVICE_H
#define FL_TESTS_SUPPORT_CUDA_DEVICE_H

#include "harness/compute/compute.h"

/* cmocka group set-up and tear-down. Without an object, or without a device, fl_cuda_device() is NULL. */
int fl_cuda_device_open(void **state);
int fl_cuda_device_close(void **state);

/* The instance. Skips the running test, saying why, when there is none. */
fl_compute *fl_cuda_device(void);

/* The object's path, for FROSTLINE_CUDA. */
const char *fl_cuda_device_object(void);

/* Another order of the emulation's threads; nothing on a GPU. */
void fl_cuda_device_seed(uint64_t seed);
/* Whether the emulation runs: tests then take smaller shapes. */
bool fl_cuda_device_emulated(void);

/* A copy of `count` numbers on an instance (NULL: none), or zeros, which live until fl_cuda_device_sweep. */
fl_array fl_placed(fl_compute *compute, const float *from, size_t count);
fl_array fl_placed_zeros(fl_compute *compute, size_t count);
fl_array fl_placed_array(fl_compute *compute, const void *from, fl_number number, size_t count);
/* Back to the host, a block of fl_memory; fails the test when something has failed there. */
float *fl_brought_back(fl_compute *compute, fl_array from, size_t count);
/* Releases all copies. */
void fl_cuda_device_sweep(void);

/* The cpu's instance, to compare with. */
fl_compute *fl_cuda_device_host(void);

#endif
