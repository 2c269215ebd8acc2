/* Routed cache: decisions, then the rows of the tokens that leave pass through the cache in place. */
#include <math.h>
#include <string.h>

#include "attn_variants/mixer_parts.h"
#include "harness/base/memory.h"

static fl_route_step *step_at(const fl_mixer_block *block, size_t kv_head, size_t step) {
    return &block->scratch->steps[kv_head * block->tokens + step];
}

/* Rows of one query head at one step: the leaving token's row is in the stream and becomes what is written.
 */
static void pass_row(const fl_mixer_block *block, size_t head, size_t step) {
    fl_mixer *mixer = block->mixer;
    const fl_mixer_plan *plan = &mixer->plan;
    const fl_route_step *route = step_at(block, head / plan->group, step);
    if (route->action == FL_ROUTE_FILLED) {
        fl_write_row_copy(&plan->layout, &mixer->cached, route->slot, &block->stream, step, head);
        fl_write_row_clear(&plan->layout, &block->stream, head, step);
    } else if (route->action == FL_ROUTE_REPLACED) {
        fl_write_row_swap(&plan->layout, &mixer->cached, route->slot, &block->stream, step, head);
    }
}

static void pass_rows_of_head(void *context, size_t head, size_t worker) {
    (void)worker;
    const fl_mixer_block *block = context;
    for (size_t step = 0; step < block->tokens; step++) pass_row(block, head, step);
}

/* What a decision means outside the rows: who is visible from now on, and what is logged. */
static void settle(const fl_mixer_block *block, size_t kv_head, size_t step, fl_route_step decision) {
    *step_at(block, kv_head, step) = decision;
    bool writes = decision.written != FL_POSITION_NONE;
    block->scratch->written[kv_head * block->tokens + step] = writes ? (int32_t)decision.written : -1;
    if (writes) {
        fl_exact_set_expire(&block->mixer->exact, kv_head, decision.written, block->first + step);
    }
}

static const fl_route_step NOTHING_LEAVES = {FL_ROUTE_NOTHING, 0, FL_POSITION_NONE};

/* Scores that belong to the token. */

static void route_static_head(void *context, size_t kv_head, size_t worker) {
    (void)worker;
    const fl_mixer_block *block = context;
    fl_mixer *mixer = block->mixer;
    const fl_mixer_plan *plan = &mixer->plan;
    for (size_t step = 0; step < block->tokens; step++) {
        int32_t left = fl_mixer_leaving(plan, block->first + step);
        if (left < 0) {
            settle(block, kv_head, step, NOTHING_LEAVES);
            continue;
        }
        size_t leaving = (size_t)left, entry = fl_exact_set_find(&mixer->exact, kv_head, leaving);
        double score =
            fl_route_static_score(plan->route, plan->variant->seed, plan->layer, kv_head, leaving,
                                  plan->shape.head_dim, fl_exact_set_key(&mixer->exact, kv_head, entry),
                                  fl_exact_set_value(&mixer->exact, kv_head, entry));
        settle(block, kv_head, step, fl_routed_cache_offer(&mixer->cache, kv_head, leaving, score));
    }
}

/* Attention mass. */

typedef struct fl_mass_work {
    fl_mixer_block *block;
    float *probability; /* [Hkv][G][keys] */
    double *scores;     /* [Hkv][budget] */
} fl_mass_work;

static void decide_by_mass(const fl_mass_work *work, size_t kv_head, size_t step) {
    fl_mixer *mixer = work->block->mixer;
    double *scores = work->scores + kv_head * mixer->cache.budget;
    int32_t left = fl_mixer_leaving(&mixer->plan, work->block->first + step);
    size_t leaving = (size_t)left;
    if (left < 0) {
        settle(work->block, kv_head, step, NOTHING_LEAVES);
    } else if (!fl_routed_cache_full(&mixer->cache, kv_head)) {
        settle(work->block, kv_head, step, fl_routed_cache_fill(&mixer->cache, kv_head, leaving));
    } else {
        const double *mass = mixer->exact.mass + kv_head * mixer->exact.capacity;
        for (size_t slot = 0; slot < mixer->cache.budget; slot++) {
            size_t position = mixer->cache.position[kv_head * mixer->cache.budget + slot];
            scores[slot] = mass[fl_exact_set_find(&mixer->exact, kv_head, position)];
        }
        double of_leaving = mass[fl_exact_set_find(&mixer->exact, kv_head, leaving)];
        settle(work->block, kv_head, step,
               fl_routed_cache_choose(&mixer->cache, kv_head, leaving, scores, of_leaving));
    }
}

/* Softmax in place over the visible entries of one query; the rest become 0. Returns the log of the sum. */
static float softmax_of_query(const size_t *expiry, size_t position, size_t count, float *x) {
    float largest = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (expiry[i] > position && !(x[i] <= largest)) largest = x[i];
    }
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        x[i] = expiry[i] > position ? expf(x[i] - largest) : 0.0f;
        sum += x[i];
    }
    if (sum == 0.0) return -INFINITY;
    float scale = (float)(1.0 / sum);
    for (size_t i = 0; i < count; i++) x[i] *= scale;
    return (float)(largest + log(sum));
}

/* Attention of one KV head's group at one step, adding what every key receives to its mass. `count` entries
 * exist. */
static void attend(const fl_mass_work *work, size_t kv_head, size_t step, size_t count) {
    const fl_mixer_block *block = work->block;
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_exact_set *set = &block->mixer->exact;
    fl_compute *compute = plan->compute;
    size_t head_dim = plan->shape.head_dim, heads = plan->shape.query_heads, group = plan->group;
    size_t at = (step * heads + kv_head * group) * head_dim;
    float *probabilities = work->probability + kv_head * group * set->count;
    compute->ops->matmul(compute, false, true, group, count, head_dim, plan->shape.scale, block->query + at,
                         head_dim, fl_exact_set_key(set, kv_head, 0), head_dim, 0.0f, probabilities, count);
    const size_t *expiry = set->expiry + kv_head * set->capacity;
    double *mass = set->mass + kv_head * set->capacity;
    for (size_t i = 0; i < group; i++) {
        float *probability = probabilities + i * count;
        block->scratch->log_sum_exp[step * heads + kv_head * group + i] =
            softmax_of_query(expiry, block->first + step, count, probability);
        for (size_t j = 0; j < count; j++) mass[j] += (double)probability[j] / (double)group;
    }
    compute->ops->matmul(compute, false, false, group, head_dim, count, 1.0f, probabilities, count,
                         fl_exact_set_value(set, kv_head, 0), head_dim, 0.0f, block->scratch->exact + at,
                         head_dim);
}

/* KV heads do not know of one another. */
static void route_head_by_mass(void *context, size_t kv_head, size_t worker) {
    (void)worker;
    const fl_mass_work *work = context;
    size_t before = work->block->mixer->exact.count - work->block->tokens;
    for (size_t step = 0; step < work->block->tokens; step++) {
        decide_by_mass(work, kv_head, step);
        attend(work, kv_head, step, before + step + 1);
    }
}

static fl_status route_by_mass(fl_mixer_block *block, fl_error *error) {
    const fl_mixer *mixer = block->mixer;
    size_t kv_heads = mixer->plan.shape.kv_heads;
    fl_mass_work work = {block, NULL, NULL};
    fl_status status = FL_OK;
    FL_TRY_DONE(status,
                fl_compute_floats(mixer->plan.compute, kv_heads * mixer->plan.group * mixer->exact.count,
                                  &work.probability, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&work.scores, kv_heads * mixer->cache.budget, error));
    fl_threads_for(mixer->plan.compute->threads, kv_heads, route_head_by_mass, &work);
done:
    fl_compute_release(mixer->plan.compute, work.probability);
    fl_memory_free(work.scores);
    return status;
}

/* Self recall. */

typedef struct fl_recall_work {
    fl_mixer_block *block;
    size_t step;
    float *read;    /* [H][(budget + 1) * m][Dv] */
    double *scores; /* [H][budget + 1]; the last is the leaving token's */
} fl_recall_work;

/* || v - read ||, the read divided by its mass where there is a normaliser. */
static double residual(const fl_mixer_plan *plan, const float *value, const float *read) {
    double scale = 1.0, sum = 0.0;
    if (plan->variant->normaliser) {
        double mass = read[plan->value_dim - 1];
        scale = mass == 0.0 ? 0.0 : 1.0 / mass;
    }
    for (size_t i = 0; i < plan->shape.head_dim; i++) {
        double difference = value[i] - (scale == 0.0 ? 0.0 : scale * read[i]);
        sum += difference * difference;
    }
    return sqrt(sum);
}

static void find_residuals(const fl_mixer *mixer, size_t head, const float *read, double *scores) {
    const fl_mixer_plan *plan = &mixer->plan;
    size_t micro = plan->micro_steps;
    for (size_t slot = 0; slot <= mixer->cache.budget; slot++) {
        const float *value = fl_write_row(&plan->layout, &mixer->cached, FL_WRITE_VALUE, head, slot);
        double sum = 0.0;
        for (size_t i = 0; i < micro; i++) {
            size_t of_read = (slot * micro + i) * plan->value_dim;
            sum += residual(plan, value + i * plan->value_dim, read + of_read);
        }
        scores[slot] = sum / (double)(micro * plan->group);
    }
}

static void read_with_own_hooks(const fl_mixer *mixer, size_t head, float *read) {
    const fl_mixer_plan *plan = &mixer->plan;
    fl_rule_input input = fl_rule_layer_input(&plan->rule_layer, head);
    for (size_t slot = 0; slot <= mixer->cache.budget; slot++) {
        input.query = fl_write_row(&plan->layout, &mixer->cached, FL_WRITE_KEY, head, slot);
        plan->rule->own.read(&input, mixer->state + head * plan->state_floats, read + slot * plan->value_dim);
    }
}

/* What one query head's state, as it stands, gives back of all candidates. */
static void recall_of_head(void *context, size_t head, size_t worker) {
    (void)worker;
    const fl_recall_work *work = context;
    fl_mixer *mixer = work->block->mixer;
    const fl_mixer_plan *plan = &mixer->plan;
    fl_compute *compute = plan->compute;
    size_t candidates = mixer->cache.budget + 1, reads = candidates * plan->micro_steps;
    float *read = work->read + head * reads * plan->value_dim;
    fl_write_row_copy(&plan->layout, &mixer->cached, mixer->cache.budget, &work->block->stream, work->step,
                      head);
    if (plan->own) {
        read_with_own_hooks(mixer, head, read);
    } else {
        compute->ops->matmul(compute, false, true, reads, plan->value_dim, plan->key_dim, 1.0f,
                             fl_write_row(&plan->layout, &mixer->cached, FL_WRITE_KEY, head, 0),
                             plan->key_dim, mixer->state + head * plan->state_floats, plan->key_dim, 0.0f,
                             read, plan->value_dim);
    }
    find_residuals(mixer, head, read, work->scores + head * candidates);
}

/* The mean over each KV head's group, in the place of its first query head. */
static void score_by_recall(fl_recall_work *work) {
    const fl_mixer *mixer = work->block->mixer;
    const fl_mixer_plan *plan = &mixer->plan;
    size_t candidates = mixer->cache.budget + 1;
    fl_threads_for(plan->compute->threads, plan->shape.query_heads, recall_of_head, work);
    for (size_t head = 0; head < plan->shape.query_heads; head++) {
        if (head % plan->group == 0) continue;
        double *sum = work->scores + head / plan->group * plan->group * candidates;
        for (size_t slot = 0; slot < candidates; slot++) sum[slot] += work->scores[head * candidates + slot];
    }
}

static void decide_by_recall(fl_recall_work *work, size_t step, size_t leaving) {
    fl_mixer *mixer = work->block->mixer;
    size_t candidates = mixer->cache.budget + 1;
    bool full = fl_routed_cache_full(&mixer->cache, 0);
    work->step = step;
    if (full) score_by_recall(work);
    for (size_t kv_head = 0; kv_head < mixer->plan.shape.kv_heads; kv_head++) {
        const double *scores = work->scores + kv_head * mixer->plan.group * candidates;
        settle(work->block, kv_head, step,
               full ? fl_routed_cache_choose(&mixer->cache, kv_head, leaving, scores, scores[candidates - 1])
                    : fl_routed_cache_fill(&mixer->cache, kv_head, leaving));
    }
    for (size_t head = 0; head < mixer->plan.shape.query_heads; head++) pass_row(work->block, head, step);
}

static fl_status route_by_recall(fl_mixer_block *block, fl_error *error) {
    fl_mixer *mixer = block->mixer;
    const fl_mixer_plan *plan = &mixer->plan;
    size_t candidates = mixer->cache.budget + 1, advanced = 0;
    fl_recall_work work = {.block = block};
    fl_status status = FL_OK;
    size_t heads = plan->shape.query_heads, reads = candidates * plan->micro_steps;
    FL_TRY_DONE(status, fl_compute_floats(plan->compute, heads * reads * plan->value_dim, &work.read, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&work.scores, heads * candidates, error));
    for (size_t step = 0; step < block->tokens; step++) {
        int32_t left = fl_mixer_leaving(plan, block->first + step);
        if (left < 0) {
            for (size_t i = 0; i < plan->shape.kv_heads; i++) settle(block, i, step, NOTHING_LEAVES);
            continue;
        }
        if (fl_routed_cache_full(&mixer->cache, 0)) {
            FL_TRY_DONE(status, fl_mixer_advance(block, advanced, step - advanced, error));
            advanced = step;
        }
        decide_by_recall(&work, step, (size_t)left);
    }
    status = fl_mixer_advance(block, advanced, block->tokens - advanced, error);
done:
    fl_compute_release(plan->compute, work.read);
    fl_memory_free(work.scores);
    return status;
}

fl_status fl_mixer_route(fl_mixer_block *block, fl_error *error) {
    fl_mixer_plan *plan = &block->mixer->plan;
    fl_threads *threads = plan->compute->threads;
    if (plan->route == FL_ROUTE_SELF_RECALL) return route_by_recall(block, error);
    if (plan->route == FL_ROUTE_ATTENTION_MASS) {
        FL_TRY(route_by_mass(block, error));
    } else {
        fl_threads_for(threads, plan->shape.kv_heads, route_static_head, block);
    }
    if (plan->linear) fl_threads_for(threads, plan->shape.query_heads, pass_rows_of_head, block);
    return FL_OK;
}
