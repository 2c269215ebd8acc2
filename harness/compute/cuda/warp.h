/* Warp: what kernels are written with. One source, two compilers: nvcc makes device code of it, g++ an emulation in which every
 * thread of a block is a fiber of the calling thread (emulation.h), so that the same kernels run in unit tests without a GPU.
 *
 * Kernels use these names only, and C++ that both compilers take: FL_KERNEL(threads) before a kernel's name, FL_DEVICE before a
 * function's; fl_thread, fl_block_x, fl_block_y, fl_block_z, fl_blocks_x; FL_SHARED(type, name) the block's dynamic shared memory;
 * collectives below. Every thread of a block reaches every block barrier, and every lane of a warp every warp collective: no early
 * return before one. Threads of a block are a multiple of 32.
 *
 * No atomic additions of numbers: reductions are fixed trees, so results are equal bytes when repeated. */
#ifndef FL_COMPUTE_CUDA_WARP_H
#define FL_COMPUTE_CUDA_WARP_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define FL_KERNEL(threads) static __global__ void __launch_bounds__(threads)
#define FL_DEVICE static __device__ __forceinline__
#define FL_BOTH static __host__ __device__ __forceinline__
#define FL_MEMBER __host__ __device__ __forceinline__
#define FL_UNROLL _Pragma("unroll")
#define FL_UNROLL_4 _Pragma("unroll 4")
#define FL_SHARED(type, name)                                                                                                  \
    extern __shared__ __align__(128) unsigned char fl_shared_bytes[];                                                          \
    type *name = (type *)fl_shared_bytes

#define fl_thread ((int)threadIdx.x)
#define fl_block_x ((int)blockIdx.x)
#define fl_block_y ((int)blockIdx.y)
#define fl_block_z ((int)blockIdx.z)
#define fl_blocks_x ((int)gridDim.x)

FL_DEVICE void fl_block_sync() { __syncthreads(); }
FL_DEVICE void fl_warp_sync() { __syncwarp(); }
/* Whether any thread of the block (lane of the warp) says so; a barrier too. */
FL_DEVICE bool fl_block_any(bool value) { return __syncthreads_or(value) != 0; }
FL_DEVICE bool fl_warp_any(bool value) { return __any_sync(0xffffffffu, value) != 0; }
/* The value that lane (own ^ mask), or `lane`, gives. */
FL_DEVICE float fl_shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
FL_DEVICE double fl_shuffle_xor(double value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
FL_DEVICE int fl_shuffle_xor(int value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
FL_DEVICE float fl_shuffle(float value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }

/* Copies from global to shared memory that go on while the thread does: 4 bytes, or 16 (both addresses aligned to 16).
 * fl_copy_commit closes a group; fl_copy_wait<N> waits until at most N groups are under way, for this thread's copies only. */
FL_DEVICE void fl_copy_4(void *shared, const void *global) {
    asm volatile("cp.async.ca.shared.global [%0],[%1],4;" ::"r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global)
                 : "memory");
}
FL_DEVICE void fl_copy_16(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global)
                 : "memory");
}
FL_DEVICE void fl_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> FL_DEVICE void fl_copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

#else

#include "harness/compute/cuda/emulation.h"

#endif

/* Sums and maxima over `lanes` neighbouring lanes (a power of two up to 32): every lane gets the result, the same bits. */
template <class T> FL_DEVICE T fl_lanes_sum(T value, int lanes) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) value += fl_shuffle_xor(value, mask);
    return value;
}
template <class T> FL_DEVICE T fl_lanes_max(T value, int lanes) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) {
        T other = fl_shuffle_xor(value, mask);
        value = other > value ? other : value;
    }
    return value;
}

/* Sum over a block of up to 1024 threads, in the order of warps; `slots` is shared room for 32 values. A barrier. */
template <class T> FL_DEVICE T fl_block_sum(T value, T *slots, int threads) {
    value = fl_lanes_sum(value, 32);
    fl_block_sync();
    if (fl_thread % 32 == 0) slots[fl_thread / 32] = value;
    fl_block_sync();
    T sum = slots[0];
    for (int warp = 1; warp < threads / 32; warp++) sum += slots[warp];
    return sum;
}

typedef struct __attribute__((aligned(16))) fl_float4 { float at[4]; } fl_float4;

FL_BOTH size_t fl_pieces(size_t count, size_t piece) { return (count + piece - 1) / piece; }

#endif
