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

/* Another order of the emulation's threads; nothing on a GPU. */
void fl_cuda_device_seed(uint64_t seed);
/* Whether the emulation runs: tests then take smaller shapes. */
bool fl_cuda_device_emulated(void);

/* A copy of `count` numbers on the device (NULL: NULL), which lives until fl_cuda_device_sweep; with zeros when from is NULL. */
float *fl_cuda_device_copy(const float *from, size_t count);
float *fl_cuda_device_zeros(size_t count);
fl_array fl_cuda_device_array(const void *from, fl_number number, size_t count);
/* Back to the host; fails the test when something has failed on the device. */
void fl_cuda_device_read(float *to, const float *from, size_t count);
/* Releases all copies. */
void fl_cuda_device_sweep(void);

#endif
