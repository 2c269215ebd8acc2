#include "attn_variants/mixer.h"

#include <assert.h>
#include <string.h>

#include "attn_variants/mixer_gates.h"
#include "attn_variants/mixer_parts.h"
#include "harness/base/memory.h"

fl_mixer_tensor fl_mixer_tensor_find(const fl_mixer_plan *plan, const char *name) {
    const fl_mechanism_tensor *entry = fl_mechanism_find_tensor(plan->mechanism, name);
    if (entry == NULL) return (fl_mixer_tensor){fl_array_none, NULL};
    return (fl_mixer_tensor){fl_array_of(plan->mechanism->layer[plan->layer] + entry->offset), entry};
}

fl_array fl_mixer_tensor_gradient(fl_mixer_tensor tensor, fl_array parameters) {
    return !fl_array_is(parameters) || tensor.entry == NULL ? fl_array_none
                                                            : fl_array_from(parameters, tensor.entry->offset);
}

static void find_convolution(fl_mixer_plan *plan) {
    static const char *const names[3][2] = {
        {"conv.q.weight", "conv.q.bias"}, {"conv.k.weight", "conv.k.bias"}, {"conv.v.weight", "conv.v.bias"}};
    for (size_t i = 0; i < 3; i++) {
        plan->conv_weight[i] = fl_mixer_tensor_find(plan, names[i][0]);
        plan->conv_bias[i] = fl_mixer_tensor_find(plan, names[i][1]);
    }
}

void fl_mixer_plan_make(fl_mixer_plan *plan, fl_compute *compute, const fl_mechanism *mechanism,
                        size_t layer) {
    const fl_variant *variant = mechanism->variant;
    const fl_rule *rule = variant->rule;
    const fl_attention_shape *shape = &mechanism->shape;
    *plan = (fl_mixer_plan){.compute = compute,
                            .mechanism = mechanism,
                            .variant = variant,
                            .rule = rule,
                            .layer = layer,
                            .shape = *shape,
                            .group = shape->query_heads / shape->kv_heads,
                            .linear = fl_variant_has_linear(variant),
                            .own = fl_rule_is_own(rule, variant->rule_options),
                            .exact = fl_variant_has_exact_set(variant),
                            .route = variant->route};
    bool waits = rule->reads_before && variant->window == 0 && variant->cache_budget == 0;
    plan->delay = waits ? 1 : variant->window;
    /* Without a state every read is 0, so what self_recall measures is the value's length. */
    if (!plan->linear && plan->route == FL_ROUTE_SELF_RECALL) plan->route = FL_ROUTE_VALUE_NORM;
    plan->window_factor = fl_mixer_tensor_find(plan, "merge.window_factor");
    if (!plan->linear) return;
    fl_mixer_projections_find(plan);
    find_convolution(plan);
    plan->rule_layer = fl_rule_layer_of(rule, variant->rule_options, layer, mechanism->layers,
                                        shape->query_heads, shape->head_dim);
    plan->micro_steps = plan->own ? 1 : fl_rule_micro_steps(rule, variant->rule_options);
    plan->key_dim =
        plan->own ? shape->head_dim : fl_rule_key_dim(rule, shape->head_dim, variant->rule_options);
    plan->value_dim = shape->head_dim + (variant->normaliser ? 1 : 0);
    plan->state_floats = plan->own ? rule->own.state_floats(shape->head_dim, variant->rule_options)
                                   : plan->value_dim * plan->key_dim;
    plan->layout = fl_write_layout_of(rule, variant, shape->query_heads, plan->micro_steps, plan->key_dim,
                                      plan->value_dim);
    for (size_t i = 0; i < rule->parameter_count; i++) {
        if (!fl_rule_parameter_used(rule, i, variant->rule_options)) continue;
        plan->rule_tensors[i] = fl_mixer_tensor_find(plan, rule->parameters[i].name);
        plan->rule_layer.parameters[i] = fl_array_host(plan->rule_tensors[i].values);
    }
}

static size_t history_floats(const fl_mixer_plan *plan, size_t which) {
    size_t heads = which == 0 ? plan->shape.query_heads : plan->shape.kv_heads;
    return plan->variant->conv_kernel > 1 ? (plan->variant->conv_kernel - 1) * heads * plan->shape.head_dim
                                          : 0;
}

static size_t pending_floats(const fl_mixer_plan *plan) {
    return plan->linear ? fl_write_rows_floats(&plan->layout, plan->delay) : 0;
}

static size_t cached_floats(const fl_mixer_plan *plan) {
    bool caches = plan->linear && plan->variant->cache_budget > 0;
    return caches ? fl_write_rows_floats(&plan->layout, plan->variant->cache_budget + 1) : 0;
}

static fl_status allocate_timeline(fl_mixer *mixer, fl_error *error) {
    const fl_mixer_plan *plan = &mixer->plan;
    size_t budget = plan->variant->cache_budget;
    bool weighs = budget > 0 && plan->route == FL_ROUTE_ATTENTION_MASS;
    fl_exact_set_init(&mixer->exact, plan->compute,
                      &(fl_exact_set_kind){.kv_heads = plan->shape.kv_heads,
                                           .head_dim = plan->shape.head_dim,
                                           .sinks = plan->variant->sinks,
                                           .window = plan->variant->window,
                                           .per_head = budget > 0,
                                           .weighs = weighs});
    if (budget > 0) FL_TRY(fl_routed_cache_create(&mixer->cache, budget, plan->shape.kv_heads, error));
    if (!plan->linear) return FL_OK;
    FL_TRY(
        fl_compute_floats(plan->compute, plan->shape.query_heads * plan->state_floats, &mixer->state, error));
    FL_TRY(fl_compute_floats(plan->compute, pending_floats(plan), &mixer->pending_block, error));
    FL_TRY(fl_compute_floats(plan->compute, cached_floats(plan), &mixer->cached_block, error));
    mixer->pending = fl_write_rows_in(&plan->layout, plan->delay, mixer->pending_block);
    if (budget > 0) mixer->cached = fl_write_rows_in(&plan->layout, budget + 1, mixer->cached_block);
    for (size_t i = 0; i < 3; i++)
        FL_TRY(fl_compute_floats(plan->compute, history_floats(plan, i), &mixer->history[i], error));
    return FL_OK;
}

fl_status fl_mixer_create(fl_compute *compute, const fl_mechanism *mechanism, size_t layer, fl_mixer **out,
                          fl_error *error) {
    assert(layer < mechanism->layers && mechanism->layer[layer] != NULL);
    *out = NULL;
    fl_mixer *mixer = NULL;
    FL_TRY(FL_ALLOCATE(&mixer, 1, error));
    fl_mixer_plan_make(&mixer->plan, compute, mechanism, layer);
    fl_status status = allocate_timeline(mixer, error);
    if (status != FL_OK) {
        fl_mixer_destroy(mixer);
        return status;
    }
    fl_mixer_reset(mixer);
    *out = mixer;
    return FL_OK;
}

void fl_mixer_destroy(fl_mixer *mixer) {
    if (mixer == NULL) return;
    fl_exact_set_release(&mixer->exact);
    fl_routed_cache_release(&mixer->cache);
    fl_compute_release(mixer->plan.compute, mixer->state);
    fl_compute_release(mixer->plan.compute, mixer->pending_block);
    fl_compute_release(mixer->plan.compute, mixer->cached_block);
    for (size_t i = 0; i < 3; i++) fl_compute_release(mixer->plan.compute, mixer->history[i]);
    fl_memory_free(mixer);
}

void fl_mixer_reset(fl_mixer *mixer) {
    const fl_mixer_plan *plan = &mixer->plan;
    mixer->position = 0;
    mixer->tokens_written = 0;
    fl_exact_set_clear(&mixer->exact);
    fl_routed_cache_clear(&mixer->cache);
    if (!plan->linear) return;
    if (plan->own)
        plan->compute->ops->own_init(plan->compute, &plan->rule_layer, plan->state_floats, mixer->state);
    else
        fl_compute_fill(plan->compute, mixer->state, plan->shape.query_heads * plan->state_floats, 0.0);
    fl_compute_fill(plan->compute, mixer->pending_block, pending_floats(plan), 0.0);
    fl_compute_fill(plan->compute, mixer->cached_block, cached_floats(plan), 0.0);
    for (size_t i = 0; i < 3; i++)
        fl_compute_fill(plan->compute, mixer->history[i], history_floats(plan, i), 0.0);
}

fl_status fl_mixer_copy(fl_mixer *mixer, const fl_mixer *source, fl_error *error) {
    const fl_mixer_plan *plan = &source->plan;
    assert(mixer->plan.mechanism == plan->mechanism && mixer->plan.layer == plan->layer);
    FL_TRY(fl_exact_set_copy(&mixer->exact, &source->exact, error));
    mixer->position = source->position;
    mixer->tokens_written = source->tokens_written;
    if (plan->variant->cache_budget > 0) fl_routed_cache_copy(&mixer->cache, &source->cache);
    if (!plan->linear) return FL_OK;
    fl_compute_copy(plan->compute, mixer->state, source->state, plan->shape.query_heads * plan->state_floats);
    fl_compute_copy(plan->compute, mixer->pending_block, source->pending_block, pending_floats(plan));
    fl_compute_copy(plan->compute, mixer->cached_block, source->cached_block, cached_floats(plan));
    for (size_t i = 0; i < 3; i++)
        fl_compute_copy(plan->compute, mixer->history[i], source->history[i], history_floats(plan, i));
    return FL_OK;
}

fl_status fl_mixer_fork(const fl_mixer *mixer, fl_mixer **out, fl_error *error) {
    FL_TRY(fl_mixer_create(mixer->plan.compute, mixer->plan.mechanism, mixer->plan.layer, out, error));
    fl_status status = fl_mixer_copy(*out, mixer, error);
    if (status != FL_OK) {
        fl_mixer_destroy(*out);
        *out = NULL;
    }
    return status;
}

size_t fl_mixer_position(const fl_mixer *mixer) {
    return mixer->position;
}

size_t fl_mixer_tokens_written(const fl_mixer *mixer) {
    return mixer->tokens_written;
}

size_t fl_mixer_state_bytes(const fl_mixer *mixer) {
    const fl_mixer_plan *plan = &mixer->plan;
    return plan->linear ? plan->shape.query_heads * plan->state_floats * sizeof(float) : 0;
}

size_t fl_mixer_exact_bytes(const fl_mixer *mixer) {
    const fl_mixer_plan *plan = &mixer->plan;
    size_t tokens = plan->variant->sinks + plan->variant->window + plan->variant->cache_budget;
    return tokens * plan->shape.kv_heads * plan->shape.head_dim * 2 * sizeof(float);
}

fl_array fl_mixer_state(const fl_mixer *mixer, size_t *value_dim, size_t *key_dim) {
    if (!mixer->plan.linear || mixer->plan.own) return fl_array_none;
    *value_dim = mixer->plan.value_dim;
    *key_dim = mixer->plan.key_dim;
    return mixer->state;
}

size_t fl_mixer_state_floats(const fl_mixer *mixer) {
    return mixer->plan.linear ? mixer->plan.state_floats : 0;
}

fl_array fl_mixer_state_block(const fl_mixer *mixer) {
    return mixer->plan.linear ? mixer->state : fl_array_none;
}

void fl_mixer_begin(fl_mixer *mixer, fl_array initial_state) {
    if (!fl_array_is(initial_state) || !mixer->plan.linear) return;
    assert(mixer->position == 0);
    fl_compute_copy(mixer->plan.compute, mixer->state, initial_state,
                    mixer->plan.shape.query_heads * mixer->plan.state_floats);
}
