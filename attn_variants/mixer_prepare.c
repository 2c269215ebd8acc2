#include <string.h>

#include "attn_variants/mixer_gates.h"
#include "attn_variants/mixer_parts.h"

enum { PREPARE_BLOCK = 32 }; /* tokens of one head that a worker prepares at a time */

size_t fl_mixer_leaving(const fl_mixer_plan *plan, size_t position) {
    size_t delay = plan->delay, sinks = plan->variant->sinks;
    if (position < delay || position - delay < sinks) return FL_POSITION_NONE;
    return position - delay;
}

/* Convolution. */

static void convolve(const fl_mixer_block *block) {
    fl_mixer *mixer = block->mixer;
    const fl_mixer_plan *plan = &mixer->plan;
    const float *inputs[3] = {block->query, block->key, block->value};
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

/* Prepare. */

fl_rule_input fl_mixer_rule_input(const fl_mixer_block *block, size_t head, size_t token) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_scratch *scratch = block->scratch;
    size_t heads = plan->shape.query_heads, head_dim = plan->shape.head_dim;
    size_t of_query = (token * heads + head) * head_dim;
    size_t of_key = (token * plan->shape.kv_heads + head / plan->group) * head_dim;
    bool convolved = plan->variant->conv_kernel > 0;
    fl_rule_input input = fl_mixer_head_input(plan, head);
    input.position = block->first + token;
    input.query = convolved ? scratch->convolved[0] + of_query : block->query + of_query;
    input.key = convolved ? scratch->convolved[1] + of_query : block->key + of_key;
    input.value = convolved ? scratch->convolved[2] + of_query : block->value + of_key;
    const float *projected[FL_PROJECTIONS] = {NULL};
    for (size_t i = 0; i < plan->projection_count; i++) {
        size_t width = plan->projections[i].width;
        if (width > 0) projected[i] = scratch->projected[i] + (token * heads + head) * width;
    }
    input.gate = projected[FL_PROJECT_GATE];
    if (projected[FL_PROJECT_BETA] != NULL) input.beta = projected[FL_PROJECT_BETA][0];
    memcpy(input.factors, projected + FL_PROJECT_FACTORS, sizeof input.factors);
    return input;
}

/* A rule with own hooks keeps its inputs until they are written. */
static void keep_inputs(const fl_mixer_plan *plan, const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_raw_inputs(input, output);
    if (output->log_decay != NULL)
        memcpy(output->log_decay, input->gate, plan->projections[FL_PROJECT_GATE].width * sizeof(float));
    if (output->erase_strength != NULL) output->erase_strength[0] = input->beta;
    for (size_t i = 0; i < plan->rule->factor_count; i++) {
        size_t width = plan->projections[FL_PROJECT_FACTORS + i].width;
        if (width > 0) memcpy(output->factors[i], input->factors[i], width * sizeof(float));
    }
}

/* Where token `token` of the block is put: the stream row of the step at which it leaves the window, or the
 * row in which it waits beyond this block; sinks are never written. */
static fl_rule_output target_of(const fl_mixer_block *block, size_t head, size_t token, size_t worker) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    size_t position = block->first + token, delay = plan->delay;
    if (position < plan->variant->sinks)
        return fl_write_row_output(&block->unused_layout, &block->unused, worker, 0);
    if (token + delay < block->tokens)
        return fl_write_row_output(&plan->layout, &block->stream, head, token + delay);
    return fl_write_row_output(&plan->layout, &block->mixer->pending, head, position % delay);
}

/* Whether the current token's read gets the rule's bonus: not where the token is exact. */
bool fl_mixer_has_bonus(const fl_mixer_block *block, size_t token) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    return plan->rule->bonus && plan->variant->window == 0 && plan->variant->cache_budget == 0 &&
           block->first + token >= plan->variant->sinks;
}

static void prepare_token(const fl_mixer_block *block, size_t head, size_t token, size_t worker) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    fl_rule_input input = fl_mixer_rule_input(block, head, token);
    fl_rule_output output = target_of(block, head, token, worker);
    size_t row = plan->micro_steps * plan->key_dim;
    float *query = block->scratch->query + (head * block->tokens + token) * row;
    if (plan->micro_steps > 1) memset(query, 0, (row - plan->key_dim) * sizeof *query);
    output.query = query + row - plan->key_dim;
    if (plan->rule->bonus)
        output.bonus =
            block->scratch->bonus + (token * plan->shape.query_heads + head) * plan->shape.head_dim;
    float scale = (float)plan->variant->scale;
    if (plan->own) {
        keep_inputs(plan, &input, &output);
        if (output.bonus != NULL) plan->rule->own.bonus(&input, output.bonus);
    } else {
        plan->rule->prepare(&input, &output);
        if (plan->variant->normaliser) output.value[plan->value_dim - 1] = 1.0f;
        for (size_t i = 0; scale != 1.0f && i < plan->key_dim; i++) output.query[i] *= scale;
    }
    float kept = fl_mixer_has_bonus(block, token) ? scale : 0.0f;
    for (size_t i = 0; output.bonus != NULL && i < plan->shape.head_dim; i++) output.bonus[i] *= kept;
}

static void prepare_item(void *argument, size_t item, size_t worker) {
    const fl_mixer_block *block = argument;
    size_t heads = block->mixer->plan.shape.query_heads;
    size_t first = item / heads * PREPARE_BLOCK;
    size_t end = first + PREPARE_BLOCK < block->tokens ? first + PREPARE_BLOCK : block->tokens;
    for (size_t token = first; token < end; token++) prepare_token(block, item % heads, token, worker);
}

/* The stream rows that this block's own tokens do not fill: tokens that waited, and null writes. */
static void release_waiting(void *argument, size_t head, size_t worker) {
    (void)worker;
    const fl_mixer_block *block = argument;
    const fl_mixer_plan *plan = &block->mixer->plan;
    size_t delay = plan->delay;
    for (size_t step = 0; step < block->tokens; step++) {
        size_t leaving = fl_mixer_leaving(plan, block->first + step);
        if (leaving == FL_POSITION_NONE) {
            fl_write_row_clear(&plan->layout, &block->stream, head, step);
        } else if (leaving < block->first) {
            fl_write_row_copy(&plan->layout, &block->stream, step, &block->mixer->pending, leaving % delay,
                              head);
        }
    }
}

void fl_mixer_prepare(fl_mixer_block *block) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    size_t heads = plan->shape.query_heads;
    fl_mixer_project(block);
    convolve(block);
    fl_threads_for(plan->compute->threads, heads, release_waiting, block);
    size_t items = heads * ((block->tokens + PREPARE_BLOCK - 1) / PREPARE_BLOCK);
    fl_threads_for(plan->compute->threads, items, prepare_item, block);
}
