/* Products in float32. On a device by cuBLASLt, whose heuristic is asked once a shape; the algorithm is kept and recorded, so equal
 * calls give equal bytes. Row-major C = A B is column-major C^T = B^T A^T. The kernel below multiplies where cuBLASLt is not used: in
 * the emulation, and for the shapes that it refuses. */
#include "harness/compute/cuda/cublaslt.h"
#include "harness/compute/cuda/operations.h"

#include <dlfcn.h>
#include <stdio.h>

enum { TILE = 64, DEPTH = 16, THREADS = 256, WORKSPACE_BYTES = 32 << 20 };

struct matmul_call {
    bool transpose_a, transpose_b;
    size_t m, n, k;
    float alpha;
    const float *a;
    size_t stride_a;
    const float *b;
    size_t stride_b;
    float beta;
    float *c;
    size_t stride_c;
};

/* A thread 4 x 4 numbers of a tile of 64 x 64. */
FL_KERNEL(THREADS) matmul_kernel(matmul_call p) {
    FL_SHARED(float, shared);
    float *a = shared, *b = shared + DEPTH * (TILE + 4); /* [DEPTH][TILE + 4] */
    const size_t first_row = (size_t)fl_block_y * TILE, first_column = (size_t)fl_block_x * TILE;
    const int x = fl_thread % 16, y = fl_thread / 16;
    float sum[4][4] = {};
    for (size_t first = 0; first < p.k; first += DEPTH) {
        for (int i = fl_thread; i < TILE * DEPTH; i += THREADS) {
            /* neighbouring threads read neighbouring addresses */
            const int row = p.transpose_a ? i % TILE : i / DEPTH, ka = p.transpose_a ? i / TILE : i % DEPTH;
            const int column = p.transpose_b ? i / DEPTH : i % TILE, kb = p.transpose_b ? i % DEPTH : i / TILE;
            const size_t r = first_row + row, c = first_column + column, da = first + ka, db = first + kb;
            const bool inside_a = r < p.m && da < p.k, inside_b = c < p.n && db < p.k;
            a[ka * (TILE + 4) + row] = inside_a ? p.a[p.transpose_a ? da * p.stride_a + r : r * p.stride_a + da] : 0.0f;
            b[kb * (TILE + 4) + column] = inside_b ? p.b[p.transpose_b ? c * p.stride_b + db : db * p.stride_b + c] : 0.0f;
        }
        fl_block_sync();
        FL_UNROLL
        for (int d = 0; d < DEPTH; d++) {
            const fl_float4 u = *(const fl_float4 *)(a + d * (TILE + 4) + 4 * y), v = *(const fl_float4 *)(b + d * (TILE + 4) + 4 * x);
            FL_UNROLL
            for (int i = 0; i < 4; i++) {
                FL_UNROLL
                for (int j = 0; j < 4; j++) sum[i][j] += u.at[i] * v.at[j];
            }
        }
        fl_block_sync();
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            const size_t r = first_row + 4 * y + i, c = first_column + 4 * x + j;
            if (r >= p.m || c >= p.n) continue;
            float *to = p.c + r * p.stride_c + c;
            *to = p.alpha * sum[i][j] + (p.beta == 0.0f ? 0.0f : p.beta * *to);
        }
    }
}

static void own_matmul(fl_cuda *device, const matmul_call &call) {
    const dim3 grid((unsigned)fl_pieces(call.n, TILE), (unsigned)fl_pieces(call.m, TILE));
    fl_launch(device, "matmul", matmul_kernel, grid, THREADS, 2 * DEPTH * (TILE + 4) * sizeof(float), call);
}

struct shape_key {
    bool transpose_a, transpose_b;
    size_t m, n, k, stride_a, stride_b, stride_c;
    bool operator<(const shape_key &o) const {
        const size_t own[] = {transpose_a, transpose_b, m, n, k, stride_a, stride_b, stride_c};
        const size_t other[] = {o.transpose_a, o.transpose_b, o.m, o.n, o.k, o.stride_a, o.stride_b, o.stride_c};
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
            if (own[i] != other[i]) return own[i] < other[i];
        }
        return false;
    }
};

/* A shape's descriptors and algorithm; `known` false: cuBLASLt has none for it. */
struct plan {
    bool known;
    void *desc, *a, *b, *c;
    fl_cublaslt_algorithm algorithm;
};

struct fl_cublaslt {
    void *library, *handle, *workspace;
    fl_cublaslt_functions f;
    std::map<shape_key, plan> plans;
};

static void describe(fl_cuda *device, const matmul_call &call, const plan &p) {
    char line[160];
    int id = -1, tile = -1, splits = -1;
    size_t written;
    if (p.known) {
        const fl_cublaslt_functions &f = device->products->f;
        f.algorithm_get(&p.algorithm, FL_CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written);
        f.algorithm_get(&p.algorithm, FL_CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written);
        f.algorithm_get(&p.algorithm, FL_CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits, &written);
        snprintf(line, sizeof line, "%c%c %zux%zux%zu: algorithm %d tile %d splits %d\n", call.transpose_a ? 'T' : 'N',
                 call.transpose_b ? 'T' : 'N', call.m, call.n, call.k, id, tile, splits);
    } else {
        snprintf(line, sizeof line, "%c%c %zux%zux%zu: own kernel\n", call.transpose_a ? 'T' : 'N', call.transpose_b ? 'T' : 'N',
                 call.m, call.n, call.k);
    }
    device->algorithms += line;
}

static plan make_plan(fl_cublaslt *lt, const matmul_call &call) {
    const fl_cublaslt_functions &f = lt->f;
    const int op_b = call.transpose_b ? FL_CUBLAS_OP_T : FL_CUBLAS_OP_N, op_a = call.transpose_a ? FL_CUBLAS_OP_T : FL_CUBLAS_OP_N;
    plan p = {};
    void *preference = NULL;
    size_t room = WORKSPACE_BYTES;
    fl_cublaslt_heuristic best = {};
    int found = 0;
    f.desc_create(&p.desc, FL_CUBLAS_COMPUTE_32F, FL_CUBLAS_R_32F);
    f.desc_set(p.desc, FL_CUBLASLT_DESC_TRANSA, &op_b, sizeof op_b);
    f.desc_set(p.desc, FL_CUBLASLT_DESC_TRANSB, &op_a, sizeof op_a);
    f.layout_create(&p.a, FL_CUBLAS_R_32F, call.transpose_b ? call.k : call.n, call.transpose_b ? call.n : call.k,
                    (int64_t)call.stride_b);
    f.layout_create(&p.b, FL_CUBLAS_R_32F, call.transpose_a ? call.m : call.k, call.transpose_a ? call.k : call.m,
                    (int64_t)call.stride_a);
    f.layout_create(&p.c, FL_CUBLAS_R_32F, call.n, call.m, (int64_t)call.stride_c);
    f.preference_create(&preference);
    f.preference_set(preference, FL_CUBLASLT_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
    p.known = f.heuristic(lt->handle, p.desc, p.a, p.b, p.c, p.c, preference, 1, &best, &found) == 0 && found > 0;
    p.algorithm = best.algorithm;
    f.preference_destroy(preference);
    return p;
}

static bool library_matmul(fl_cuda *device, const matmul_call &call) {
    fl_cublaslt *lt = device->products;
    if (lt == NULL) return false;
    const shape_key key = {call.transpose_a, call.transpose_b, call.m, call.n, call.k, call.stride_a, call.stride_b, call.stride_c};
    std::map<shape_key, plan>::iterator at = lt->plans.find(key);
    if (at == lt->plans.end()) {
        at = lt->plans.insert({key, make_plan(lt, call)}).first;
        describe(device, call, at->second);
    }
    const plan &p = at->second;
    if (!p.known) return false;
    const int status = lt->f.matmul(lt->handle, p.desc, &call.alpha, call.b, p.a, call.a, p.b, &call.beta, call.c, p.c, call.c, p.c,
                                    &p.algorithm, lt->workspace, WORKSPACE_BYTES, (void *)device->stream);
    if (status != 0) {
        char what[64];
        snprintf(what, sizeof what, "cublasLtMatmul gives status %d", status);
        fl_cuda_fail(device, "matmul", what);
    }
    return true;
}

void fl_cuda_matmul(fl_cuda *device, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha, const float *a,
                    size_t stride_a, const float *b, size_t stride_b, float beta, float *c, size_t stride_c) {
    const matmul_call call = {transpose_a, transpose_b, m, n, k, alpha, a, stride_a, b, stride_b, beta, c, stride_c};
    if (m == 0 || n == 0 || device->failed) return;
    if (k == 0 || !library_matmul(device, call)) own_matmul(device, call);
}

#ifdef __CUDACC__
static bool resolve(void *library, fl_cublaslt_functions *f) {
    struct {
        void **to;
        const char *name;
    } const symbols[] = {
        {(void **)&f->get_version, "cublasLtGetVersion"},
        {(void **)&f->create, "cublasLtCreate"},
        {(void **)&f->destroy, "cublasLtDestroy"},
        {(void **)&f->desc_create, "cublasLtMatmulDescCreate"},
        {(void **)&f->desc_destroy, "cublasLtMatmulDescDestroy"},
        {(void **)&f->desc_set, "cublasLtMatmulDescSetAttribute"},
        {(void **)&f->layout_create, "cublasLtMatrixLayoutCreate"},
        {(void **)&f->layout_destroy, "cublasLtMatrixLayoutDestroy"},
        {(void **)&f->preference_create, "cublasLtMatmulPreferenceCreate"},
        {(void **)&f->preference_destroy, "cublasLtMatmulPreferenceDestroy"},
        {(void **)&f->preference_set, "cublasLtMatmulPreferenceSetAttribute"},
        {(void **)&f->heuristic, "cublasLtMatmulAlgoGetHeuristic"},
        {(void **)&f->matmul, "cublasLtMatmul"},
        {(void **)&f->algorithm_get, "cublasLtMatmulAlgoConfigGetAttribute"},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        *symbols[i].to = dlsym(library, symbols[i].name);
        if (*symbols[i].to == NULL) return false;
    }
    return true;
}

/* FROSTLINE_CUBLASLT, the loader's own places, CUDA_HOME, the usual folder. */
static void *open_library(void) {
    const char *own = getenv("FROSTLINE_CUBLASLT"), *home = getenv("CUDA_HOME");
    if (own != NULL) return dlopen(own, RTLD_NOW | RTLD_LOCAL);
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    for (int place = 0; place < 3; place++) {
        const std::string folder = place == 0   ? std::string()
                                   : place == 1 ? std::string("/usr/local/cuda/lib64/")
                                                : std::string(home != NULL ? home : "/usr/local/cuda") + "/lib64/";
        for (const char *name : names) {
            void *library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
            if (library != NULL) return library;
        }
    }
    return NULL;
}

fl_status fl_cuda_products_open(fl_cuda *device, fl_error *error) {
    const char *override = getenv("NVIDIA_TF32_OVERRIDE");
    if (override != NULL && strcmp(override, "1") == 0) {
        return device->services->set_error(error, FL_ERROR_ARGUMENT,
                                           "NVIDIA_TF32_OVERRIDE=1 would round products to TF32: unset it for precision exact");
    }
    void *library = open_library();
    if (library == NULL) {
        return device->services->set_error(error, FL_ERROR_UNSUPPORTED,
                                           "cuBLASLt is not found (libcublasLt.so.13 or .12): install CUDA's libraries, or set "
                                           "FROSTLINE_CUBLASLT to the file");
    }
    fl_cublaslt *lt = new fl_cublaslt();
    lt->library = library;
    device->products = lt;
    if (!resolve(library, &lt->f) || lt->f.create(&lt->handle) != 0) {
        return device->services->set_error(error, FL_ERROR_UNSUPPORTED, "cuBLASLt is there but cannot be used on this device");
    }
    lt->workspace = fl_cuda_take(device, WORKSPACE_BYTES, "cuBLASLt's workspace");
    const size_t version = lt->f.get_version();
    char name[64];
    snprintf(name, sizeof name, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    device->products_name = name;
    return FL_OK;
}
#else
fl_status fl_cuda_products_open(fl_cuda *device, fl_error *) {
    device->products_name = "own kernel";
    return FL_OK;
}
#endif

void fl_cuda_products_close(fl_cuda *device) {
    fl_cublaslt *lt = device->products;
    if (lt == NULL) return;
    for (const std::pair<const shape_key, plan> &entry : lt->plans) {
        lt->f.layout_destroy(entry.second.a);
        lt->f.layout_destroy(entry.second.b);
        lt->f.layout_destroy(entry.second.c);
        lt->f.desc_destroy(entry.second.desc);
    }
    if (lt->handle != NULL) lt->f.destroy(lt->handle);
    fl_cuda_give(device, lt->workspace);
    delete lt;
    device->products = NULL;
}
