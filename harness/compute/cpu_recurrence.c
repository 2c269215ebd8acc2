#include "harness/compute/cpu_recurrence.h"

/* Fewer steps than this go through the step form when the caller leaves the choice. */
enum { CHUNK_FROM = 16 };

static const float *offset(const float *base, size_t floats) {
    return base == NULL ? NULL : base + floats;
}

fl_recurrence_head fl_recurrence_head_at(fl_transition transition, const fl_recurrence_inputs *inputs,
                                         fl_recurrence_rows rows, size_t head, size_t key_dim,
                                         size_t value_dim) {
    size_t tokens = head * rows.write, keys = tokens * key_dim;
    fl_recurrence_head h = {.key_dim = key_dim, .value_dim = value_dim, .norm_values = value_dim};
    h.query = offset(fl_cpu_floats(inputs->query), head * rows.read * key_dim);
    h.key = offset(fl_cpu_floats(inputs->key), keys);
    h.value = offset(fl_cpu_floats(inputs->value), tokens * value_dim);
    h.write = offset(fl_cpu_floats(inputs->write), tokens);
    h.decay_width = transition.decay == FL_DECAY_CHANNEL  ? key_dim
                    : transition.decay == FL_DECAY_SCALAR ? 1
                                                          : 0;
    if (h.decay_width > 0) h.log_decay = offset(fl_cpu_floats(inputs->log_decay), tokens * h.decay_width);
    h.erases = transition.erase != FL_ERASE_NONE;
    h.own_directions = transition.erase == FL_ERASE_DIRECTIONS;
    if (h.erases) {
        h.erase_strength = offset(fl_cpu_floats(inputs->erase_strength), tokens);
        h.erase_read = h.own_directions ? offset(fl_cpu_floats(inputs->erase_read), keys) : h.key;
        h.erase_write = h.own_directions ? offset(fl_cpu_floats(inputs->erase_write), keys) : h.key;
    }
    return h;
}

fl_status fl_recurrence_check(fl_transition transition, const fl_recurrence_inputs *inputs, size_t heads,
                              size_t steps, fl_error *error) {
    if (heads == 0 || steps == 0) return FL_OK;
    const char *missing = NULL;
    if (!fl_array_is(inputs->key)) missing = "key";
    if (!fl_array_is(inputs->value)) missing = "value";
    if (transition.decay != FL_DECAY_NONE && !fl_array_is(inputs->log_decay)) missing = "log_decay";
    if (transition.erase != FL_ERASE_NONE && !fl_array_is(inputs->erase_strength)) missing = "erase_strength";
    if (transition.erase == FL_ERASE_DIRECTIONS && !fl_array_is(inputs->erase_read)) missing = "erase_read";
    if (transition.erase == FL_ERASE_DIRECTIONS && !fl_array_is(inputs->erase_write)) missing = "erase_write";
    if (missing == NULL) return FL_OK;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "recurrence: the transition needs %s, which is missing",
                        missing);
}

typedef struct {
    fl_cpu *cpu;
    const fl_recurrence_call *call;
    bool chunked;
} recurrence_context;

static void recurrence_item(void *context, size_t item, size_t worker) {
    const recurrence_context *c = context;
    const fl_recurrence_call *call = c->call;
    fl_recurrence_rows rows = fl_recurrence_rows_of(call->rows, call->steps);
    fl_recurrence_head head =
        fl_recurrence_head_at(call->transition, &call->inputs, rows, item, call->key_dim, call->value_dim);
    if (call->norm_values > 0) head.norm_values = call->norm_values;
    float *state = fl_cpu_floats(call->state) + item * call->value_dim * call->key_dim;
    float *output = fl_cpu_floats(!fl_array_is(call->output)
                                      ? fl_array_none
                                      : fl_array_from(call->output, item * rows.read * call->value_dim));
    float *norm = fl_cpu_floats(
        !fl_array_is(call->state_norm) ? fl_array_none : fl_array_from(call->state_norm, item * rows.read));
    fl_chunk chunk;
    fl_chunk_carve(&chunk, fl_cpu_scratch(c->cpu, worker), call->key_dim, call->value_dim);
    if (c->chunked) {
        fl_recurrence_chunk_tokens(c->cpu->kernels, &head, 0, call->steps, state, output, &chunk);
    } else {
        fl_recurrence_step_tokens(c->cpu->kernels, &head, 0, call->steps, state, output, norm, chunk.decay);
    }
}

fl_status fl_cpu_recurrence(fl_compute *compute, const fl_recurrence_call *call, fl_error *error) {
    FL_TRY(fl_recurrence_check(call->transition, &call->inputs, call->heads, call->steps, error));
    if (call->steps == 0 || call->heads == 0) return FL_OK;
    if (fl_array_is(call->output) && !fl_array_is(call->inputs.query)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "recurrence: output is wanted, but query is missing");
    }
    recurrence_context c = {fl_cpu_of(compute), call, call->mode == FL_RECURRENCE_CHUNK};
    if (call->mode == FL_RECURRENCE_AUTO) c.chunked = call->steps >= CHUNK_FROM;
    if (fl_array_is(call->state_norm)) c.chunked = false;
    FL_TRY(fl_cpu_reserve_scratch(c.cpu, fl_chunk_floats(call->key_dim, call->value_dim), error));
    fl_threads_for(compute->threads, call->heads, recurrence_item, &c);
    return FL_OK;
}
