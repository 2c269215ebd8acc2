#include "attn_variants/short_conv.h"

#include <string.h>

static const float *source_row(const fl_short_conv_call *call, size_t token, size_t tap, size_t head) {
    size_t width = call->source_heads * call->head_dim;
    size_t source = head / (call->heads / call->source_heads);
    size_t row = token + tap; /* counted from the oldest of history */
    size_t kept = call->kernel - 1;
    const float *from = row < kept ? call->history + row * width : call->input + (row - kept) * width;
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
    float *output = call->output + token * channels;
    memcpy(output, call->bias, channels * sizeof *output);
    for (size_t head = 0; head < call->heads; head++) {
        float *y = output + head * head_dim;
        for (size_t tap = 0; tap < call->kernel; tap++) {
            const float *x = source_row(call, token, tap, head);
            const float *w = call->taps + tap * channels + head * head_dim;
            add_products(head_dim, w, x, y);
        }
    }
}

void fl_short_conv_run(fl_threads *threads, const fl_short_conv_call *call) {
    size_t channels = call->heads * call->head_dim;
    for (size_t channel = 0; channel < channels; channel++) {
        for (size_t tap = 0; tap < call->kernel; tap++) {
            call->taps[tap * channels + channel] = call->weight[channel * call->kernel + tap];
        }
    }
    fl_threads_for(threads, call->tokens, convolve_token, (void *)call);
}

void fl_short_conv_remember(const fl_short_conv_call *call, float *history) {
    size_t width = call->source_heads * call->head_dim, kept = call->kernel - 1;
    if (call->tokens >= kept) {
        memcpy(history, call->input + (call->tokens - kept) * width, kept * width * sizeof *history);
        return;
    }
    size_t stays = kept - call->tokens;
    memmove(history, history + call->tokens * width, stays * width * sizeof *history);
    memcpy(history + stays * width, call->input, call->tokens * width * sizeof *history);
}

typedef struct fl_short_conv_backward_work {
    const fl_short_conv_call *call;
    const fl_short_conv_gradients *gradients;
} fl_short_conv_backward_work;

/* One output head at one token: its share of every gradient. */
static void spread(const fl_short_conv_backward_work *work, size_t head, size_t token) {
    const fl_short_conv_call *call = work->call;
    const fl_short_conv_gradients *out = work->gradients;
    size_t head_dim = call->head_dim, kernel = call->kernel, kept = kernel - 1;
    size_t source = head / (call->heads / call->source_heads);
    const float *gradient = out->output + (token * call->heads + head) * head_dim;
    for (size_t i = 0; out->bias != NULL && i < head_dim; i++) out->bias[head * head_dim + i] += gradient[i];
    for (size_t tap = token < kept ? kept - token : 0; tap < kernel; tap++) {
        size_t at = ((token + tap - kept) * call->source_heads + source) * head_dim;
        for (size_t i = 0; i < head_dim; i++) {
            size_t of_weight = (head * head_dim + i) * kernel + tap;
            if (out->weight != NULL) out->weight[of_weight] += gradient[i] * call->input[at + i];
            if (out->input != NULL) out->input[at + i] += gradient[i] * call->weight[of_weight];
        }
    }
}

/* A source head is an item, so that its gradients have one writer. */
static void spread_source_head(void *context, size_t source, size_t worker) {
    (void)worker;
    const fl_short_conv_backward_work *work = context;
    size_t group = work->call->heads / work->call->source_heads;
    for (size_t head = source * group; head < (source + 1) * group; head++) {
        for (size_t token = 0; token < work->call->tokens; token++) spread(work, head, token);
    }
}

void fl_short_conv_backward(fl_threads *threads, const fl_short_conv_call *call,
                            const fl_short_conv_gradients *gradients) {
    fl_short_conv_backward_work work = {call, gradients};
    fl_threads_for(threads, call->source_heads, spread_source_head, &work);
}
