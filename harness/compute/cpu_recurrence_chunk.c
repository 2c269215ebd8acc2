/* The chunk form: cpu_recurrence.h has the formulas. */
#include <string.h>

#include "harness/compute/cpu_recurrence.h"

/* Largest range of the accumulated decay within a chunk, as a power of two: factors reach 2^(+-58), so that
 * keys and values of 1e4 or 1e-6 stay far from float32's limits. */
#define LARGEST_RANGE 116.0

enum { CHUNK_BUFFERS = 13 };

static size_t chunk_sizes(size_t key_dim, size_t value_dim, size_t sizes[CHUNK_BUFFERS]) {
    size_t n = FL_CHUNK_TOKENS, total = 0;
    const size_t wanted[CHUNK_BUFFERS] = {
        2 * n * key_dim, 2 * key_dim, n * key_dim, n * key_dim,   key_dim,           key_dim, 2 * n * key_dim,
        2 * n * key_dim, 4 * n * n,   n * n,       n * value_dim, 2 * n * value_dim, key_dim};
    for (size_t i = 0; i < CHUNK_BUFFERS; i++) {
        sizes[i] = (wanted[i] + 15) / 16 * 16; /* a cache line */
        total += sizes[i];
    }
    return total;
}

size_t fl_chunk_floats(size_t key_dim, size_t value_dim) {
    size_t sizes[CHUNK_BUFFERS];
    return chunk_sizes(key_dim, value_dim, sizes);
}

float *fl_chunk_carve(fl_chunk *chunk, float *scratch, size_t key_dim, size_t value_dim) {
    size_t sizes[CHUNK_BUFFERS];
    chunk_sizes(key_dim, value_dim, sizes);
    float *at[CHUNK_BUFFERS];
    for (size_t i = 0; i < CHUNK_BUFFERS; i++) {
        at[i] = scratch;
        scratch += sizes[i];
    }
    *chunk = (fl_chunk){.accumulated = (double *)(void *)at[0],
                        .middle = (double *)(void *)at[1],
                        .reader_factor = at[2],
                        .source_factor = at[3],
                        .state_factor = at[4],
                        .end_factor = at[5],
                        .readers = at[6],
                        .sources = at[7],
                        .raw = at[8],
                        .system = at[9],
                        .read = at[10],
                        .amounts = at[11],
                        .decay = at[12]};
    return scratch;
}

size_t fl_chunk_cut(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first, size_t limit,
                    fl_chunk *chunk) {
    size_t width = head->decay_width, n = limit < FL_CHUNK_TOKENS ? limit : FL_CHUNK_TOKENS;
    for (size_t t = 0; width > 0 && t < n; t++) {
        const float *log_decay = head->log_decay + (first + t) * width;
        double *sum = chunk->accumulated + t * width;
        double range = kernels->accumulate_decay(width, log_decay, t > 0 ? sum - width : NULL,
                                                 t > 0 ? chunk->accumulated : NULL, sum);
        if (range > LARGEST_RANGE) n = t;
    }
    return n >= FL_CHUNK_SHORTEST ? n : 1;
}

void fl_chunk_scale_columns(const fl_kernels *kernels, size_t width, const float *factor, size_t rows,
                            size_t key_dim, float *matrix) {
    if (width == 0) return;
    if (width == 1) {
        kernels->scale(rows * key_dim, factor[0], matrix, matrix);
        return;
    }
    for (size_t r = 0; r < rows; r++) {
        kernels->multiply(key_dim, matrix + r * key_dim, factor, matrix + r * key_dim);
    }
}

static void find_factors(const fl_kernels *kernels, size_t width, fl_chunk *chunk) {
    const double *start = chunk->accumulated, *end = chunk->accumulated + (chunk->tokens - 1) * width;
    for (size_t i = 0; i < width; i++) chunk->middle[i] = 0.5 * (start[i] + end[i]);
    if (width == 1) {
        size_t n = chunk->tokens;
        kernels->exp2_shifted(n, chunk->accumulated, chunk->middle[0], chunk->reader_factor);
        for (size_t t = 0; t < n; t++) chunk->source_factor[t] = 1.0f / chunk->reader_factor[t];
    } else {
        for (size_t t = 0; t < chunk->tokens; t++) {
            const double *sum = chunk->accumulated + t * width;
            kernels->exp2_difference(width, sum, chunk->middle, chunk->reader_factor + t * width);
            kernels->reciprocal(width, chunk->reader_factor + t * width, chunk->source_factor + t * width);
        }
    }
    kernels->exp2_shifted(width, chunk->middle, 0.0, chunk->state_factor);
    kernels->exp2_difference(width, end, chunk->middle, chunk->end_factor);
}

/* rows [n][Dk] = input times the factors of their tokens. */
static void scale_rows(const fl_kernels *kernels, size_t width, const float *factor, size_t n, size_t key_dim,
                       const float *input, float *rows) {
    if (width == 0) {
        memcpy(rows, input, n * key_dim * sizeof *rows);
    } else if (width == 1) {
        for (size_t t = 0; t < n; t++)
            kernels->scale(key_dim, factor[t], input + t * key_dim, rows + t * key_dim);
    } else {
        kernels->multiply(n * key_dim, input, factor, rows);
    }
}

void fl_chunk_lower_of(const fl_kernels *kernels, size_t n, size_t row_blocks, size_t column_blocks,
                       size_t dim, const float *left, const float *right, size_t with_diagonal,
                       float *lower) {
    size_t columns = column_blocks * n;
    for (size_t i = 0; i < row_blocks; i++) {
        size_t keep = i * n >= with_diagonal ? 1 : 0;
        for (size_t j = 0; j < column_blocks; j++) {
            float *block = lower + i * n * columns + j * n;
            fl_cpu_block_product(kernels, FL_LOWER_OUTPUT, false, true, n, n, dim, 1.0f, left + i * n * dim,
                                 dim, right + j * n * dim, dim, false, block, columns);
            for (size_t t = 0; t < n; t++)
                memset(block + t * columns + t + keep, 0, (n - t - keep) * sizeof *block);
        }
    }
}

void fl_chunk_lower_times(const fl_kernels *kernels, size_t n, size_t column_blocks, size_t dim,
                          const float *lower, const float *x, bool accumulate, float *out) {
    for (size_t j = 0; j < column_blocks; j++) {
        fl_cpu_block_product(kernels, FL_LOWER_LEFT, false, false, n, dim, n, 1.0f, lower + j * n,
                             column_blocks * n, x + j * n * dim, dim, accumulate || j > 0, out, dim);
    }
}

void fl_chunk_upper_times(const fl_kernels *kernels, size_t n, size_t column_blocks, size_t blocks,
                          size_t dim, const float *lower, const float *x, bool accumulate, float *out) {
    for (size_t j = 0; j < blocks; j++) {
        fl_cpu_block_product(kernels, FL_UPPER_LEFT, true, false, n, dim, n, 1.0f, lower + j * n,
                             column_blocks * n, x, dim, accumulate, out + j * n * dim, dim);
    }
}

static void written_amounts(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first,
                            fl_chunk *chunk) {
    size_t n = chunk->tokens, dim = head->value_dim;
    const float *value = head->value + first * dim;
    if (head->write == NULL) {
        memcpy(chunk->amounts, value, n * dim * sizeof *value);
        return;
    }
    for (size_t t = 0; t < n; t++) {
        kernels->scale(dim, head->write[first + t], value + t * dim, chunk->amounts + t * dim);
    }
}

/* The triangular system of the erase. raw has been masked. */
static void solve_erase(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first,
                        const float *state, fl_chunk *chunk) {
    size_t n = chunk->tokens, dim = head->value_dim, columns = chunk->sources_count;
    const float *strength = head->erase_strength + first;
    fl_cpu_block_product(kernels, FL_WHOLE, false, true, n, dim, head->key_dim, 1.0f, chunk->readers,
                         head->key_dim, state, head->key_dim, false, chunk->read, dim);
    float *unknown = chunk->amounts;
    if (head->own_directions) {
        unknown += n * dim;
        memcpy(unknown, chunk->read, n * dim * sizeof *unknown);
        fl_cpu_block_product(kernels, FL_LOWER_LEFT, false, false, n, dim, n, 1.0f, chunk->raw, columns,
                             chunk->amounts, dim, true, unknown, dim);
        for (size_t t = 0; t < n; t++)
            kernels->scale(dim, -strength[t], unknown + t * dim, unknown + t * dim);
    } else {
        for (size_t t = 0; t < n; t++)
            kernels->axpy(dim, -strength[t], chunk->read + t * dim, unknown + t * dim);
    }
    const float *block = chunk->raw + (head->own_directions ? n : 0);
    for (size_t t = 0; t < n; t++) kernels->scale(t, strength[t], block + t * columns, chunk->system + t * n);
    kernels->solve_unit_lower(n, dim, chunk->system, n, unknown, dim);
}

void fl_chunk_solve(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first, size_t tokens,
                    bool queries, float *state, fl_chunk *chunk) {
    size_t n = tokens, dim = head->key_dim, width = head->decay_width, at = first * dim;
    chunk->tokens = n;
    chunk->first_reader_query = head->erases ? n : 0;
    chunk->sources_count = head->own_directions ? 2 * n : n;
    if (width > 0) find_factors(kernels, width, chunk);
    fl_chunk_scale_columns(kernels, width, chunk->state_factor, head->value_dim, dim, state);
    size_t readers = chunk->first_reader_query;
    if (head->erases)
        scale_rows(kernels, width, chunk->reader_factor, n, dim, head->erase_read + at, chunk->readers);
    if (queries) {
        scale_rows(kernels, width, chunk->reader_factor, n, dim, head->query + at,
                   chunk->readers + readers * dim);
        readers += n;
    }
    scale_rows(kernels, width, chunk->source_factor, n, dim, head->key + at, chunk->sources);
    if (head->own_directions) {
        scale_rows(kernels, width, chunk->source_factor, n, dim, head->erase_write + at,
                   chunk->sources + n * dim);
    }
    fl_chunk_lower_of(kernels, n, readers / n, chunk->sources_count / n, dim, chunk->readers, chunk->sources,
                      chunk->first_reader_query, chunk->raw);
    written_amounts(kernels, head, first, chunk);
    if (head->erases) solve_erase(kernels, head, first, state, chunk);
}

void fl_chunk_finish_state(const fl_kernels *kernels, const fl_recurrence_head *head, const fl_chunk *chunk,
                           float *state) {
    fl_cpu_block_product(kernels, FL_WHOLE, true, false, head->value_dim, head->key_dim, chunk->sources_count,
                         1.0f, chunk->amounts, head->value_dim, chunk->sources, head->key_dim, true, state,
                         head->key_dim);
    fl_chunk_scale_columns(kernels, head->decay_width, chunk->end_factor, head->value_dim, head->key_dim,
                           state);
}

void fl_recurrence_chunk_tokens(const fl_kernels *kernels, const fl_recurrence_head *head, size_t first,
                                size_t count, float *state, float *output, fl_chunk *chunk) {
    size_t key_dim = head->key_dim, value_dim = head->value_dim, end = first + count;
    for (size_t t = first; t < end;) {
        size_t n = fl_chunk_cut(kernels, head, t, end - t, chunk);
        if (n == 1) {
            fl_recurrence_step_tokens(kernels, head, t, 1, state, output, NULL, chunk->decay);
            t++;
            continue;
        }
        fl_chunk_solve(kernels, head, t, n, output != NULL, state, chunk);
        if (output != NULL) {
            const float *queries = chunk->readers + chunk->first_reader_query * key_dim;
            const float *weights = chunk->raw + chunk->first_reader_query * chunk->sources_count;
            float *y = output + t * value_dim;
            fl_cpu_block_product(kernels, FL_WHOLE, false, true, n, value_dim, key_dim, 1.0f, queries,
                                 key_dim, state, key_dim, false, y, value_dim);
            fl_chunk_lower_times(kernels, n, chunk->sources_count / n, value_dim, weights, chunk->amounts,
                                 true, y);
        }
        fl_chunk_finish_state(kernels, head, chunk, state);
        t += n;
    }
}
