#include "attn_variants/mixer_backward.h"

#include <string.h>

#include "attn_variants/mixer_gates.h"
#include "attn_variants/mixer_parts.h"
#include "harness/base/memory.h"

/* All gradients on the way, for the whole sequence. */
typedef struct fl_backward_work {
    const fl_mixer_block *block;
    const fl_mixer_plan *plan;
    fl_array parameters; /* the caller's block, or NULL */
    bool inputs; /* query, key and value below are wanted; else they and what leads to them are NULL */
    fl_array merged_read;                              /* [H][T*m][Dv] */
    fl_array merged_exact, merged_log, merged_largest; /* [T][H][D], [T][H], [T][H] */
    fl_array stream_query;                             /* [H][T*m][Dk] */
    fl_write_rows stream;                              /* by step */
    fl_array
        row_of; /* int32 [Hkv][T], with a routed cache: the step at which a token is written, -1 = never */
    fl_array linear[3];                 /* [T][H][D] of q, k, v as prepare saw them */
    fl_array projected[FL_PROJECTIONS]; /* [T][H][width]; with respect to the activated value, then to the raw
                                         one */
    fl_array low;                       /* [T][largest rank] */
    fl_array key_rows, value_rows;      /* layout of the exact set */
    fl_array query, key, value;         /* [T][H][D], [T][Hkv][D] */
    fl_array stream_block;              /* memory of stream */
} fl_backward_work;

static fl_status allocate_linear(fl_backward_work *work, fl_error *error) {
    const fl_mixer_plan *plan = work->plan;
    size_t tokens = work->block->tokens, heads = plan->shape.query_heads;
    size_t steps = heads * tokens * plan->micro_steps;
    FL_TRY(fl_compute_floats(plan->compute, steps * plan->value_dim, &work->merged_read, error));
    FL_TRY(fl_compute_floats(plan->compute, steps * plan->key_dim, &work->stream_query, error));
    size_t rows = work->block->stream.rows;
    FL_TRY(fl_compute_floats(plan->compute, fl_write_rows_floats(&plan->layout, rows), &work->stream_block,
                             error));
    work->stream = fl_write_rows_in(&plan->layout, rows, work->stream_block);
    fl_compute_fill(plan->compute, work->merged_read, steps * plan->value_dim, 0.0);
    for (size_t i = 0; i < 3; i++) {
        FL_TRY(
            fl_compute_floats(plan->compute, tokens * heads * plan->shape.head_dim, &work->linear[i], error));
    }
    for (size_t i = 0; i < plan->projection_count; i++)
        FL_TRY(fl_compute_floats(plan->compute, tokens * heads * plan->projections[i].width,
                                 &work->projected[i], error));
    return fl_compute_floats(plan->compute, tokens * fl_mixer_largest_rank(plan), &work->low, error);
}

static fl_status allocate_inputs(fl_backward_work *work, fl_error *error) {
    const fl_mixer_plan *plan = work->plan;
    size_t tokens = work->block->tokens, queries = tokens * plan->shape.query_heads;
    size_t keys = tokens * plan->shape.kv_heads * plan->shape.head_dim;
    FL_TRY(fl_compute_floats(plan->compute, queries * plan->shape.head_dim, &work->query, error));
    FL_TRY(fl_compute_floats(plan->compute, keys, &work->key, error));
    FL_TRY(fl_compute_floats(plan->compute, keys, &work->value, error));
    fl_compute_fill(plan->compute, work->key, keys, 0.0);
    fl_compute_fill(plan->compute, work->value, keys, 0.0);
    if (!plan->exact) {
        fl_compute_fill(plan->compute, work->query, queries * plan->shape.head_dim, 0.0);
        return FL_OK;
    }
    FL_TRY(fl_compute_floats(plan->compute, queries * plan->shape.head_dim, &work->merged_exact, error));
    FL_TRY(fl_compute_floats(plan->compute, queries, &work->merged_log, error));
    FL_TRY(fl_compute_floats(plan->compute, queries, &work->merged_largest, error));
    size_t rows = work->block->mixer->exact.rows.capacity * plan->shape.kv_heads * plan->shape.head_dim;
    FL_TRY(fl_compute_floats(plan->compute, rows, &work->key_rows, error));
    FL_TRY(fl_compute_floats(plan->compute, rows, &work->value_rows, error));
    fl_compute_fill(plan->compute, work->key_rows, rows, 0.0);
    fl_compute_fill(plan->compute, work->value_rows, rows, 0.0);
    return FL_OK;
}

static fl_status allocate_work(fl_backward_work *work, fl_error *error) {
    if (work->inputs) FL_TRY(allocate_inputs(work, error));
    return work->plan->linear ? allocate_linear(work, error) : FL_OK;
}

static void release_work(fl_backward_work *work) {
    fl_compute *compute = work->plan->compute;
    fl_array pieces[] = {work->merged_read,  work->merged_exact, work->merged_log,  work->merged_largest,
                         work->stream_query, work->linear[0],    work->linear[1],   work->linear[2],
                         work->low,          work->key_rows,     work->value_rows,  work->query,
                         work->key,          work->value,        work->stream_block};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) fl_compute_release(compute, pieces[i]);
    for (size_t i = 0; i < FL_PROJECTIONS; i++) fl_compute_release(compute, work->projected[i]);
    fl_compute_release(compute, work->row_of);
}

/* Merge and exact set. */

static void merge_backward(fl_backward_work *work, fl_array gradient_output) {
    const fl_mixer_plan *plan = work->plan;
    fl_merge_call call = fl_mixer_merge_call(work->block);
    size_t last = (plan->micro_steps - 1) * plan->value_dim;
    fl_merge_gradients gradients = {
        .output = gradient_output,
        .read = plan->linear ? fl_array_from(work->merged_read, last) : fl_array_none,
        .exact = work->merged_exact,
        .log_sum_exp = work->merged_log,
        .largest = work->merged_largest,
        .window_factor = fl_mixer_tensor_gradient(plan->window_factor, work->parameters)};
    plan->compute->ops->merge_backward(plan->compute, &call, &gradients);
}

/* Rows of the exact set back to tokens: in a fresh mixer entry i is token i. */
static void rows_to_tokens(const fl_backward_work *work, fl_array rows, fl_array gradient) {
    const fl_exact_set *set = &work->block->mixer->exact;
    fl_key_value_rows_take(&set->rows, rows, set->count, gradient);
}

/* known: the forward pass's results are in the scratch. */
static void exact_backward(fl_backward_work *work, bool known) {
    const fl_mixer_plan *plan = work->plan;
    fl_compute *compute = plan->compute;
    bool shares = fl_merge_shares_normaliser(plan->variant->merge) && plan->linear;
    fl_attention_call call = fl_mixer_attention_call(work->block);
    if (!known) call.output = call.log_sum_exp = fl_array_none;
    bool largest = plan->variant->merge == FL_MERGE_LOLCATS && shares;
    fl_attention_gradients gradients = {.output = work->merged_exact,
                                        .log_sum_exp = shares ? work->merged_log : fl_array_none,
                                        .largest = largest ? work->merged_largest : fl_array_none,
                                        .query = work->query,
                                        .key = work->key_rows,
                                        .value = work->value_rows};
    compute->ops->attention_backward(compute, &call, &gradients);
    rows_to_tokens(work, work->key_rows, work->key);
    rows_to_tokens(work, work->value_rows, work->value);
}

/* Linear branch. */

/* Gradients of the rule's own parameters, in its order; of those not in use NULL. */
static void rule_gradients(const fl_backward_work *work, float **out) {
    const fl_rule *rule = work->plan->rule;
    for (size_t i = 0; i < rule->parameter_count; i++)
        out[i] = fl_array_host(fl_mixer_tensor_gradient(work->plan->rule_tensors[i], work->parameters));
}

static fl_status own_backward(fl_backward_work *work, fl_error *error) {
    const fl_mixer_plan *plan = work->plan;
    if (plan->rule->own.write_backward == NULL) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "rule %s has a step of its own without a derivative and cannot be trained",
                            plan->rule->name);
    }
    float *parameters[FL_RULE_MAX_PARAMETERS];
    rule_gradients(work, parameters);
    fl_own_steps_call call = fl_mixer_own_steps_call(work->block, 0, work->block->tokens);
    call.state = work->block->initial_state;
    fl_own_steps_gradients gradients = {.output = work->merged_read,
                                        .query = work->stream_query,
                                        .written = &work->stream,
                                        .parameters = !fl_array_is(work->parameters) ? NULL : parameters};
    return plan->compute->ops->own_steps_backward(plan->compute, &call, &gradients, error);
}

static fl_status recurrence_backward(fl_backward_work *work, fl_error *error) {
    const fl_mixer_plan *plan = work->plan;
    if (plan->own) return own_backward(work, error);
    fl_recurrence_backward_call call = {
        .transition = plan->variant->transition,
        .mode = work->block->mode,
        .heads = plan->shape.query_heads,
        .steps = work->block->tokens * plan->micro_steps,
        .rows = {.write = work->stream.rows * plan->micro_steps},
        .key_dim = plan->key_dim,
        .value_dim = plan->value_dim,
        .inputs = fl_write_rows_inputs(&plan->layout, &work->block->stream, 0, work->block->scratch->query),
        .initial_state = work->block->initial_state,
        .gradient_output = work->merged_read,
        .gradients = {.query = work->stream_query,
                      .key = work->stream.part[FL_WRITE_KEY],
                      .value = work->stream.part[FL_WRITE_VALUE],
                      .log_decay = work->stream.part[FL_WRITE_LOG_DECAY],
                      .erase_strength = work->stream.part[FL_WRITE_ERASE_STRENGTH],
                      .erase_read = work->stream.part[FL_WRITE_ERASE_READ],
                      .erase_write = work->stream.part[FL_WRITE_ERASE_WRITE],
                      .write = work->stream.part[FL_WRITE_WEIGHT]},
    };
    return plan->compute->ops->recurrence_backward(plan->compute, &call, error);
}

/* A routed cache moves writes from step to step. */
static fl_status find_rows(fl_backward_work *work, fl_error *error) {
    size_t tokens = work->block->tokens, kv_heads = work->plan->shape.kv_heads;
    const int32_t *written = work->block->scratch->written;
    if (work->plan->variant->cache_budget == 0) return FL_OK;
    fl_compute *compute = work->plan->compute;
    int32_t *row_of = NULL;
    FL_TRY(compute->ops->allocate(compute, kv_heads * tokens, FL_INT32, &work->row_of, error));
    FL_TRY(FL_ALLOCATE(&row_of, kv_heads * tokens, error));
    for (size_t i = 0; i < kv_heads * tokens; i++) row_of[i] = -1;
    for (size_t i = 0; i < kv_heads * tokens; i++) {
        if (written[i] >= 0) row_of[i / tokens * tokens + (size_t)written[i]] = (int32_t)(i % tokens);
    }
    compute->ops->upload(compute, work->row_of, row_of, kv_heads * tokens);
    fl_memory_free(row_of);
    return FL_OK;
}

static fl_status prepare_backward(fl_backward_work *work, fl_error *error) {
    const fl_mixer_plan *plan = work->plan;
    float *parameters[FL_RULE_MAX_PARAMETERS];
    fl_array projected[FL_PROJECTIONS] = {{NULL}};
    FL_TRY(find_rows(work, error));
    rule_gradients(work, parameters);
    for (size_t i = 0; i < plan->projection_count; i++) {
        if (plan->projections[i].width > 0) projected[i] = work->projected[i];
    }
    fl_prepare_call call = fl_mixer_prepare_call(work->block);
    fl_prepare_gradients gradients = {.read = work->stream_query,
                                      .written = &work->stream,
                                      .steps = work->block->tokens,
                                      .kv_heads = plan->shape.kv_heads,
                                      .row_of = work->row_of,
                                      .output = work->merged_read,
                                      .query = work->linear[0],
                                      .key = work->linear[1],
                                      .value = work->linear[2],
                                      .gate = projected[FL_PROJECT_GATE],
                                      .beta = projected[FL_PROJECT_BETA],
                                      .parameters = !fl_array_is(work->parameters) ? NULL : parameters};
    memcpy(gradients.factors, projected + FL_PROJECT_FACTORS, sizeof gradients.factors);
    plan->compute->ops->prepare_backward(plan->compute, &call, &gradients);
    return FL_OK;
}

/* From the linear branch's q, k, v of every query head to the model's, through the convolution where there is
 * one. */
static void inputs_backward(fl_backward_work *work) {
    const fl_mixer_plan *plan = work->plan;
    const fl_mixer_block *block = work->block;
    size_t heads = plan->shape.query_heads, head_dim = plan->shape.head_dim;
    fl_array inputs[3] = {block->query, block->key, block->value};
    fl_array outputs[3] = {work->query, work->key, work->value};
    for (size_t i = 0; i < 3; i++) {
        size_t sources = i == 0 ? heads : plan->shape.kv_heads;
        if (plan->variant->conv_kernel > 0) {
            fl_short_conv_call call = {.tokens = block->tokens,
                                       .heads = heads,
                                       .source_heads = sources,
                                       .head_dim = head_dim,
                                       .kernel = plan->variant->conv_kernel,
                                       .input = inputs[i],
                                       .weight = plan->conv_weight[i].values};
            fl_short_conv_gradients gradients = {
                work->linear[i], outputs[i], fl_mixer_tensor_gradient(plan->conv_weight[i], work->parameters),
                fl_mixer_tensor_gradient(plan->conv_bias[i], work->parameters)};
            plan->compute->ops->short_conv_backward(plan->compute, &call, &gradients);
            continue;
        }
        if (!work->inputs) continue;
        plan->compute->ops->add_heads(plan->compute, block->tokens, heads, sources, head_dim, work->linear[i],
                                      outputs[i]);
    }
}

/* Whole. */

static fl_status run_backward(fl_backward_work *work, fl_array gradient_output, bool exact_known,
                              fl_array gradient_input, fl_error *error) {
    const fl_mixer_plan *plan = work->plan;
    size_t inputs = work->block->tokens * plan->shape.model_dim;
    FL_TRY(allocate_work(work, error));
    merge_backward(work, gradient_output);
    if (plan->exact && work->inputs) exact_backward(work, exact_known);
    if (fl_array_is(gradient_input)) fl_compute_fill(plan->compute, gradient_input, inputs, 0.0);
    if (!plan->linear) return FL_OK;
    FL_TRY(recurrence_backward(work, error));
    FL_TRY(prepare_backward(work, error));
    inputs_backward(work);
    fl_mixer_projections_backward(work->block, work->projected, work->low, work->parameters, gradient_input);
    return FL_OK;
}

static void hand_over(fl_compute *compute, fl_array to, fl_array from, size_t count) {
    if (fl_array_is(to)) fl_compute_copy(compute, to, from, count);
}

static size_t linear_floats(const fl_mixer_plan *plan, size_t tokens) {
    size_t heads = plan->shape.query_heads, steps = heads * tokens * plan->micro_steps;
    size_t projected = 0;
    for (size_t i = 0; i < plan->projection_count; i++) projected += plan->projections[i].width;
    return steps * (plan->value_dim + plan->key_dim) +
           fl_write_rows_floats(&plan->layout, tokens + (plan->delay < tokens ? plan->delay : tokens)) +
           tokens * (heads * (3 * plan->shape.head_dim + projected) + fl_mixer_largest_rank(plan));
}

size_t fl_mixer_tape_bytes(fl_compute *compute, const fl_mechanism *mechanism, size_t layer, size_t tokens) {
    fl_mixer_plan plan;
    fl_mixer_plan_make(&plan, compute, mechanism, layer);
    size_t key = plan.shape.kv_heads * plan.shape.head_dim, query = plan.shape.query_heads;
    size_t set = plan.exact ? 4 * key : 0; /* the exact set's rows and their gradients */
    size_t floats = tokens * (query * (2 * plan.shape.head_dim + 2) + 2 * key + set);
    if (plan.linear) floats += linear_floats(&plan, tokens);
    size_t steps = plan.linear ? plan.shape.kv_heads * tokens * sizeof(int32_t) : 0;
    size_t own = plan.own ? compute->ops->own_steps_backward_bytes(compute, tokens, plan.state_floats) : 0;
    return floats * sizeof(float) + steps + own + fl_mixer_replay_bytes(&plan, tokens);
}

struct fl_mixer_tape {
    fl_compute *compute;
    fl_mixer *mixer;
    fl_lent_memory lent; /* the scratch's */
    fl_mixer_scratch scratch;
    fl_mixer_block block;
    bool exact; /* the softmax over the exact set is in the scratch */
};

/* The merge's derivative looks at its inputs only where a normaliser is shared or divided by. */
static bool merge_needs_results(const fl_variant *variant) {
    return variant->normaliser || fl_merge_shares_normaliser(variant->merge);
}

static fl_status record(fl_compute *compute, const fl_mechanism *mechanism, size_t layer,
                        const fl_mixer_call *call, bool results, fl_mixer_tape **out, fl_error *error) {
    *out = NULL;
    fl_mixer_tape *tape = NULL;
    FL_TRY(FL_ALLOCATE(&tape, 1, error));
    tape->compute = compute;
    tape->exact = results || call->exact != NULL;
    fl_status status = fl_mixer_create(compute, mechanism, layer, &tape->mixer, error);
    if (status == FL_OK && call->tokens > 0) {
        status =
            fl_mixer_replay(tape->mixer, call, results, &tape->lent, &tape->scratch, &tape->block, error);
    }
    if (status != FL_OK) {
        fl_mixer_tape_destroy(tape);
        return status;
    }
    *out = tape;
    return FL_OK;
}

fl_status fl_mixer_record(fl_compute *compute, const fl_mechanism *mechanism, size_t layer,
                          const fl_mixer_call *call, fl_mixer_tape **out, fl_error *error) {
    bool results = fl_array_is(call->output) || merge_needs_results(mechanism->variant);
    FL_TRY(record(compute, mechanism, layer, call, results, out, error));
    if (!fl_array_is(call->output) || call->tokens == 0) return FL_OK;
    fl_merge_call merge = fl_mixer_merge_call(&(*out)->block);
    merge.output = call->output;
    compute->ops->merge(compute, &merge);
    return FL_OK;
}

void fl_mixer_tape_destroy(fl_mixer_tape *tape) {
    if (tape == NULL) return;
    fl_mixer_scratch_release(tape->compute, &tape->scratch, tape->lent);
    fl_mixer_destroy(tape->mixer);
    fl_memory_free(tape);
}

fl_status fl_mixer_tape_backward(const fl_mixer_tape *tape, fl_array gradient_output, fl_array gradient_query,
                                 fl_array gradient_key, fl_array gradient_value, fl_array gradient_input,
                                 fl_array gradient_parameters, fl_error *error) {
    const fl_mixer_plan *plan = &tape->mixer->plan;
    const fl_attention_shape *shape = &plan->shape;
    size_t tokens = tape->block.tokens;
    if (tokens == 0) return FL_OK;
    fl_backward_work work = {.block = &tape->block,
                             .plan = plan,
                             .parameters = gradient_parameters,
                             .inputs = fl_array_is(gradient_query) || fl_array_is(gradient_key) ||
                                       fl_array_is(gradient_value)};
    fl_status status = run_backward(&work, gradient_output, tape->exact, gradient_input, error);
    if (status == FL_OK) {
        size_t keys = tokens * shape->kv_heads * shape->head_dim;
        hand_over(plan->compute, gradient_query, work.query, tokens * shape->query_heads * shape->head_dim);
        hand_over(plan->compute, gradient_key, work.key, keys);
        hand_over(plan->compute, gradient_value, work.value, keys);
    }
    release_work(&work);
    return status;
}

fl_status fl_mixer_backward(fl_compute *compute, const fl_mechanism *mechanism, size_t layer,
                            const fl_mixer_call *call, fl_array gradient_output, fl_array gradient_query,
                            fl_array gradient_key, fl_array gradient_value, fl_array gradient_input,
                            fl_array gradient_parameters, fl_error *error) {
    fl_mixer_tape *tape = NULL;
    fl_mixer_call inputs = *call;
    inputs.output = fl_array_none;
    FL_TRY(fl_mixer_record(compute, mechanism, layer, &inputs, &tape, error));
    fl_status status = fl_mixer_tape_backward(tape, gradient_output, gradient_query, gradient_key,
                                              gradient_value, gradient_input, gradient_parameters, error);
    fl_mixer_tape_destroy(tape);
    return status;
}
