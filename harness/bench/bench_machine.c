/* The machine's own limits: sgemm of the BLAS that the project uses, and memory bandwidth. */
#include <cblas.h>
#include <math.h>
#include <stdio.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/bench/bench_rows.h"
#include "harness/compute/cpu_kernels.h"

enum {
    SWEEP_FLOATS = 64 << 20, /* far larger than any cache */
    SWEEP_QUICK = 4 << 20,
    SWEEP_PIECE = 1 << 16
};

/* C = A B, [size][size], a band of rows a thread, each one call of sgemm. */
typedef struct square {
    const fl_bench *bench;
    size_t size, bands;
    float *a, *b, *c;
} square;

static void multiply_band(void *context, size_t item, size_t worker) {
    (void)worker;
    const square *s = context;
    size_t first = item * s->size / s->bands, end = (item + 1) * s->size / s->bands;
    blasint n = (blasint)s->size;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)(end - first), n, n, 1.0f,
                s->a + first * s->size, n, s->b, n, 0.0f, s->c + first * s->size, n);
}

static fl_status multiply_square(void *context, fl_error *error) {
    (void)error;
    square *s = context;
    fl_threads_for(s->bench->compute->threads, s->bands, multiply_band, s);
    return FL_OK;
}

static void fill(float *x, size_t count) {
    fl_random random;
    fl_random_seed(&random, count, 0);
    for (size_t i = 0; i < count; i++) x[i] = (float)(fl_random_uniform(&random) - 0.5);
}

static fl_status measure_square(fl_bench *bench, size_t size, const char *when, fl_bench_row *kept,
                                fl_error *error) {
    square s = {.bench = bench, .size = size, .bands = bench->threads};
    fl_status status = FL_OK;
    double n = (double)size;
    fl_bench_row row = {.group = "machine", .name = "sgemm", .unit = "GFLOP/s", .work = 2e-9 * n * n * n};
    row.flops = 1e9 * row.work;
    fl_bench_add_number(&row, "size", n);
    fl_bench_add_text(&row, "when", when);
    FL_TRY_DONE(status, FL_ALLOCATE(&s.a, size * size, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&s.b, size * size, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&s.c, size * size, error));
    fill(s.a, size * size);
    fill(s.b, size * size);
    status = fl_bench_measure(bench, &row, multiply_square, &s, kept, error);
done:
    fl_memory_free(s.a);
    fl_memory_free(s.b);
    fl_memory_free(s.c);
    return status;
}

/* The square size that the peak is taken at. */
static size_t peak_size(const fl_bench *bench) {
    return bench->settings->quick ? 384 : 1536;
}

static fl_status measure_peak(fl_bench *bench, fl_error *error) {
    const size_t sizes[] = {peak_size(bench), 1024, 2048};
    size_t count = bench->settings->quick ? 1 : sizeof sizes / sizeof sizes[0];
    double peak = 0;
    bench->peak = 0;
    for (size_t i = 0; i < count; i++) {
        fl_bench_row row;
        FL_TRY(measure_square(bench, sizes[i], "first", &row, error));
        peak = fmax(peak, row.flops / row.minimum);
    }
    bench->peak = peak;
    return FL_OK;
}

/* Reading one large array, and y += a x over two. */
typedef struct sweep {
    const fl_bench *bench;
    const fl_kernels *kernels;
    size_t pieces;
    float *x, *y; /* y NULL: read x alone */
    float sums[256];
} sweep;

static void sweep_piece(void *context, size_t item, size_t worker) {
    sweep *s = context;
    size_t at = item * SWEEP_PIECE;
    if (s->y != NULL) {
        s->kernels->axpy(SWEEP_PIECE, 1e-3f, s->x + at, s->y + at);
    } else {
        s->sums[worker % 256] += s->kernels->dot(SWEEP_PIECE, s->x + at, s->x + at);
    }
}

static fl_status run_sweep(void *context, fl_error *error) {
    (void)error;
    sweep *s = context;
    fl_threads_for(s->bench->compute->threads, s->pieces, sweep_piece, s);
    return FL_OK;
}

static fl_status measure_sweep(fl_bench *bench, const char *name, size_t floats, bool update,
                               fl_error *error) {
    sweep s = {.bench = bench, .kernels = fl_kernels_current(), .pieces = floats / SWEEP_PIECE};
    fl_status status = FL_OK;
    fl_bench_row kept, row = {.group = "machine", .name = name, .unit = "GB/s"};
    row.work = 1e-9 * (update ? 3.0 : 1.0) * (double)floats * sizeof(float);
    fl_bench_add_number(&row, "megabytes", (update ? 2.0 : 1.0) * (double)floats * sizeof(float) / (1 << 20));
    FL_TRY_DONE(status, FL_ALLOCATE(&s.x, floats, error));
    fill(s.x, floats);
    if (update) FL_TRY_DONE(status, FL_ALLOCATE(&s.y, floats, error));
    FL_TRY_DONE(status, fl_bench_measure(bench, &row, run_sweep, &s, &kept, error));
    bench->bandwidth = fmax(bench->bandwidth, 1e9 * kept.value);
done:
    fl_memory_free(s.x);
    fl_memory_free(s.y);
    return status;
}

fl_status fl_bench_machine(fl_bench *bench, fl_error *error) {
    size_t floats = bench->settings->quick ? SWEEP_QUICK : SWEEP_FLOATS;
    bench->bandwidth = 0;
    FL_TRY(measure_peak(bench, error));
    FL_TRY(measure_sweep(bench, "memory read", floats, false, error));
    return measure_sweep(bench, "memory update", floats / 2, true, error);
}

fl_status fl_bench_machine_again(fl_bench *bench, fl_error *error) {
    return measure_square(bench, peak_size(bench), "last", NULL, error);
}
