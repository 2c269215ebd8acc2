/* Device: one instance of the cuda backend, as its operations see it: the stream, memory, launches, and the error that sticks.
 *
 * An operation that fails leaves its error in the instance; later operations do nothing, and the next call that can fail reports
 * it. Memory comes from a pool: what is released is used again in the order of the stream, and given back only when the device
 * has no more. Sizes and indices in kernels are 64 bits wide. */
#ifndef FL_COMPUTE_CUDA_DEVICE_H
#define FL_COMPUTE_CUDA_DEVICE_H

#include "harness/compute/cuda/warp.h"

extern "C" {
#include "harness/compute/backend.h"
}

#include <list>
#include <map>
#include <string>
#include <vector>

struct fl_borrowed {
    void *at;
    size_t bytes;
    uint64_t version;
};

struct fl_cublaslt;

struct fl_cuda {
    fl_compute base;
    const fl_backend_services *services;
    fl_backend_services services_copy;
    fl_backend_options options;
    cudaStream_t stream;
    int multiprocessors;
    size_t limit, taken; /* bytes of device memory */
    std::multimap<size_t, void *> idle; /* by size */
    std::map<void *, size_t> live;
    std::map<const void *, fl_borrowed> borrowed;
    bool failed;
    std::string failure;
    fl_cublaslt *products;
    std::string device_name, driver, runtime, products_name, algorithms, on_host;
};

static inline fl_cuda *fl_cuda_of(fl_compute *compute) { return (fl_cuda *)compute; }

/* What an array of float32 points at. */
FL_BOTH float *floats(fl_array array) { return (float *)array.at; }

/* Remembers the first failure of an operation. */
void fl_cuda_fail(fl_cuda *device, const char *operation, const char *what);
/* Looks whether the launch before was accepted. */
void fl_cuda_launched(fl_cuda *device, const char *operation);

/* NULL when there is no room, and then `failed` is set: what follows does nothing. In the order of the stream: take, use, give. */
void *fl_cuda_take(fl_cuda *device, size_t bytes, const char *operation);
void fl_cuda_give(fl_cuda *device, void *memory);

/* kernel<<<grid, threads, shared_bytes>>>(arguments...) on the instance's stream; nothing when an earlier operation has failed or
 * the grid is empty. */
template <class... Parameters, class... Arguments>
static void fl_launch(fl_cuda *device, const char *operation, void (*kernel)(Parameters...), dim3 grid, unsigned threads,
                      size_t shared_bytes, Arguments... arguments) {
    if (device->failed || grid.x == 0 || grid.y == 0 || grid.z == 0) return;
#ifdef __CUDACC__
    if (shared_bytes > (48u << 10)) {
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    }
    kernel<<<grid, threads, shared_bytes, device->stream>>>((Parameters)arguments...);
#else
    fl_emulate(grid, threads, shared_bytes, [=] { kernel((Parameters)arguments...); });
#endif
    fl_cuda_launched(device, operation);
}

#endif
