#include "harness/compute/vector_math.h"

#include <stdatomic.h>
#include <string.h>

#include "harness/compute/cpu_kernels.h"

static const fl_kernels *const tables[] = {
#if defined(__x86_64__)
    &fl_kernels_avx512,
    &fl_kernels_avx2,
#endif
    &fl_kernels_baseline,
};
enum { TABLES = sizeof tables / sizeof *tables };

static _Atomic(const fl_kernels *) selected;

static bool runs_here(const fl_kernels *table) {
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (table == &fl_kernels_avx2) return avx2;
    if (table == &fl_kernels_avx512) {
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
    }
#endif
    return table == &fl_kernels_baseline;
}

const fl_kernels *fl_kernels_at(size_t index) {
    for (size_t i = 0; i < TABLES; i++) {
        if (runs_here(tables[i]) && index-- == 0) return tables[i];
    }
    return NULL;
}

const fl_kernels *fl_kernels_current(void) {
    const fl_kernels *table = atomic_load_explicit(&selected, memory_order_relaxed);
    return table != NULL ? table : fl_kernels_at(0);
}

fl_status fl_kernels_select(const char *name, fl_error *error) {
    const fl_kernels *found = NULL;
    for (size_t i = 0; i < TABLES && name != NULL; i++) {
        if (strcmp(tables[i]->name, name) == 0) found = tables[i];
    }
    if (name != NULL && found == NULL) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "unknown vector kernels \"%s\": there are avx512, avx2 and baseline", name);
    }
    if (found != NULL && !runs_here(found)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT,
                            "this machine does not run the %s vector kernels; the widest that it runs are %s",
                            name, fl_kernels_at(0)->name);
    }
    atomic_store_explicit(&selected, found, memory_order_relaxed);
    return FL_OK;
}

void fl_vector_exp(size_t n, const float *x, float *y) {
    fl_kernels_current()->exp(n, x, y);
}
void fl_vector_sigmoid(size_t n, const float *x, float *y) {
    fl_kernels_current()->sigmoid(n, x, y);
}
void fl_vector_silu(size_t n, const float *x, float *y) {
    fl_kernels_current()->silu(n, x, y);
}
void fl_vector_log_sigmoid(size_t n, const float *x, float *y) {
    fl_kernels_current()->log_sigmoid(n, x, y);
}
void fl_vector_softplus(size_t n, const float *x, float *y) {
    fl_kernels_current()->softplus(n, x, y);
}
float fl_vector_dot(size_t n, const float *x, const float *y) {
    return fl_kernels_current()->dot(n, x, y);
}
double fl_vector_sum_of_squares(size_t n, const float *x) {
    return fl_kernels_current()->sum_of_squares(n, x);
}

double fl_vector_dot_float64(size_t n, const float *x, const float *y) {
    double sum[8] = {0.0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++) sum[j] += (double)x[i + j] * y[i + j];
    }
    for (size_t j = 0; i + j < n; j++) sum[j] += (double)x[i + j] * y[i + j];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

void fl_vector_remove(size_t n, const float *x, double along, double scale, const float *g, float *y) {
    enum { RUN = 8 }; /* numbers worked on together, so that they go into vector registers */
    size_t i = 0;
    for (; i + RUN <= n; i += RUN) {
        float run[RUN];
#pragma GCC unroll 8
        for (size_t j = 0; j < RUN; j++) run[j] = (float)((g[i + j] - along * x[i + j]) * scale);
        memcpy(y + i, run, sizeof run);
    }
    for (; i < n; i++) y[i] = (float)((g[i] - along * x[i]) * scale);
}

void fl_vector_softmax(size_t n, const float *x, float *y) {
    const fl_kernels *kernels = fl_kernels_current();
    kernels->scale(n, 1.0f / kernels->exp_sum(n, kernels->maximum(n, x), x, y), y, y);
}
void fl_vector_weigh_rows(size_t rows, size_t columns, const float *weight, const float *matrix,
                          float *output) {
    memset(output, 0, columns * sizeof *output);
    fl_kernels_current()->tokens_times_rows(1, rows, columns, weight, rows, matrix, output);
}
void fl_vector_times_rows(size_t rows, size_t columns, const float *matrix, const float *x, float *output) {
    fl_kernels_current()->rows_times_tokens(rows, columns, matrix, 1, x, output, rows);
}
