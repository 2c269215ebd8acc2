/* Copies, fills, norms, rotations, activations. */
#include "harness/compute/cuda/operations.h"

enum { THREADS = 256, WARPS = THREADS / 32 };

static dim3 blocks_for(size_t count) { return dim3((unsigned)fl_pieces(count, THREADS)); }

FL_DEVICE size_t own_index() { return (size_t)fl_block_x * THREADS + fl_thread; }

template <class T>
FL_KERNEL(THREADS)
copy_kernel(T *to, size_t to_stride, const T *from, size_t from_stride, const int32_t *index, size_t row_count, size_t count) {
    const size_t at = own_index();
    if (at >= count) return;
    const size_t row = at / row_count, column = at % row_count;
    const size_t source = index == NULL ? row : (size_t)index[row];
    to[row * to_stride + column] = from[source * from_stride + column];
}

void fl_cuda_gather_rows(fl_cuda *device, void *to, size_t to_stride, const void *from, size_t from_stride, const int32_t *index,
                         size_t rows, size_t row_count, size_t element_bytes) {
    const size_t count = rows * row_count;
    if (element_bytes == 8) {
        fl_launch(device, "copy_rows", copy_kernel<uint64_t>, blocks_for(count), THREADS, 0, (uint64_t *)to, to_stride,
                  (const uint64_t *)from, from_stride, index, row_count, count);
    } else if (element_bytes == 4) {
        fl_launch(device, "copy_rows", copy_kernel<uint32_t>, blocks_for(count), THREADS, 0, (uint32_t *)to, to_stride,
                  (const uint32_t *)from, from_stride, index, row_count, count);
    } else {
        fl_launch(device, "copy_rows", copy_kernel<uint16_t>, blocks_for(count), THREADS, 0, (uint16_t *)to, to_stride,
                  (const uint16_t *)from, from_stride, index, row_count, count);
    }
}

void fl_cuda_copy_rows(fl_cuda *device, void *to, size_t to_stride, const void *from, size_t from_stride, size_t rows,
                       size_t row_count, size_t element_bytes) {
    fl_cuda_gather_rows(device, to, to_stride, from, from_stride, (const int32_t *)NULL, rows, row_count, element_bytes);
}

template <class T> FL_KERNEL(THREADS) fill_kernel(T *to, size_t count, T value) {
    const size_t at = own_index();
    if (at < count) to[at] = value;
}

/* The nearest bfloat16, ties to even. */
static uint16_t bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40); /* stays a NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void fl_cuda_fill(fl_cuda *device, void *at, fl_number number, size_t count, double value) {
    const dim3 grid = blocks_for(count);
    switch (number) {
    case FL_FLOAT32: fl_launch(device, "fill", fill_kernel<float>, grid, THREADS, 0, (float *)at, count, (float)value); break;
    case FL_BFLOAT16:
        fl_launch(device, "fill", fill_kernel<uint16_t>, grid, THREADS, 0, (uint16_t *)at, count, bfloat16((float)value));
        break;
    case FL_FLOAT64: fl_launch(device, "fill", fill_kernel<double>, grid, THREADS, 0, (double *)at, count, value); break;
    case FL_INT32: fl_launch(device, "fill", fill_kernel<int32_t>, grid, THREADS, 0, (int32_t *)at, count, (int32_t)value); break;
    }
}

FL_KERNEL(THREADS) add_kernel(size_t count, float *x, const float *y) {
    const size_t at = own_index();
    if (at < count) x[at] += y[at];
}

void fl_cuda_add(fl_cuda *device, size_t count, float *x, const float *y) {
    fl_launch(device, "add", add_kernel, blocks_for(count), THREADS, 0, count, x, y);
}

FL_KERNEL(THREADS) add_bias_kernel(size_t count, size_t columns, const float *bias, float *x) {
    const size_t at = own_index();
    if (at < count) x[at] += bias[at % columns];
}

void fl_cuda_add_bias(fl_cuda *device, size_t rows, size_t columns, const float *bias, float *x) {
    fl_launch(device, "linear", add_bias_kernel, blocks_for(rows * columns), THREADS, 0, rows * columns, columns, bias, x);
}

/* A warp a row, sums in float64. */
FL_DEVICE double inverse_root(const float *x, size_t columns, double epsilon, int lane) {
    double sum = 0.0;
    for (size_t i = lane; i < columns; i += 32) sum += (double)x[i] * (double)x[i];
    return 1.0 / sqrt(fl_lanes_sum(sum, 32) / (double)columns + epsilon);
}

FL_KERNEL(THREADS)
rms_norm_kernel(size_t rows, size_t columns, const float *input, const float *weight, double epsilon, float *output) {
    const size_t row = (size_t)fl_block_x * WARPS + fl_thread / 32;
    const int lane = fl_thread % 32;
    if (row >= rows) return; /* the whole warp */
    const float *x = input + row * columns;
    const float factor = (float)inverse_root(x, columns, epsilon, lane);
    for (size_t i = lane; i < columns; i += 32) output[row * columns + i] = factor * x[i] * weight[i];
}

void fl_cuda_rms_norm(fl_cuda *device, size_t rows, size_t columns, const float *input, const float *weight, double epsilon,
                      float *output) {
    fl_launch(device, "rms_norm", rms_norm_kernel, dim3((unsigned)fl_pieces(rows, WARPS)), THREADS, 0, rows, columns, input, weight,
              epsilon, output);
}

/* With n = r x, r = (mean(x^2) + eps)^(-1/2) and g = gradient . weight: dx = r (g - n mean(g n)). */
FL_KERNEL(THREADS)
rms_norm_backward_kernel(size_t rows, size_t columns, const float *input, const float *weight, double epsilon,
                         const float *gradient_output, float *gradient_input, bool accumulate) {
    const size_t row = (size_t)fl_block_x * WARPS + fl_thread / 32;
    const int lane = fl_thread % 32;
    if (row >= rows) return; /* the whole warp */
    const float *x = input + row * columns, *gradient = gradient_output + row * columns;
    float *out = gradient_input + row * columns;
    const double r = inverse_root(x, columns, epsilon, lane);
    double along = 0.0;
    for (size_t i = lane; i < columns; i += 32) along += (double)gradient[i] * (double)weight[i] * (double)x[i];
    const double slope = r * r * r * fl_lanes_sum(along, 32) / (double)columns;
    for (size_t i = lane; i < columns; i += 32) {
        const double value = r * (double)gradient[i] * (double)weight[i] - slope * (double)x[i];
        out[i] = (float)(accumulate ? (double)out[i] + value : value);
    }
}

void fl_cuda_rms_norm_backward(fl_cuda *device, size_t rows, size_t columns, const float *input, const float *weight, double epsilon,
                               const float *gradient_output, float *gradient_input, bool accumulate) {
    fl_launch(device, "rms_norm_backward", rms_norm_backward_kernel, dim3((unsigned)fl_pieces(rows, WARPS)), THREADS, 0, rows,
              columns, input, weight, epsilon, gradient_output, gradient_input, accumulate);
}

/* A thread a pair of a token, for all heads, so that the angle is made once; angle, cos and sin in float32. */
FL_KERNEL(THREADS)
rope_kernel(size_t tokens, int heads, int head_dim, size_t first_position, int pairs, const float *inverse_frequencies, float factor,
            int direction, float *x) {
    const size_t at = own_index();
    if (at >= tokens * pairs) return;
    const size_t token = at / pairs;
    const int pair = (int)(at % pairs);
    const float angle = (float)(first_position + token) * inverse_frequencies[pair];
    const float cosine = cosf(angle) * factor;
    float sine = sinf(angle) * factor;
    if (direction < 0) sine = -sine;
    for (int head = 0; head < heads; head++) {
        float *low = x + (token * heads + head) * head_dim + pair, *high = low + pairs;
        const float a = *low, b = *high;
        *low = a * cosine - b * sine;
        *high = b * cosine + a * sine;
    }
}

void fl_cuda_rope(fl_cuda *device, size_t tokens, size_t heads, size_t head_dim, size_t first_position, size_t rotary_dim,
                  const float *inverse_frequencies, float attention_factor, int direction, float *x) {
    fl_launch(device, "rope", rope_kernel, blocks_for(tokens * (rotary_dim / 2)), THREADS, 0, tokens, (int)heads, (int)head_dim,
              first_position, (int)(rotary_dim / 2), inverse_frequencies, attention_factor, direction, x);
}

/* Activation and its derivative. */
FL_DEVICE float activation_of(fl_activation activation, float x, float *slope) {
    if (activation == FL_ACTIVATION_SILU) {
        const float s = 1.0f / (1.0f + expf(-x));
        *slope = s * (1.0f + x * (1.0f - s));
        return x * s;
    }
    if (activation == FL_ACTIVATION_GELU_TANH) {
        const float c = 0.7978845608028654f, inner = c * (x + 0.044715f * x * x * x), t = tanhf(inner);
        *slope = 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * c * (1.0f + 3.0f * 0.044715f * x * x);
        return 0.5f * x * (1.0f + t);
    }
    const float cumulative = 0.5f * (1.0f + erff(x * 0.70710678f));
    *slope = cumulative + x * 0.39894228f * expf(-0.5f * x * x);
    return x * cumulative;
}

FL_KERNEL(THREADS)
gated_activation_kernel(fl_activation activation, size_t count, const float *gate, const float *up, float *output) {
    const size_t at = own_index();
    float slope;
    if (at < count) output[at] = activation_of(activation, gate[at], &slope) * up[at];
}

void fl_cuda_gated_activation(fl_cuda *device, fl_activation activation, size_t count, const float *gate, const float *up,
                              float *output) {
    fl_launch(device, "gated_activation", gated_activation_kernel, blocks_for(count), THREADS, 0, activation, count, gate, up,
              output);
}

FL_KERNEL(THREADS)
gated_activation_backward_kernel(fl_activation activation, size_t count, const float *gate, const float *up,
                                 const float *gradient_output, float *gradient_gate, float *gradient_up) {
    const size_t at = own_index();
    if (at >= count) return;
    float slope;
    const float d = gradient_output[at], u = up[at], value = activation_of(activation, gate[at], &slope);
    gradient_gate[at] = d * u * slope;
    gradient_up[at] = d * value;
}

void fl_cuda_gated_activation_backward(fl_cuda *device, fl_activation activation, size_t count, const float *gate, const float *up,
                                       const float *gradient_output, float *gradient_gate, float *gradient_up) {
    fl_launch(device, "gated_activation_backward", gated_activation_backward_kernel, blocks_for(count), THREADS, 0, activation,
              count, gate, up, gradient_output, gradient_gate, gradient_up);
}
