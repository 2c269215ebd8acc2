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

/* Backward: an item is a run of channels of a source head, so that every gradient has one writer; taps are
 * worked off in groups whose weights and gradients stay in registers and the nearest cache. */
enum { CHANNEL_RUN = 16, TAP_GROUP = 8 };

typedef struct fl_short_conv_backward_work {
    const fl_short_conv_call *call;
    const fl_short_conv_gradients *gradients;
    size_t runs; /* of a head */
} fl_short_conv_backward_work;

typedef struct fl_tap_group {
    size_t head, channel, channels, tap, taps; /* channel: in the head */
    float weight[TAP_GROUP][CHANNEL_RUN], gradient[TAP_GROUP][CHANNEL_RUN];
} fl_tap_group;

static size_t weight_at(const fl_short_conv_call *call, const fl_tap_group *group, size_t tap, size_t i) {
    return (group->head * call->head_dim + group->channel + i) * call->kernel + group->tap + tap;
}

/* The group's share of every gradient, over all tokens. */
static void spread_group(const fl_short_conv_backward_work *work, fl_tap_group *group) {
    const fl_short_conv_call *call = work->call;
    float unused[CHANNEL_RUN] = {0};
    size_t kept = call->kernel - 1, source = group->head / (call->heads / call->source_heads);
    for (size_t token = 0; token < call->tokens; token++) {
        const float *output =
            work->gradients->output + (token * call->heads + group->head) * call->head_dim + group->channel;
        for (size_t tap = 0; tap < group->taps; tap++) {
            if (token + group->tap + tap < kept) continue;
            size_t row = token + group->tap + tap - kept;
            size_t at = (row * call->source_heads + source) * call->head_dim + group->channel;
            const float *input = call->input + at;
            float *to = work->gradients->input != NULL ? work->gradients->input + at : unused;
            if (group->channels == CHANNEL_RUN) {
                add_products(CHANNEL_RUN, output, input, group->gradient[tap]);
                add_products(CHANNEL_RUN, output, group->weight[tap], to);
            } else {
                add_products(group->channels, output, input, group->gradient[tap]);
                add_products(group->channels, output, group->weight[tap], to);
            }
        }
    }
}

static void spread_taps(const fl_short_conv_backward_work *work, size_t head, size_t channel, size_t tap) {
    const fl_short_conv_call *call = work->call;
    fl_tap_group group = {.head = head, .channel = channel, .tap = tap};
    size_t channels = call->head_dim - channel, taps = call->kernel - tap;
    group.channels = channels < CHANNEL_RUN ? channels : CHANNEL_RUN;
    group.taps = taps < TAP_GROUP ? taps : TAP_GROUP;
    for (size_t t = 0; t < group.taps; t++) {
        for (size_t i = 0; i < group.channels; i++)
            group.weight[t][i] = call->weight[weight_at(call, &group, t, i)];
    }
    spread_group(work, &group);
    for (size_t t = 0; work->gradients->weight != NULL && t < group.taps; t++) {
        for (size_t i = 0; i < group.channels; i++)
            work->gradients->weight[weight_at(call, &group, t, i)] += group.gradient[t][i];
    }
}

static void add_bias(const fl_short_conv_backward_work *work, size_t head, size_t channel) {
    const fl_short_conv_call *call = work->call;
    size_t end = channel + CHANNEL_RUN < call->head_dim ? channel + CHANNEL_RUN : call->head_dim;
    float *bias = work->gradients->bias;
    for (size_t token = 0; bias != NULL && token < call->tokens; token++) {
        const float *output = work->gradients->output + (token * call->heads + head) * call->head_dim;
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
        for (size_t tap = 0; tap < call->kernel; tap += TAP_GROUP) spread_taps(work, head, channel, tap);
        add_bias(work, head, channel);
    }
}

void fl_short_conv_backward(fl_threads *threads, const fl_short_conv_call *call,
                            const fl_short_conv_gradients *gradients) {
    fl_short_conv_backward_work work = {call, gradients, (call->head_dim + CHANNEL_RUN - 1) / CHANNEL_RUN};
    fl_threads_for(threads, call->source_heads * work.runs, spread_run, &work);
}
