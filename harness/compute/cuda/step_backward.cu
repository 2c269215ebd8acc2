/* Gradients of the recurrence, one token after another. With M = S_{t-1} diag(a), e = M r, S_t = M - b e x^T + w v k^T and G the
 * gradient of S_t:
 *     G += g q^T                dq = S_t^T g
 *     dk = w G^T v              dv = w G k             dw = v . G k
 *     d = -G x                  dx = -b G^T e          db = d . e           dr = b M^T d
 *     dM = G + b d r^T          d log a = sum over Dv of dM M               dS_{t-1} = dM diag(a)
 * A block goes forward once and keeps its rows at every CHUNK-th token; then, chunk by chunk from the last, forward again keeping
 * them before every token, and back. What it keeps only its own threads read, so that needs no barrier. Sums over rows: over the
 * rows of a warp by shuffles, over the warps of a block in order, over the blocks of a head in order by a last kernel. */
#include "harness/compute/cuda/operations.h"
#include "harness/compute/cuda/step.h"

enum { CHUNK = 32, TILE = 8 /* at most; divides CHUNK */, VECTORS = 5, SCALARS = 3, MOST_SHARED = 227 << 10 };
enum { QUERY = 0, KEY, READ, REMOVED, DECAY }; /* of vectors */
enum { WRITE = 0, STRENGTH, SCALAR_DECAY };    /* of scalars */

struct backward_call {
    fl_step_streams streams;
    const float *initial_state, *gradient_output, *gradient_final_state;
    float *gradient_value, *gradient_initial_state;
    float *vectors[VECTORS]; /* [block][H][rows][Dk], or NULL */
    float *scalars[SCALARS]; /* [block][H][rows], or NULL */
    size_t query_rows, other_rows; /* of these */
    fl_float4 *kept;         /* [block][H][chunks + CHUNK][ROWS PARTS][thread] */
};

/* Where a block's shared memory is cut, in floats. */
struct backward_room {
    fl_step_tile tile;
    int tokens; /* of a tile */
    int gradient, vectors, scalars, is_null, floats;
};

FL_BOTH backward_room room_of(int pitch, int block_rows, int tile, bool channel, int erase) {
    backward_room room;
    room.tokens = tile;
    room.tile = fl_step_tile_of(pitch, block_rows, tile, channel, erase == 2);
    int at = room.tile.floats;
    room.gradient = at, at += tile * block_rows;
    room.vectors = at, at += FL_STEP_WARPS * tile * VECTORS * pitch;
    room.scalars = at, at += FL_STEP_WARPS * tile * SCALARS;
    room.is_null = at, at += tile;
    room.floats = at;
    return room;
}

template <class Shape> struct rows_of {
    typedef float type[Shape::rows][Shape::parts][4];
};

template <class Shape> FL_DEVICE void keep(const float (&state)[Shape::rows][Shape::parts][4], fl_float4 *to) {
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) {
        FL_UNROLL
        for (int j = 0; j < Shape::parts; j++) {
            fl_float4 x;
            FL_UNROLL
            for (int i = 0; i < 4; i++) x.at[i] = state[r][j][i];
            to[(r * Shape::parts + j) * FL_STEP_THREADS + fl_thread] = x;
        }
    }
}

template <class Shape> FL_DEVICE void recall(float (&state)[Shape::rows][Shape::parts][4], const fl_float4 *from) {
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) {
        FL_UNROLL
        for (int j = 0; j < Shape::parts; j++) {
            const fl_float4 x = from[(r * Shape::parts + j) * FL_STEP_THREADS + fl_thread];
            FL_UNROLL
            for (int i = 0; i < 4; i++) state[r][j][i] = x.at[i];
        }
    }
}

/* to [pitch] in shared memory = sum over the warp's rows of factor[row] rows[row]. Lanes of different rows share the channels: each
 * step halves what a lane still sums. */
template <class Shape>
FL_DEVICE void store_sum(const float (&rows)[Shape::rows][Shape::parts][4], const float (&factor)[Shape::rows], int lane, float *to) {
    constexpr int count = 4 * Shape::parts;
    float sum[count];
    FL_UNROLL
    for (int e = 0; e < count; e++) {
        sum[e] = factor[0] * rows[0][e / 4][e % 4];
        FL_UNROLL
        for (int r = 1; r < Shape::rows; r++) sum[e] += factor[r] * rows[r][e / 4][e % 4];
    }
    int first = 0;
    if (Shape::lanes == 8) {
        const bool upper = (fl_thread & 16) != 0, right = (fl_thread & 8) != 0;
        FL_UNROLL
        for (int e = 0; e < count / 2; e++) {
            const float give = upper ? sum[e] : sum[e + count / 2], own = upper ? sum[e + count / 2] : sum[e];
            sum[e] = own + fl_shuffle_xor(give, 16);
        }
        FL_UNROLL
        for (int e = 0; e < count / 4; e++) {
            const float give = right ? sum[e] : sum[e + count / 4], own = right ? sum[e + count / 4] : sum[e];
            sum[e] = own + fl_shuffle_xor(give, 8);
        }
        first = (upper ? count / 2 : 0) + (right ? count / 4 : 0);
    }
    FL_UNROLL
    for (int e = 0; e < count / (32 / Shape::lanes); e++) {
        const int at = first + e;
        to[4 * (lane + Shape::lanes * (at / 4)) + at % 4] = sum[e];
    }
}

/* Sum over the warp's rows of a number that all lanes of a row have. */
template <class Shape> FL_DEVICE float sum_of_rows(const float (&values)[Shape::rows]) {
    float sum = 0.0f;
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) sum += values[r];
    FL_UNROLL
    for (int mask = 16; mask >= Shape::lanes; mask /= 2) sum += fl_shuffle_xor(sum, mask);
    return sum;
}

/* A token on the way back: `before` is S_{t-1}, `gradient` G, first of S_t, then of S_{t-1}. */
template <class Shape, bool CHANNEL, int ERASE>
FL_DEVICE void token_back(const backward_call &c, const backward_room &room, float *shared, int token, size_t at, int lane, int group,
                          int row, float (&state)[Shape::rows][Shape::parts][4], float (&gradient)[Shape::rows][Shape::parts][4]) {
    const fl_step_tile &t = room.tile;
    const int warp = fl_thread / 32;
    const float *key = shared + t.key + token * t.pitch, *query = shared + t.query + token * t.pitch;
    const float *read = shared + t.read + token * t.pitch, *removed = shared + t.removed + token * t.pitch;
    const float *decay = shared + t.decay + token * (CHANNEL ? t.pitch : 1);
    const float write = shared[t.write + token], strength = ERASE != 0 ? shared[t.strength + token] : 0.0f;
    float *vectors = shared + room.vectors + (warp * room.tokens + token) * VECTORS * t.pitch;
    float *scalars = shared + room.scalars + (warp * room.tokens + token) * SCALARS;
    float value[Shape::rows], g[Shape::rows], erased[Shape::rows] = {}, amount[Shape::rows], along[Shape::rows], work[Shape::rows];
    float sums[Shape::rows][Shape::parts][4];
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) {
        value[r] = shared[t.value + token * Shape::block_rows + group * Shape::rows + r];
        g[r] = shared[room.gradient + token * Shape::block_rows + group * Shape::rows + r];
    }
    fl_step_decay<Shape, CHANNEL>(state, decay, lane); /* M */
    if (ERASE != 0) fl_step_products<Shape>(state, read, lane, erased);
    /* S_t, for dq */
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) {
        amount[r] = write * value[r] - (ERASE == 1 ? strength * erased[r] : 0.0f);
        work[r] = -strength * erased[r];
        FL_UNROLL
        for (int j = 0; j < Shape::parts; j++) {
            FL_UNROLL
            for (int i = 0; i < 4; i++) sums[r][j][i] = state[r][j][i];
        }
    }
    if (ERASE == 2) fl_step_add<Shape>(sums, removed, lane, work);
    fl_step_add<Shape>(sums, key, lane, amount);
    store_sum<Shape>(sums, g, lane, vectors + QUERY * t.pitch);
    fl_step_add<Shape>(gradient, query, lane, g);
    /* the write, and with an erase along the key -b G^T e, which falls to the key too */
    fl_step_products<Shape>(gradient, key, lane, along);
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) {
        if (lane == 0 && row + r < c.streams.value_dim && c.gradient_value != NULL) {
            c.gradient_value[at * c.streams.value_dim + row + r] = write * along[r];
        }
        work[r] = value[r] * along[r];
    }
    const float write_gradient = sum_of_rows<Shape>(work);
    float strength_gradient = 0.0f;
    if (ERASE == 2) {
        float ours[Shape::rows];
        FL_UNROLL
        for (int r = 0; r < Shape::rows; r++) ours[r] = -strength * erased[r];
        store_sum<Shape>(gradient, ours, lane, vectors + REMOVED * t.pitch);
        fl_step_products<Shape>(gradient, removed, lane, along);
    }
    if (ERASE == 1) {
        /* dk = G^T (w v - b e) + b M^T d, d = -G k: as one sum of rows */
        FL_UNROLL
        for (int r = 0; r < Shape::rows; r++) {
            FL_UNROLL
            for (int j = 0; j < Shape::parts; j++) {
                FL_UNROLL
                for (int i = 0; i < 4; i++) {
                    sums[r][j][i] = amount[r] * gradient[r][j][i] - strength * along[r] * state[r][j][i];
                }
            }
        }
        FL_UNROLL
        for (int r = 0; r < Shape::rows; r++) work[r] = 1.0f;
        store_sum<Shape>(sums, work, lane, vectors + KEY * t.pitch);
    } else {
        store_sum<Shape>(gradient, amount, lane, vectors + KEY * t.pitch);
    }
    if (ERASE != 0) {
        FL_UNROLL
        for (int r = 0; r < Shape::rows; r++) work[r] = -along[r] * erased[r];
        strength_gradient = sum_of_rows<Shape>(work);
        FL_UNROLL
        for (int r = 0; r < Shape::rows; r++) work[r] = -strength * along[r];
        if (ERASE == 2) store_sum<Shape>(state, work, lane, vectors + READ * t.pitch);
        fl_step_add<Shape>(gradient, read, lane, work); /* dM */
    }
    float decay_gradient = 0.0f;
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) {
        work[r] = 1.0f;
        FL_UNROLL
        for (int j = 0; j < Shape::parts; j++) {
            FL_UNROLL
            for (int i = 0; i < 4; i++) {
                sums[r][j][i] = gradient[r][j][i] * state[r][j][i];
                decay_gradient += sums[r][j][i];
            }
        }
    }
    if (CHANNEL) {
        store_sum<Shape>(sums, work, lane, vectors + DECAY * t.pitch);
    } else {
        decay_gradient = fl_lanes_sum(decay_gradient, 32);
    }
    fl_step_decay<Shape, CHANNEL>(gradient, decay, lane);
    if (fl_thread % 32 == 0) {
        scalars[WRITE] = write_gradient;
        scalars[STRENGTH] = strength_gradient;
        scalars[SCALAR_DECAY] = decay_gradient;
    }
}

/* Adds what the warps have stored, in order, and writes it out for tokens first .. first + count - 1. */
FL_DEVICE void write_out(const backward_call &c, const backward_room &room, const float *shared, int head, size_t first, int count) {
    const fl_step_streams &s = c.streams;
    const size_t block = (size_t)fl_block_x * s.heads + head;
    for (int vector = 0; vector < VECTORS; vector++) {
        if (c.vectors[vector] == NULL) continue;
        for (int i = fl_thread; i < count * s.key_dim; i += FL_STEP_THREADS) {
            const int token = i / s.key_dim, channel = i % s.key_dim;
            float sum = 0.0f;
            for (int warp = 0; warp < FL_STEP_WARPS; warp++) {
                sum += shared[room.vectors + ((warp * room.tokens + token) * VECTORS + vector) * room.tile.pitch + channel];
            }
            const size_t at = block * (vector == QUERY ? c.query_rows : c.other_rows) + first;
            c.vectors[vector][at * s.key_dim + i] = sum;
        }
    }
    for (int i = fl_thread; i < count * SCALARS; i += FL_STEP_THREADS) {
        if (c.scalars[i % SCALARS] == NULL) continue;
        float sum = 0.0f;
        for (int warp = 0; warp < FL_STEP_WARPS; warp++) {
            sum += shared[room.scalars + (warp * room.tokens + i / SCALARS) * SCALARS + i % SCALARS];
        }
        c.scalars[i % SCALARS][block * c.other_rows + first + i / SCALARS] = sum;
    }
}

template <class Shape, bool CHANNEL, int ERASE> FL_KERNEL(FL_STEP_THREADS) step_backward_kernel(backward_call c) {
    FL_SHARED(float, shared);
    const fl_step_streams &s = c.streams;
    const int lane = fl_thread % Shape::lanes, group = fl_thread / Shape::lanes, head = fl_block_y;
    const int first_row = fl_block_x * Shape::block_rows, row = first_row + group * Shape::rows;
    const int tile = s.tile;
    const backward_room room = room_of(Shape::pitch, Shape::block_rows, s.tile, CHANNEL, ERASE);
    int *is_null = (int *)(shared + room.is_null);
    const size_t chunks = fl_pieces(s.steps, CHUNK), a_state = Shape::rows * Shape::parts * FL_STEP_THREADS;
    fl_float4 *kept = c.kept + ((size_t)fl_block_x * s.heads + head) * (chunks + CHUNK) * a_state;
    fl_float4 *each = kept + chunks * a_state;
    const size_t state_at = (size_t)head * s.value_dim * s.key_dim;
    typename rows_of<Shape>::type state, gradient;

    auto load = [&](size_t first, int count, bool with_gradient) {
        fl_block_sync();
        fl_step_load(s, room.tile, shared, head, first, count, first_row, Shape::block_rows, CHANNEL, ERASE);
        if (with_gradient) {
            const int rows = s.value_dim - first_row < Shape::block_rows ? s.value_dim - first_row : Shape::block_rows;
            for (int i = fl_thread; i < count * rows; i += FL_STEP_THREADS) {
                shared[room.gradient + i / rows * Shape::block_rows + i % rows] =
                    c.gradient_output[(head * s.read_rows + first + i / rows) * s.value_dim + first_row + i % rows];
            }
        }
        fl_copy_wait<0>();
        fl_block_sync();
        fl_step_ready(s, room.tile, shared, count, CHANNEL, ERASE, is_null);
        fl_block_sync();
    };
    for (int i = fl_thread; i < room.floats; i += FL_STEP_THREADS) shared[i] = 0.0f;
    fl_step_read_state<Shape>(state, c.initial_state != NULL ? c.initial_state + state_at : NULL, s.key_dim, s.value_dim, row, lane);
    fl_step_read_state<Shape>(gradient, c.gradient_final_state != NULL ? c.gradient_final_state + state_at : NULL, s.key_dim,
                              s.value_dim, row, lane);
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        keep<Shape>(state, kept + chunk * a_state);
        if (chunk + 1 == chunks) break;
        for (size_t first = chunk * CHUNK; first < (chunk + 1) * CHUNK; first += tile) {
            load(first, tile, false);
            for (int i = 0; i < tile; i++) {
                if (!is_null[i]) fl_step_update<Shape, CHANNEL, ERASE>(state, room.tile, shared, i, lane, group);
            }
        }
    }
    for (size_t chunk = chunks; chunk-- > 0;) {
        const size_t begin = chunk * CHUNK, end = begin + CHUNK < s.steps ? begin + CHUNK : s.steps;
        recall<Shape>(state, kept + chunk * a_state);
        for (size_t first = begin; first < end; first += tile) {
            const int count = (int)(end - first < (size_t)tile ? end - first : (size_t)tile);
            load(first, count, false);
            for (int i = 0; i < count; i++) {
                keep<Shape>(state, each + (first - begin + i) * a_state);
                if (!is_null[i]) fl_step_update<Shape, CHANNEL, ERASE>(state, room.tile, shared, i, lane, group);
            }
        }
        for (size_t tiles = fl_pieces(end - begin, tile); tiles-- > 0;) {
            const size_t first = begin + tiles * tile;
            const int count = (int)(end - first < (size_t)tile ? end - first : (size_t)tile);
            load(first, count, true);
            for (int i = count; i-- > 0;) {
                recall<Shape>(state, each + (first - begin + i) * a_state);
                token_back<Shape, CHANNEL, ERASE>(c, room, shared, i, head * s.write_rows + first + i, lane, group, row, state,
                                                  gradient);
            }
            fl_block_sync();
            write_out(c, room, shared, head, first, count);
        }
    }
    if (c.gradient_initial_state != NULL) {
        fl_step_write_state<Shape>(gradient, c.gradient_initial_state + state_at, s.key_dim, s.value_dim, row, lane);
    }
}

/* to [H][stride] = sum of from [blocks][H][run], in order; count = H run. */
FL_KERNEL(256) add_blocks_kernel(const float *from, int blocks, size_t count, size_t run, size_t stride, float *to) {
    const size_t at = (size_t)fl_block_x * 256 + fl_thread;
    if (at >= count) return;
    float sum = from[at];
    for (int block = 1; block < blocks; block++) sum += from[block * count + at];
    to[at / run * stride + at % run] = sum;
}

struct backward_launch {
    fl_cuda *device;
    backward_call call;
    float *vectors[VECTORS], *scalars[SCALARS];
    mutable bool fits;

    template <class Shape, bool CHANNEL, int ERASE> void of() const {
        backward_call c = call;
        fl_step_streams &s = c.streams;
        const int blocks = (int)fl_pieces((size_t)s.value_dim, Shape::block_rows);
        size_t bytes = SIZE_MAX;
        for (s.tile = 2 * TILE; s.tile > 1 && bytes > MOST_SHARED;) {
            s.tile /= 2;
            bytes = (size_t)room_of(Shape::pitch, Shape::block_rows, s.tile, CHANNEL, ERASE).floats * 4;
        }
        fits = bytes <= MOST_SHARED;
        if (!fits) return;
        const size_t count = (size_t)s.heads * s.steps;
        float *taken[VECTORS + SCALARS] = {};
        c.query_rows = blocks > 1 ? s.steps : s.read_rows;
        c.other_rows = blocks > 1 ? s.steps : s.write_rows;
        for (int i = 0; i < VECTORS + SCALARS; i++) {
            float *to = i < VECTORS ? vectors[i] : scalars[i - VECTORS];
            if (to == NULL) continue;
            const size_t each = i < VECTORS ? count * s.key_dim : count;
            if (blocks > 1) taken[i] = (float *)fl_cuda_take(device, blocks * each * sizeof(float), "recurrence_backward");
            (i < VECTORS ? c.vectors[i] : c.scalars[i - VECTORS]) = blocks > 1 ? taken[i] : to;
        }
        c.kept = (fl_float4 *)fl_cuda_take(device,
                                           (size_t)blocks * s.heads * (fl_pieces(s.steps, CHUNK) + CHUNK) * Shape::rows *
                                               Shape::parts * FL_STEP_THREADS * sizeof(fl_float4),
                                           "recurrence_backward");
        fl_launch(device, "recurrence_backward", step_backward_kernel<Shape, CHANNEL, ERASE>,
                  dim3((unsigned)blocks, (unsigned)s.heads), FL_STEP_THREADS, bytes, c);
        for (int i = 0; i < VECTORS + SCALARS; i++) {
            if (taken[i] == NULL) continue;
            const size_t width = i < VECTORS ? s.key_dim : 1, each = count * width;
            const size_t stride = width * (i == QUERY ? s.read_rows : s.write_rows);
            fl_launch(device, "recurrence_backward", add_blocks_kernel, dim3((unsigned)fl_pieces(each, 256)), 256, 0,
                      (const float *)taken[i], blocks, each, s.steps * width, stride,
                      i < VECTORS ? vectors[i] : scalars[i - VECTORS]);
            fl_cuda_give(device, taken[i]);
        }
        fl_cuda_give(device, c.kept);
    }
};

/* Without tokens the gradient of the state passes through. */
static void pass_through(fl_cuda *device, const fl_recurrence_backward_call *call) {
    const size_t count = call->heads * call->value_dim * call->key_dim;
    float *to = floats(call->gradients.initial_state);
    if (to == NULL) return;
    if (!fl_array_is(call->gradient_final_state)) {
        fl_cuda_fill(device, to, FL_FLOAT32, count, 0.0);
    } else {
        fl_cuda_copy_rows(device, to, count, call->gradient_final_state.at, count, 1, count, sizeof(float));
    }
}

bool fl_cuda_step_backward(fl_cuda *device, const fl_recurrence_backward_call *call) {
    if (call->heads == 0 || call->value_dim == 0) return true;
    if (call->steps == 0) {
        pass_through(device, call);
        return true;
    }
    backward_launch launch = {};
    const fl_transition *transition = &call->transition;
    const fl_recurrence_gradients *to = &call->gradients;
    launch.device = device;
    launch.fits = true;
    launch.call.streams =
        fl_step_streams_of(transition, call->heads, call->steps, call->key_dim, call->value_dim, &call->rows, &call->inputs);
    launch.call.initial_state = floats(call->initial_state);
    launch.call.gradient_output = floats(call->gradient_output);
    launch.call.gradient_final_state = floats(call->gradient_final_state);
    launch.call.gradient_value = floats(to->value);
    launch.call.gradient_initial_state = floats(to->initial_state);
    launch.vectors[QUERY] = floats(to->query);
    launch.vectors[KEY] = floats(to->key);
    launch.scalars[WRITE] = floats(to->write);
    if (transition->erase != FL_ERASE_NONE) launch.scalars[STRENGTH] = floats(to->erase_strength);
    if (transition->erase == FL_ERASE_DIRECTIONS) {
        launch.vectors[READ] = floats(to->erase_read);
        launch.vectors[REMOVED] = floats(to->erase_write);
    }
    if (transition->decay == FL_DECAY_CHANNEL) launch.vectors[DECAY] = floats(to->log_decay);
    if (transition->decay == FL_DECAY_SCALAR) launch.scalars[SCALAR_DECAY] = floats(to->log_decay);
    return fl_step_choose((int)call->key_dim, transition->decay == FL_DECAY_CHANNEL, (int)transition->erase, launch) && launch.fits;
}
