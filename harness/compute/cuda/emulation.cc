#include "harness/compute/cuda/warp.h"

#include <stdio.h>
#include <ucontext.h>

#include <mutex>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_BYTES = 256 << 10, WARPS = 32 };

fl_emulated_block fl_emulated;

namespace {

struct pending_copy {
    void *to;
    const void *from;
    size_t bytes;
    unsigned group;
};

struct fiber {
    ucontext_t context;
    std::vector<char> stack;
    void *jump[5]; /* where it stopped, for __builtin_longjmp */
    bool started;
    unsigned group;       /* of copies, the open one */
    std::vector<pending_copy> copies;
};

/* Those that wait for each other: a block, or a warp. */
struct meeting {
    std::vector<int> waiting;
    unsigned met;
    uint64_t box[2][32];
};

std::mutex turn;
std::vector<fiber *> fibers;
std::vector<int> runnable;
meeting block_meeting, warp_meeting[WARPS];
const std::function<void()> *kernel;
unsigned threads_of_block, ended;
uint64_t random_state = 1;
fiber outside; /* the host thread's own stack */

#ifdef __SANITIZE_ADDRESS__
const void *outside_stack;
size_t outside_stack_bytes;
#endif

unsigned random_below(unsigned n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((random_state >> 33) % n);
}

[[noreturn]] void fail(const char *what) {
    fprintf(stderr, "emulated kernel, block %d %d %d: %s\n", fl_emulated.block_x, fl_emulated.block_y, fl_emulated.block_z,
            what);
    abort();
}

__attribute__((noinline, noreturn)) void jump_to(fiber *to) { __builtin_longjmp(to->jump, 1); }

/* Setting contexts costs a system call, so only the first switch to a fiber is one. */
__attribute__((noinline)) void switch_fiber(fiber *from, fiber *to) {
#ifdef __SANITIZE_ADDRESS__
    void *fake = NULL;
    __sanitizer_start_switch_fiber(&fake, to == &outside ? outside_stack : to->stack.data(),
                                   to == &outside ? outside_stack_bytes : to->stack.size());
#endif
    if (__builtin_setjmp(from->jump) == 0) {
        if (to->started) jump_to(to);
        to->started = true;
        setcontext(&to->context);
    }
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

/* The running fiber stops; another goes on, or the host when all have ended. */
void go_on(fiber *self) {
    fiber *next = &outside;
    if (!runnable.empty()) {
        unsigned i = random_below((unsigned)runnable.size());
        fl_emulated.thread = runnable[i];
        runnable[i] = runnable.back();
        runnable.pop_back();
        next = fibers[(size_t)fl_emulated.thread];
    } else if (ended < threads_of_block) {
        fail("threads wait at different barriers, or one has ended that others wait for");
    }
    if (next != self) switch_fiber(self, next);
}

void fiber_main() {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, &outside_stack, &outside_stack_bytes);
#endif
    for (;;) {
        fiber *self = fibers[(size_t)fl_emulated.thread];
        self->group = 0;
        (*kernel)();
        if (!self->copies.empty()) fail("a thread has ended before its copies were waited for");
        ended++;
        go_on(self);
    }
}

/* Waits until `count` threads have met. */
void meet(meeting *m, unsigned count) {
    int thread = fl_emulated.thread;
    if (m->waiting.size() + 1 == count) {
        runnable.insert(runnable.end(), m->waiting.begin(), m->waiting.end());
        m->waiting.clear();
        m->met++;
        runnable.push_back(thread); /* whoever came last is not always first to go on */
    } else {
        m->waiting.push_back(thread);
    }
    go_on(fibers[(size_t)thread]);
}

void make_fiber(fiber *f) {
    f->stack.resize(STACK_BYTES);
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack.data();
    f->context.uc_stack.ss_size = f->stack.size();
    makecontext(&f->context, fiber_main, 0);
}

void make_fibers(unsigned count) {
    while (fibers.size() < count) {
        fibers.push_back(new fiber());
        make_fiber(fibers.back());
    }
}

void run_block(unsigned threads, size_t shared_bytes) {
    fl_emulated.shared = (unsigned char *)malloc(shared_bytes + 1); /* not more, so that its end is guarded */
    if (fl_emulated.shared == NULL) fail("no memory");
    memset(fl_emulated.shared, 0xff, shared_bytes);
    runnable.clear();
    for (unsigned i = 0; i < threads; i++) runnable.push_back((int)i);
    threads_of_block = threads;
    ended = 0;
    go_on(&outside);
    free(fl_emulated.shared);
}

} // namespace

void fl_emulate(dim3 grid, unsigned threads, size_t shared_bytes, const std::function<void()> &body) {
    std::lock_guard<std::mutex> lock(turn);
    if (threads % 32 != 0 || threads == 0 || threads > 1024) fail("threads of a block are 32 to 1024, a multiple of 32");
    if (shared_bytes > 232448) fail("more shared memory than a block has");
    make_fibers(threads);
    kernel = &body;
    outside.started = true;
    fl_emulated.blocks_x = (int)grid.x;
    for (unsigned z = 0; z < grid.z; z++) {
        for (unsigned y = 0; y < grid.y; y++) {
            for (unsigned x = 0; x < grid.x; x++) {
                fl_emulated.block_x = (int)x;
                fl_emulated.block_y = (int)y;
                fl_emulated.block_z = (int)z;
                run_block(threads, shared_bytes);
            }
        }
    }
}

void fl_block_sync() { meet(&block_meeting, threads_of_block); }
void fl_warp_sync() { meet(&warp_meeting[fl_emulated.thread / 32], 32); }

bool fl_block_any(bool value) {
    unsigned at = (block_meeting.met + 1) % 2;
    static bool any[2];
    if (block_meeting.waiting.empty()) any[at] = false;
    any[at] |= value;
    fl_block_sync();
    return any[at];
}

const uint64_t *fl_emulated_exchange(uint64_t value) {
    int thread = fl_emulated.thread;
    meeting *m = &warp_meeting[thread / 32];
    uint64_t *box = m->box[(m->met + 1) % 2];
    box[thread % 32] = value;
    fl_warp_sync();
    return box;
}

void fl_emulated_copy(void *shared, const void *global, size_t bytes) {
    if ((uintptr_t)shared % bytes != 0 || (uintptr_t)global % bytes != 0) fail("an asynchronous copy is not aligned");
    fiber *self = fibers[(size_t)fl_emulated.thread];
    self->copies.push_back({shared, global, bytes, self->group});
}

void fl_copy_commit() { fibers[(size_t)fl_emulated.thread]->group++; }

void fl_emulated_copy_wait(int groups) {
    fiber *self = fibers[(size_t)fl_emulated.thread];
    size_t kept = 0;
    for (const pending_copy &copy : self->copies) {
        if (copy.group + (unsigned)groups < self->group) {
            memcpy(copy.to, copy.from, copy.bytes);
        } else {
            self->copies[kept++] = copy;
        }
    }
    self->copies.resize(kept);
}

/* For tests: the order in which threads go on. */
extern "C" __attribute__((visibility("default"))) void fl_emulation_seed(uint64_t seed) { random_state = seed * 2 + 1; }

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "emulation");
    properties->major = 9;
    properties->multiProcessorCount = 4;
    properties->totalGlobalMem = (size_t)8 << 30;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    *stream = NULL;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    *free_bytes = *total = (size_t)8 << 30;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **out, size_t bytes) {
    *out = NULL;
    if (bytes > (size_t)8 << 30 || posix_memalign(out, 256, bytes + 1) != 0) return cudaErrorMemoryAllocation;
    memset(*out, 0xff, bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory) {
    free(memory);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **out, size_t bytes) { return cudaMalloc(out, bytes); }
cudaError_t cudaFreeHost(void *memory) { return cudaFree(memory); }
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t) {
    memset(to, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = NULL;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "out of memory"; }
