/* Rows of a routed cache: lengths that decisions are made from, and rows that change places. */
#include "harness/compute/cuda/operations.h"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* A warp a row. */
FL_KERNEL(THREADS) row_lengths_kernel(size_t count, size_t rows, size_t dim, const float *x, size_t head_stride, double *lengths) {
    const size_t at = (size_t)fl_block_x * WARPS + fl_thread / 32;
    if (at >= count) return; /* the whole warp */
    const float *row = x + at / rows * head_stride + at % rows * dim;
    double sum = 0.0;
    for (size_t i = fl_thread % 32; i < dim; i += 32) sum += (double)row[i] * (double)row[i];
    sum = fl_lanes_sum(sum, 32);
    if (fl_thread % 32 == 0) lengths[at] = sqrt(sum);
}

void fl_cuda_row_lengths(fl_cuda *device, size_t heads, size_t rows, size_t dim, const float *x, size_t head_stride, double *lengths) {
    const size_t count = heads * rows;
    fl_launch(device, "row_lengths", row_lengths_kernel, dim3((unsigned)fl_pieces(count, WARPS)), THREADS, 0, count, rows, dim, x,
              head_stride, lengths);
}

/* A block a head and part; a thread has columns of its own, so that steps follow each other without a barrier. */
FL_KERNEL(THREADS) exchange_kernel(fl_exchange_call c) {
    const size_t head = (size_t)fl_block_x, kv_head = head / (c.layout.heads / c.kv_heads), width = c.layout.width[fl_block_y];
    const int32_t *slots = (const int32_t *)c.slots.at;
    float *stream = floats(c.stream.part[fl_block_y]), *cached = floats(c.cached.part[fl_block_y]);
    for (size_t step = c.first_step; step < c.first_step + c.steps; step++) {
        const int32_t slot = slots[kv_head * c.tokens + step];
        if (slot < 0) continue;
        float *a = stream + (head * c.stream.rows + step) * width, *b = cached + (head * c.cached.rows + slot) * width;
        for (size_t i = fl_thread; i < width; i += THREADS) {
            const float kept = a[i];
            a[i] = b[i];
            b[i] = kept;
        }
    }
}

void fl_cuda_exchange_rows(fl_cuda *device, const fl_exchange_call *call) {
    fl_launch(device, "exchange_rows", exchange_kernel, dim3((unsigned)call->layout.heads, FL_WRITE_PARTS), THREADS, 0,
              *call);
}
