#include <string.h>

#include "attn_variants/mixer_gates.h"
#include "attn_variants/mixer_parts.h"

int32_t fl_mixer_leaving(const fl_mixer_plan *plan, size_t position) {
    size_t delay = plan->delay, sinks = plan->variant->sinks;
    if (position < delay || position - delay < sinks) return -1;
    return (int32_t)(position - delay);
}

/* Convolution. */

static void convolve(const fl_mixer_block *block) {
    fl_mixer *mixer = block->mixer;
    const fl_mixer_plan *plan = &mixer->plan;
    fl_array inputs[3] = {block->query, block->key, block->value};
    if (plan->variant->conv_kernel == 0) return;
    for (size_t i = 0; i < 3; i++) {
        fl_short_conv_call call = {.tokens = block->tokens,
                                   .heads = plan->shape.query_heads,
                                   .source_heads = i == 0 ? plan->shape.query_heads : plan->shape.kv_heads,
                                   .head_dim = plan->shape.head_dim,
                                   .kernel = plan->variant->conv_kernel,
                                   .input = inputs[i],
                                   .history = mixer->history[i],
                                   .weight = plan->conv_weight[i].values,
                                   .bias = plan->conv_bias[i].values,
                                   .taps = block->scratch->taps,
                                   .output = block->scratch->convolved[i]};
        plan->compute->ops->short_conv(plan->compute, &call);
        plan->compute->ops->short_conv_remember(plan->compute, &call, mixer->history[i]);
    }
}

/* Streams. */

static size_t sinks_of(const fl_mixer_block *block) {
    size_t sinks = block->mixer->plan.variant->sinks;
    size_t left = sinks > block->first ? sinks - block->first : 0;
    return left < block->tokens ? left : block->tokens;
}

fl_prepare_call fl_mixer_prepare_call(const fl_mixer_block *block) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_scratch *scratch = block->scratch;
    bool convolved = plan->variant->conv_kernel > 0;
    /* The current token is, or may be, exact where there is a window or a cache, and no bonus is added. */
    bool inexact = plan->variant->window == 0 && plan->variant->cache_budget == 0;
    size_t sinks = sinks_of(block);
    fl_prepare_call call = {.rule = &plan->rule_layer,
                            .own = plan->own,
                            .tokens = block->tokens,
                            .first_position = block->first,
                            .key_heads = convolved ? plan->shape.query_heads : plan->shape.kv_heads,
                            .query = convolved ? scratch->convolved[0] : block->query,
                            .key = convolved ? scratch->convolved[1] : block->key,
                            .value = convolved ? scratch->convolved[2] : block->value,
                            .gate_width = plan->projections[FL_PROJECT_GATE].width,
                            .scale = (float)plan->variant->scale,
                            .normaliser = plan->variant->normaliser,
                            .layout = plan->layout,
                            .read = scratch->query,
                            .written = block->stream,
                            .first_row = block->margin,
                            .null_tokens = sinks,
                            .bonus_from = inexact ? sinks : block->tokens,
                            .bonus = scratch->bonus};
    fl_array projected[FL_PROJECTIONS] = {NULL};
    for (size_t i = 0; i < plan->projection_count; i++) {
        if (plan->projections[i].width > 0) projected[i] = scratch->projected[i];
    }
    call.gate = projected[FL_PROJECT_GATE];
    call.beta = projected[FL_PROJECT_BETA];
    for (size_t i = 0; i < plan->rule->factor_count; i++) {
        call.factors[i] = projected[FL_PROJECT_FACTORS + i];
        call.factor_width[i] = plan->projections[FL_PROJECT_FACTORS + i].width;
    }
    return call;
}

fl_own_steps_call fl_mixer_own_steps_call(const fl_mixer_block *block, size_t first, size_t count) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_scratch *scratch = block->scratch;
    const size_t entries = plan->shape.kv_heads * block->tokens;
    const fl_array positions = fl_array_from(scratch->decisions, entries);
    if (fl_array_is(positions))
        plan->compute->ops->upload(plan->compute, positions, scratch->written, entries);
    return (fl_own_steps_call){.rule = &plan->rule_layer,
                               .state_floats = plan->state_floats,
                               .tokens = block->tokens,
                               .first_position = block->first,
                               .first_step = first,
                               .steps = count,
                               .scale = (float)plan->variant->scale,
                               .layout = plan->layout,
                               .query = scratch->query,
                               .written = block->stream,
                               .delay = plan->delay,
                               .sinks = plan->variant->sinks,
                               .kv_heads = plan->shape.kv_heads,
                               .positions = positions,
                               .state = block->mixer->state,
                               .output = scratch->read,
                               .state_norm = block->wants_norm ? scratch->norm : fl_array_none};
}

/* `count` writes from the stream to what waits or back. Those of positions p, p + 1, ... lie in rows p %
 * delay, ... of what waits: one piece, or two around its end. */
typedef enum fl_waiting_direction { TO_STREAM, TO_PENDING } fl_waiting_direction;

static void move_waiting(const fl_mixer_block *block, fl_waiting_direction direction, size_t stream_row) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_write_rows *pending = &block->mixer->pending;
    size_t position = block->first + (direction == TO_STREAM ? 0 : block->tokens - block->margin);
    for (size_t done = 0; done < block->margin;) {
        size_t row = (position + done) % plan->delay, left = block->margin - done;
        size_t count = plan->delay - row < left ? plan->delay - row : left;
        if (direction == TO_STREAM)
            fl_write_rows_copy(plan->compute, &plan->layout, &block->stream, stream_row + done, pending, row,
                               count);
        else
            fl_write_rows_copy(plan->compute, &plan->layout, pending, row, &block->stream, stream_row + done,
                               count);
        done += count;
    }
}

void fl_mixer_prepare(fl_mixer_block *block) {
    fl_compute *compute = block->mixer->plan.compute;
    fl_mixer_project(block);
    convolve(block);
    fl_prepare_call call = fl_mixer_prepare_call(block);
    compute->ops->prepare(compute, &call);
    move_waiting(block, TO_STREAM, 0);
    move_waiting(block, TO_PENDING, block->tokens);
}
