#include "attn_variants/mixer_own.h"

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/compute/vector_math.h"

/* What is written at `step`; false where nothing is. */
static bool writing_at(const fl_mixer_block *block, size_t head, size_t step, fl_rule_input *token) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    size_t written = block->scratch->written[head / plan->group * block->tokens + step];
    if (written == FL_POSITION_NONE) return false;
    fl_rule_output row = fl_write_row_output(&plan->layout, &block->stream, head, step);
    *token = fl_mixer_head_input(plan, head);
    token->position = written;
    token->key = row.key;
    token->value = row.value;
    token->gate = row.log_decay;
    token->beta = row.erase_strength == NULL ? 0.0f : row.erase_strength[0];
    for (size_t i = 0; i < FL_RULE_MAX_FACTORS; i++) token->factors[i] = row.factors[i];
    return true;
}

static fl_rule_input reading_at(const fl_mixer_block *block, size_t head, size_t step) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    fl_rule_input token = fl_mixer_head_input(plan, head);
    token.position = block->first + step;
    token.query = block->scratch->query + (head * block->tokens + step) * plan->key_dim;
    return token;
}

static void write_at(const fl_mixer_block *block, size_t head, size_t step, float *state) {
    fl_rule_input token;
    if (writing_at(block, head, step, &token)) block->mixer->plan.rule->own.write(&token, state);
}

/* Forward. */

typedef struct fl_own_work {
    const fl_mixer_block *block;
    size_t first, count;
} fl_own_work;

static void advance_head(void *context, size_t head, size_t worker) {
    (void)worker;
    const fl_own_work *work = context;
    const fl_mixer_block *block = work->block;
    const fl_mixer_plan *plan = &block->mixer->plan;
    float *state = block->mixer->state + head * plan->state_floats;
    for (size_t step = work->first; step < work->first + work->count; step++) {
        size_t at = head * block->tokens + step;
        write_at(block, head, step, state);
        fl_rule_input token = reading_at(block, head, step);
        float *read = block->scratch->read + at * plan->value_dim, scale = (float)plan->variant->scale;
        plan->rule->own.read(&token, state, read);
        for (size_t i = 0; scale != 1.0f && i < plan->value_dim; i++) read[i] *= scale;
        if (block->wants_norm)
            block->scratch->norm[at] = (float)sqrt(fl_vector_sum_of_squares(plan->state_floats, state));
    }
}

void fl_mixer_own_advance(const fl_mixer_block *block, size_t first, size_t count) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    fl_own_work work = {block, first, count};
    fl_threads_for(plan->compute->threads, plan->shape.query_heads, advance_head, &work);
}

/* Backward. */

typedef struct fl_own_backward {
    const fl_mixer_block *block;
    const fl_mixer_own_gradients *gradients;
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
    const fl_mixer_block *block = work->block;
    const fl_mixer_plan *plan = &block->mixer->plan;
    const fl_mixer_own_gradients *gradients = work->gradients;
    size_t at = head * block->tokens + step;
    fl_rule_input token = reading_at(block, head, step);
    fl_rule_input_gradient out = {.query = gradients->query + at * plan->key_dim,
                                  .parameters = gradients->parameters};
    float of_read[FL_RULE_MAX_HEAD_DIM], scale = (float)plan->variant->scale;
    for (size_t i = 0; i < plan->value_dim; i++)
        of_read[i] = scale * gradients->read[at * plan->value_dim + i];
    plan->rule->own.read_backward(&token, after, of_read, gradient_state, &out);
    if (!writing_at(block, head, step, &token)) return;
    fl_rule_output row = fl_write_row_output(&plan->layout, gradients->stream, head, step);
    out = (fl_rule_input_gradient){.key = row.key,
                                   .value = row.value,
                                   .gate = row.log_decay,
                                   .beta = row.erase_strength,
                                   .parameters = gradients->parameters};
    memcpy(out.factors, row.factors, sizeof out.factors);
    plan->rule->own.write_backward(&token, before, gradient_state, &out);
}

static void copy_state(const fl_mixer_plan *plan, float *to, const float *from) {
    memcpy(to, from, plan->state_floats * sizeof *to);
}

/* The states at the start of every segment. */
static void find_starts(const fl_own_backward *work, size_t head, float *starts) {
    const fl_mixer_plan *plan = &work->block->mixer->plan;
    const float *given = work->block->initial_state;
    if (given == NULL)
        fl_mixer_initial_state(plan, head, starts);
    else
        copy_state(plan, starts, given + head * plan->state_floats);
    for (size_t i = 1; i < work->segments; i++) {
        float *state = starts + i * plan->state_floats;
        copy_state(plan, state, state - plan->state_floats);
        for (size_t j = 0; j < work->segment; j++)
            write_at(work->block, head, (i - 1) * work->segment + j, state);
    }
}

static void backward_head(void *context, size_t head, size_t worker) {
    const fl_own_backward *work = context;
    const fl_mixer_plan *plan = &work->block->mixer->plan;
    size_t tokens = work->block->tokens, segment = work->segment, floats = plan->state_floats;
    float *starts = work->memory + worker * states_of_worker(work) * floats;
    float *inside = starts + work->segments * floats, *gradient = inside + (segment + 1) * floats;
    memset(gradient, 0, floats * sizeof *gradient);
    find_starts(work, head, starts);
    for (size_t i = work->segments; i-- > 0;) {
        size_t first = i * segment, count = tokens - first < segment ? tokens - first : segment;
        copy_state(plan, inside, starts + i * floats);
        for (size_t j = 0; j < count; j++) {
            float *after = inside + (j + 1) * floats;
            copy_state(plan, after, after - floats);
            write_at(work->block, head, first + j, after);
        }
        for (size_t j = count; j-- > 0;) {
            step_backward(work, head, first + j, inside + j * floats, inside + (j + 1) * floats, gradient);
        }
    }
}

static size_t memory_floats(const fl_mixer_plan *plan, const fl_own_backward *work) {
    return fl_threads_count(plan->compute->threads) * states_of_worker(work) * plan->state_floats;
}

size_t fl_mixer_own_backward_bytes(const fl_mixer_plan *plan, size_t tokens) {
    fl_own_backward work = {0};
    cut(&work, tokens);
    return memory_floats(plan, &work) * sizeof(float);
}

fl_status fl_mixer_own_backward(const fl_mixer_block *block, const fl_mixer_own_gradients *gradients,
                                fl_error *error) {
    const fl_mixer_plan *plan = &block->mixer->plan;
    if (plan->rule->own.write_backward == NULL) {
        return fl_error_set(error, FL_ERROR_UNSUPPORTED,
                            "rule %s has a step of its own without a derivative and cannot be trained",
                            plan->rule->name);
    }
    fl_own_backward work = {.block = block, .gradients = gradients};
    cut(&work, block->tokens);
    FL_TRY(FL_ALLOCATE(&work.memory, memory_floats(plan, &work), error));
    fl_threads_for(plan->compute->threads, plan->shape.query_heads, backward_head, &work);
    fl_memory_free(work.memory);
    return FL_OK;
}
