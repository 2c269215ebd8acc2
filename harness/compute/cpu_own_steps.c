/* Rules with a step of their own (own_steps.h), a head an item. */
#include <math.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/compute/cpu_backend.h"
#include "harness/compute/vector_math.h"

/* The position that is written at `step`, or -1. */
static int64_t written_position(const fl_own_steps_call *call, size_t head, size_t step) {
    if (fl_array_is(call->positions))
        return fl_cpu_integers(
            call->positions)[head / (call->rule->heads / call->kv_heads) * call->tokens + step];
    size_t position = call->first_position + step;
    if (position < call->delay || position - call->delay < call->sinks) return -1;
    return (int64_t)(position - call->delay);
}

/* What is written at `step`; false where nothing is. */
static bool writing_at(const fl_own_steps_call *call, size_t head, size_t step, fl_rule_input *token) {
    int64_t position = written_position(call, head, step);
    if (position < 0) return false;
    fl_rule_output row = fl_write_row_output(&call->layout, &call->written, head, step);
    *token = fl_rule_layer_input(call->rule, head);
    token->position = (size_t)position;
    token->key = row.key;
    token->value = row.value;
    token->gate = row.log_decay;
    token->beta = row.erase_strength == NULL ? 0.0f : row.erase_strength[0];
    for (size_t i = 0; i < FL_RULE_MAX_FACTORS; i++) token->factors[i] = row.factors[i];
    return true;
}

static fl_rule_input reading_at(const fl_own_steps_call *call, size_t head, size_t step) {
    fl_rule_input token = fl_rule_layer_input(call->rule, head);
    token.position = call->first_position + step;
    token.query = fl_cpu_floats(call->query) + (head * call->tokens + step) * call->rule->head_dim;
    return token;
}

static void write_at(const fl_own_steps_call *call, size_t head, size_t step, float *state) {
    fl_rule_input token;
    if (writing_at(call, head, step, &token)) call->rule->rule.write(&token, state);
}

static void init_head(const fl_rule_layer *rule, size_t state_floats, size_t head, float *state) {
    memset(state, 0, state_floats * sizeof *state);
    if (rule->rule.init == NULL) return;
    fl_rule_input input = fl_rule_layer_input(rule, head);
    rule->rule.init(&input, state);
}

void fl_cpu_own_init(fl_compute *compute, const fl_rule_layer *rule, size_t state_floats, fl_array state) {
    (void)compute;
    for (size_t head = 0; head < rule->heads; head++)
        init_head(rule, state_floats, head, fl_cpu_floats(state) + head * state_floats);
}

/* Forward. */

static void advance_head(void *context, size_t head, size_t worker) {
    (void)worker;
    const fl_own_steps_call *call = context;
    size_t dim = call->rule->head_dim;
    float *state = fl_cpu_floats(call->state) + head * call->state_floats;
    for (size_t step = call->first_step; step < call->first_step + call->steps; step++) {
        size_t at = head * call->tokens + step;
        write_at(call, head, step, state);
        fl_rule_input token = reading_at(call, head, step);
        float *output = fl_cpu_floats(call->output) + at * dim;
        call->rule->rule.read(&token, state, output);
        for (size_t i = 0; call->scale != 1.0f && i < dim; i++) output[i] *= call->scale;
        if (fl_array_is(call->state_norm))
            fl_cpu_floats(call->state_norm)[at] =
                (float)sqrt(fl_vector_sum_of_squares(call->state_floats, state));
    }
}

void fl_cpu_own_steps(fl_compute *compute, const fl_own_steps_call *call) {
    fl_threads_for(compute->threads, call->rule->heads, advance_head, (void *)call);
}

/* Backward: states are kept at about sqrt(T) steps and made again between them. */

typedef struct fl_own_backward {
    const fl_own_steps_call *call;
    const fl_own_steps_gradients *gradients;
    size_t segment, segments; /* steps of one, and how many */
    float *memory;            /* [workers][states_of_worker][state_floats] */
} fl_own_backward;

static void cut(fl_own_backward *work, size_t tokens) {
    work->segment = (size_t)ceil(sqrt((double)tokens));
    work->segments = (tokens + work->segment - 1) / work->segment;
}

/* The states at the start of every segment, those inside one with its end, and the gradient. */
static size_t states_of_worker(const fl_own_backward *work) {
    return work->segments + (work->segment + 1) + 1;
}

static void step_backward(const fl_own_backward *work, size_t head, size_t step, const float *before,
                          const float *after, float *gradient_state) {
    const fl_own_steps_call *call = work->call;
    const fl_own_steps_gradients *gradients = work->gradients;
    const fl_rule_functions *rule = &call->rule->rule;
    size_t dim = call->rule->head_dim, at = (head * call->tokens + step) * dim;
    fl_rule_input token = reading_at(call, head, step);
    fl_rule_input_gradient out = {.query = fl_cpu_floats(gradients->query) + at,
                                  .parameters = gradients->parameters};
    float of_output[FL_RULE_MAX_HEAD_DIM];
    for (size_t i = 0; i < dim; i++) of_output[i] = call->scale * fl_cpu_floats(gradients->output)[at + i];
    rule->read_backward(&token, after, of_output, gradient_state, &out);
    if (!writing_at(call, head, step, &token)) return;
    fl_rule_output row = fl_write_row_output(&call->layout, gradients->written, head, step);
    out = (fl_rule_input_gradient){.key = row.key,
                                   .value = row.value,
                                   .gate = row.log_decay,
                                   .beta = row.erase_strength,
                                   .parameters = gradients->parameters};
    memcpy(out.factors, row.factors, sizeof out.factors);
    rule->write_backward(&token, before, gradient_state, &out);
}

static void copy_state(const fl_own_backward *work, float *to, const float *from) {
    memcpy(to, from, work->call->state_floats * sizeof *to);
}

static void find_starts(const fl_own_backward *work, size_t head, float *starts) {
    const fl_own_steps_call *call = work->call;
    if (!fl_array_is(call->state))
        init_head(call->rule, call->state_floats, head, starts);
    else
        copy_state(work, starts, fl_cpu_floats(call->state) + head * call->state_floats);
    for (size_t i = 1; i < work->segments; i++) {
        float *state = starts + i * call->state_floats;
        copy_state(work, state, state - call->state_floats);
        for (size_t j = 0; j < work->segment; j++) write_at(call, head, (i - 1) * work->segment + j, state);
    }
}

static void backward_head(void *context, size_t head, size_t worker) {
    const fl_own_backward *work = context;
    size_t tokens = work->call->tokens, segment = work->segment, floats = work->call->state_floats;
    float *starts = work->memory + worker * states_of_worker(work) * floats;
    float *inside = starts + work->segments * floats, *gradient = inside + (segment + 1) * floats;
    memset(gradient, 0, floats * sizeof *gradient);
    find_starts(work, head, starts);
    for (size_t i = work->segments; i-- > 0;) {
        size_t first = i * segment, count = tokens - first < segment ? tokens - first : segment;
        copy_state(work, inside, starts + i * floats);
        for (size_t j = 0; j < count; j++) {
            float *after = inside + (j + 1) * floats;
            copy_state(work, after, after - floats);
            write_at(work->call, head, first + j, after);
        }
        for (size_t j = count; j-- > 0;) {
            step_backward(work, head, first + j, inside + j * floats, inside + (j + 1) * floats, gradient);
        }
    }
}

size_t fl_cpu_own_steps_backward_bytes(fl_compute *compute, size_t tokens, size_t state_floats) {
    fl_own_backward work = {0};
    cut(&work, tokens);
    return fl_threads_count(compute->threads) * states_of_worker(&work) * state_floats * sizeof(float);
}

fl_status fl_cpu_own_steps_backward(fl_compute *compute, const fl_own_steps_call *call,
                                    const fl_own_steps_gradients *gradients, fl_error *error) {
    if (call->tokens == 0) return FL_OK;
    fl_own_backward work = {.call = call, .gradients = gradients};
    cut(&work, call->tokens);
    size_t bytes = fl_cpu_own_steps_backward_bytes(compute, call->tokens, call->state_floats);
    FL_TRY(FL_ALLOCATE(&work.memory, bytes / sizeof(float), error));
    fl_threads_for(compute->threads, call->rule->heads, backward_head, &work);
    fl_memory_free(work.memory);
    return FL_OK;
}
