/* The short convolution (short_conv.h). */
#include <string.h>

#include "harness/compute/cpu_backend.h"

static const float *source_row(const fl_short_conv_call *call, size_t token, size_t tap, size_t head) {
    size_t width = call->source_heads * call->head_dim;
    size_t source = head / (call->heads / call->source_heads);
    size_t row = token + tap; /* counted from the oldest of history */
    size_t kept = call->kernel - 1;
    const float *from = fl_cpu_floats(row < kept ? fl_array_from(call->history, row * width)
                                                 : fl_array_from(call->input, (row - kept) * width));
    return from + source * call->head_dim;
}

/* y += w x, in runs of a length the compiler can see. */
static void add_products(size_t count, const float *restrict w, const float *restrict x, float *restrict y) {
    enum { RUN = 16 };
    size_t done = 0;
    for (; done + RUN <= count; done += RUN) {
        for (size_t i = 0; i < RUN; i++) y[done + i] += w[done + i] * x[done + i];
    }
    for (; done < count; done++) y[done] += w[done] * x[done];
}

static void convolve_token(void *context, size_t token, size_t worker) {
    (void)worker;
    const fl_short_conv_call *call = context;
    size_t head_dim = call->head_dim, channels = call->heads * head_dim;
    float *output = fl_cpu_floats(call->output) + token * channels;
    memcpy(output, fl_cpu_floats(call->bias), channels * sizeof *output);
    for (size_t head = 0; head < call->heads; head++) {
        float *y = output + head * head_dim;
        for (size_t tap = 0; tap < call->kernel; tap++) {
            const float *x = source_row(call, token, tap, head);
            const float *w = fl_cpu_floats(call->taps) + tap * channels + head * head_dim;
            add_products(head_dim, w, x, y);
        }
    }
}

void fl_cpu_short_conv(fl_compute *compute, const fl_short_conv_call *call) {
    size_t channels = call->heads * call->head_dim;
    for (size_t channel = 0; channel < channels; channel++) {
        for (size_t tap = 0; tap < call->kernel; tap++) {
            fl_cpu_floats(call->taps)[tap * channels + channel] =
                fl_cpu_floats(call->weight)[channel * call->kernel + tap];
        }
    }
    fl_threads_for(compute->threads, call->tokens, convolve_token, (void *)call);
}

void fl_cpu_short_conv_remember(fl_compute *compute, const fl_short_conv_call *call, fl_array history) {
    (void)compute;
    size_t width = call->source_heads * call->head_dim, kept = call->kernel - 1;
    if (call->tokens >= kept) {
        memcpy(fl_cpu_floats(history), fl_cpu_floats(call->input) + (call->tokens - kept) * width,
               kept * width * sizeof(float));
        return;
    }
    size_t stays = kept - call->tokens;
    memmove(fl_cpu_floats(history), fl_cpu_floats(history) + call->tokens * width,
            stays * width * sizeof(float));
    memcpy(fl_cpu_floats(history) + stays * width, fl_cpu_floats(call->input),
           call->tokens * width * sizeof(float));
}

/* Backward: an item is a run of channels of a source head, so that every gradient has one writer. One tap
 * after another is passed over all tokens, its weights and their gradients in registers. */
enum { CHANNEL_RUN = 16 };

typedef struct fl_short_conv_backward_work {
    const fl_short_conv_call *call;
    const fl_short_conv_gradients *gradients;
    size_t runs; /* of a head */
} fl_short_conv_backward_work;

/* A tap's rows for one run of channels: output and input [rows] with their strides. */
typedef struct fl_tap_rows {
    size_t rows, output_stride, input_stride;
    const float *output, *input;
    float *gradient_input; /* strided like input; NULL: not wanted */
} fl_tap_rows;

static void spread_whole_run(const fl_tap_rows *tap, const float *weight, float *gradient_weight) {
    float w[CHANNEL_RUN], sum[CHANNEL_RUN] = {0}, nowhere[CHANNEL_RUN] = {0};
    memcpy(w, weight, sizeof w);
    for (size_t row = 0; row < tap->rows; row++) {
        const float *restrict output = tap->output + row * tap->output_stride;
        const float *restrict input = tap->input + row * tap->input_stride;
        float *restrict to =
            tap->gradient_input != NULL ? tap->gradient_input + row * tap->input_stride : nowhere;
#pragma GCC unroll 16
        for (size_t i = 0; i < CHANNEL_RUN; i++) {
            sum[i] += output[i] * input[i];
            to[i] += output[i] * w[i];
        }
    }
    memcpy(gradient_weight, sum, sizeof sum);
}

static void spread_part_run(const fl_tap_rows *tap, size_t channels, const float *weight,
                            float *gradient_weight) {
    for (size_t row = 0; row < tap->rows; row++) {
        for (size_t i = 0; i < channels; i++) {
            float output = tap->output[row * tap->output_stride + i];
            gradient_weight[i] += output * tap->input[row * tap->input_stride + i];
            if (tap->gradient_input != NULL)
                tap->gradient_input[row * tap->input_stride + i] += output * weight[i];
        }
    }
}

static void spread_tap(const fl_short_conv_backward_work *work, size_t head, size_t channel, size_t tap) {
    const fl_short_conv_call *call = work->call;
    const fl_short_conv_gradients *out = work->gradients;
    float weight[CHANNEL_RUN] = {0}, gradient[CHANNEL_RUN] = {0};
    size_t channels = call->head_dim - channel < CHANNEL_RUN ? call->head_dim - channel : CHANNEL_RUN;
    size_t back = call->kernel - 1 - tap, source = head / (call->heads / call->source_heads);
    size_t at = (head * call->head_dim + channel) * call->kernel + tap;
    if (back >= call->tokens) return;
    fl_tap_rows rows = {.rows = call->tokens - back,
                        .output_stride = call->heads * call->head_dim,
                        .input_stride = call->source_heads * call->head_dim};
    rows.output = fl_cpu_floats(out->output) + back * rows.output_stride + head * call->head_dim + channel;
    rows.input = fl_cpu_floats(call->input) + source * call->head_dim + channel;
    if (fl_array_is(out->input))
        rows.gradient_input = fl_cpu_floats(out->input) + source * call->head_dim + channel;
    for (size_t i = 0; i < channels; i++) weight[i] = fl_cpu_floats(call->weight)[at + i * call->kernel];
    if (channels == CHANNEL_RUN)
        spread_whole_run(&rows, weight, gradient);
    else
        spread_part_run(&rows, channels, weight, gradient);
    for (size_t i = 0; fl_array_is(out->weight) && i < channels; i++)
        fl_cpu_floats(out->weight)[at + i * call->kernel] += gradient[i];
}

static void add_bias(const fl_short_conv_backward_work *work, size_t head, size_t channel) {
    const fl_short_conv_call *call = work->call;
    size_t end = channel + CHANNEL_RUN < call->head_dim ? channel + CHANNEL_RUN : call->head_dim;
    float *bias = fl_cpu_floats(work->gradients->bias);
    for (size_t token = 0; bias != NULL && token < call->tokens; token++) {
        const float *output =
            fl_cpu_floats(work->gradients->output) + (token * call->heads + head) * call->head_dim;
        for (size_t i = channel; i < end; i++) bias[head * call->head_dim + i] += output[i];
    }
}

static void spread_run(void *context, size_t item, size_t worker) {
    (void)worker;
    const fl_short_conv_backward_work *work = context;
    const fl_short_conv_call *call = work->call;
    size_t source = item / work->runs, channel = item % work->runs * CHANNEL_RUN;
    size_t group = call->heads / call->source_heads;
    for (size_t head = source * group; head < (source + 1) * group; head++) {
        for (size_t tap = 0; tap < call->kernel; tap++) spread_tap(work, head, channel, tap);
        add_bias(work, head, channel);
    }
}

void fl_cpu_short_conv_backward(fl_compute *compute, const fl_short_conv_call *call,
                                const fl_short_conv_gradients *gradients) {
    fl_short_conv_backward_work work = {call, gradients, (call->head_dim + CHANNEL_RUN - 1) / CHANNEL_RUN};
    fl_threads_for(compute->threads, call->source_heads * work.runs, spread_run, &work);
}
