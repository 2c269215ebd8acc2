/* Exact attention with lifetimes on the device: what its forward and backward kernels share.
 *
 * Rows are queries of one KV head: token by token, the group's query heads side by side, as they lie in memory. A block of 256
 * threads works on a tile of rows by a tile of keys, 16 x 16 threads: thread (x, y) the rows y + 16 i and the keys x + 16 j, or of a
 * product with rows of D the columns that fl_columns says. Tiles in shared memory have rows of D + 4 numbers, so that neighbouring
 * rows begin four banks apart. D is rounded up with zeros. */
#ifndef FL_COMPUTE_CUDA_ATTENTION_H
#define FL_COMPUTE_CUDA_ATTENTION_H

#include "harness/compute/cuda/operations.h"

enum { FL_ATTENTION_THREADS = 256 };

/* Which rows a block has. */
struct fl_row_tile {
    size_t first_token;
    int first_head; /* query head of row 0 */
    int heads;      /* query heads side by side */
    int rows;
};

/* Blocks of rows of a KV head: the group's heads in pieces of at most ROWS, tokens so that a piece's rows fit. */
struct fl_row_blocks {
    int group, heads, pieces, tokens; /* heads of a piece, pieces of the group, tokens of a block */
    size_t token_blocks;
    FL_MEMBER size_t count() const { return token_blocks * pieces; }
};

static inline fl_row_blocks fl_row_blocks_of(const fl_cuda_attention *call, int rows) {
    fl_row_blocks b;
    b.group = (int)(call->shape.query_heads / call->shape.kv_heads);
    b.heads = b.group < rows ? b.group : rows;
    b.pieces = (b.group + b.heads - 1) / b.heads;
    b.tokens = rows / b.heads;
    b.token_blocks = fl_pieces(call->tokens, (size_t)b.tokens);
    return b;
}

/* Block `index` of a KV head; late tokens first when `late_first`, since they see the most keys. */
FL_DEVICE fl_row_tile fl_row_tile_at(const fl_row_blocks &b, size_t tokens, size_t index, int kv_head, bool late_first) {
    fl_row_tile t;
    const size_t block = index / b.pieces;
    const int piece = (int)(index % b.pieces);
    t.first_token = (late_first ? b.token_blocks - 1 - block : block) * b.tokens;
    t.first_head = kv_head * b.group + piece * b.heads;
    t.heads = b.group - piece * b.heads < b.heads ? b.group - piece * b.heads : b.heads;
    const size_t left = tokens - t.first_token;
    t.rows = (int)(left < (size_t)b.tokens ? left : (size_t)b.tokens) * t.heads;
    return t;
}

/* Where row r lies in arrays [T][H]. */
FL_DEVICE size_t fl_row_at(const fl_row_tile &t, int query_heads, int r) {
    return (t.first_token + r / t.heads) * query_heads + t.first_head + r % t.heads;
}

/* shared [ROWS][D + 4] = factor x rows of [T][H][dim]; zeros outside. */
template <int D, int ROWS>
FL_DEVICE void fl_load_rows(float *shared, const float *from, const fl_row_tile &t, int query_heads, int dim, float factor) {
    for (int i = fl_thread; i < ROWS * D; i += FL_ATTENTION_THREADS) {
        const int r = i / D, c = i % D;
        const bool inside = r < t.rows && c < dim && from != NULL;
        shared[r * (D + 4) + c] = inside ? factor * from[fl_row_at(t, query_heads, r) * dim + c] : 0.0f;
    }
}

/* Begins to copy keys (or values) first .. first + count - 1 of a KV head to shared [KEYS][D + 4]; rows after them become zeros. Columns
 * from dim on are the caller's to clear, once. */
template <int D, int KEYS>
FL_DEVICE void fl_load_keys(float *shared, const float *from, size_t first, int count, int dim, bool wide) {
    if (wide) {
        const int pieces = dim / 4;
        for (int i = fl_thread; i < count * pieces; i += FL_ATTENTION_THREADS) {
            fl_copy_16(shared + i / pieces * (D + 4) + i % pieces * 4, from + (first * pieces + i) * 4);
        }
    } else {
        for (int i = fl_thread; i < count * dim; i += FL_ATTENTION_THREADS) {
            fl_copy_4(shared + i / dim * (D + 4) + i % dim, from + first * dim + i);
        }
    }
    for (int i = fl_thread; i < (KEYS - count) * D; i += FL_ATTENTION_THREADS) shared[(count + i / D) * (D + 4) + i % D] = 0.0f;
    fl_copy_commit();
}

FL_DEVICE void fl_clear(float *shared, int count) {
    for (int i = fl_thread; i < count; i += FL_ATTENTION_THREADS) shared[i] = 0.0f;
}

/* out[i][j] = product over D of row y + 16 i of a and row x + 16 j of b. */
template <int D, int I, int J> FL_DEVICE void fl_tile_products(const float *a, const float *b, float (&out)[I][J]) {
    const int x = fl_thread % 16, y = fl_thread / 16;
    FL_UNROLL
    for (int i = 0; i < I; i++) {
        FL_UNROLL
        for (int j = 0; j < J; j++) out[i][j] = 0.0f;
    }
    FL_UNROLL_4
    for (int d = 0; d < D; d += 4) {
        fl_float4 u[I], v[J];
        FL_UNROLL
        for (int i = 0; i < I; i++) u[i] = *(const fl_float4 *)(a + (y + 16 * i) * (D + 4) + d);
        FL_UNROLL
        for (int j = 0; j < J; j++) v[j] = *(const fl_float4 *)(b + (x + 16 * j) * (D + 4) + d);
        FL_UNROLL
        for (int i = 0; i < I; i++) {
            FL_UNROLL
            for (int j = 0; j < J; j++) {
                FL_UNROLL
                for (int e = 0; e < 4; e++) out[i][j] += u[i].at[e] * v[j].at[e];
            }
        }
    }
}

/* The columns of a thread in products with rows of D: `width` side by side, `runs` times. */
template <int D> struct fl_columns {
    static constexpr int width = D % 64 == 0 ? 4 : 2, runs = D / (16 * width), count = D / 16;
    FL_DEVICE int at(int run) { return width * (fl_thread % 16) + 16 * width * run; }
};

/* sum[i][c] += over k < COUNT of weight(row y + 16 i, k) rows[k][column c]; weights [ROWS][PITCH], or [k][PITCH] when TRANSPOSED. */
template <int D, int I, int COUNT, int PITCH, bool TRANSPOSED>
FL_DEVICE void fl_tile_weighted(const float *weights, const float *rows, float (&sum)[I][D / 16]) {
    typedef fl_columns<D> columns;
    const int y = fl_thread / 16;
    FL_UNROLL_4
    for (int k = 0; k < COUNT; k++) {
        float w[I];
        FL_UNROLL
        for (int i = 0; i < I; i++) w[i] = TRANSPOSED ? weights[k * PITCH + y + 16 * i] : weights[(y + 16 * i) * PITCH + k];
        FL_UNROLL
        for (int run = 0; run < columns::runs; run++) {
            const float *x = rows + k * (D + 4) + columns::at(run);
            FL_UNROLL
            for (int e = 0; e < columns::width; e++) {
                const float value = x[e];
                FL_UNROLL
                for (int i = 0; i < I; i++) sum[i][run * columns::width + e] += w[i] * value;
            }
        }
    }
}

/* Lifetimes of a tile of keys, in shared memory: a key that is not there has a position that no query reaches. */
struct fl_tile_lifetimes {
    int *position, *expiry;
};

/* Reads them for keys first .. first + KEYS - 1; whether a query at low .. high sees one of them. A barrier. */
template <int KEYS>
FL_DEVICE bool fl_load_lifetimes(const fl_cuda_attention &c, int kv_head, size_t first, int low, int high, fl_tile_lifetimes to) {
    bool visible = false;
    if (fl_thread < KEYS) {
        const size_t key = first + fl_thread, at = (c.lifetimes_per_head ? kv_head * c.keys : 0) + key;
        const int position = key < c.keys ? c.position[at] : INT32_MAX;
        const int expiry = key < c.keys && c.expiry != NULL ? c.expiry[at] : INT32_MAX;
        to.position[fl_thread] = position;
        to.expiry[fl_thread] = expiry;
        visible = position <= high && expiry > low;
    }
    return fl_block_any(visible);
}

FL_DEVICE int fl_first_position(const fl_cuda_attention &c, int kv_head, size_t key) {
    return c.position[(c.lifetimes_per_head ? kv_head * c.keys : 0) + key];
}

static inline bool fl_attention_wide(const fl_cuda_attention *c) {
    return c->shape.head_dim % 4 == 0 && c->key_head_stride % 4 == 0 && (uintptr_t)c->key % 16 == 0 && (uintptr_t)c->value % 16 == 0;
}

/* Calls launch.template of<D>() of the smallest that holds dim; false: none does. */
template <class Launch> static bool fl_attention_choose(size_t dim, const Launch &launch) {
    if (dim <= 32)
        launch.template of<32>();
    else if (dim <= 64)
        launch.template of<64>();
    else if (dim <= 96)
        launch.template of<96>();
    else if (dim <= 128)
        launch.template of<128>();
    else if (dim <= 256)
        launch.template of<256>();
    else
        return false;
    return true;
}

#endif
