/* Products with weights and plain matrix products.
 *
 * Output is cut into tiles, one product each, of sizes that depend on the shape and the number of threads
 * alone. A few tokens (decoding) are bound by reading the weight once, so they skip sgemm, which would pack
 * it first. Our own product packs only the weight, a panel at a time, and with wide vectors stays ahead of
 * sgemm, which packs the input as well and clears the output first; at 256 bits only up to a depth
 * (docs/performance.md). */
#include <assert.h>
#include <cblas.h>
#include <stdint.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/compute/cpu_backend.h"

enum {
    FEW_TOKENS = 5,      /* up to here a weight row is used straight from memory, without packing */
    SOME_TOKENS = 64,    /* up to here our own product, which packs the weight only, is ahead of sgemm */
    TILE_ROWS = 768,     /* at most as many weight rows make a tile of the output */
    TILE_TOKENS = 512,   /* and at most as many tokens */
    TILE_ALIGNMENT = 16, /* tiles are a multiple of as many rows */
    STREAM_ROWS = 64,    /* weight rows widened at a time */
    WIDEN_ROWS = 64,
    SMALL_PRODUCT = 1 << 17 /* multiplications below which waking threads costs more than it gains */
};

static size_t at_most(size_t a, size_t b) {
    return a < b ? a : b;
}
static size_t pieces(size_t n, size_t piece) {
    return (n + piece - 1) / piece;
}

/* Length of a tile along an axis of n, so that every worker gets as much. */
static size_t balanced_tile(size_t n, size_t workers) {
    size_t count = pieces(pieces(n, TILE_ROWS), workers) * workers;
    return pieces(pieces(n, count), TILE_ALIGNMENT) * TILE_ALIGNMENT;
}

void fl_cpu_product(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha,
                    const float *a, size_t stride_a, const float *b, size_t stride_b, float beta, float *c,
                    size_t stride_c) {
    if (m == 0 || n == 0) return;
    if (k == 0) { /* sgemm wants valid strides even when nothing is read */
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; j < n; j++)
                c[i * stride_c + j] = beta == 0.0f ? 0.0f : beta * c[i * stride_c + j];
        }
        return;
    }
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, alpha, a,
                (blasint)stride_a, b, (blasint)stride_b, beta, c, (blasint)stride_c);
}

typedef struct {
    const fl_tensor *tensor;
    float *values;
} widen_context;

static void widen_item(void *context, size_t item, size_t worker) {
    const widen_context *w = context;
    size_t first = item * WIDEN_ROWS, count = at_most(WIDEN_ROWS, w->tensor->rows - first);
    (void)worker;
    fl_tensor_widen_rows(w->tensor, first, count, w->values + first * w->tensor->columns);
}

static bool usable_in_place(const fl_tensor *tensor) {
    return tensor->type == FL_DTYPE_F32 && tensor->permuted_heads == 0 &&
           (uintptr_t)tensor->data % sizeof(float) == 0;
}

fl_status fl_cpu_weight_create(fl_compute *compute, const fl_tensor *tensor, fl_weight **out,
                               fl_error *error) {
    *out = NULL;
    fl_cpu *cpu = fl_cpu_of(compute);
    if (tensor->data == NULL || tensor->rows == 0 || tensor->columns == 0) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "tensor %s is absent or empty and cannot be a weight",
                            tensor->name != NULL ? tensor->name : "(unnamed)");
    }
    fl_weight *weight = NULL;
    FL_TRY(FL_ALLOCATE(&weight, 1, error));
    weight->tensor = *tensor;
    size_t bytes = 0;
    fl_status status =
        fl_memory_multiply(tensor->rows, tensor->columns * sizeof(float), &bytes, "weight", error);
    if (status != FL_OK) goto failed;
    if (usable_in_place(tensor)) {
        weight->values = tensor->data;
    } else if (bytes <= cpu->widen_left) {
        status = FL_ALLOCATE(&weight->owned, tensor->rows * tensor->columns, error);
        if (status != FL_OK) goto failed;
        fl_threads_for(compute->threads, pieces(tensor->rows, WIDEN_ROWS), widen_item,
                       &(widen_context){tensor, weight->owned});
        weight->values = weight->owned;
        if (cpu->widen_left != SIZE_MAX) cpu->widen_left -= bytes;
    } else {
        status = fl_cpu_reserve_scratch(cpu, STREAM_ROWS * tensor->columns, error);
        if (status != FL_OK) goto failed;
    }
    *out = weight;
    return FL_OK;
failed:
    fl_memory_free(weight);
    return status;
}

void fl_cpu_weight_destroy(fl_compute *compute, fl_weight *weight) {
    if (weight == NULL) return;
    fl_cpu *cpu = fl_cpu_of(compute);
    if (weight->owned != NULL && cpu->widen_left != SIZE_MAX) {
        cpu->widen_left += weight->tensor.rows * weight->tensor.columns * sizeof(float);
    }
    fl_memory_free(weight->owned);
    fl_memory_free(weight);
}

typedef struct {
    const fl_cpu *cpu;
    const fl_weight *weight;
    const float *bias;
    size_t tokens;
    const float *input;
    float *output;
    size_t item_rows, item_tokens, row_items;
} linear_context;

/* Output columns first .. first + rows - 1 of some tokens, from `values` [rows][columns]. */
static void linear_tile(const linear_context *c, const float *values, size_t first, size_t rows, size_t token,
                        size_t tokens) {
    size_t columns = c->weight->tensor.columns, stride = c->weight->tensor.rows;
    const float *input = c->input + token * columns;
    float *output = c->output + token * stride + first;
    if (tokens <= FEW_TOKENS) {
        c->cpu->kernels->rows_times_tokens(rows, columns, values, tokens, input, output, stride);
    } else if (tokens <= SOME_TOKENS || columns <= c->cpu->kernels->large_depth) {
        fl_cpu_block_product(c->cpu->kernels, FL_WHOLE, false, true, tokens, rows, columns, 1.0f, input,
                             columns, values, columns, false, output, stride);
    } else {
        fl_cpu_product(false, true, tokens, rows, columns, 1.0f, input, columns, values, columns, 0.0f,
                       output, stride);
    }
    if (c->bias == NULL) return;
    for (size_t t = 0; t < tokens; t++)
        c->cpu->kernels->axpy(rows, 1.0f, c->bias + first, output + t * stride);
}

static void linear_item(void *context, size_t item, size_t worker) {
    const linear_context *c = context;
    size_t first = item % c->row_items * c->item_rows, token = item / c->row_items * c->item_tokens;
    size_t rows = at_most(c->item_rows, c->weight->tensor.rows - first);
    size_t tokens = at_most(c->item_tokens, c->tokens - token), columns = c->weight->tensor.columns;
    if (c->weight->values != NULL) {
        linear_tile(c, c->weight->values + first * columns, first, rows, token, tokens);
        return;
    }
    float *panel = fl_cpu_scratch(c->cpu, worker);
    for (size_t row = first; row < first + rows; row += STREAM_ROWS) {
        size_t count = at_most(STREAM_ROWS, first + rows - row);
        fl_tensor_widen_rows(&c->weight->tensor, row, count, panel);
        linear_tile(c, panel, row, count, token, tokens);
    }
}

void fl_cpu_linear(fl_compute *compute, const fl_weight *weight, fl_array bias, size_t tokens, fl_array input,
                   fl_array output) {
    if (tokens == 0) return;
    fl_cpu *cpu = fl_cpu_of(compute);
    linear_context context = {.cpu = cpu,
                              .weight = weight,
                              .bias = fl_cpu_floats(bias),
                              .tokens = tokens,
                              .input = fl_cpu_floats(input),
                              .output = fl_cpu_floats(output),
                              .item_rows = balanced_tile(weight->tensor.rows, cpu->workers),
                              .item_tokens = TILE_TOKENS};
    /* A weight that is widened in the call is widened once only. */
    if (weight->values == NULL) context.item_tokens = tokens;
    context.row_items = pieces(weight->tensor.rows, context.item_rows);
    fl_threads_for(compute->threads, context.row_items * pieces(tokens, context.item_tokens), linear_item,
                   &context);
}

typedef struct {
    const fl_cpu *cpu;
    const fl_weight *weight;
    size_t tokens;
    const float *gradient_output;
    float *gradient_input;
    bool accumulate;
    size_t item_columns, column_items;
} linear_backward_context;

/* gradient_input [tokens][columns of them] (+)= gradient_output . values, over `depth` rows of the weight. */
static void backward_product(const linear_backward_context *c, size_t tokens, size_t columns, size_t depth,
                             const float *gradient_output, const float *values, bool accumulate,
                             float *gradient_input) {
    size_t rows = c->weight->tensor.rows, stride = c->weight->tensor.columns;
    if (depth <= c->cpu->kernels->large_depth) {
        fl_cpu_block_product(c->cpu->kernels, FL_WHOLE, false, false, tokens, columns, depth, 1.0f,
                             gradient_output, rows, values, stride, accumulate, gradient_input, stride);
    } else {
        fl_cpu_product(false, false, tokens, columns, depth, 1.0f, gradient_output, rows, values, stride,
                       accumulate ? 1.0f : 0.0f, gradient_input, stride);
    }
}

static void linear_backward_item(void *context, size_t item, size_t worker) {
    const linear_backward_context *c = context;
    size_t rows = c->weight->tensor.rows, columns = c->weight->tensor.columns;
    size_t token = item / c->column_items * TILE_TOKENS, tokens = at_most(TILE_TOKENS, c->tokens - token);
    const float *gradient_output = c->gradient_output + token * rows;
    float *gradient_input = c->gradient_input + token * columns;
    if (c->weight->values != NULL) {
        size_t first = item % c->column_items * c->item_columns;
        backward_product(c, tokens, at_most(c->item_columns, columns - first), rows, gradient_output,
                         c->weight->values + first, c->accumulate, gradient_input + first);
        return;
    }
    float *panel = fl_cpu_scratch(c->cpu, worker);
    bool accumulate = c->accumulate;
    for (size_t row = 0; row < rows; row += STREAM_ROWS) {
        size_t count = at_most(STREAM_ROWS, rows - row);
        fl_tensor_widen_rows(&c->weight->tensor, row, count, panel);
        backward_product(c, tokens, columns, count, gradient_output + row, panel, accumulate, gradient_input);
        accumulate = true;
    }
}

void fl_cpu_linear_backward(fl_compute *compute, const fl_weight *weight, size_t tokens,
                            fl_array gradient_output, fl_array gradient_input, bool accumulate) {
    if (tokens == 0) return;
    fl_cpu *cpu = fl_cpu_of(compute);
    linear_backward_context context = {.cpu = cpu,
                                       .weight = weight,
                                       .tokens = tokens,
                                       .gradient_output = fl_cpu_floats(gradient_output),
                                       .gradient_input = fl_cpu_floats(gradient_input),
                                       .accumulate = accumulate,
                                       .item_columns = balanced_tile(weight->tensor.columns, cpu->workers),
                                       .column_items = 1};
    if (weight->values != NULL) context.column_items = pieces(weight->tensor.columns, context.item_columns);
    fl_threads_for(compute->threads, context.column_items * pieces(tokens, TILE_TOKENS), linear_backward_item,
                   &context);
}

enum { EMBED_TOKENS = 32 };

typedef struct {
    const fl_weight *weight;
    size_t tokens;
    const int32_t *ids;
    float *output;
} embed_context;

static void embed_item(void *context, size_t item, size_t worker) {
    const embed_context *c = context;
    size_t first = item * EMBED_TOKENS, end = at_most(first + EMBED_TOKENS, c->tokens);
    size_t columns = c->weight->tensor.columns;
    (void)worker;
    for (size_t t = first; t < end; t++) {
        assert(c->ids[t] >= 0 && (size_t)c->ids[t] < c->weight->tensor.rows);
        size_t row = (size_t)c->ids[t];
        float *output = c->output + t * columns;
        if (c->weight->values != NULL) {
            memcpy(output, c->weight->values + row * columns, columns * sizeof *output);
        } else {
            fl_tensor_widen_row(&c->weight->tensor, row, output);
        }
    }
}

void fl_cpu_embed(fl_compute *compute, const fl_weight *weight, size_t tokens, fl_array ids,
                  fl_array output) {
    embed_context context = {weight, tokens, fl_cpu_integers(ids), fl_cpu_floats(output)};
    fl_threads_for(compute->threads, pieces(tokens, EMBED_TOKENS), embed_item, &context);
}

typedef struct {
    bool transpose_a, transpose_b;
    size_t m, n, k;
    float alpha, beta;
    const float *a, *b;
    float *c;
    size_t stride_a, stride_b, stride_c, tile_m, tile_n, n_items;
} matmul_context;

static void matmul_item(void *context, size_t item, size_t worker) {
    const matmul_context *x = context;
    size_t i = item / x->n_items * x->tile_m, j = item % x->n_items * x->tile_n;
    (void)worker;
    fl_cpu_product(x->transpose_a, x->transpose_b, at_most(x->tile_m, x->m - i), at_most(x->tile_n, x->n - j),
                   x->k, x->alpha, x->a + (x->transpose_a ? i : i * x->stride_a), x->stride_a,
                   x->b + (x->transpose_b ? j * x->stride_b : j), x->stride_b, x->beta,
                   x->c + i * x->stride_c + j, x->stride_c);
}

void fl_cpu_matmul(fl_compute *compute, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
                   float alpha, fl_array a, size_t stride_a, fl_array b, size_t stride_b, float beta,
                   fl_array c, size_t stride_c) {
    if (m == 0 || n == 0) return;
    size_t workers = fl_cpu_of(compute)->workers;
    matmul_context context = {.transpose_a = transpose_a,
                              .transpose_b = transpose_b,
                              .m = m,
                              .n = n,
                              .k = k,
                              .alpha = alpha,
                              .beta = beta,
                              .a = fl_cpu_floats(a),
                              .b = fl_cpu_floats(b),
                              .c = fl_cpu_floats(c),
                              .stride_a = stride_a,
                              .stride_b = stride_b,
                              .stride_c = stride_c,
                              .tile_m = m,
                              .tile_n = n};
    if (m * n * (k + 1) >= SMALL_PRODUCT && n >= m) {
        context.tile_m = TILE_TOKENS;
        context.tile_n = balanced_tile(n, workers);
    } else if (m * n * (k + 1) >= SMALL_PRODUCT) {
        context.tile_m = balanced_tile(m, workers);
        context.tile_n = TILE_TOKENS;
    }
    context.n_items = pieces(n, context.tile_n);
    fl_threads_for(compute->threads, context.n_items * pieces(m, context.tile_m), matmul_item, &context);
}
