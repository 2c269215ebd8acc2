/* Routed cache: operations ask the rows, the host decides, and the rows of the tokens that leave pass through
 * the cache. */

#include "attn_variants/mixer_parts.h"
#include "harness/base/memory.h"

/* What a decision means outside the rows: who is visible from now on, and what is logged. */
static void settle(const fl_mixer_block *block, size_t kv_head, size_t step, fl_route_step decision) {
    size_t at = kv_head * block->tokens + step;
    bool writes = decision.written != FL_POSITION_NONE;
    bool exchanged = decision.action == FL_ROUTE_FILLED || decision.action == FL_ROUTE_REPLACED;
    block->scratch->slots[at] = exchanged ? (int32_t)decision.slot : -1;
    block->scratch->written[at] = writes ? (int32_t)decision.written : -1;
    if (writes) fl_exact_set_expire(&block->mixer->exact, kv_head, decision.written, block->first + step);
}

static const fl_route_step NOTHING_LEAVES = {FL_ROUTE_NOTHING, 0, FL_POSITION_NONE};

static void exchange(const fl_mixer_block *block, size_t first, size_t count) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_scratch *scratch = block->scratch;
    plan->compute->ops->upload(plan->compute, scratch->decisions, scratch->slots,
                               plan->shape.kv_heads * block->tokens);
    fl_exchange_call call = {.layout = plan->layout,
                             .stream = block->stream,
                             .cached = block->mixer->cached,
                             .tokens = block->tokens,
                             .kv_heads = plan->shape.kv_heads,
                             .first_step = first,
                             .steps = count,
                             .slots = scratch->decisions};
    plan->compute->ops->exchange_rows(plan->compute, &call);
}

/* Scores that belong to the token. */

/* The first step at which a token leaves. */
static size_t first_leaving(const fl_mixer_block *block) {
    size_t step = 0;
    while (step < block->tokens && fl_mixer_leaving(&block->mixer->plan, block->first + step) < 0) step++;
    return step;
}

/* lengths [Hkv][count] of the keys or values that leave at the block's last `count` steps. All that came
 * after them is still there, so they lie together, before the window and the block's own tokens that have not
 * left. */
static fl_status find_lengths(const fl_mixer_block *block, size_t count, double *lengths, fl_error *error) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_exact_set *set = &block->mixer->exact;
    fl_compute *compute = plan->compute;
    size_t heads = plan->shape.kv_heads, dim = plan->shape.head_dim;
    size_t first = set->count - plan->delay - count;
    fl_array rows = plan->route == FL_ROUTE_KEY_NORM ? fl_key_value_rows_key(&set->rows, first)
                                                     : fl_key_value_rows_value(&set->rows, first);
    fl_array found;
    FL_TRY(compute->ops->allocate(compute, heads * count, FL_FLOAT64, &found, error));
    compute->ops->row_lengths(compute, heads, count, dim, rows, fl_key_value_rows_stride(&set->rows), found);
    fl_status status = compute->ops->download(compute, lengths, found, heads * count, error);
    compute->ops->release(compute, found);
    return status;
}

static void decide_by_score(const fl_mixer_block *block, size_t kv_head, const double *lengths) {
    fl_mixer *mixer = block->mixer;
    const fl_mixer_plan *plan = &mixer->plan;
    size_t quiet = first_leaving(block);
    for (size_t step = 0; step < block->tokens; step++) {
        if (step < quiet) {
            settle(block, kv_head, step, NOTHING_LEAVES);
            continue;
        }
        size_t leaving = (size_t)fl_mixer_leaving(plan, block->first + step);
        double length = lengths[kv_head * (block->tokens - quiet) + step - quiet];
        double score =
            fl_route_static_score(plan->route, plan->variant->seed, plan->layer, kv_head, leaving, length);
        settle(block, kv_head, step, fl_routed_cache_offer(&mixer->cache, kv_head, leaving, score));
    }
}

static fl_status route_by_score(const fl_mixer_block *block, fl_error *error) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    size_t count = block->tokens - first_leaving(block), heads = plan->shape.kv_heads;
    bool measured = plan->route == FL_ROUTE_KEY_NORM || plan->route == FL_ROUTE_VALUE_NORM;
    double *lengths = NULL;
    FL_TRY(FL_ALLOCATE(&lengths, heads * count, error));
    fl_status status = measured && count > 0 ? find_lengths(block, count, lengths, error) : FL_OK;
    for (size_t i = 0; i < heads && status == FL_OK; i++) decide_by_score(block, i, lengths);
    fl_memory_free(lengths);
    return status;
}

/* Attention mass. */

typedef struct fl_mass_work {
    const fl_mixer_block *block;
    fl_array weights; /* [H][keys], of the instance */
    float *given;     /* the same, of the host */
    double *scores;   /* [budget] */
} fl_mass_work;

static void decide_by_mass(const fl_mass_work *work, size_t kv_head, size_t step) {
    fl_mixer *mixer = work->block->mixer;
    int32_t left = fl_mixer_leaving(&mixer->plan, work->block->first + step);
    size_t leaving = (size_t)left;
    if (left < 0) {
        settle(work->block, kv_head, step, NOTHING_LEAVES);
    } else if (!fl_routed_cache_full(&mixer->cache, kv_head)) {
        settle(work->block, kv_head, step, fl_routed_cache_fill(&mixer->cache, kv_head, leaving));
    } else {
        const double *mass = mixer->exact.mass + kv_head * mixer->exact.rows.capacity;
        for (size_t slot = 0; slot < mixer->cache.budget; slot++) {
            size_t position = mixer->cache.position[kv_head * mixer->cache.budget + slot];
            work->scores[slot] = mass[fl_exact_set_find(&mixer->exact, kv_head, position)];
        }
        double of_leaving = mass[fl_exact_set_find(&mixer->exact, kv_head, leaving)];
        settle(work->block, kv_head, step,
               fl_routed_cache_choose(&mixer->cache, kv_head, leaving, work->scores, of_leaving));
    }
}

/* Attention at one step over the `count` entries that exist, adding what every key receives to its mass. */
static fl_status attend(const fl_mass_work *work, size_t step, size_t count, fl_error *error) {
    const fl_mixer_block *block = work->block;
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_exact_set *set = &block->mixer->exact;
    fl_compute *compute = plan->compute;
    size_t heads = plan->shape.query_heads, dim = plan->shape.head_dim;
    fl_token_attention_call call = {.shape = plan->shape,
                                    .position = block->first + step,
                                    .query = fl_array_from(block->query, step * heads * dim),
                                    .keys = count,
                                    .key = set->rows.key,
                                    .value = set->rows.value,
                                    .key_head_stride = fl_key_value_rows_stride(&set->rows),
                                    .weights = work->weights,
                                    .output = fl_array_from(block->scratch->exact, step * heads * dim),
                                    .log_sum_exp = fl_array_from(block->scratch->log_sum_exp, step * heads)};
    fl_array positions;
    fl_exact_set_lifetimes(set, &positions, &call.expiry);
    call.expiry_head_stride = set->count;
    compute->ops->token_attention(compute, &call);
    FL_TRY(compute->ops->download(compute, work->given, work->weights, heads * count, error));
    for (size_t head = 0; head < heads; head++) {
        double *mass = set->mass + head / plan->group * set->rows.capacity;
        for (size_t i = 0; i < count; i++)
            mass[i] += (double)work->given[head * count + i] / (double)plan->group;
    }
    return FL_OK;
}

static fl_status route_by_mass(const fl_mixer_block *block, fl_error *error) {
    const fl_mixer *mixer = block->mixer;
    const fl_mixer_plan *plan = &mixer->plan;
    size_t before = mixer->exact.count - block->tokens,
           weights = plan->shape.query_heads * mixer->exact.count;
    fl_mass_work work = {block, fl_array_none, NULL, NULL};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_compute_floats(plan->compute, weights, &work.weights, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&work.given, weights, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&work.scores, mixer->cache.budget, error));
    for (size_t step = 0; step < block->tokens; step++) {
        for (size_t i = 0; i < plan->shape.kv_heads; i++) decide_by_mass(&work, i, step);
        FL_TRY_DONE(status, attend(&work, step, before + step + 1, error));
    }
done:
    fl_compute_release(plan->compute, work.weights);
    fl_memory_free(work.given);
    fl_memory_free(work.scores);
    return status;
}

/* Self recall. */

typedef struct fl_recall_work {
    fl_mixer_block *block;
    fl_array read;   /* [H][(budget + 1) * m][Dv], of the instance */
    fl_array errors; /* [H][budget + 1] float64 */
    double *scores;  /* the same, of the host; the last is the leaving token's */
} fl_recall_work;

/* The mean over each KV head's group, in the place of its first query head. */
static fl_status score_by_recall(fl_recall_work *work, size_t step, fl_error *error) {
    const fl_mixer *mixer = work->block->mixer;
    const fl_mixer_plan *plan = &mixer->plan;
    fl_compute *compute = plan->compute;
    size_t candidates = mixer->cache.budget + 1, heads = plan->shape.query_heads;
    fl_write_rows_copy(compute, &plan->layout, &mixer->cached, mixer->cache.budget, &work->block->stream,
                       step, 1);
    fl_recall_call call = {.rule = &plan->rule_layer,
                           .own = plan->own,
                           .normaliser = plan->variant->normaliser,
                           .state_floats = plan->state_floats,
                           .kv_heads = plan->shape.kv_heads,
                           .candidates = candidates,
                           .layout = plan->layout,
                           .cached = mixer->cached,
                           .state = mixer->state,
                           .read = work->read,
                           .errors = work->errors};
    compute->ops->recall_errors(compute, &call);
    FL_TRY(compute->ops->download(compute, work->scores, work->errors, heads * candidates, error));
    for (size_t head = 0; head < heads; head++) {
        if (head % plan->group == 0) continue;
        double *sum = work->scores + head / plan->group * plan->group * candidates;
        for (size_t slot = 0; slot < candidates; slot++) sum[slot] += work->scores[head * candidates + slot];
    }
    return FL_OK;
}

static fl_status decide_by_recall(fl_recall_work *work, size_t step, size_t leaving, fl_error *error) {
    fl_mixer *mixer = work->block->mixer;
    size_t candidates = mixer->cache.budget + 1;
    bool full = fl_routed_cache_full(&mixer->cache, 0);
    if (full) FL_TRY(score_by_recall(work, step, error));
    for (size_t kv_head = 0; kv_head < mixer->plan.shape.kv_heads; kv_head++) {
        const double *scores = work->scores + kv_head * mixer->plan.group * candidates;
        settle(work->block, kv_head, step,
               full ? fl_routed_cache_choose(&mixer->cache, kv_head, leaving, scores, scores[candidates - 1])
                    : fl_routed_cache_fill(&mixer->cache, kv_head, leaving));
    }
    exchange(work->block, step, 1);
    return FL_OK;
}

static fl_status recall_steps(fl_recall_work *work, fl_error *error) {
    fl_mixer_block *block = work->block;
    const fl_mixer_plan *plan = &block->mixer->plan;
    size_t advanced = 0;
    for (size_t step = 0; step < block->tokens; step++) {
        int32_t leaving = fl_mixer_leaving(plan, block->first + step);
        if (leaving < 0) {
            for (size_t i = 0; i < plan->shape.kv_heads; i++) settle(block, i, step, NOTHING_LEAVES);
            continue;
        }
        if (fl_routed_cache_full(&block->mixer->cache, 0)) {
            FL_TRY(fl_mixer_advance(block, advanced, step - advanced, error));
            advanced = step;
        }
        FL_TRY(decide_by_recall(work, step, (size_t)leaving, error));
    }
    return fl_mixer_advance(block, advanced, block->tokens - advanced, error);
}

static fl_status route_by_recall(fl_mixer_block *block, fl_error *error) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    fl_compute *compute = plan->compute;
    size_t candidates = block->mixer->cache.budget + 1, heads = plan->shape.query_heads;
    size_t reads = heads * candidates * plan->micro_steps * plan->value_dim;
    fl_recall_work work = {.block = block};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_compute_floats(compute, reads, &work.read, error));
    FL_TRY_DONE(status, compute->ops->allocate(compute, heads * candidates, FL_FLOAT64, &work.errors, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&work.scores, heads * candidates, error));
    status = recall_steps(&work, error);
done:
    fl_compute_release(compute, work.read);
    if (fl_array_is(work.errors)) compute->ops->release(compute, work.errors);
    fl_memory_free(work.scores);
    return status;
}

fl_status fl_mixer_route(fl_mixer_block *block, fl_error *error) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    if (plan->route == FL_ROUTE_SELF_RECALL) return route_by_recall(block, error);
    FL_TRY(plan->route == FL_ROUTE_ATTENTION_MASS ? route_by_mass(block, error)
                                                  : route_by_score(block, error));
    if (plan->linear) exchange(block, 0, block->tokens);
    return FL_OK;
}
