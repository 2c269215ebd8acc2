#include <math.h>
#include <string.h>

#include "attn_variants/mixer_parts.h"
#include "harness/compute/vector_math.h"

enum { PREPARE_BLOCK = 32 }; /* tokens of one head that a worker prepares at a time */

size_t fl_mixer_leaving(const fl_mixer_plan *plan, size_t position) {
    size_t window = plan->variant->window, sinks = plan->variant->sinks;
    if (position < window || position - window < sinks) return FL_POSITION_NONE;
    return position - window;
}

/* Gates. */

/* In place. */
static void activate(fl_gate_activation activation, size_t count, float *x) {
    if (activation == FL_ACTIVATE_LOG_SIGMOID) fl_vector_log_sigmoid(count, x, x);
    if (activation == FL_ACTIVATE_SIGMOID) fl_vector_sigmoid(count, x, x);
}

static float constant_gate(fl_gate_activation activation, double value) {
    return (float)(activation == FL_ACTIVATE_LOG_SIGMOID ? log(value) : value);
}

static void project(const fl_mixer_block *block, size_t columns, size_t inner, const float *input,
                    const char *name, float *output) {
    fl_compute *compute = block->mixer->plan.compute;
    const fl_mixer_plan *plan = &block->mixer->plan;
    const float *weight = fl_mechanism_find(plan->mechanism, plan->layer, name);
    compute->ops->matmul(compute, false, false, block->tokens, columns, inner, 1.0f, input, inner, weight,
                         columns, 0.0f, output, columns);
}

static void add_bias_and_activate(const fl_mixer_block *block, const char *name,
                                  fl_gate_activation activation, size_t columns, float *x) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const float *bias = fl_mechanism_find(plan->mechanism, plan->layer, name);
    for (size_t token = 0; token < block->tokens; token++) {
        for (size_t i = 0; i < columns; i++) x[token * columns + i] += bias[i];
    }
    activate(activation, block->tokens * columns, x);
}

static void project_gates(const fl_mixer_block *block) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_scratch *scratch = block->scratch;
    size_t model_dim = plan->shape.model_dim, heads = plan->shape.query_heads;
    size_t columns = heads * plan->gate_width;
    if (plan->rule->gate == FL_GATE_CHANNEL && plan->variant->gate_source == FL_GATE_PROJECTED) {
        size_t rank = plan->variant->gate_rank;
        project(block, rank, model_dim, block->input, "gate.w1", scratch->gate_low);
        project(block, columns, rank, scratch->gate_low, "gate.w2", scratch->gate);
    } else if (plan->rule->gate == FL_GATE_SCALAR && plan->variant->gate_source == FL_GATE_PROJECTED) {
        project(block, columns, model_dim, block->input, "gate.weight", scratch->gate);
    } else if (plan->rule->gate != FL_GATE_NONE) {
        float value = constant_gate(plan->rule->gate_activation, plan->variant->gate_value);
        for (size_t i = 0; i < block->tokens * columns; i++) scratch->gate[i] = value;
    }
    if (!plan->rule->beta) return;
    if (plan->variant->beta_source == FL_GATE_PROJECTED) {
        project(block, heads, model_dim, block->input, "beta.weight", scratch->beta);
        add_bias_and_activate(block, "beta.bias", plan->rule->beta_activation, heads, scratch->beta);
        return;
    }
    float value = constant_gate(plan->rule->beta_activation, plan->variant->beta_value);
    for (size_t i = 0; i < block->tokens * heads; i++) scratch->beta[i] = value;
}

/* The gate of one head and token: bias and activation are left to the workers, being most of the arithmetic.
 */
static void activate_gate(const fl_mixer_plan *plan, const float *bias, size_t head, float *gate) {
    if (bias == NULL) return;
    const float *of_head = bias + head * plan->gate_width;
    for (size_t i = 0; i < plan->gate_width; i++) gate[i] += of_head[i];
    activate(plan->rule->gate_activation, plan->gate_width, gate);
}

/* Convolution. */

static void convolve(const fl_mixer_block *block) {
    fl_mixer *mixer = block->mixer;
    const fl_mixer_plan *plan = &mixer->plan;
    static const char *const names[3][2] = {
        {"conv.q.weight", "conv.q.bias"}, {"conv.k.weight", "conv.k.bias"}, {"conv.v.weight", "conv.v.bias"}};
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
                                   .weight = fl_mechanism_find(plan->mechanism, plan->layer, names[i][0]),
                                   .bias = fl_mechanism_find(plan->mechanism, plan->layer, names[i][1]),
                                   .taps = block->scratch->taps,
                                   .output = block->scratch->convolved[i]};
        fl_short_conv_run(plan->compute->threads, &call);
        fl_short_conv_remember(&call, mixer->history[i]);
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
    if (plan->gate_width > 0) input.gate = scratch->gate + (token * heads + head) * plan->gate_width;
    if (plan->rule->beta) input.beta = scratch->beta[token * heads + head];
    return input;
}

/* A rule with own hooks keeps its inputs until they are written. */
static void keep_inputs(const fl_mixer_plan *plan, const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_raw_inputs(input, output);
    if (output->log_decay != NULL) memcpy(output->log_decay, input->gate, plan->gate_width * sizeof(float));
    if (output->erase_strength != NULL) output->erase_strength[0] = input->beta;
}

/* Where token `token` of the block is put: the stream row of the step at which it leaves the window, or the
 * row in which it waits beyond this block; sinks are never written. */
static fl_rule_output target_of(const fl_mixer_block *block, size_t head, size_t token, size_t worker) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    size_t position = block->first + token, window = plan->variant->window;
    if (position < plan->variant->sinks)
        return fl_write_row_output(&block->unused_layout, &block->unused, worker, 0);
    if (token + window < block->tokens)
        return fl_write_row_output(&plan->layout, &block->stream, head, token + window);
    return fl_write_row_output(&plan->layout, &block->mixer->pending, head, position % window);
}

typedef struct fl_prepare_context {
    const fl_mixer_block *block;
    const float *gate_bias; /* NULL: the gate is activated already */
} fl_prepare_context;

static void prepare_token(const fl_prepare_context *context, size_t head, size_t token, size_t worker) {
    const fl_mixer_block *block = context->block;
    const fl_mixer_plan *plan = &block->mixer->plan;
    fl_rule_input input = fl_mixer_rule_input(block, head, token);
    fl_rule_output output = target_of(block, head, token, worker);
    size_t row = plan->micro_steps * plan->key_dim;
    float *query = block->scratch->query + (head * block->tokens + token) * row;
    if (plan->micro_steps > 1) memset(query, 0, (row - plan->key_dim) * sizeof *query);
    output.query = query + row - plan->key_dim;
    if (input.gate != NULL) activate_gate(plan, context->gate_bias, head, (float *)input.gate);
    if (plan->own) {
        keep_inputs(plan, &input, &output);
    } else {
        plan->rule->prepare(&input, &output);
        if (plan->variant->normaliser) output.value[plan->value_dim - 1] = 1.0f;
    }
}

static void prepare_item(void *argument, size_t item, size_t worker) {
    const fl_prepare_context *context = argument;
    const fl_mixer_block *block = context->block;
    size_t heads = block->mixer->plan.shape.query_heads;
    size_t first = item / heads * PREPARE_BLOCK;
    size_t end = first + PREPARE_BLOCK < block->tokens ? first + PREPARE_BLOCK : block->tokens;
    for (size_t token = first; token < end; token++) prepare_token(context, item % heads, token, worker);
}

/* The stream rows that this block's own tokens do not fill: tokens that waited, and null writes. */
static void release_waiting(void *argument, size_t head, size_t worker) {
    (void)worker;
    const fl_mixer_block *block = ((const fl_prepare_context *)argument)->block;
    const fl_mixer_plan *plan = &block->mixer->plan;
    size_t window = plan->variant->window;
    for (size_t step = 0; step < block->tokens; step++) {
        size_t leaving = fl_mixer_leaving(plan, block->first + step);
        if (leaving == FL_POSITION_NONE) {
            fl_write_row_clear(&plan->layout, &block->stream, head, step);
        } else if (leaving < block->first) {
            fl_write_row_copy(&plan->layout, &block->stream, step, &block->mixer->pending, leaving % window,
                              head);
        }
    }
}

void fl_mixer_prepare(fl_mixer_block *block) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    size_t heads = plan->shape.query_heads;
    bool projected = plan->rule->gate != FL_GATE_NONE && plan->variant->gate_source == FL_GATE_PROJECTED;
    fl_prepare_context context = {
        block, projected ? fl_mechanism_find(plan->mechanism, plan->layer, "gate.bias") : NULL};
    project_gates(block);
    convolve(block);
    fl_threads_for(plan->compute->threads, heads, release_waiting, &context);
    size_t items = heads * ((block->tokens + PREPARE_BLOCK - 1) / PREPARE_BLOCK);
    fl_threads_for(plan->compute->threads, items, prepare_item, &context);
}
