/* Gradients of exact attention, without atomic additions. With P the softmax weights (made again from log_sum_exp), g the gradient of the
 * output, l that of log_sum_exp and m that of the largest score:
 *     dV = P^T g     dS = P (g V^T - g . output + l) + m at the first key that has the largest     dQ = scale dS K     dK = scale dS^T Q
 * One kernel goes through the rows of a tile of keys (dK, dV), another through the keys of a tile of rows (dQ). */
#include "harness/compute/cuda/attention.h"

enum { THREADS = FL_ATTENTION_THREADS, WARPS = THREADS / 32 };

struct backward_call {
    fl_cuda_attention a;
    fl_row_blocks blocks;
    bool wide;
    const float *gradient_output, *gradient_largest;
    const float *shift;        /* [T][H] l - g . output */
    const int32_t *largest_at; /* [T][H] key with the largest score, with gradient_largest */
    float *gradient_query, *gradient_key, *gradient_value;
};

/* shift = l - g . output, a warp a row. */
FL_KERNEL(THREADS)
shift_kernel(size_t rows, int dim, const float *gradient_output, const float *output, const float *gradient_log_sum_exp, float *shift) {
    const size_t row = (size_t)fl_block_x * WARPS + fl_thread / 32;
    const int lane = fl_thread % 32;
    if (row >= rows) return; /* the whole warp */
    float along = 0.0f;
    if (gradient_output != NULL) {
        for (int i = lane; i < dim; i += 32) along += gradient_output[row * dim + i] * output[row * dim + i];
    }
    along = fl_lanes_sum(along, 32);
    if (lane == 0) shift[row] = (gradient_log_sum_exp != NULL ? gradient_log_sum_exp[row] : 0.0f) - along;
}

/* The first key with a row's largest score, -1 when it sees none; a warp a row. */
FL_KERNEL(THREADS) largest_at_kernel(fl_cuda_attention c, int32_t *largest_at) {
    const size_t row = (size_t)fl_block_x * WARPS + fl_thread / 32;
    const int lane = fl_thread % 32, heads = (int)c.shape.query_heads, dim = (int)c.shape.head_dim;
    if (row >= c.tokens * heads) return; /* the whole warp */
    const int kv_head = (int)(row % heads) / (heads / (int)c.shape.kv_heads), now = (int)(c.first_position + row / heads);
    const float *query = c.query + row * dim, *keys = c.key + kv_head * c.key_head_stride;
    const size_t lifetimes = c.lifetimes_per_head ? kv_head * c.keys : 0;
    float largest = -INFINITY;
    int at = -1;
    for (size_t key = 0; key < c.keys && c.position[lifetimes + key] <= now; key++) {
        if (c.expiry != NULL && c.expiry[lifetimes + key] <= now) continue;
        float score = 0.0f;
        for (int i = lane; i < dim; i += 32) score += c.shape.scale * query[i] * keys[key * dim + i];
        score = fl_lanes_sum(score, 32);
        if (score > largest) {
            largest = score;
            at = (int)key;
        }
    }
    if (lane == 0) largest_at[row] = at;
}

/* Floats of shared memory: rows and keys of a pair of tiles, their weights and slopes. */
template <int D> struct room {
    static constexpr int tile = D <= 64 ? 64 : 32, pitch = tile + 4, rows_of = tile * (D + 4);
    static constexpr int query = 0, gradient = rows_of, key = 2 * rows_of, value = 3 * rows_of, weights = 4 * rows_of;
    static constexpr int slopes = weights + tile * pitch, log_sum_exp = slopes + tile * pitch, shift = log_sum_exp + tile;
    static constexpr int largest = shift + tile, largest_at = largest + tile, lifetimes = largest_at + tile;
    static constexpr int floats = lifetimes + 2 * tile;
};

template <int D> FL_DEVICE void load_rows(const backward_call &b, const fl_row_tile &t, float *shared) {
    typedef room<D> R;
    const int heads = (int)b.a.shape.query_heads, dim = (int)b.a.shape.head_dim;
    fl_load_rows<D, R::tile>(shared + R::query, b.a.query, t, heads, dim, b.a.shape.scale);
    fl_load_rows<D, R::tile>(shared + R::gradient, b.gradient_output, t, heads, dim, 1.0f);
    if (fl_thread < R::tile) {
        const bool inside = fl_thread < t.rows;
        const size_t at = inside ? fl_row_at(t, heads, fl_thread) : 0;
        shared[R::log_sum_exp + fl_thread] = inside ? b.a.log_sum_exp[at] : -INFINITY;
        shared[R::shift + fl_thread] = inside ? b.shift[at] : 0.0f;
        shared[R::largest + fl_thread] = inside && b.gradient_largest != NULL ? b.gradient_largest[at] : 0.0f;
        ((int *)shared)[R::largest_at + fl_thread] = inside && b.gradient_largest != NULL ? b.largest_at[at] : -1;
    }
}

template <int D> FL_DEVICE void load_keys(const backward_call &b, int kv_head, size_t first, float *shared) {
    typedef room<D> R;
    const size_t left = b.a.keys - first, offset = kv_head * b.a.key_head_stride;
    const int count = (int)(left < R::tile ? left : R::tile), dim = (int)b.a.shape.head_dim;
    fl_load_keys<D, R::tile>(shared + R::key, b.a.key + offset, first, count, dim, b.wide);
    fl_load_keys<D, R::tile>(shared + R::value, b.a.value + offset, first, count, dim, b.wide);
}

/* Weights P and slopes dS of a pair of tiles, to shared [row][key]. Rows, keys and lifetimes are there. */
template <int D> FL_DEVICE void make_slopes(const fl_row_tile &t, int low, size_t first_key, float *shared) {
    typedef room<D> R;
    constexpr int M = R::tile / 16;
    const int x = fl_thread % 16, y = fl_thread / 16;
    const int *position = (const int *)shared + R::lifetimes, *expiry = position + R::tile;
    const int *largest_at = (const int *)shared + R::largest_at;
    float scores[M][M], along[M][M];
    fl_tile_products<D, M, M>(shared + R::query, shared + R::key, scores);
    fl_tile_products<D, M, M>(shared + R::gradient, shared + R::value, along);
    FL_UNROLL
    for (int i = 0; i < M; i++) {
        const int r = y + 16 * i, now = low + r / t.heads;
        const float log_sum_exp = shared[R::log_sum_exp + r], shift = shared[R::shift + r], largest = shared[R::largest + r];
        FL_UNROLL
        for (int j = 0; j < M; j++) {
            const int k = x + 16 * j;
            const bool seen = r < t.rows && position[k] <= now && now < expiry[k] && log_sum_exp != -INFINITY;
            const float weight = seen ? expf(scores[i][j] - log_sum_exp) : 0.0f;
            shared[R::weights + r * R::pitch + k] = weight;
            shared[R::slopes + r * R::pitch + k] =
                (seen ? weight * (along[i][j] + shift) : 0.0f) + (largest_at[r] == (int)first_key + k ? largest : 0.0f);
        }
    }
}

template <int D> FL_KERNEL(THREADS) key_gradient_kernel(backward_call b) {
    typedef room<D> R;
    typedef fl_columns<D> columns;
    constexpr int M = R::tile / 16;
    FL_SHARED(float, shared);
    const fl_cuda_attention &c = b.a;
    const int kv_head = fl_block_y, y = fl_thread / 16, dim = (int)c.shape.head_dim;
    const size_t first_key = (size_t)fl_block_x * R::tile;
    const fl_tile_lifetimes lifetimes = {(int *)shared + R::lifetimes, (int *)shared + R::lifetimes + R::tile};
    float of_key[M][D / 16] = {}, of_value[M][D / 16] = {};
    fl_clear(shared, R::weights);
    fl_block_sync();
    load_keys<D>(b, kv_head, first_key, shared);
    fl_load_lifetimes<R::tile>(c, kv_head, first_key, 0, INT32_MAX - 1, lifetimes);
    fl_copy_wait<0>();
    int last = 0; /* from here on no key of the tile is seen */
    for (int k = 0; k < R::tile; k++) {
        const int expiry = lifetimes.position[k] != INT32_MAX ? lifetimes.expiry[k] : 0;
        last = expiry > last ? expiry : last;
    }
    for (size_t block = 0; block < b.blocks.count(); block++) {
        const fl_row_tile t = fl_row_tile_at(b.blocks, c.tokens, block, kv_head, false);
        const int low = (int)(c.first_position + t.first_token), high = low + t.rows / t.heads - 1;
        if (high < lifetimes.position[0] || low >= last) continue;
        fl_block_sync();
        load_rows<D>(b, t, shared);
        fl_block_sync();
        make_slopes<D>(t, low, first_key, shared);
        fl_block_sync();
        fl_tile_weighted<D, M, R::tile, R::pitch, true>(shared + R::weights, shared + R::gradient, of_value);
        fl_tile_weighted<D, M, R::tile, R::pitch, true>(shared + R::slopes, shared + R::query, of_key);
    }
    FL_UNROLL
    for (int i = 0; i < M; i++) {
        const size_t key = first_key + y + 16 * i;
        if (key >= c.keys) continue;
        const size_t at = kv_head * c.key_head_stride + key * dim;
        FL_UNROLL
        for (int run = 0; run < columns::runs; run++) {
            FL_UNROLL
            for (int e = 0; e < columns::width; e++) {
                const int column = columns::at(run) + e;
                if (column >= dim) continue;
                if (b.gradient_key != NULL) b.gradient_key[at + column] += of_key[i][run * columns::width + e];
                if (b.gradient_value != NULL) b.gradient_value[at + column] += of_value[i][run * columns::width + e];
            }
        }
    }
}

template <int D> FL_KERNEL(THREADS) query_gradient_kernel(backward_call b) {
    typedef room<D> R;
    typedef fl_columns<D> columns;
    constexpr int M = R::tile / 16;
    FL_SHARED(float, shared);
    const fl_cuda_attention &c = b.a;
    const int kv_head = fl_block_y, y = fl_thread / 16, dim = (int)c.shape.head_dim, heads = (int)c.shape.query_heads;
    const fl_row_tile t = fl_row_tile_at(b.blocks, c.tokens, (size_t)fl_block_x, kv_head, true);
    const int low = (int)(c.first_position + t.first_token), high = low + t.rows / t.heads - 1;
    const fl_tile_lifetimes lifetimes = {(int *)shared + R::lifetimes, (int *)shared + R::lifetimes + R::tile};
    float sum[M][D / 16] = {};
    fl_clear(shared, R::weights);
    fl_block_sync();
    load_rows<D>(b, t, shared);
    for (size_t first = 0; first < c.keys; first += R::tile) {
        if (fl_first_position(c, kv_head, first) > high) break; /* positions ascend */
        if (!fl_load_lifetimes<R::tile>(c, kv_head, first, low, high, lifetimes)) continue;
        load_keys<D>(b, kv_head, first, shared);
        fl_copy_wait<0>();
        fl_block_sync();
        make_slopes<D>(t, low, first, shared);
        fl_block_sync();
        fl_tile_weighted<D, M, R::tile, R::pitch, false>(shared + R::slopes, shared + R::key, sum);
        fl_block_sync();
    }
    FL_UNROLL
    for (int i = 0; i < M; i++) {
        const int r = y + 16 * i;
        if (r >= t.rows) continue;
        float *to = b.gradient_query + fl_row_at(t, heads, r) * dim;
        FL_UNROLL
        for (int run = 0; run < columns::runs; run++) {
            FL_UNROLL
            for (int e = 0; e < columns::width; e++) {
                const int column = columns::at(run) + e;
                if (column < dim) to[column] = c.shape.scale * sum[i][run * columns::width + e];
            }
        }
    }
}

struct backward_launch {
    fl_cuda *device;
    backward_call call;

    template <int D> void of() const {
        backward_call b = call;
        const unsigned kv_heads = (unsigned)b.a.shape.kv_heads;
        const size_t bytes = room<D>::floats * sizeof(float);
        b.blocks = fl_row_blocks_of(&b.a, room<D>::tile);
        if (b.gradient_key != NULL || b.gradient_value != NULL) {
            fl_launch(device, "attention_backward", key_gradient_kernel<D>,
                      dim3((unsigned)fl_pieces(b.a.keys, room<D>::tile), kv_heads), THREADS, bytes, b);
        }
        if (b.gradient_query != NULL) {
            fl_launch(device, "attention_backward", query_gradient_kernel<D>, dim3((unsigned)b.blocks.count(), kv_heads), THREADS, bytes,
                      b);
        }
    }
};

bool fl_cuda_attention_backward(fl_cuda *device, const fl_cuda_attention *call, const fl_cuda_attention_gradients *gradients) {
    if (call->tokens == 0) return true;
    const size_t rows = call->tokens * call->shape.query_heads;
    const dim3 grid((unsigned)fl_pieces(rows, WARPS));
    float *shift = (float *)fl_cuda_take(device, rows * sizeof(float), "attention_backward");
    int32_t *largest_at = NULL;
    fl_launch(device, "attention_backward", shift_kernel, grid, THREADS, 0, rows, (int)call->shape.head_dim, gradients->output,
              (const float *)call->output, gradients->log_sum_exp, shift);
    if (gradients->largest != NULL) {
        largest_at = (int32_t *)fl_cuda_take(device, rows * sizeof(int32_t), "attention_backward");
        fl_launch(device, "attention_backward", largest_at_kernel, grid, THREADS, 0, *call, largest_at);
    }
    backward_launch launch = {device, {}};
    launch.call.a = *call;
    launch.call.wide = fl_attention_wide(call);
    launch.call.gradient_output = gradients->output;
    launch.call.gradient_largest = gradients->largest;
    launch.call.shift = shift;
    launch.call.largest_at = largest_at;
    launch.call.gradient_query = gradients->query;
    launch.call.gradient_key = gradients->key;
    launch.call.gradient_value = gradients->value;
    const bool fits = fl_attention_choose(call->shape.head_dim, launch);
    fl_cuda_give(device, shift);
    fl_cuda_give(device, largest_at);
    return fits;
}
