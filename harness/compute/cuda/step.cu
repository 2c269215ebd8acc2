/* The recurrence, one token after another: the definition, in float32. */
#include "harness/compute/cuda/step.h"
#include "harness/compute/cuda/operations.h"

enum { TILE = 16 };

struct step_call {
    fl_step_streams streams;
    float *state, *output;
    float *squares; /* [H][parts][T]: sums of squares of a warp's rows, or NULL */
    int norm_values; /* rows that these count */
};

template <class Shape, bool CHANNEL, int ERASE> FL_KERNEL(FL_STEP_THREADS) step_kernel(step_call c) {
    FL_SHARED(float, shared);
    const fl_step_streams &s = c.streams;
    const int lane = fl_thread % Shape::lanes, group = fl_thread / Shape::lanes, head = fl_block_y;
    const int first_row = fl_block_x * Shape::block_rows, row = first_row + group * Shape::rows;
    const fl_step_tile t = fl_step_tile_of(Shape::pitch, Shape::block_rows, s.tile, CHANNEL, ERASE == 2);
    int *is_null = (int *)(shared + 2 * t.floats);
    float *state_at = c.state + (size_t)head * s.value_dim * s.key_dim;
    float state[Shape::rows][Shape::parts][4];

    for (int i = fl_thread; i < 2 * t.floats; i += FL_STEP_THREADS) shared[i] = 0.0f; /* channels and rows outside */
    fl_block_sync();
    fl_step_read_state<Shape>(state, state_at, s.key_dim, s.value_dim, row, lane);
    const size_t tiles = fl_pieces(s.steps, (size_t)s.tile);
    for (size_t n = 0; n < tiles + 1; n++) {
        if (n < tiles) { /* the tile ahead, into the stage that the last but one has left */
            const size_t first = n * s.tile;
            const int count = (int)(s.steps - first < (size_t)s.tile ? s.steps - first : (size_t)s.tile);
            fl_step_load(s, t, shared + (n % 2) * t.floats, head, first, count, first_row, Shape::block_rows, CHANNEL, ERASE);
            if (n == 0) continue;
            fl_copy_wait<1>();
        } else {
            fl_copy_wait<0>();
        }
        fl_block_sync();
        const size_t first = (n - 1) * s.tile;
        const int count = (int)(s.steps - first < (size_t)s.tile ? s.steps - first : (size_t)s.tile);
        float *stage = shared + ((n - 1) % 2) * t.floats;
        fl_step_ready(s, t, stage, count, CHANNEL, ERASE, is_null);
        fl_block_sync();
        for (int i = 0; i < count; i++) {
            if (!is_null[i]) fl_step_update<Shape, CHANNEL, ERASE>(state, t, stage, i, lane, group);
            if (c.output != NULL) {
                float y[Shape::rows];
                fl_step_products<Shape>(state, stage + t.query + i * t.pitch, lane, y);
                FL_UNROLL
                for (int r = 0; r < Shape::rows; r++) {
                    if (lane == 0 && row + r < s.value_dim) {
                        c.output[(head * s.read_rows + first + i) * s.value_dim + row + r] = y[r];
                    }
                }
            }
            if (c.squares != NULL) {
                float sum = 0.0f;
                FL_UNROLL
                for (int j = 0; j < Shape::parts; j++) {
                    FL_UNROLL
                    for (int r = 0; r < Shape::rows; r++) {
                        FL_UNROLL
                        for (int k = 0; k < 4; k++) {
                            if (row + r < c.norm_values) sum += state[r][j][k] * state[r][j][k];
                        }
                    }
                }
                sum = fl_lanes_sum(sum, 32);
                if (fl_thread % 32 == 0) {
                    const size_t part = (size_t)head * fl_blocks_x * FL_STEP_WARPS + fl_block_x * FL_STEP_WARPS + fl_thread / 32;
                    c.squares[part * s.steps + first + i] = sum;
                }
            }
        }
        fl_block_sync();
    }
    fl_step_write_state<Shape>(state, state_at, s.key_dim, s.value_dim, row, lane);
}

/* norm [H][rows] = square root of the sum over `parts`. */
FL_KERNEL(256) norm_kernel(const float *squares, size_t steps, size_t rows, int parts, size_t count, float *norm) {
    const size_t at = (size_t)fl_block_x * 256 + fl_thread;
    if (at >= count) return;
    const float *from = squares + at / steps * parts * steps + at % steps;
    double sum = 0.0;
    for (int part = 0; part < parts; part++) sum += (double)from[part * steps];
    norm[at / steps * rows + at % steps] = (float)sqrt(sum);
}

struct step_launch {
    fl_cuda *device;
    step_call call;
    float *norm;

    template <class Shape, bool CHANNEL, int ERASE> void of() const {
        step_call c = call;
        const fl_step_streams &s = c.streams;
        const int blocks = (int)fl_pieces((size_t)s.value_dim, Shape::block_rows), parts = blocks * FL_STEP_WARPS;
        c.streams.tile = fl_step_tile_tokens<Shape>(CHANNEL, ERASE, 2, TILE);
        const fl_step_tile t = fl_step_tile_of(Shape::pitch, Shape::block_rows, c.streams.tile, CHANNEL, ERASE == 2);
        if (norm != NULL) {
            c.squares = (float *)fl_cuda_take(device, (size_t)s.heads * parts * s.steps * sizeof(float), "recurrence");
        }
        fl_launch(device, "recurrence", step_kernel<Shape, CHANNEL, ERASE>, dim3((unsigned)blocks, (unsigned)s.heads),
                  FL_STEP_THREADS, (size_t)(2 * t.floats + c.streams.tile) * 4, c);
        if (norm != NULL) {
            const size_t count = (size_t)s.heads * s.steps;
            fl_launch(device, "recurrence", norm_kernel, dim3((unsigned)fl_pieces(count, 256)), 256, 0, c.squares, s.steps,
                      s.read_rows, parts, count, norm);
            fl_cuda_give(device, c.squares);
        }
    }
};

bool fl_cuda_step(fl_cuda *device, const fl_recurrence_call *call) {
    if (call->heads == 0 || call->steps == 0 || call->value_dim == 0) return true;
    step_launch launch = {};
    launch.device = device;
    launch.call.streams =
        fl_step_streams_of(&call->transition, call->heads, call->steps, call->key_dim, call->value_dim, &call->rows, &call->inputs);
    if (!fl_array_is(call->output)) launch.call.streams.query = NULL;
    launch.call.state = floats(call->state);
    launch.call.output = floats(call->output);
    launch.call.norm_values = (int)(call->norm_values != 0 ? call->norm_values : call->value_dim);
    launch.norm = floats(call->state_norm);
    return fl_step_choose((int)call->key_dim, call->transition.decay == FL_DECAY_CHANNEL, (int)call->transition.erase, launch);
}
