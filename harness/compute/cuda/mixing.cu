/* What the mixer does around its recurrence: gates, short convolution, bonus, merge. Sums over tokens are made by blocks of their own,
 * in float64 and in a fixed order. */
#include "harness/compute/cuda/operations.h"

enum { THREADS = 256, WARPS = THREADS / 32, COLUMNS = 32 };

static dim3 blocks_for(size_t count) { return dim3((unsigned)fl_pieces(count, THREADS)); }

FL_DEVICE size_t own_index() { return (size_t)fl_block_x * THREADS + fl_thread; }

/* Column sums: to[c to_stride] += sum over rows of x[row][c] (y[row][source of c]). */
struct column_sums {
    size_t rows, columns;
    const float *x;
    size_t x_stride;
    const float *y; /* NULL: 1 */
    size_t y_stride;
    size_t head_dim, group; /* column c of x goes with column c / (group head_dim) head_dim + c % head_dim of y */
    float *to;
    size_t to_stride;
};

/* A block 32 columns: neighbouring threads neighbouring columns, eight rows at a time. */
FL_KERNEL(THREADS) column_sums_kernel(column_sums s) {
    FL_SHARED(double, shared);
    const int lane = fl_thread % COLUMNS, part = fl_thread / COLUMNS;
    const size_t column = (size_t)fl_block_x * COLUMNS + lane;
    double sum = 0.0;
    if (column < s.columns) {
        const size_t source = column / (s.group * s.head_dim) * s.head_dim + column % s.head_dim;
        for (size_t row = part; row < s.rows; row += WARPS) {
            const float x = s.x[row * s.x_stride + column];
            sum += s.y != NULL ? (double)x * (double)s.y[row * s.y_stride + source] : (double)x;
        }
    }
    shared[part * COLUMNS + lane] = sum;
    fl_block_sync();
    if (part == 0 && column < s.columns) {
        for (int i = 1; i < WARPS; i++) sum += shared[i * COLUMNS + lane];
        s.to[column * s.to_stride] += (float)sum;
    }
}

static void add_column_sums(fl_cuda *device, const char *operation, const column_sums &s) {
    fl_launch(device, operation, column_sums_kernel, dim3((unsigned)fl_pieces(s.columns, COLUMNS)), THREADS, THREADS * sizeof(double),
              s);
}

/* to[head] += sum over tokens and a head's numbers of x y, both [T][H][width]; y NULL: of x, which are then float64. */
FL_KERNEL(THREADS) head_sums_kernel(size_t tokens, size_t heads, size_t width, const float *x, const float *y, const double *wide, float *to) {
    FL_SHARED(double, shared);
    const size_t head = (size_t)fl_block_x;
    double sum = 0.0;
    for (size_t i = fl_thread; i < tokens * width; i += THREADS) {
        const size_t at = (i / width * heads + head) * width + i % width;
        sum += wide != NULL ? wide[at] : (double)x[at] * (double)y[at];
    }
    sum = fl_block_sum(sum, shared, THREADS);
    if (fl_thread == 0) to[head] += (float)sum;
}

/* Gates. */

FL_DEVICE float softplus(float x) { return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x))); }

FL_KERNEL(THREADS) gates_kernel(fl_gates_call c) {
    const size_t at = own_index(), columns = c.heads * c.width;
    if (at >= c.tokens * columns) return;
    const size_t column = at % columns;
    const float *bias = floats(c.bias), *rate = floats(c.rate);
    float x = floats(c.values)[at] + (bias != NULL ? bias[column] : 0.0f);
    if (rate != NULL) {
        x = -expf(rate[column / c.width]) * softplus(x);
    } else if (c.activation == FL_ACTIVATE_LOG_SIGMOID) {
        x = -softplus(-x);
    } else if (c.activation == FL_ACTIVATE_SIGMOID) {
        x = 1.0f / (1.0f + expf(-x)) * (c.maximum > 1.0f ? c.maximum : 1.0f);
    } else if (c.activation == FL_ACTIVATE_TANH) {
        x = tanhf(x);
    }
    floats(c.values)[at] = x;
}

void fl_cuda_gates(fl_cuda *device, const fl_gates_call *call) {
    fl_launch(device, "gates", gates_kernel, blocks_for(call->tokens * call->heads * call->width), THREADS, 0, *call);
}

FL_KERNEL(THREADS) gates_backward_kernel(fl_gates_call c, float *gradient) {
    const size_t at = own_index(), columns = c.heads * c.width;
    if (at >= c.tokens * columns) return;
    const float y = floats(c.values)[at];
    float slope = 1.0f;
    if (floats(c.rate) != NULL) {
        const float rate = expf(floats(c.rate)[at % columns / c.width]);
        slope = rate > 0.0f ? rate * expm1f(y / rate) : -expm1f(y);
    } else if (c.activation == FL_ACTIVATE_LOG_SIGMOID) {
        slope = -expm1f(y);
    } else if (c.activation == FL_ACTIVATE_SIGMOID) {
        slope = y * (1.0f - y / (c.maximum > 1.0f ? c.maximum : 1.0f));
    } else if (c.activation == FL_ACTIVATE_TANH) {
        slope = 1.0f - y * y;
    }
    gradient[at] *= slope;
}

void fl_cuda_gates_backward(fl_cuda *device, const fl_gates_call *call, const fl_gates_gradients *gradients) {
    const size_t columns = call->heads * call->width;
    if (floats(gradients->rate) != NULL) {
        fl_launch(device, "gates_backward", head_sums_kernel, dim3((unsigned)call->heads), THREADS, 32 * sizeof(double), call->tokens,
                  call->heads, call->width, (const float *)floats(gradients->values), (const float *)floats(call->values),
                  (const double *)NULL, floats(gradients->rate));
    }
    fl_launch(device, "gates_backward", gates_backward_kernel, blocks_for(call->tokens * columns), THREADS, 0, *call,
              floats(gradients->values));
    if (floats(gradients->bias) != NULL) {
        add_column_sums(device, "gates_backward",
                        {call->tokens, columns, floats(gradients->values), columns, NULL, 0, columns, 1, floats(gradients->bias), 1});
    }
}

/* Short convolution. */

FL_DEVICE float source_value(const fl_short_conv_call &c, size_t token, size_t tap, size_t channel) {
    const size_t width = c.source_heads * c.head_dim, group = c.heads / c.source_heads, kept = c.kernel - 1;
    const size_t source = channel / c.head_dim / group * c.head_dim + channel % c.head_dim, row = token + tap;
    return row < kept ? floats(c.history)[row * width + source] : floats(c.input)[(row - kept) * width + source];
}

FL_KERNEL(THREADS) short_conv_kernel(fl_short_conv_call c) {
    const size_t at = own_index(), channels = c.heads * c.head_dim;
    if (at >= c.tokens * channels) return;
    const size_t token = at / channels, channel = at % channels;
    const float *weight = floats(c.weight) + channel * c.kernel;
    float y = floats(c.bias)[channel];
    for (size_t tap = 0; tap < c.kernel; tap++) y += weight[tap] * source_value(c, token, tap, channel);
    floats(c.output)[at] = y;
}

void fl_cuda_short_conv(fl_cuda *device, const fl_short_conv_call *call) {
    fl_launch(device, "short_conv", short_conv_kernel, blocks_for(call->tokens * call->heads * call->head_dim), THREADS, 0, *call);
}

/* A thread a channel, rows in order, since they move towards the front of the same array. */
FL_KERNEL(THREADS) remember_kernel(fl_short_conv_call c, float *history) {
    const size_t channel = own_index(), width = c.source_heads * c.head_dim, kept = c.kernel - 1;
    if (channel >= width) return;
    for (size_t row = 0; row < kept; row++) {
        const size_t from = row + c.tokens;
        history[row * width + channel] = from < kept ? history[from * width + channel] : floats(c.input)[(from - kept) * width + channel];
    }
}

void fl_cuda_short_conv_remember(fl_cuda *device, const fl_short_conv_call *call, float *history) {
    fl_launch(device, "short_conv_remember", remember_kernel, blocks_for(call->source_heads * call->head_dim), THREADS, 0, *call,
              history);
}

/* A thread a channel of a token's input. */
FL_KERNEL(THREADS) short_conv_backward_kernel(fl_short_conv_call c, const float *gradient_output, float *gradient_input) {
    const size_t at = own_index(), width = c.source_heads * c.head_dim, group = c.heads / c.source_heads;
    if (at >= c.tokens * width) return;
    const size_t token = at / width, source = at % width;
    float sum = 0.0f;
    for (size_t member = 0; member < group; member++) {
        const size_t channel = (source / c.head_dim * group + member) * c.head_dim + source % c.head_dim;
        for (size_t tap = 0; tap < c.kernel; tap++) {
            const size_t later = token + c.kernel - 1 - tap;
            if (later < c.tokens) sum += gradient_output[later * c.heads * c.head_dim + channel] * floats(c.weight)[channel * c.kernel + tap];
        }
    }
    gradient_input[at] += sum;
}

void fl_cuda_short_conv_backward(fl_cuda *device, const fl_short_conv_call *call, const fl_short_conv_gradients *gradients) {
    const size_t channels = call->heads * call->head_dim, width = call->source_heads * call->head_dim;
    if (floats(gradients->input) != NULL) {
        fl_launch(device, "short_conv_backward", short_conv_backward_kernel, blocks_for(call->tokens * width), THREADS, 0, *call,
                  (const float *)floats(gradients->output), floats(gradients->input));
    }
    for (size_t tap = 0; floats(gradients->weight) != NULL && tap < call->kernel; tap++) {
        const size_t back = call->kernel - 1 - tap;
        if (back >= call->tokens) continue;
        add_column_sums(device, "short_conv_backward",
                        {call->tokens - back, channels, floats(gradients->output) + back * channels, channels, floats(call->input), width,
                         call->head_dim, call->heads / call->source_heads, floats(gradients->weight) + tap, call->kernel});
    }
    if (floats(gradients->bias) != NULL) {
        add_column_sums(device, "short_conv_backward",
                        {call->tokens, channels, floats(gradients->output), channels, NULL, 0, channels, 1, floats(gradients->bias), 1});
    }
}

/* Bonus, and heads that share a source. */

FL_KERNEL(THREADS) add_bonus_kernel(fl_bonus_call c) {
    const size_t at = own_index(), width = c.heads * c.head_dim;
    if (at >= c.tokens * width) return;
    const size_t token = at / width, head = at % width / c.head_dim, i = at % c.head_dim;
    const size_t source = head / (c.heads / c.value_heads);
    floats(c.read)[token * c.read_stride + head * c.read_head_stride + i] +=
        floats(c.bonus)[at] * floats(c.value)[(token * c.value_heads + source) * c.head_dim + i];
}

void fl_cuda_add_bonus(fl_cuda *device, const fl_bonus_call *call) {
    fl_launch(device, "add_bonus", add_bonus_kernel, blocks_for(call->tokens * call->heads * call->head_dim), THREADS, 0, *call);
}

FL_KERNEL(THREADS) add_heads_kernel(size_t count, size_t heads, size_t sources, size_t head_dim, const float *x, float *to) {
    const size_t at = own_index(), width = sources * head_dim, group = heads / sources;
    if (at >= count) return;
    const size_t token = at / width, source = at % width / head_dim, i = at % head_dim;
    float sum = to[at];
    for (size_t member = 0; member < group; member++) sum += x[(token * heads + source * group + member) * head_dim + i];
    to[at] = sum;
}

void fl_cuda_add_heads(fl_cuda *device, size_t tokens, size_t heads, size_t sources, size_t head_dim, const float *x, float *to) {
    const size_t count = tokens * sources * head_dim;
    fl_launch(device, "add_heads", add_heads_kernel, blocks_for(count), THREADS, 0, count, heads, sources, head_dim, x, to);
}

/* The merge: a warp a token and head. */

struct merge_weights {
    double exact, read;
};

FL_DEVICE bool merge_has_gamma(fl_merge merge) { return merge == FL_MERGE_LOLCATS || merge == FL_MERGE_LOLCATS_INVARIANT; }

FL_DEVICE merge_weights weights_of(const fl_merge_call &c, size_t at, size_t head, const float *read) {
    const double mass = c.normaliser && read != NULL ? (double)read[c.head_dim] : 1.0;
    const double scale = mass == 0.0 ? 0.0 : 1.0 / mass;
    if (read == NULL) return {c.merge == FL_MERGE_HALF ? 0.5 : 1.0, 0.0};
    if (floats(c.exact) == NULL) return {0.0, scale};
    if (c.merge == FL_MERGE_SUM) return {1.0, scale};
    if (c.merge == FL_MERGE_HALF) return {0.5, 0.5 * scale};
    double exact_log = (double)floats(c.log_sum_exp)[at];
    if (merge_has_gamma(c.merge)) exact_log -= log1p(exp(-(double)floats(c.window_factor)[head]));
    if (c.merge == FL_MERGE_LOLCATS && isfinite(floats(c.largest)[at])) {
        exact_log -= (double)floats(c.largest)[at];
    }
    const double share = mass == 0.0 ? 1.0 : 1.0 / (1.0 + mass * exp(-exact_log));
    /* (1 - p) / z without cancellation: p e^-L, or 1 / z when the exact part is negligible. */
    const double of_read = share > 0.5 ? share * exp(-exact_log) : (1.0 - share) * scale;
    return {share, mass == 0.0 ? 0.0 : of_read};
}

FL_DEVICE const float *read_of(const fl_merge_call &c, size_t token, size_t head) {
    return floats(c.read) != NULL ? floats(c.read) + head * c.read_head_stride + token * c.read_stride : NULL;
}

FL_KERNEL(THREADS) merge_kernel(fl_merge_call c) {
    const size_t at = (size_t)fl_block_x * WARPS + fl_thread / 32;
    if (at >= c.tokens * c.heads) return; /* the whole warp */
    const size_t token = at / c.heads, head = at % c.heads;
    const float *read = read_of(c, token, head), *exact = floats(c.exact) != NULL ? floats(c.exact) + at * c.head_dim : NULL;
    const merge_weights weights = weights_of(c, at, head, read);
    const float of_exact = (float)weights.exact;
    for (size_t i = fl_thread % 32; i < c.head_dim; i += 32) {
        float sum = exact == NULL ? 0.0f : of_exact * exact[i];
        if (read != NULL && weights.read != 0.0) sum += (float)(weights.read * (double)read[i]);
        floats(c.output)[at * c.head_dim + i] = sum;
    }
}

static dim3 warps_for(size_t count) { return dim3((unsigned)fl_pieces(count, WARPS)); }

void fl_cuda_merge(fl_cuda *device, const fl_merge_call *call) {
    fl_launch(device, "merge", merge_kernel, warps_for(call->tokens * call->heads), THREADS, 0, *call);
}

FL_DEVICE double dot(const float *a, const float *b, size_t n) {
    double sum = 0.0;
    for (size_t i = fl_thread % 32; i < n; i += 32) sum += (double)a[i] * (double)b[i];
    return fl_lanes_sum(sum, 32);
}

/* With y = p a + c R, c = (1 - p) / z and p = 1 / (1 + z e^-E):  dR = c g,  dz = -c g.y,  da = p g,  dE = p (g.a - g.y). of_factor [T][H]:
 * the window factor's, to be summed over tokens; NULL = not wanted. */
FL_KERNEL(THREADS) merge_backward_kernel(fl_merge_call c, fl_merge_gradients out, double *of_factor) {
    const size_t at = (size_t)fl_block_x * WARPS + fl_thread / 32, n = c.head_dim;
    if (at >= c.tokens * c.heads) return; /* the whole warp */
    const size_t token = at / c.heads, head = at % c.heads, of_read = head * c.read_head_stride + token * c.read_stride;
    const int lane = fl_thread % 32;
    const float *gradient = floats(out.output) + at * n, *read = read_of(c, token, head);
    const float *exact = floats(c.exact) != NULL ? floats(c.exact) + at * n : NULL;
    float *to_read = floats(out.read) + of_read, *to_exact = floats(out.exact) != NULL ? floats(out.exact) + at * n : NULL;
    const merge_weights weights = weights_of(c, at, head, read);
    const bool shares = (c.merge == FL_MERGE_SHARED_NORMALISER || merge_has_gamma(c.merge)) && read != NULL && exact != NULL;
    const double along_exact = shares ? dot(gradient, exact, n) : 0.0;
    double along_read = 0.0;
    if (read != NULL && weights.read != 0.0 && (shares || c.normaliser)) along_read = weights.read * dot(gradient, read, n);
    const double along_output = weights.exact * along_exact + along_read;
    for (size_t i = lane; read != NULL && i < n; i += 32) to_read[i] = (float)(weights.read * (double)gradient[i]);
    for (size_t i = lane; to_exact != NULL && i < n; i += 32) to_exact[i] = (float)(weights.exact * (double)gradient[i]);
    if (lane != 0) return;
    if (read != NULL && c.normaliser) {
        const double mass = (double)read[n], slope = shares ? weights.read : mass == 0.0 ? 0.0 : 1.0 / mass;
        to_read[n] = (float)(-slope * along_output);
    }
    const double of_log = shares && weights.exact > 0.0 ? weights.exact * (along_exact - along_output) : 0.0;
    if (floats(out.log_sum_exp) != NULL) floats(out.log_sum_exp)[at] = (float)of_log;
    if (c.merge == FL_MERGE_LOLCATS && floats(out.largest) != NULL) floats(out.largest)[at] = (float)-of_log;
    if (of_factor != NULL) of_factor[at] = shares ? of_log / (1.0 + exp((double)floats(c.window_factor)[head])) : 0.0;
}

void fl_cuda_merge_backward(fl_cuda *device, const fl_merge_call *call, const fl_merge_gradients *gradients) {
    const size_t count = call->tokens * call->heads;
    double *of_factor = NULL;
    if (floats(gradients->window_factor) != NULL && (call->merge == FL_MERGE_LOLCATS || call->merge == FL_MERGE_LOLCATS_INVARIANT)) {
        of_factor = (double *)fl_cuda_take(device, count * sizeof(double), "merge_backward");
    }
    fl_launch(device, "merge_backward", merge_backward_kernel, warps_for(count), THREADS, 0, *call, *gradients, of_factor);
    if (of_factor == NULL) return;
    fl_launch(device, "merge_backward", head_sums_kernel, dim3((unsigned)call->heads), THREADS, 32 * sizeof(double), call->tokens,
              call->heads, (size_t)1, (const float *)NULL, (const float *)NULL, (const double *)of_factor,
              floats(gradients->window_factor));
    fl_cuda_give(device, of_factor);
}
