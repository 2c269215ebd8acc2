#include "attn_variants/mixer_backward.h"

#include <string.h>

#include "attn_variants/mixer_own.h"
#include "attn_variants/mixer_parts.h"
#include "harness/base/memory.h"
#include "harness/compute/vector_math.h"

/* All gradients on the way, for the whole sequence. */
typedef struct fl_backward_work {
    const fl_mixer_block *block;
    const fl_mixer_plan *plan;
    float *parameters;  /* the caller's block, or NULL */
    bool inputs;        /* query, key and value below are wanted; else they and what leads to them are NULL */
    float *merged_read; /* [H][T*m][Dv] */
    float *merged_exact, *merged_log, *merged_largest; /* [T][H][D], [T][H], [T][H] */
    float *stream_query;                               /* [H][T*m][Dk] */
    fl_write_rows stream;                              /* by step */
    fl_write_rows nothing;                             /* one zero row */
    size_t *step_of;    /* [Hkv][T]: the step at which a token is written, FL_POSITION_NONE = never */
    float *linear[3];   /* [T][H][D] of q, k, v as prepare saw them */
    float *gate, *beta; /* [T][H][gate_width], [T][H]; activated, then raw */
    float *gate_low;    /* [T][rank] */
    float *key_rows, *value_rows; /* layout of the exact set */
    float *query, *key, *value;   /* [T][H][D], [T][Hkv][D] */
    float *blocks[2];             /* memory of stream and nothing */
} fl_backward_work;

static fl_status allocate_linear(fl_backward_work *work, fl_error *error) {
    const fl_mixer_plan *plan = work->plan;
    size_t tokens = work->block->tokens, heads = plan->shape.query_heads;
    size_t steps = heads * tokens * plan->micro_steps;
    FL_TRY(FL_ALLOCATE(&work->merged_read, steps * plan->value_dim, error));
    FL_TRY(FL_ALLOCATE(&work->stream_query, steps * plan->key_dim, error));
    FL_TRY(FL_ALLOCATE(&work->blocks[0], fl_write_rows_floats(&plan->layout, tokens), error));
    FL_TRY(FL_ALLOCATE(&work->blocks[1], fl_write_rows_floats(&plan->layout, 1), error));
    work->stream = fl_write_rows_in(&plan->layout, tokens, work->blocks[0]);
    work->nothing = fl_write_rows_in(&plan->layout, 1, work->blocks[1]);
    FL_TRY(FL_ALLOCATE(&work->step_of, plan->shape.kv_heads * tokens, error));
    for (size_t i = 0; i < 3; i++) {
        FL_TRY(FL_ALLOCATE(&work->linear[i], tokens * heads * plan->shape.head_dim, error));
    }
    FL_TRY(FL_ALLOCATE(&work->gate, tokens * heads * plan->gate_width, error));
    FL_TRY(FL_ALLOCATE(&work->gate_low, tokens * plan->variant->gate_rank, error));
    return FL_ALLOCATE(&work->beta, tokens * heads, error);
}

static fl_status allocate_inputs(fl_backward_work *work, fl_error *error) {
    const fl_mixer_plan *plan = work->plan;
    size_t tokens = work->block->tokens, queries = tokens * plan->shape.query_heads;
    size_t keys = tokens * plan->shape.kv_heads * plan->shape.head_dim;
    FL_TRY(FL_ALLOCATE(&work->query, queries * plan->shape.head_dim, error));
    FL_TRY(FL_ALLOCATE(&work->key, keys, error));
    FL_TRY(FL_ALLOCATE(&work->value, keys, error));
    if (!plan->exact) return FL_OK;
    FL_TRY(FL_ALLOCATE(&work->merged_exact, queries * plan->shape.head_dim, error));
    FL_TRY(FL_ALLOCATE(&work->merged_log, queries, error));
    FL_TRY(FL_ALLOCATE(&work->merged_largest, queries, error));
    size_t rows = work->block->mixer->exact.capacity * plan->shape.kv_heads * plan->shape.head_dim;
    FL_TRY(FL_ALLOCATE(&work->key_rows, rows, error));
    return FL_ALLOCATE(&work->value_rows, rows, error);
}

static fl_status allocate_work(fl_backward_work *work, fl_error *error) {
    if (work->inputs) FL_TRY(allocate_inputs(work, error));
    return work->plan->linear ? allocate_linear(work, error) : FL_OK;
}

static void release_work(fl_backward_work *work) {
    float *pieces[] = {work->merged_read,  work->merged_exact, work->merged_log, work->merged_largest,
                       work->stream_query, work->linear[0],    work->linear[1],  work->linear[2],
                       work->gate,         work->beta,         work->gate_low,   work->key_rows,
                       work->value_rows,   work->query,        work->key,        work->value,
                       work->blocks[0],    work->blocks[1]};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) fl_memory_free(pieces[i]);
    fl_memory_free(work->step_of);
}

/* The gradient of a tensor inside the caller's block, or NULL. */
static float *gradient_of(const fl_backward_work *work, const char *name) {
    const fl_mechanism_tensor *tensor = fl_mechanism_find_tensor(work->plan->mechanism, name);
    return work->parameters == NULL || tensor == NULL ? NULL : work->parameters + tensor->offset;
}

/* Merge and exact set. */

static void merge_backward(fl_backward_work *work, const float *gradient_output) {
    const fl_mixer_plan *plan = work->plan;
    fl_merge_call call = fl_mixer_merge_call(work->block);
    size_t last = (plan->micro_steps - 1) * plan->value_dim;
    fl_merge_gradients gradients = {.output = gradient_output,
                                    .read = plan->linear ? work->merged_read + last : NULL,
                                    .exact = work->merged_exact,
                                    .log_sum_exp = work->merged_log,
                                    .largest = work->merged_largest,
                                    .window_factor = gradient_of(work, "merge.window_factor")};
    fl_merge_backward(plan->compute->threads, &call, &gradients);
}

/* Rows of the exact set back to tokens: in a fresh mixer entry i is token i. */
static void add_rows(const fl_backward_work *work, const float *rows, float *gradient) {
    const fl_exact_set *set = &work->block->mixer->exact;
    for (size_t token = 0; token < set->count; token++) {
        for (size_t head = 0; head < set->kv_heads; head++) {
            const float *from = rows + (head * set->capacity + token) * set->head_dim;
            float *to = gradient + (token * set->kv_heads + head) * set->head_dim;
            for (size_t i = 0; i < set->head_dim; i++) to[i] += from[i];
        }
    }
}

/* known: the forward pass's results are in the scratch. */
static fl_status exact_backward(fl_backward_work *work, bool known, fl_error *error) {
    const fl_mixer_plan *plan = work->plan;
    fl_compute *compute = plan->compute;
    bool shares = fl_merge_shares_normaliser(plan->variant->merge) && plan->linear;
    fl_attention_call call;
    size_t *lifetimes = NULL;
    FL_TRY(fl_mixer_attention_call(work->block, &call, &lifetimes, error));
    if (!known) call.output = call.log_sum_exp = NULL;
    compute->ops->attention_backward(compute, &call, work->merged_exact, shares ? work->merged_log : NULL,
                                     work->query, work->key_rows, work->value_rows);
    if (plan->variant->merge == FL_MERGE_LOLCATS && shares) {
        fl_exact_set_largest_backward(compute->threads, &call, work->merged_largest, work->query,
                                      work->key_rows);
    }
    fl_memory_free(lifetimes);
    add_rows(work, work->key_rows, work->key);
    add_rows(work, work->value_rows, work->value);
    return FL_OK;
}

/* Linear branch. */

/* Gradients of the rule's own parameters, in its order. */
static void rule_gradients(const fl_backward_work *work, float **out) {
    const fl_rule *rule = work->plan->rule;
    for (size_t i = 0; i < rule->parameter_count; i++) out[i] = gradient_of(work, rule->parameters[i].name);
}

static fl_status own_backward(fl_backward_work *work, fl_error *error) {
    float *parameters[FL_RULE_MAX_PARAMETERS];
    rule_gradients(work, parameters);
    fl_mixer_own_gradients gradients = {work->merged_read, work->stream_query, &work->stream,
                                        work->parameters == NULL ? NULL : parameters};
    return fl_mixer_own_backward(work->block, &gradients, error);
}

static fl_status recurrence_backward(fl_backward_work *work, fl_error *error) {
    const fl_mixer_plan *plan = work->plan;
    if (plan->own) return own_backward(work, error);
    fl_recurrence_backward_call call = {
        .transition = plan->variant->transition,
        .mode = work->block->mode,
        .heads = plan->shape.query_heads,
        .steps = work->block->tokens * plan->micro_steps,
        .key_dim = plan->key_dim,
        .value_dim = plan->value_dim,
        .inputs = fl_write_rows_inputs(&work->block->stream, work->block->scratch->query),
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

static void find_steps(fl_backward_work *work) {
    size_t tokens = work->block->tokens, kv_heads = work->plan->shape.kv_heads;
    const size_t *written = work->block->scratch->written;
    for (size_t i = 0; i < kv_heads * tokens; i++) work->step_of[i] = FL_POSITION_NONE;
    for (size_t head = 0; head < kv_heads; head++) {
        for (size_t step = 0; step < tokens; step++) {
            size_t token = written[head * tokens + step];
            if (token != FL_POSITION_NONE) work->step_of[head * tokens + token] = step;
        }
    }
}

/* A rule with own hooks was handed its inputs as they are. */
static void hand_back_inputs(const fl_mixer_plan *plan, const fl_rule_input *input,
                             const fl_rule_output_gradient *gradient, fl_rule_input_gradient *out) {
    fl_rule_raw_inputs_backward(input, gradient, out);
    if (out->gate != NULL) memcpy(out->gate, gradient->log_decay, plan->gate_width * sizeof(float));
    if (out->beta != NULL) out->beta[0] = gradient->erase_strength[0];
}

static void prepare_backward_head(void *context, size_t head, size_t worker) {
    (void)worker;
    const fl_backward_work *work = context;
    const fl_mixer_plan *plan = work->plan;
    const fl_rule *rule = plan->rule;
    size_t tokens = work->block->tokens, heads = plan->shape.query_heads, head_dim = plan->shape.head_dim;
    size_t row = plan->micro_steps * plan->key_dim;
    float *parameters[FL_RULE_MAX_PARAMETERS];
    rule_gradients(work, parameters);
    for (size_t token = 0; token < tokens; token++) {
        size_t step = work->step_of[head / plan->group * tokens + token], at = token * heads + head;
        fl_rule_input input = fl_mixer_rule_input(work->block, head, token);
        fl_rule_output_gradient gradient =
            step == FL_POSITION_NONE ? fl_write_row_output(&plan->layout, &work->nothing, head, 0)
                                     : fl_write_row_output(&plan->layout, &work->stream, head, step);
        gradient.query = work->stream_query + (head * tokens + token) * row + row - plan->key_dim;
        fl_rule_input_gradient out = {.query = work->linear[0] + at * head_dim,
                                      .key = work->linear[1] + at * head_dim,
                                      .value = work->linear[2] + at * head_dim,
                                      .gate =
                                          plan->gate_width > 0 ? work->gate + at * plan->gate_width : NULL,
                                      .beta = rule->beta ? work->beta + at : NULL,
                                      .parameters = work->parameters == NULL ? NULL : parameters};
        if (plan->own)
            hand_back_inputs(plan, &input, &gradient, &out);
        else
            rule->prepare_backward(&input, &gradient, &out);
    }
}

/* From the linear branch's q, k, v of every query head to the model's, through the convolution where there is
 * one. */
static void inputs_backward(fl_backward_work *work) {
    const fl_mixer_plan *plan = work->plan;
    const fl_mixer_block *block = work->block;
    size_t heads = plan->shape.query_heads, head_dim = plan->shape.head_dim;
    static const char *const names[3][2] = {
        {"conv.q.weight", "conv.q.bias"}, {"conv.k.weight", "conv.k.bias"}, {"conv.v.weight", "conv.v.bias"}};
    const float *inputs[3] = {block->query, block->key, block->value};
    float *outputs[3] = {work->query, work->key, work->value};
    for (size_t i = 0; i < 3; i++) {
        size_t sources = i == 0 ? heads : plan->shape.kv_heads;
        if (plan->variant->conv_kernel > 0) {
            fl_short_conv_call call = {.tokens = block->tokens,
                                       .heads = heads,
                                       .source_heads = sources,
                                       .head_dim = head_dim,
                                       .kernel = plan->variant->conv_kernel,
                                       .input = inputs[i],
                                       .weight =
                                           fl_mechanism_find(plan->mechanism, plan->layer, names[i][0])};
            fl_short_conv_gradients gradients = {work->linear[i], outputs[i], gradient_of(work, names[i][0]),
                                                 gradient_of(work, names[i][1])};
            fl_short_conv_backward(plan->compute->threads, &call, &gradients);
            continue;
        }
        for (size_t at = 0; work->inputs && at < block->tokens * heads; at++) {
            size_t token = at / heads, source = at % heads / (heads / sources);
            float *to = outputs[i] + (token * sources + source) * head_dim;
            for (size_t j = 0; j < head_dim; j++) to[j] += work->linear[i][at * head_dim + j];
        }
    }
}

/* Gates. */

/* gradient [tokens][columns]: with respect to the activated value, in place to the raw one. */
typedef struct fl_activation_work {
    fl_gate_activation activation;
    size_t columns;
    const float *activated;
    float *gradient;
} fl_activation_work;

enum { ACTIVATION_PIECE = 64 };

/* y = 1 - exp(x) for x <= 0, within 1.1e-7 of itself: a series where the difference would cancel. NaN stays.
 * Loops over local arrays of one length, so that they go into vector registers. */
static void one_minus_exp(const float *x, float *y) {
    float series[ACTIVATION_PIECE], power[ACTIVATION_PIECE], at[ACTIVATION_PIECE];
    memcpy(at, x, sizeof at);
    fl_vector_exp(ACTIVATION_PIECE, at, power);
    for (size_t i = 0; i < ACTIVATION_PIECE; i++) {
        float sum = 1.0f + at[i] * (1.0f / 8.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 7.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 6.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 5.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 4.0f);
        sum = 1.0f + at[i] * sum * (1.0f / 3.0f);
        series[i] = -at[i] * (1.0f + at[i] * sum * (1.0f / 2.0f));
    }
    for (size_t i = 0; i < ACTIVATION_PIECE; i++) power[i] = 1.0f - power[i];
    for (size_t i = 0; i < ACTIVATION_PIECE; i++) power[i] = at[i] > -0.5f ? series[i] : power[i];
    memcpy(y, power, sizeof power);
}

/* d log sigmoid(x) / dx = 1 - sigmoid(x). */
static void log_sigmoid_backward(size_t count, const float *activated, float *gradient) {
    for (size_t done = 0; done < count; done += ACTIVATION_PIECE) {
        size_t part = count - done < ACTIVATION_PIECE ? count - done : ACTIVATION_PIECE;
        float log_sigmoid[ACTIVATION_PIECE] = {0}, slope[ACTIVATION_PIECE];
        memcpy(log_sigmoid, activated + done, part * sizeof *activated);
        one_minus_exp(log_sigmoid, slope);
        for (size_t i = 0; i < part; i++) gradient[done + i] *= slope[i];
    }
}

static void activation_backward_token(void *context, size_t token, size_t worker) {
    (void)worker;
    const fl_activation_work *work = context;
    const float *activated = work->activated + token * work->columns;
    float *gradient = work->gradient + token * work->columns;
    if (work->activation == FL_ACTIVATE_LOG_SIGMOID) log_sigmoid_backward(work->columns, activated, gradient);
    for (size_t i = 0; work->activation == FL_ACTIVATE_SIGMOID && i < work->columns; i++) {
        gradient[i] *= activated[i] * (1.0f - activated[i]);
    }
}

static void activation_backward(const fl_backward_work *work, fl_gate_activation activation, size_t columns,
                                const float *activated, float *gradient) {
    fl_activation_work rows = {activation, columns, activated, gradient};
    fl_threads_for(work->plan->compute->threads, work->block->tokens, activation_backward_token, &rows);
}

static void bias_backward(const fl_backward_work *work, size_t columns, const float *gradient,
                          const char *name) {
    float *bias = gradient_of(work, name);
    for (size_t token = 0; bias != NULL && token < work->block->tokens; token++) {
        for (size_t i = 0; i < columns; i++) bias[i] += gradient[token * columns + i];
    }
}

/* x [T][columns] = input [T][inner] W: adds to W's gradient, and to (or over) the input's when wanted. */
static void projection_backward(const fl_backward_work *work, size_t columns, size_t inner,
                                const float *input, const float *gradient, const char *name,
                                float *gradient_input, bool accumulate) {
    fl_compute *compute = work->plan->compute;
    size_t tokens = work->block->tokens;
    float *weight = gradient_of(work, name);
    if (weight != NULL) {
        compute->ops->matmul(compute, true, false, inner, columns, tokens, 1.0f, input, inner, gradient,
                             columns, 1.0f, weight, columns);
    }
    if (gradient_input == NULL) return;
    compute->ops->matmul(compute, false, true, tokens, inner, columns, 1.0f, gradient, columns,
                         fl_mechanism_find(work->plan->mechanism, work->plan->layer, name), columns,
                         accumulate ? 1.0f : 0.0f, gradient_input, inner);
}

/* gradient_input [T][E] must hold zeros or be NULL. */
static void gates_backward(fl_backward_work *work, float *gradient_input) {
    const fl_mixer_plan *plan = work->plan;
    const fl_mixer_scratch *scratch = work->block->scratch;
    const float *input = work->block->input;
    size_t heads = plan->shape.query_heads, model_dim = plan->shape.model_dim;
    size_t columns = heads * plan->gate_width;
    if (plan->rule->gate != FL_GATE_NONE && plan->variant->gate_source == FL_GATE_PROJECTED) {
        activation_backward(work, plan->rule->gate_activation, columns, scratch->gate, work->gate);
        bias_backward(work, columns, work->gate, "gate.bias");
        if (plan->rule->gate == FL_GATE_SCALAR) {
            projection_backward(work, columns, model_dim, input, work->gate, "gate.weight", gradient_input,
                                true);
        } else {
            size_t rank = plan->variant->gate_rank;
            projection_backward(work, columns, rank, scratch->gate_low, work->gate, "gate.w2", work->gate_low,
                                false);
            projection_backward(work, rank, model_dim, input, work->gate_low, "gate.w1", gradient_input,
                                true);
        }
    }
    if (!plan->rule->beta || plan->variant->beta_source != FL_GATE_PROJECTED) return;
    activation_backward(work, plan->rule->beta_activation, heads, scratch->beta, work->beta);
    bias_backward(work, heads, work->beta, "beta.bias");
    projection_backward(work, heads, model_dim, input, work->beta, "beta.weight", gradient_input, true);
}

/* Whole. */

static fl_status run_backward(fl_backward_work *work, const float *gradient_output, bool exact_known,
                              float *gradient_input, fl_error *error) {
    const fl_mixer_plan *plan = work->plan;
    size_t inputs = work->block->tokens * plan->shape.model_dim;
    FL_TRY(allocate_work(work, error));
    merge_backward(work, gradient_output);
    if (plan->exact && work->inputs) FL_TRY(exact_backward(work, exact_known, error));
    if (gradient_input != NULL) memset(gradient_input, 0, inputs * sizeof *gradient_input);
    if (!plan->linear) return FL_OK;
    FL_TRY(recurrence_backward(work, error));
    find_steps(work);
    fl_threads_for(plan->compute->threads, plan->shape.query_heads, prepare_backward_head, work);
    inputs_backward(work);
    gates_backward(work, gradient_input);
    return FL_OK;
}

static void hand_over(float *to, const float *from, size_t count) {
    if (to != NULL) memcpy(to, from, count * sizeof *to);
}

static size_t linear_floats(const fl_mixer_plan *plan, size_t tokens) {
    size_t heads = plan->shape.query_heads, steps = heads * tokens * plan->micro_steps;
    return steps * (plan->value_dim + plan->key_dim) + fl_write_rows_floats(&plan->layout, tokens) +
           tokens * (heads * (3 * plan->shape.head_dim + plan->gate_width + 1) + plan->variant->gate_rank);
}

size_t fl_mixer_tape_bytes(fl_compute *compute, const fl_mechanism *mechanism, size_t layer, size_t tokens) {
    fl_mixer_plan plan;
    fl_mixer_plan_make(&plan, compute, mechanism, layer);
    size_t key = plan.shape.kv_heads * plan.shape.head_dim, query = plan.shape.query_heads;
    size_t set = plan.exact ? 4 * key : 0; /* the exact set's rows and their gradients */
    size_t floats = tokens * (query * (2 * plan.shape.head_dim + 2) + 2 * key + set);
    if (plan.linear) floats += linear_floats(&plan, tokens);
    size_t steps = plan.linear ? plan.shape.kv_heads * tokens * sizeof(size_t) : 0;
    size_t own = plan.own ? fl_mixer_own_backward_bytes(&plan, tokens) : 0;
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
    bool results = call->output != NULL || merge_needs_results(mechanism->variant);
    FL_TRY(record(compute, mechanism, layer, call, results, out, error));
    if (call->output == NULL || call->tokens == 0) return FL_OK;
    fl_merge_call merge = fl_mixer_merge_call(&(*out)->block);
    merge.output = call->output;
    fl_merge_run(compute->threads, &merge);
    return FL_OK;
}

void fl_mixer_tape_destroy(fl_mixer_tape *tape) {
    if (tape == NULL) return;
    fl_compute_take_back(tape->compute, tape->lent);
    fl_mixer_destroy(tape->mixer);
    fl_memory_free(tape);
}

fl_status fl_mixer_tape_backward(const fl_mixer_tape *tape, const float *gradient_output,
                                 float *gradient_query, float *gradient_key, float *gradient_value,
                                 float *gradient_input, float *gradient_parameters, fl_error *error) {
    const fl_mixer_plan *plan = &tape->mixer->plan;
    const fl_attention_shape *shape = &plan->shape;
    size_t tokens = tape->block.tokens;
    if (tokens == 0) return FL_OK;
    fl_backward_work work = {.block = &tape->block,
                             .plan = plan,
                             .parameters = gradient_parameters,
                             .inputs =
                                 gradient_query != NULL || gradient_key != NULL || gradient_value != NULL};
    fl_status status = run_backward(&work, gradient_output, tape->exact, gradient_input, error);
    if (status == FL_OK) {
        size_t keys = tokens * shape->kv_heads * shape->head_dim;
        hand_over(gradient_query, work.query, tokens * shape->query_heads * shape->head_dim);
        hand_over(gradient_key, work.key, keys);
        hand_over(gradient_value, work.value, keys);
    }
    release_work(&work);
    return status;
}

fl_status fl_mixer_backward(fl_compute *compute, const fl_mechanism *mechanism, size_t layer,
                            const fl_mixer_call *call, const float *gradient_output, float *gradient_query,
                            float *gradient_key, float *gradient_value, float *gradient_input,
                            float *gradient_parameters, fl_error *error) {
    fl_mixer_tape *tape = NULL;
    fl_mixer_call inputs = *call;
    inputs.output = NULL;
    FL_TRY(fl_mixer_record(compute, mechanism, layer, &inputs, &tape, error));
    fl_status status = fl_mixer_tape_backward(tape, gradient_output, gradient_query, gradient_key,
                                              gradient_value, gradient_input, gradient_parameters, error);
    fl_mixer_tape_destroy(tape);
    return status;
}
