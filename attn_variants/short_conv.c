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
            for (size_t i = 0; i < head_dim; i++) y[i] += w[i] * x[i];
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
