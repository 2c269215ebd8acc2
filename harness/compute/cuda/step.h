/* The step form of the recurrence (recurrence.h) on the device: what its forward and backward kernels share.
 *
 * A row S_v (Dk numbers) of a state depends on no other row. LANES neighbouring lanes hold a row, or ROWS of them for latency: lane l
 * the channels 4 l + 4 LANES j + 0..3, j < PARTS, as registers. A block of THREADS threads holds BLOCK_ROWS rows of one head and goes
 * through the tokens in tiles, whose inputs it copies to shared memory. */
#ifndef FL_COMPUTE_CUDA_STEP_H
#define FL_COMPUTE_CUDA_STEP_H

#include "harness/compute/cuda/device.h"

enum { FL_STEP_THREADS = 128, FL_STEP_WARPS = FL_STEP_THREADS / 32, FL_STEP_ROOM = 96 << 10 /* of shared memory */ };

/* A call's inputs: [H][rows][...] contiguous, of which the call's steps are the first. */
struct fl_step_streams {
    const float *query, *key, *value, *log_decay, *erase_strength, *erase_read, *erase_write, *write;
    size_t steps, read_rows, write_rows; /* of a head: query and what comes out; the other inputs */
    int heads, key_dim, value_dim;
    int tile;  /* tokens */
    bool wide; /* rows of Dk begin at multiples of 16 bytes */
};

/* Where a tile's inputs lie in shared memory, in floats from the stage's begin; rows of Dk are padded with zeros. */
struct fl_step_tile {
    int pitch, query, key, read, removed, decay, value, write, strength, floats;
};

template <int LANES, int PARTS, int ROWS> struct fl_step_shape {
    static constexpr int lanes = LANES, parts = PARTS, rows = ROWS;
    static constexpr int pitch = 4 * LANES * PARTS;
    static constexpr int groups = FL_STEP_THREADS / LANES;
    static constexpr int block_rows = groups * ROWS;
};

FL_BOTH fl_step_tile fl_step_tile_of(int pitch, int block_rows, int tile, bool channel_decay, bool own_directions) {
    fl_step_tile t;
    int at = 0;
    t.pitch = pitch;
    t.query = at, at += tile * pitch;
    t.key = at, at += tile * pitch;
    t.read = own_directions ? at : t.key, at += own_directions ? tile * pitch : 0;
    t.removed = own_directions ? at : t.key, at += own_directions ? tile * pitch : 0;
    t.decay = at, at += channel_decay ? tile * pitch : (tile + 3) / 4 * 4;
    t.value = at, at += tile * block_rows;
    t.write = at, at += (tile + 3) / 4 * 4;
    t.strength = at, at += (tile + 3) / 4 * 4;
    t.floats = at;
    return t;
}

/* shared [count][pitch] = global [count][width], begun, not waited for. */
FL_DEVICE void fl_step_copy_rows(float *shared, int pitch, const float *global, int count, int width, bool wide) {
    if (wide) {
        const int pieces = width / 4;
        for (int i = fl_thread; i < count * pieces; i += FL_STEP_THREADS) {
            fl_copy_16(shared + i / pieces * pitch + i % pieces * 4, global + (size_t)i * 4);
        }
    } else {
        for (int i = fl_thread; i < count * width; i += FL_STEP_THREADS) {
            fl_copy_4(shared + i / width * pitch + i % width, global + i);
        }
    }
}

/* Begins to copy the tokens first .. first + count - 1 of a head. */
FL_DEVICE void fl_step_load(const fl_step_streams &s, const fl_step_tile &t, float *stage, int head, size_t first, int count,
                            int first_row, int block_rows, bool channel, int erase) {
    const size_t token = head * s.write_rows + first, query = head * s.read_rows + first;
    fl_step_copy_rows(stage + t.key, t.pitch, s.key + token * s.key_dim, count, s.key_dim, s.wide);
    if (s.query != NULL) {
        fl_step_copy_rows(stage + t.query, t.pitch, s.query + query * s.key_dim, count, s.key_dim, s.wide);
    }
    if (erase == 2) {
        fl_step_copy_rows(stage + t.read, t.pitch, s.erase_read + token * s.key_dim, count, s.key_dim, s.wide);
        fl_step_copy_rows(stage + t.removed, t.pitch, s.erase_write + token * s.key_dim, count, s.key_dim, s.wide);
    }
    if (channel) {
        fl_step_copy_rows(stage + t.decay, t.pitch, s.log_decay + token * s.key_dim, count, s.key_dim, s.wide);
    }
    const int rows = s.value_dim - first_row < block_rows ? s.value_dim - first_row : block_rows;
    for (int i = fl_thread; i < count * rows; i += FL_STEP_THREADS) {
        fl_copy_4(stage + t.value + i / rows * block_rows + i % rows,
                  s.value + (token + i / rows) * s.value_dim + first_row + i % rows);
    }
    if (fl_thread < count) {
        if (!channel && s.log_decay != NULL) fl_copy_4(stage + t.decay + fl_thread, s.log_decay + token + fl_thread);
        if (s.write != NULL) fl_copy_4(stage + t.write + fl_thread, s.write + token + fl_thread);
        if (erase != 0) fl_copy_4(stage + t.strength + fl_thread, s.erase_strength + token + fl_thread);
    }
    fl_copy_commit();
}

/* After the copies have landed: log a becomes a, and is_null [count] says which tokens are null writes. A warp a token. */
FL_DEVICE void fl_step_ready(const fl_step_streams &s, const fl_step_tile &t, float *stage, int count, bool channel, int erase,
                             int *is_null) {
    const int lane = fl_thread % 32;
    for (int i = fl_thread / 32; i < count; i += FL_STEP_WARPS) {
        bool acts = false;
        for (int c = lane; c < s.key_dim; c += 32) {
            acts |= stage[t.key + i * t.pitch + c] != 0.0f;
            if (channel) {
                float *a = stage + t.decay + i * t.pitch + c;
                acts |= *a != 0.0f;
                *a = expf(*a);
            }
        }
        if (lane == 0) {
            if (erase != 0) acts |= stage[t.strength + i] != 0.0f;
            if (!channel) {
                const float a = s.log_decay != NULL ? stage[t.decay + i] : 0.0f;
                acts |= a != 0.0f;
                stage[t.decay + i] = expf(a);
            }
            if (s.write == NULL) stage[t.write + i] = 1.0f;
        }
        acts = fl_warp_any(acts);
        if (lane == 0) is_null[i] = !acts;
    }
}

FL_DEVICE fl_float4 fl_step_channels(const float *row, int lane, int lanes, int part) {
    return *(const fl_float4 *)(row + 4 * (lane + lanes * part));
}

/* M r, or any other product of the rows with a vector in shared memory; every lane of a row gets it. */
template <class Shape>
FL_DEVICE void fl_step_products(const float (&state)[Shape::rows][Shape::parts][4], const float *vector, int lane,
                                float (&out)[Shape::rows]) {
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) out[r] = 0.0f;
    float sums[Shape::rows][4] = {};
    FL_UNROLL
    for (int j = 0; j < Shape::parts; j++) {
        const fl_float4 x = fl_step_channels(vector, lane, Shape::lanes, j);
        FL_UNROLL
        for (int r = 0; r < Shape::rows; r++) {
            FL_UNROLL
            for (int i = 0; i < 4; i++) sums[r][i] += state[r][j][i] * x.at[i];
        }
    }
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) out[r] = (sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]);
    FL_UNROLL
    for (int mask = Shape::lanes / 2; mask > 0; mask /= 2) {
        FL_UNROLL
        for (int r = 0; r < Shape::rows; r++) out[r] += fl_shuffle_xor(out[r], mask);
    }
}

/* rows += factor vector */
template <class Shape>
FL_DEVICE void fl_step_add(float (&state)[Shape::rows][Shape::parts][4], const float *vector, int lane,
                           const float (&factor)[Shape::rows]) {
    FL_UNROLL
    for (int j = 0; j < Shape::parts; j++) {
        const fl_float4 x = fl_step_channels(vector, lane, Shape::lanes, j);
        FL_UNROLL
        for (int r = 0; r < Shape::rows; r++) {
            FL_UNROLL
            for (int i = 0; i < 4; i++) state[r][j][i] += factor[r] * x.at[i];
        }
    }
}

/* rows *= a, channel by channel or as a whole. */
template <class Shape, bool CHANNEL>
FL_DEVICE void fl_step_decay(float (&state)[Shape::rows][Shape::parts][4], const float *decay, int lane) {
    FL_UNROLL
    for (int j = 0; j < Shape::parts; j++) {
        fl_float4 a;
        if (CHANNEL) {
            a = fl_step_channels(decay, lane, Shape::lanes, j);
        } else {
            a.at[0] = a.at[1] = a.at[2] = a.at[3] = decay[0];
        }
        FL_UNROLL
        for (int r = 0; r < Shape::rows; r++) {
            FL_UNROLL
            for (int i = 0; i < 4; i++) state[r][j][i] *= a.at[i];
        }
    }
}

/* One token's decay, erase and write of the rows. */
template <class Shape, bool CHANNEL, int ERASE>
FL_DEVICE void fl_step_update(float (&state)[Shape::rows][Shape::parts][4], const fl_step_tile &t, const float *stage, int token,
                              int lane, int group) {
    const float write = stage[t.write + token];
    float amount[Shape::rows];
    fl_step_decay<Shape, CHANNEL>(state, stage + t.decay + token * (CHANNEL ? t.pitch : 1), lane);
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) {
        amount[r] = write * stage[t.value + token * Shape::block_rows + group * Shape::rows + r];
    }
    if (ERASE != 0) {
        float erased[Shape::rows];
        fl_step_products<Shape>(state, stage + t.read + token * t.pitch, lane, erased);
        FL_UNROLL
        for (int r = 0; r < Shape::rows; r++) erased[r] *= -stage[t.strength + token];
        if (ERASE == 1) {
            FL_UNROLL
            for (int r = 0; r < Shape::rows; r++) amount[r] += erased[r];
        } else {
            fl_step_add<Shape>(state, stage + t.removed + token * t.pitch, lane, erased);
        }
    }
    fl_step_add<Shape>(state, stage + t.key + token * t.pitch, lane, amount);
}

/* rows of [Dv][Dk] to registers, and back; what lies outside is 0. */
template <class Shape>
FL_DEVICE void fl_step_read_state(float (&state)[Shape::rows][Shape::parts][4], const float *from, int key_dim, int value_dim,
                                  int row, int lane) {
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) {
        FL_UNROLL
        for (int j = 0; j < Shape::parts; j++) {
            FL_UNROLL
            for (int i = 0; i < 4; i++) {
                const int channel = 4 * (lane + Shape::lanes * j) + i;
                const bool inside = from != NULL && row + r < value_dim && channel < key_dim;
                state[r][j][i] = inside ? from[(size_t)(row + r) * key_dim + channel] : 0.0f;
            }
        }
    }
}

template <class Shape>
FL_DEVICE void fl_step_write_state(const float (&state)[Shape::rows][Shape::parts][4], float *to, int key_dim, int value_dim,
                                   int row, int lane) {
    FL_UNROLL
    for (int r = 0; r < Shape::rows; r++) {
        FL_UNROLL
        for (int j = 0; j < Shape::parts; j++) {
            FL_UNROLL
            for (int i = 0; i < 4; i++) {
                const int channel = 4 * (lane + Shape::lanes * j) + i;
                if (row + r < value_dim && channel < key_dim) to[(size_t)(row + r) * key_dim + channel] = state[r][j][i];
            }
        }
    }
}

/* Calls launch.template of<Shape, CHANNEL, ERASE>() of the smallest shape that holds key_dim channels; false: none does. */
template <class Launch> static bool fl_step_choose(int key_dim, bool channel, int erase, const Launch &launch) {
#define FL_STEP_KINDS(...)                                                                                                     \
    do {                                                                                                                       \
        typedef fl_step_shape<__VA_ARGS__> shape;                                                                              \
        if (channel) {                                                                                                         \
            if (erase == 0) launch.template of<shape, true, 0>();                                                              \
            if (erase == 1) launch.template of<shape, true, 1>();                                                              \
            if (erase == 2) launch.template of<shape, true, 2>();                                                              \
        } else {                                                                                                               \
            if (erase == 0) launch.template of<shape, false, 0>();                                                             \
            if (erase == 1) launch.template of<shape, false, 1>();                                                             \
            if (erase == 2) launch.template of<shape, false, 2>();                                                             \
        }                                                                                                                      \
        return true;                                                                                                           \
    } while (0)
    if (key_dim <= 64) FL_STEP_KINDS(8, 2, 2);
    if (key_dim <= 128) FL_STEP_KINDS(8, 4, 2);
    if (key_dim <= 256) FL_STEP_KINDS(8, 8, 1);
    if (key_dim <= 1024) FL_STEP_KINDS(32, 8, 1);
    return false;
#undef FL_STEP_KINDS
}

static inline bool fl_step_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* The streams of a call; tile is chosen by the caller. */
static inline fl_step_streams fl_step_streams_of(const fl_transition *transition, size_t heads, size_t steps, size_t key_dim,
                                                 size_t value_dim, const fl_recurrence_rows *rows,
                                                 const fl_recurrence_inputs *inputs) {
    fl_step_streams s = {};
    s.query = floats(inputs->query);
    s.key = floats(inputs->key);
    s.value = floats(inputs->value);
    s.log_decay = transition->decay != FL_DECAY_NONE ? floats(inputs->log_decay) : NULL;
    s.erase_strength = floats(inputs->erase_strength);
    s.erase_read = floats(inputs->erase_read);
    s.erase_write = floats(inputs->erase_write);
    s.write = floats(inputs->write);
    s.steps = steps;
    s.read_rows = rows->read != 0 ? rows->read : steps;
    s.write_rows = rows->write != 0 ? rows->write : steps;
    s.heads = (int)heads;
    s.key_dim = (int)key_dim;
    s.value_dim = (int)value_dim;
    s.wide = key_dim % 4 == 0 && fl_step_aligned(s.query) && fl_step_aligned(s.key) && fl_step_aligned(s.erase_read) &&
             fl_step_aligned(s.erase_write) && (transition->decay != FL_DECAY_CHANNEL || fl_step_aligned(s.log_decay));
    return s;
}

/* Most tokens a tile may have, at most `most`, so that `stages` of them fit. */
template <class Shape> static int fl_step_tile_tokens(bool channel, int erase, int stages, int most) {
    int tile = most;
    while (tile > 1 &&
           fl_step_tile_of(Shape::pitch, Shape::block_rows, tile, channel, erase == 2).floats * stages * 4 > FL_STEP_ROOM) {
        tile--;
    }
    return tile;
}

#endif
