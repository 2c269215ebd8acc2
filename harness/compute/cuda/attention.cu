/* Exact attention in float32: a tile of 64 rows against tiles of keys, with the softmax's maximum and sum carried along. While one
 * tile's scores are made its values are under way, and while these are added the next tile's keys are. */
#include "harness/compute/cuda/attention.h"

enum { ROWS = 64 };

struct attention_call {
    fl_cuda_attention a;
    fl_row_blocks blocks;
    bool wide;
};

/* Floats of shared memory, one part after another. */
template <int D> struct room {
    static constexpr int keys = D <= 128 ? 64 : 32, pitch = keys + 4;
    static constexpr int query = 0, key = query + ROWS * (D + 4), value = key + keys * (D + 4), weights = value + keys * (D + 4);
    static constexpr int lifetimes = weights + ROWS * pitch, floats = lifetimes + 4 * keys;
};

template <int D> FL_KERNEL(FL_ATTENTION_THREADS) attention_kernel(attention_call call) {
    typedef room<D> R;
    typedef fl_columns<D> columns;
    constexpr int I = ROWS / 16, J = R::keys / 16;
    FL_SHARED(float, shared);
    const fl_cuda_attention &c = call.a;
    const int kv_head = fl_block_y, x = fl_thread % 16, y = fl_thread / 16, dim = (int)c.shape.head_dim;
    const int heads = (int)c.shape.query_heads;
    const fl_row_tile t = fl_row_tile_at(call.blocks, c.tokens, (size_t)fl_block_x, kv_head, true);
    const int low = (int)(c.first_position + t.first_token), high = low + t.rows / t.heads - 1;
    const float *keys = c.key + kv_head * c.key_head_stride, *values = c.value + kv_head * c.key_head_stride;
    int *lifetimes = (int *)(shared + R::lifetimes);
    float sum[I][D / 16] = {}, maximum[I], total[I];
    int now[I];

    /* The first tile from `from` on that a row sees; tiles when there is none. */
    auto next_tile = [&](size_t from, int slot) {
        const size_t tiles = fl_pieces(c.keys, R::keys);
        for (size_t tile = from; tile < tiles; tile++) {
            if (fl_first_position(c, kv_head, tile * R::keys) > high) return tiles; /* positions ascend */
            const fl_tile_lifetimes to = {lifetimes + slot * 2 * R::keys, lifetimes + (slot * 2 + 1) * R::keys};
            if (fl_load_lifetimes<R::keys>(c, kv_head, tile * R::keys, low, high, to)) return tile;
        }
        return tiles;
    };
    auto load = [&](int to, const float *from, size_t tile) {
        const size_t first = tile * R::keys, left = c.keys - first;
        fl_load_keys<D, R::keys>(shared + to, from, first, (int)(left < R::keys ? left : R::keys), dim, call.wide);
    };
    FL_UNROLL
    for (int i = 0; i < I; i++) {
        maximum[i] = -INFINITY;
        total[i] = 0.0f;
        now[i] = low + (y + 16 * i) / t.heads;
    }
    fl_clear(shared + R::key, 2 * R::keys * (D + 4));
    fl_block_sync();
    const size_t tiles = fl_pieces(c.keys, R::keys);
    int slot = 0;
    size_t tile = next_tile(0, slot);
    if (tile < tiles) load(R::key, keys, tile);
    fl_load_rows<D, ROWS>(shared + R::query, c.query, t, heads, dim, c.shape.scale);
    while (tile < tiles) {
        const int *position = lifetimes + slot * 2 * R::keys, *expiry = position + R::keys;
        float scores[I][J];
        load(R::value, values, tile);
        fl_copy_wait<1>();
        fl_block_sync();
        fl_tile_products<D, I, J>(shared + R::query, shared + R::key, scores);
        FL_UNROLL
        for (int i = 0; i < I; i++) {
            float highest = -INFINITY, block_sum = 0.0f;
            FL_UNROLL
            for (int j = 0; j < J; j++) {
                if (position[x + 16 * j] > now[i] || expiry[x + 16 * j] <= now[i]) scores[i][j] = -INFINITY;
                highest = scores[i][j] > highest ? scores[i][j] : highest;
            }
            highest = fl_lanes_max(highest, 16);
            const float before = maximum[i], after = highest > before ? highest : before;
            const float reference = after == -INFINITY ? 0.0f : after; /* NaN stays in the scores */
            FL_UNROLL
            for (int j = 0; j < J; j++) {
                scores[i][j] = expf(scores[i][j] - reference);
                block_sum += scores[i][j];
                shared[R::weights + (y + 16 * i) * R::pitch + x + 16 * j] = scores[i][j];
            }
            const float correction = after == before ? 1.0f : expf(before - after);
            total[i] = total[i] * correction + fl_lanes_sum(block_sum, 16);
            maximum[i] = after;
            FL_UNROLL
            for (int e = 0; e < columns::count; e++) sum[i][e] *= correction;
        }
        slot = 1 - slot;
        const size_t next = next_tile(tile + 1, slot);
        fl_copy_wait<0>();
        fl_block_sync(); /* values are here, weights written, keys read */
        if (next < tiles) load(R::key, keys, next);
        fl_tile_weighted<D, I, R::keys, R::pitch, false>(shared + R::weights, shared + R::value, sum);
        fl_block_sync();
        tile = next;
    }
    FL_UNROLL
    for (int i = 0; i < I; i++) {
        const int r = y + 16 * i;
        if (r >= t.rows) continue;
        const size_t at = fl_row_at(t, heads, r);
        const float factor = total[i] == 0.0f ? 0.0f : 1.0f / total[i];
        FL_UNROLL
        for (int run = 0; run < columns::runs; run++) {
            FL_UNROLL
            for (int e = 0; e < columns::width; e++) {
                const int column = columns::at(run) + e;
                if (c.output != NULL && column < dim) c.output[at * dim + column] = factor * sum[i][run * columns::width + e];
            }
        }
        if (x == 0 && c.log_sum_exp != NULL) c.log_sum_exp[at] = total[i] == 0.0f ? -INFINITY : maximum[i] + logf(total[i]);
        if (x == 0 && c.largest != NULL) c.largest[at] = maximum[i];
    }
}

struct attention_launch {
    fl_cuda *device;
    attention_call call;

    template <int D> void of() const {
        fl_launch(device, "attention", attention_kernel<D>,
                  dim3((unsigned)call.blocks.count(), (unsigned)call.a.shape.kv_heads), FL_ATTENTION_THREADS,
                  room<D>::floats * sizeof(float), call);
    }
};

bool fl_cuda_attention_forward(fl_cuda *device, const fl_cuda_attention *call) {
    if (call->tokens == 0) return true;
    const attention_launch launch = {device, {*call, fl_row_blocks_of(call, ROWS), fl_attention_wide(call)}};
    return fl_attention_choose(call->shape.head_dim, launch);
}
