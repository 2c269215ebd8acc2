/* Prepare (prepare.h): blocks of one head's tokens forward, heads backward, since a head's tokens add to one
 * slice of the parameters' gradients. */
#include <assert.h>
#include <string.h>

#include "harness/compute/cpu_backend.h"

enum { PREPARE_TOKENS = 32 /* of one head that a worker prepares at a time */ };

/* Row `at` of the call's gates and factors as the rule takes them. */
static fl_rule_input input_of(const fl_prepare_call *call, size_t head, size_t token) {
    size_t heads = call->rule->heads, dim = call->rule->head_dim, at = token * heads + head;
    size_t of_key = (token * call->key_heads + head / (heads / call->key_heads)) * dim;
    fl_rule_input input = fl_rule_layer_input(call->rule, head);
    input.position = call->first_position + token;
    input.query = fl_cpu_floats(call->query) + at * dim;
    input.key = fl_cpu_floats(call->key) + of_key;
    input.value = fl_cpu_floats(call->value) + of_key;
    if (fl_array_is(call->gate)) input.gate = fl_cpu_floats(call->gate) + at * call->gate_width;
    if (fl_array_is(call->beta)) input.beta = fl_cpu_floats(call->beta)[at];
    for (size_t i = 0; i < FL_RULE_MAX_FACTORS; i++) {
        if (fl_array_is(call->factors[i]))
            input.factors[i] = fl_cpu_floats(call->factors[i]) + at * call->factor_width[i];
    }
    return input;
}

static float *read_row(const fl_prepare_call *call, float *read, size_t head, size_t token) {
    size_t dim = call->layout.key_dim, micro = call->layout.micro_steps;
    return read + ((head * call->tokens + token + 1) * micro - 1) * dim;
}

static void copy(float *to, const float *from, size_t count) {
    memcpy(to, from, count * sizeof *to);
}

/* Forward. */

static void keep_inputs(const fl_prepare_call *call, const fl_rule_input *input, fl_rule_output *output) {
    size_t dim = call->rule->head_dim;
    copy(output->query, input->query, dim);
    copy(output->key, input->key, dim);
    copy(output->value, input->value, dim);
    if (output->log_decay != NULL) copy(output->log_decay, input->gate, call->gate_width);
    if (output->erase_strength != NULL) output->erase_strength[0] = input->beta;
    for (size_t i = 0; i < FL_RULE_MAX_FACTORS; i++) {
        if (input->factors[i] != NULL) copy(output->factors[i], input->factors[i], call->factor_width[i]);
    }
}

static void prepare_token(const fl_prepare_call *call, size_t head, size_t token) {
    const fl_rule_functions *rule = &call->rule->rule;
    size_t row = call->first_row + token, dim = call->layout.key_dim, micro = call->layout.micro_steps;
    fl_rule_input input = input_of(call, head, token);
    fl_rule_output output = fl_write_row_output(&call->layout, &call->written, head, row);
    output.query = read_row(call, fl_cpu_floats(call->read), head, token);
    if (micro > 1) memset(output.query - (micro - 1) * dim, 0, (micro - 1) * dim * sizeof(float));
    if (fl_array_is(call->bonus))
        output.bonus = fl_cpu_floats(call->bonus) + (token * call->rule->heads + head) * call->rule->head_dim;
    if (call->own) {
        keep_inputs(call, &input, &output);
        if (output.bonus != NULL) rule->bonus(&input, output.bonus);
    } else {
        rule->prepare(&input, &output);
        if (call->normaliser) output.value[call->layout.value_dim - 1] = 1.0f;
        for (size_t i = 0; call->scale != 1.0f && i < dim; i++) output.query[i] *= call->scale;
    }
    float kept = token >= call->bonus_from ? call->scale : 0.0f;
    for (size_t i = 0; output.bonus != NULL && i < call->rule->head_dim; i++) output.bonus[i] *= kept;
    if (token < call->null_tokens) fl_write_row_clear(&call->layout, &call->written, head, row);
}

static void prepare_item(void *context, size_t item, size_t worker) {
    (void)worker;
    const fl_prepare_call *call = context;
    size_t heads = call->rule->heads, first = item / heads * PREPARE_TOKENS;
    size_t end = first + PREPARE_TOKENS < call->tokens ? first + PREPARE_TOKENS : call->tokens;
    for (size_t token = first; token < end; token++) prepare_token(call, item % heads, token);
}

void fl_cpu_prepare(fl_compute *compute, const fl_prepare_call *call) {
    size_t items = call->rule->heads * ((call->tokens + PREPARE_TOKENS - 1) / PREPARE_TOKENS);
    fl_threads_for(compute->threads, items, prepare_item, (void *)call);
}

static void bonus_token(void *context, size_t token, size_t worker) {
    (void)worker;
    const fl_bonus_call *call = context;
    for (size_t head = 0; head < call->heads; head++) {
        size_t value_head = head / (call->heads / call->value_heads);
        const float *bonus = fl_cpu_floats(call->bonus) + (token * call->heads + head) * call->head_dim;
        const float *value =
            fl_cpu_floats(call->value) + (token * call->value_heads + value_head) * call->head_dim;
        float *read = fl_cpu_floats(call->read) + token * call->read_stride + head * call->read_head_stride;
        for (size_t i = 0; i < call->head_dim; i++) read[i] += bonus[i] * value[i];
    }
}

void fl_cpu_add_bonus(fl_compute *compute, const fl_bonus_call *call) {
    fl_threads_for(compute->threads, call->tokens, bonus_token, (void *)call);
}

/* Backward. */

typedef struct fl_head_sums {
    size_t heads, sources, head_dim;
    const float *x;
    float *to;
} fl_head_sums;

static void add_token_heads(void *context, size_t token, size_t worker) {
    (void)worker;
    const fl_head_sums *sums = context;
    size_t dim = sums->head_dim, group = sums->heads / sums->sources;
    for (size_t head = 0; head < sums->heads; head++) {
        const float *x = sums->x + (token * sums->heads + head) * dim;
        float *to = sums->to + (token * sums->sources + head / group) * dim;
        for (size_t i = 0; i < dim; i++) to[i] += x[i];
    }
}

void fl_cpu_add_heads(fl_compute *compute, size_t tokens, size_t heads, size_t sources, size_t head_dim,
                      fl_array x, fl_array to) {
    fl_head_sums sums = {heads, sources, head_dim, fl_cpu_floats(x), fl_cpu_floats(to)};
    fl_threads_for(compute->threads, tokens, add_token_heads, &sums);
}

typedef struct fl_prepare_backward_work {
    fl_cpu *cpu;
    const fl_prepare_call *call;
    const fl_prepare_gradients *gradients;
} fl_prepare_backward_work;

static void hand_back_inputs(const fl_prepare_call *call, const fl_rule_output_gradient *gradient,
                             fl_rule_input_gradient *out) {
    size_t dim = call->rule->head_dim;
    copy(out->query, gradient->query, dim);
    copy(out->key, gradient->key, dim);
    copy(out->value, gradient->value, dim);
    if (out->gate != NULL) copy(out->gate, gradient->log_decay, call->gate_width);
    if (out->beta != NULL) out->beta[0] = gradient->erase_strength[0];
    for (size_t i = 0; i < FL_RULE_MAX_FACTORS; i++) {
        if (out->factors[i] != NULL) copy(out->factors[i], gradient->factors[i], call->factor_width[i]);
    }
}

/* Of what a token wrote; of one that wrote nothing, the zeros of `nothing`. */
static fl_rule_output_gradient written_gradient(const fl_prepare_backward_work *work, size_t head,
                                                size_t token, float *nothing) {
    const fl_prepare_call *call = work->call;
    const fl_prepare_gradients *given = work->gradients;
    size_t row = call->first_row + token;
    bool written = token >= call->null_tokens;
    if (fl_array_is(given->row_of)) {
        int32_t at = fl_cpu_integers(
            given->row_of)[head / (call->rule->heads / given->kv_heads) * call->tokens + token];
        written = at >= 0;
        row = (size_t)at;
    }
    if (written && row < given->steps) return fl_write_row_output(&call->layout, given->written, head, row);
    fl_write_layout one = call->layout;
    one.heads = 1;
    fl_write_rows zeros = fl_write_rows_in(&one, 1, fl_cpu_array(nothing));
    memset(nothing, 0, one.row_floats * sizeof *nothing);
    return fl_write_row_output(&one, &zeros, 0, 0);
}

static fl_rule_input_gradient results_of(const fl_prepare_backward_work *work, size_t at) {
    const fl_prepare_gradients *to = work->gradients;
    size_t dim = work->call->rule->head_dim;
    fl_rule_input_gradient out = {.query = fl_cpu_floats(to->query) + at * dim,
                                  .key = fl_cpu_floats(to->key) + at * dim,
                                  .value = fl_cpu_floats(to->value) + at * dim,
                                  .parameters = to->parameters};
    if (fl_array_is(to->gate)) out.gate = fl_cpu_floats(to->gate) + at * work->call->gate_width;
    if (fl_array_is(to->beta)) out.beta = fl_cpu_floats(to->beta) + at;
    for (size_t i = 0; i < FL_RULE_MAX_FACTORS; i++) {
        if (fl_array_is(to->factors[i]))
            out.factors[i] = fl_cpu_floats(to->factors[i]) + at * work->call->factor_width[i];
    }
    return out;
}

/* Of y = scale (S q + bonus v): dLoss/d(bonus) = scale g v, and dLoss/dv gets scale bonus g; the bonus that
 * is kept is scaled already. */
static const float *output_gradient(const fl_prepare_backward_work *work, size_t head, size_t token) {
    const fl_prepare_call *call = work->call;
    size_t row = (head * call->tokens + token + 1) * call->layout.micro_steps - 1;
    return fl_cpu_floats(work->gradients->output) + row * call->layout.value_dim;
}

static void token_backward(const fl_prepare_backward_work *work, size_t head, size_t token, float *nothing) {
    const fl_prepare_call *call = work->call;
    const fl_rule_functions *rule = &call->rule->rule;
    size_t at = token * call->rule->heads + head, dim = call->rule->head_dim;
    float bonus[FL_RULE_MAX_HEAD_DIM];
    fl_rule_input input = input_of(call, head, token);
    fl_rule_input_gradient out = results_of(work, at);
    fl_rule_output_gradient gradient = written_gradient(work, head, token, nothing);
    gradient.query = read_row(call, fl_cpu_floats(work->gradients->read), head, token);
    if (fl_array_is(call->bonus)) {
        const float *of_output = output_gradient(work, head, token);
        float scale = token >= call->bonus_from ? call->scale : 0.0f;
        for (size_t i = 0; i < dim; i++) bonus[i] = scale * of_output[i] * input.value[i];
        gradient.bonus = bonus;
    }
    if (call->own) {
        hand_back_inputs(call, &gradient, &out);
        if (fl_array_is(call->bonus)) rule->bonus_backward(&input, bonus, &out);
    } else {
        for (size_t i = 0; call->scale != 1.0f && i < call->layout.key_dim; i++)
            gradient.query[i] *= call->scale;
        rule->prepare_backward(&input, &gradient, &out);
    }
    if (!fl_array_is(call->bonus)) return;
    const float *of_output = output_gradient(work, head, token);
    for (size_t i = 0; i < dim; i++) out.value[i] += fl_cpu_floats(call->bonus)[at * dim + i] * of_output[i];
}

static void backward_head(void *context, size_t head, size_t worker) {
    const fl_prepare_backward_work *work = context;
    float *nothing = fl_cpu_scratch(work->cpu, worker);
    for (size_t token = 0; token < work->call->tokens; token++) token_backward(work, head, token, nothing);
}

void fl_cpu_prepare_backward(fl_compute *compute, const fl_prepare_call *call,
                             const fl_prepare_gradients *gradients) {
    fl_prepare_backward_work work = {fl_cpu_of(compute), call, gradients};
    assert(call->layout.row_floats <= FL_CPU_FIXED_SCRATCH);
    fl_threads_for(compute->threads, call->rule->heads, backward_head, &work);
}
