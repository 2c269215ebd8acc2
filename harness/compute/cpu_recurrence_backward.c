/* Gradients of the recurrence, a head an item. The states at every FL_CHUNK_TOKENS-th token are kept from a
 * pass over the sequence; within such a segment the states at the starts of its pieces are made again.
 * Memory: steps / FL_CHUNK_TOKENS + as many states again as a segment has pieces, for each worker. */
#include "harness/compute/cpu_recurrence_backward.h"

#include <string.h>

#include "harness/base/memory.h"

enum { BACKWARD_BUFFERS = 9, CHUNK_FROM = 16 };

static void buffer_sizes(size_t key_dim, size_t value_dim, size_t sizes[BACKWARD_BUFFERS]) {
    size_t n = FL_CHUNK_TOKENS, state = key_dim * value_dim;
    const size_t wanted[BACKWARD_BUFFERS] = {state,      state,           state,           2 * n * value_dim,
                                             4 * n * n,  2 * n * key_dim, 2 * n * key_dim, 2 * n * value_dim,
                                             2 * key_dim};
    for (size_t i = 0; i < BACKWARD_BUFFERS; i++) sizes[i] = (wanted[i] + 15) / 16 * 16;
}

static size_t backward_floats(size_t key_dim, size_t value_dim) {
    size_t sizes[BACKWARD_BUFFERS], total = fl_chunk_floats(key_dim, value_dim);
    buffer_sizes(key_dim, value_dim, sizes);
    for (size_t i = 0; i < BACKWARD_BUFFERS; i++) total += sizes[i];
    return total;
}

static void carve(fl_backward_scratch *s, float *scratch, size_t key_dim, size_t value_dim) {
    size_t sizes[BACKWARD_BUFFERS];
    float *at[BACKWARD_BUFFERS], *next = fl_chunk_carve(&s->chunk, scratch, key_dim, value_dim);
    buffer_sizes(key_dim, value_dim, sizes);
    for (size_t i = 0; i < BACKWARD_BUFFERS; i++) {
        at[i] = next;
        next += sizes[i];
    }
    s->state = at[0];
    s->decayed = at[1];
    s->gradient_state = at[2];
    s->gradient_base = at[3];
    s->gradient_raw = at[4];
    s->gradient_readers = at[5];
    s->gradient_sources = at[6];
    s->gradient_amounts = at[7];
    s->running = (double *)(void *)at[8];
}

typedef struct {
    fl_cpu *cpu;
    const fl_recurrence_backward_call *call;
    bool chunked;
    size_t segments;
    float *states; /* [workers][segments + FL_CHUNK_TOKENS][Dv][Dk] */
} backward_context;

static fl_recurrence_gradients head_gradients(const fl_recurrence_backward_call *call, size_t head,
                                              size_t decay_width) {
    const fl_recurrence_gradients *g = &call->gradients;
    fl_recurrence_rows rows = fl_recurrence_rows_of(call->rows, call->steps);
    size_t tokens = head * rows.write, keys = tokens * call->key_dim;
    return (fl_recurrence_gradients){
        .query = fl_array_from(g->query, head * rows.read * call->key_dim),
        .key = fl_array_from(g->key, keys),
        .value = fl_array_from(g->value, tokens * call->value_dim),
        .log_decay = fl_array_from(g->log_decay, tokens * decay_width),
        .erase_strength = fl_array_from(g->erase_strength, tokens),
        .erase_read = fl_array_from(g->erase_read, keys),
        .erase_write = fl_array_from(g->erase_write, keys),
        .write = fl_array_from(g->write, tokens),
        .initial_state = fl_array_from(g->initial_state, head * call->value_dim * call->key_dim)};
}

/* Cuts a segment into pieces: start[i] relative to `first`, start[count] = tokens. */
static size_t cut_segment(const backward_context *c, const fl_recurrence_head *head, size_t first,
                          size_t tokens, fl_chunk *chunk, size_t start[FL_CHUNK_TOKENS + 1]) {
    size_t count = 0;
    for (size_t t = 0; t < tokens;) {
        start[count++] = t;
        t += c->chunked ? fl_chunk_cut(c->cpu->kernels, head, first + t, tokens - t, chunk) : 1;
    }
    start[count] = tokens;
    return count;
}

/* The state after a piece. */
static void advance(const backward_context *c, const fl_recurrence_head *head, size_t first, size_t tokens,
                    fl_backward_scratch *s) {
    const fl_kernels *kernels = c->cpu->kernels;
    if (tokens == 1) {
        fl_recurrence_step_tokens(kernels, head, first, 1, s->state, NULL, NULL, s->chunk.decay);
    } else {
        fl_recurrence_chunk_tokens(kernels, head, first, tokens, s->state, NULL, &s->chunk);
    }
}

static void segment_backward(const backward_context *c, const fl_recurrence_head *head, size_t first,
                             size_t tokens, const float *entry, float *piece_states,
                             const float *gradient_output, const fl_recurrence_gradients *gradients,
                             fl_backward_scratch *s) {
    size_t size = head->key_dim * head->value_dim, start[FL_CHUNK_TOKENS + 1];
    size_t count = cut_segment(c, head, first, tokens, &s->chunk, start);
    memcpy(s->state, entry, size * sizeof *entry);
    for (size_t i = 0; i < count; i++) {
        memcpy(piece_states + i * size, s->state, size * sizeof *entry);
        if (i + 1 < count) advance(c, head, first + start[i], start[i + 1] - start[i], s);
    }
    for (size_t i = count; i-- > 0;) {
        memcpy(s->state, piece_states + i * size, size * sizeof *entry);
        if (start[i + 1] - start[i] == 1) {
            fl_step_backward(c->cpu->kernels, head, first + start[i], gradient_output, gradients, s);
        } else {
            fl_chunk_backward(c->cpu->kernels, head, first + start[i], start[i + 1] - start[i],
                              gradient_output, gradients, s);
        }
    }
}

static void backward_item(void *context, size_t item, size_t worker) {
    const backward_context *c = context;
    const fl_recurrence_backward_call *call = c->call;
    size_t size = call->key_dim * call->value_dim, bytes = size * sizeof(float);
    fl_recurrence_rows rows = fl_recurrence_rows_of(call->rows, call->steps);
    fl_recurrence_head head =
        fl_recurrence_head_at(call->transition, &call->inputs, rows, item, call->key_dim, call->value_dim);
    fl_recurrence_gradients gradients = head_gradients(call, item, head.decay_width);
    const float *gradient_output = fl_cpu_floats(call->gradient_output) + item * rows.read * call->value_dim;
    float *segment_states = c->states + worker * (c->segments + FL_CHUNK_TOKENS) * size;
    float *piece_states = segment_states + c->segments * size;
    fl_backward_scratch s;
    carve(&s, fl_cpu_scratch(c->cpu, worker), call->key_dim, call->value_dim);
    memset(s.state, 0, bytes);
    if (fl_array_is(call->initial_state))
        memcpy(s.state, fl_cpu_floats(call->initial_state) + item * size, bytes);
    for (size_t i = 0; i < c->segments; i++) {
        memcpy(segment_states + i * size, s.state, bytes);
        if (i + 1 == c->segments) break;
        size_t start[FL_CHUNK_TOKENS + 1], first = i * FL_CHUNK_TOKENS;
        size_t count = cut_segment(c, &head, first, FL_CHUNK_TOKENS, &s.chunk, start);
        for (size_t p = 0; p < count; p++) advance(c, &head, first + start[p], start[p + 1] - start[p], &s);
    }
    memset(s.gradient_state, 0, bytes);
    if (fl_array_is(call->gradient_final_state))
        memcpy(s.gradient_state, fl_cpu_floats(call->gradient_final_state) + item * size, bytes);
    for (size_t i = c->segments; i-- > 0;) {
        size_t first = i * FL_CHUNK_TOKENS, left = call->steps - first;
        segment_backward(c, &head, first, left < FL_CHUNK_TOKENS ? left : FL_CHUNK_TOKENS,
                         segment_states + i * size, piece_states, gradient_output, &gradients, &s);
    }
    if (fl_array_is(gradients.initial_state))
        memcpy(fl_cpu_floats(gradients.initial_state), s.gradient_state, bytes);
}

fl_status fl_cpu_recurrence_backward(fl_compute *compute, const fl_recurrence_backward_call *call,
                                     fl_error *error) {
    FL_TRY(fl_recurrence_check(call->transition, &call->inputs, call->heads, call->steps, error));
    if (call->steps > 0 && call->heads > 0 &&
        (!fl_array_is(call->inputs.query) || !fl_array_is(call->gradient_output))) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "recurrence gradient: %s is missing",
                            !fl_array_is(call->inputs.query) ? "query" : "gradient_output");
    }
    backward_context c = {fl_cpu_of(compute), call, call->mode == FL_RECURRENCE_CHUNK,
                          (call->steps + FL_CHUNK_TOKENS - 1) / FL_CHUNK_TOKENS, NULL};
    if (call->mode == FL_RECURRENCE_AUTO) c.chunked = call->steps >= CHUNK_FROM;
    FL_TRY(fl_cpu_reserve_scratch(c.cpu, backward_floats(call->key_dim, call->value_dim), error));
    size_t states = 0;
    FL_TRY(fl_memory_multiply(c.cpu->workers * (c.segments + FL_CHUNK_TOKENS),
                              call->key_dim * call->value_dim, &states, "states of the recurrence", error));
    FL_TRY(FL_ALLOCATE(&c.states, states, error));
    fl_threads_for(compute->threads, call->heads, backward_item, &c);
    fl_memory_free(c.states);
    return FL_OK;
}
