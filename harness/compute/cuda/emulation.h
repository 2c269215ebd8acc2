/* Emulation: warp.h's primitives, a launch and the few functions of the CUDA runtime that the backend calls, for g++ and one thread
 * of a CPU.
 *
 * Every thread of a block is a fiber. Whoever may go on is chosen at random from a seed (fl_emulation_seed), at every collective:
 * a missing barrier shows as a wrong number. Shared memory is a block of its own, of exactly the size asked for and full of NaN:
 * the address sanitizer sees what lies outside, a NaN what was never written. Device memory is host memory filled with NaN.
 * Threads that wait at different barriers, or a barrier that some thread has passed by, end the program with a message.
 *
 * Launches run at once; streams are ignored. Several host threads take turns. */
#ifndef FL_COMPUTE_CUDA_EMULATION_H
#define FL_COMPUTE_CUDA_EMULATION_H

#include <functional>
#include <stdlib.h>
#include <string.h>

#define FL_KERNEL(threads) static void
#define FL_DEVICE static inline
#define FL_BOTH static inline
#define FL_MEMBER
#define FL_UNROLL
#define FL_UNROLL_4
#define FL_SHARED(type, name) type *name = (type *)fl_emulated.shared

typedef struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
} dim3;

/* What the running fiber sees. */
typedef struct fl_emulated_block {
    int thread, block_x, block_y, block_z, blocks_x;
    unsigned char *shared;
} fl_emulated_block;
extern fl_emulated_block fl_emulated;

#define fl_thread (fl_emulated.thread)
#define fl_block_x (fl_emulated.block_x)
#define fl_block_y (fl_emulated.block_y)
#define fl_block_z (fl_emulated.block_z)
#define fl_blocks_x (fl_emulated.blocks_x)

/* Runs `body` once for every thread of every block. */
void fl_emulate(dim3 grid, unsigned threads, size_t shared_bytes, const std::function<void()> &body);

/* Waits for all threads of the block, or all lanes of the warp. */
void fl_block_sync();
void fl_warp_sync();
bool fl_block_any(bool value);
/* Deposits this lane's value, waits for the warp, and returns the 32 values; they stay until the collective after the next. */
const uint64_t *fl_emulated_exchange(uint64_t value);

FL_DEVICE bool fl_warp_any(bool value) {
    const uint64_t *all = fl_emulated_exchange(value);
    bool any = false;
    for (int lane = 0; lane < 32; lane++) any |= all[lane] != 0;
    return any;
}

template <class T> FL_DEVICE T fl_emulated_from(T value, int lane) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = fl_emulated_exchange(bits)[lane & 31];
    memcpy(&value, &bits, sizeof value);
    return value;
}
FL_DEVICE float fl_shuffle_xor(float value, int mask) { return fl_emulated_from(value, fl_thread % 32 ^ mask); }
FL_DEVICE double fl_shuffle_xor(double value, int mask) { return fl_emulated_from(value, fl_thread % 32 ^ mask); }
FL_DEVICE int fl_shuffle_xor(int value, int mask) { return fl_emulated_from(value, fl_thread % 32 ^ mask); }
FL_DEVICE float fl_shuffle(float value, int lane) { return fl_emulated_from(value, lane); }

/* A copy lands when it is waited for: what is read before that is what was there. */
void fl_emulated_copy(void *shared, const void *global, size_t bytes);
void fl_copy_commit();
void fl_emulated_copy_wait(int groups);
FL_DEVICE void fl_copy_4(void *shared, const void *global) { fl_emulated_copy(shared, global, 4); }
FL_DEVICE void fl_copy_16(void *shared, const void *global) { fl_emulated_copy(shared, global, 16); }
template <int N> FL_DEVICE void fl_copy_wait() { fl_emulated_copy_wait(N); }

/* The CUDA runtime, as far as device.cu uses it. */
typedef int cudaError_t;
typedef void *cudaStream_t;
typedef void *cudaEvent_t;
enum { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
typedef enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice } cudaMemcpyKind;
typedef struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    size_t totalGlobalMem;
} cudaDeviceProp;

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **out, size_t bytes);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t error);

#endif
