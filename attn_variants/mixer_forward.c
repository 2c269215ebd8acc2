/* One call, in blocks of bounded size: exact set, streams, routing, recurrence, merge. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "attn_variants/mixer_parts.h"
#include "harness/base/memory.h"
#include "harness/compute/vector_math.h"

enum { LARGEST_BLOCK = 512, SMALLEST_BLOCK = 16, SCRATCH_FLOATS = 1 << 24 };

/* Scratch. */

typedef struct fl_carver {
    fl_array base; /* NULL: only count */
    size_t used;   /* floats */
} fl_carver;

static fl_array carve_floats(fl_carver *carver, size_t count) {
    enum { STEP = FL_MEMORY_ALIGNMENT / sizeof(float) };
    fl_array piece = !fl_array_is(carver->base) ? fl_array_none : fl_array_from(carver->base, carver->used);
    carver->used += (count + STEP - 1) / STEP * STEP;
    return piece;
}

static size_t floats_per_token(const fl_mixer_plan *plan) {
    size_t heads = plan->shape.query_heads;
    if (!plan->linear) return heads * plan->shape.head_dim;
    size_t projected = 0;
    for (size_t i = 0; i < plan->projection_count; i++)
        projected += i == FL_PROJECT_BETA ? 0 : plan->projections[i].width;
    return heads * (5 * plan->shape.head_dim + projected + 2 * plan->layout.row_floats +
                    2 * plan->micro_steps * (plan->key_dim + plan->value_dim));
}

/* Writes that wait across the end of a block. */
static size_t margin_of(const fl_mixer_plan *plan, size_t tokens) {
    return plan->delay < tokens ? plan->delay : tokens;
}

static void carve_linear(const fl_mixer_plan *plan, fl_mixer_scratch *scratch, fl_carver *carver) {
    size_t tokens = scratch->block, heads = plan->shape.query_heads, micro = plan->micro_steps;
    size_t channels = heads * plan->shape.head_dim;
    size_t steps = heads * tokens * micro;
    for (size_t i = 0; i < plan->projection_count; i++) {
        scratch->projected[i] = carve_floats(carver, tokens * heads * plan->projections[i].width);
        scratch->low[i] = carve_floats(carver, tokens * plan->projections[i].rank);
    }
    scratch->bonus = plan->rule->bonus ? carve_floats(carver, tokens * channels) : fl_array_none;
    if (plan->variant->conv_kernel > 0) {
        for (size_t i = 0; i < 3; i++) scratch->convolved[i] = carve_floats(carver, tokens * channels);
        scratch->taps = carve_floats(carver, plan->variant->conv_kernel * channels);
    }
    scratch->query = carve_floats(carver, steps * plan->key_dim);
    scratch->read = carve_floats(carver, steps * plan->value_dim);
    scratch->norm = carve_floats(carver, steps);
    scratch->stream_block =
        carve_floats(carver, fl_write_rows_floats(&plan->layout, tokens + margin_of(plan, tokens)));
}

static void carve_scratch(const fl_mixer_plan *plan, fl_mixer_scratch *scratch, fl_carver *carver) {
    size_t tokens = scratch->block, heads = plan->shape.query_heads;
    if (plan->linear) carve_linear(plan, scratch, carver);
    scratch->exact = carve_floats(carver, tokens * heads * plan->shape.head_dim);
    scratch->log_sum_exp = carve_floats(carver, tokens * heads);
    scratch->largest = carve_floats(carver, tokens * heads);
}

static size_t block_for(const fl_mixer_plan *plan, size_t tokens) {
    size_t block = SCRATCH_FLOATS / floats_per_token(plan);
    block = block < SMALLEST_BLOCK ? SMALLEST_BLOCK : block > LARGEST_BLOCK ? LARGEST_BLOCK : block;
    return tokens < block ? tokens : block;
}

/* Lays the scratch out; returns the floats it takes. */
static size_t scratch_plan(const fl_mixer_plan *plan, size_t block, fl_mixer_scratch *scratch) {
    *scratch = (fl_mixer_scratch){.block = block};
    fl_carver carver = {fl_array_none, 0};
    carve_scratch(plan, scratch, &carver);
    return carver.used;
}

static size_t host_bytes(const fl_mixer_plan *plan, size_t block) {
    return block * plan->shape.kv_heads * 2 * sizeof(int32_t);
}

/* Plans the scratch and finds memory for it, which fl_mixer_scratch_release gives back, also after a failure.
 */
static fl_status scratch_create(const fl_mixer_plan *plan, size_t block, fl_mixer_scratch *scratch,
                                fl_lent_memory *lent, fl_error *error) {
    size_t floats = scratch_plan(plan, block, scratch), entries = block * plan->shape.kv_heads;
    FL_TRY(fl_compute_lend(plan->compute, floats, lent, error));
    fl_carver carver = {lent->memory, 0};
    carve_scratch(plan, scratch, &carver);
    FL_TRY(fl_memory_allocate(&scratch->host, host_bytes(plan, block), 1, error));
    scratch->slots = scratch->host;
    scratch->written = scratch->slots + entries;
    if (plan->variant->cache_budget == 0) return FL_OK;
    return plan->compute->ops->allocate(plan->compute, 2 * entries, FL_INT32, &scratch->decisions, error);
}

void fl_mixer_scratch_release(fl_compute *compute, fl_mixer_scratch *scratch, fl_lent_memory lent) {
    fl_compute_take_back(compute, lent);
    fl_compute_release(compute, scratch->decisions);
    fl_memory_free(scratch->host);
}

/* Recurrence. */

fl_status fl_mixer_advance(fl_mixer_block *block, size_t first, size_t count, fl_error *error) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_scratch *scratch = block->scratch;
    size_t micro = plan->micro_steps;
    if (count == 0) return FL_OK;
    if (plan->own) {
        fl_own_steps_call own = fl_mixer_own_steps_call(block, first, count);
        plan->compute->ops->own_steps(plan->compute, &own);
        return FL_OK;
    }
    fl_recurrence_call call = {
        .transition = plan->variant->transition,
        .mode = block->mode,
        .heads = plan->shape.query_heads,
        .steps = count * micro,
        .key_dim = plan->key_dim,
        .value_dim = plan->value_dim,
        .rows = {.read = block->tokens * micro, .write = block->stream.rows * micro},
        .inputs = fl_write_rows_inputs(&plan->layout, &block->stream, first,
                                       fl_array_from(scratch->query, first * micro * plan->key_dim)),
        .state = block->mixer->state,
        .output = fl_array_from(scratch->read, first * micro * plan->value_dim),
        .state_norm = block->wants_norm ? fl_array_from(scratch->norm, first * micro) : fl_array_none,
        .norm_values = plan->shape.head_dim, /* without the normaliser's row */
    };
    return plan->compute->ops->recurrence(plan->compute, &call, error);
}

/* Block. */

static fl_status append_exact(fl_mixer_block *block, fl_error *error) {
    fl_exact_set *set = &block->mixer->exact;
    FL_TRY(fl_exact_set_reserve(set, block->tokens, block->first, error));
    fl_exact_set_append(set, block->tokens, block->first, block->key, block->value);
    return FL_OK;
}

fl_attention_call fl_mixer_attention_call(const fl_mixer_block *block) {
    fl_attention_call call = {.shape = block->mixer->plan.shape,
                              .tokens = block->tokens,
                              .first_position = block->first,
                              .query = block->query,
                              .output = block->scratch->exact,
                              .log_sum_exp = block->scratch->log_sum_exp};
    fl_exact_set_describe(&block->mixer->exact, &call);
    return call;
}

static void attend(fl_mixer_block *block) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    bool by_mass = plan->variant->cache_budget > 0 && plan->route == FL_ROUTE_ATTENTION_MASS;
    bool known = by_mass || block->exact_known; /* by_mass: done while routing */
    bool largest = plan->variant->merge == FL_MERGE_LOLCATS;
    if (known && !largest) return;
    fl_attention_call call = fl_mixer_attention_call(block);
    if (known) call.output = call.log_sum_exp = fl_array_none;
    call.largest = largest ? block->scratch->largest : fl_array_none;
    plan->compute->ops->attention(plan->compute, &call);
}

fl_merge_call fl_mixer_merge_call(const fl_mixer_block *block) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_scratch *scratch = block->scratch;
    size_t token_row = plan->micro_steps * plan->value_dim;
    return (fl_merge_call){
        .merge = plan->variant->merge,
        .normaliser = plan->variant->normaliser,
        .tokens = block->tokens,
        .heads = plan->shape.query_heads,
        .head_dim = plan->shape.head_dim,
        .value_dim = plan->value_dim,
        .read_stride = token_row,
        .read_head_stride = block->tokens * token_row,
        .read = plan->linear ? fl_array_from(scratch->read, token_row - plan->value_dim) : fl_array_none,
        .exact = plan->exact ? scratch->exact : fl_array_none,
        .log_sum_exp = scratch->log_sum_exp,
        .largest = scratch->largest,
        .window_factor = plan->window_factor.values,
        .output = block->output,
    };
}

static void log_leaving(const fl_mixer_block *block) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    for (size_t kv_head = 0; kv_head < plan->shape.kv_heads; kv_head++) {
        for (size_t step = 0; step < block->tokens; step++) {
            block->scratch->written[kv_head * block->tokens + step] =
                fl_mixer_leaving(plan, block->first + step);
        }
    }
}

static void add_bonus(const fl_mixer_block *block) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    if (!plan->linear || !plan->rule->bonus) return;
    fl_merge_call merge = fl_mixer_merge_call(block);
    fl_prepare_call prepare = fl_mixer_prepare_call(block);
    fl_bonus_call call = {.tokens = block->tokens,
                          .heads = plan->shape.query_heads,
                          .value_heads = prepare.key_heads,
                          .head_dim = plan->shape.head_dim,
                          .bonus = block->scratch->bonus,
                          .value = prepare.value,
                          .read = fl_array_from(block->scratch->read, merge.read_stride - plan->value_dim),
                          .read_stride = merge.read_stride,
                          .read_head_stride = merge.read_head_stride};
    plan->compute->ops->add_bonus(plan->compute, &call);
}

/* All of a block but the merge; with the softmax over the exact set and the reads, or without them where
 * routing does not need them. */
static fl_status compute_block(fl_mixer_block *block, bool exact, bool reads, fl_error *error) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    bool caches = plan->variant->cache_budget > 0;
    if (plan->exact) FL_TRY(append_exact(block, error));
    if (plan->linear) fl_mixer_prepare(block);
    if (caches) {
        FL_TRY(fl_mixer_route(block, error));
    } else {
        log_leaving(block);
    }
    if (plan->exact && exact) attend(block);
    bool advanced = caches && plan->route == FL_ROUTE_SELF_RECALL;
    if (plan->linear && reads && !advanced) FL_TRY(fl_mixer_advance(block, 0, block->tokens, error));
    if (reads) add_bonus(block);
    return FL_OK;
}

static fl_status forward_block(fl_mixer_block *block, fl_error *error) {
    fl_mixer *mixer = block->mixer;
    FL_TRY(compute_block(block, true, true, error));
    fl_merge_call merge = fl_mixer_merge_call(block);
    mixer->plan.compute->ops->merge(mixer->plan.compute, &merge);
    for (size_t step = 0; mixer->plan.linear && step < block->tokens; step++) {
        mixer->tokens_written += block->scratch->written[step] >= 0;
    }
    mixer->position += block->tokens;
    return FL_OK;
}

/* What the caller asked to see of a block that starts at token `at` of the call. */
static void hand_over(const fl_mixer_block *block, const fl_mixer_call *call, size_t at) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    size_t micro = plan->micro_steps, tokens = block->tokens;
    for (size_t head = 0; fl_array_is(call->state_norm) && head < plan->shape.query_heads; head++) {
        fl_array to = fl_array_from(call->state_norm, head * call->tokens + at);
        if (!plan->linear) fl_compute_fill(plan->compute, to, tokens, 0.0);
        if (!plan->linear) continue;
        fl_array last = fl_array_from(block->scratch->norm, head * tokens * micro + micro - 1);
        fl_compute_copy_rows(plan->compute, to, 1, last, micro, tokens, 1);
    }
    const fl_array asked[FL_PROJECT_FACTORS] = {call->gate, call->beta};
    for (size_t i = 0; plan->linear && i < FL_PROJECT_FACTORS; i++) {
        size_t columns = plan->shape.query_heads * plan->projections[i].width;
        if (!fl_array_is(asked[i]) || columns == 0) continue;
        fl_compute_copy(plan->compute, fl_array_from(asked[i], at * columns), block->scratch->projected[i],
                        tokens * columns);
    }
    for (size_t kv_head = 0; call->written != NULL && kv_head < plan->shape.kv_heads; kv_head++) {
        memcpy(call->written + kv_head * call->tokens + at, block->scratch->written + kv_head * tokens,
               tokens * sizeof *call->written);
    }
}

/* Tokens at .. at + tokens - 1 of a call. */
static fl_mixer_block block_of(fl_mixer *mixer, const fl_mixer_call *call, const fl_mixer_scratch *scratch,
                               size_t at, size_t tokens) {
    const fl_mixer_plan *plan = &mixer->plan;
    size_t query_row = plan->shape.query_heads * plan->shape.head_dim;
    size_t key_row = plan->shape.kv_heads * plan->shape.head_dim;
    fl_mixer_block block = {
        .mixer = mixer,
        .scratch = scratch,
        .tokens = tokens,
        .first = mixer->position,
        .query = fl_array_from(call->query, at * query_row),
        .key = fl_array_from(call->key, at * key_row),
        .value = fl_array_from(call->value, at * key_row),
        .input = !fl_array_is(call->input) ? fl_array_none
                                           : fl_array_from(call->input, at * plan->shape.model_dim),
        .initial_state = call->initial_state,
        .output = !fl_array_is(call->output) ? fl_array_none : fl_array_from(call->output, at * query_row),
        .wants_norm = plan->linear && fl_array_is(call->state_norm),
        .exact_known = call->exact != NULL && call->exact->filled,
        .mode = call->mode};
    if (!plan->linear) return block;
    block.margin = margin_of(plan, tokens);
    block.stream = fl_write_rows_in(&plan->layout, block.margin + tokens, scratch->stream_block);
    return block;
}

/* The softmax over the exact set of tokens at, at + 1, ... of a call lies in what is shared, if anything is.
 */
static void use_share(const fl_mixer_plan *plan, const fl_exact_share *share, size_t at,
                      fl_mixer_scratch *scratch) {
    if (share == NULL) return;
    assert(fl_variant_shares_exact_set(plan->variant, plan->variant));
    scratch->exact = fl_array_from(share->output, at * plan->shape.query_heads * plan->shape.head_dim);
    scratch->log_sum_exp = fl_array_from(share->log_sum_exp, at * plan->shape.query_heads);
}

fl_status fl_mixer_forward(fl_mixer *mixer, const fl_mixer_call *call, fl_error *error) {
    fl_mixer_begin(mixer, call->initial_state);
    if (call->tokens == 0) return FL_OK;
    fl_mixer_scratch scratch;
    fl_exact_share *share = call->exact;
    fl_lent_memory lent = {0};
    fl_status status =
        scratch_create(&mixer->plan, block_for(&mixer->plan, call->tokens), &scratch, &lent, error);
    for (size_t at = 0; at < call->tokens && status == FL_OK; at += scratch.block) {
        size_t left = call->tokens - at;
        use_share(&mixer->plan, share, at, &scratch);
        fl_mixer_block block =
            block_of(mixer, call, &scratch, at, left < scratch.block ? left : scratch.block);
        status = forward_block(&block, error);
        if (status == FL_OK) hand_over(&block, call, at);
    }
    if (share != NULL && status == FL_OK) share->filled = true;
    fl_mixer_scratch_release(mixer->plan.compute, &scratch, lent);
    return status;
}

size_t fl_mixer_replay_bytes(const fl_mixer_plan *plan, size_t tokens) {
    fl_mixer_scratch scratch = {.block = tokens};
    fl_carver carver = {fl_array_none, 0};
    carve_scratch(plan, &scratch, &carver);
    return carver.used * sizeof(float) + host_bytes(plan, tokens);
}

fl_status fl_mixer_replay(fl_mixer *mixer, const fl_mixer_call *call, bool results, fl_lent_memory *lent,
                          fl_mixer_scratch *scratch, fl_mixer_block *block, fl_error *error) {
    assert(mixer->position == 0);
    fl_mixer_begin(mixer, call->initial_state);
    FL_TRY(scratch_create(&mixer->plan, call->tokens, scratch, lent, error));
    fl_mixer_call inputs = *call;
    inputs.output = fl_array_none;
    inputs.state_norm = fl_array_none;
    use_share(&mixer->plan, call->exact, 0, scratch);
    *block = block_of(mixer, &inputs, scratch, 0, call->tokens);
    fl_status status = compute_block(block, results || call->exact != NULL, results, error);
    if (status == FL_OK && call->exact != NULL) call->exact->filled = true;
    return status;
}
