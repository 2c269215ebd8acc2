/* Kernels alone, without a model: products with weights of SmolLM2's shapes, exact softmax attention, and the
 * recurrence of every kind of transition, forward (chunk and step form) and backward. */

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/bench/bench_flops.h"
#include "harness/bench/bench_rows.h"
#include "harness/compute/key_value_rows.h"

/* Arrays of the instance that are released together. */
enum { MAX_BLOCKS = 16 };

typedef struct blocks {
    fl_compute *compute;
    size_t count;
    fl_array items[MAX_BLOCKS];
} blocks;

static void release(blocks *memory) {
    while (memory->count > 0) fl_compute_release(memory->compute, memory->items[--memory->count]);
}

static fl_status take(blocks *memory, size_t count, fl_number number, fl_array *out, fl_error *error) {
    FL_TRY(memory->compute->ops->allocate(memory->compute, count, number, out, error));
    memory->items[memory->count++] = *out;
    return FL_OK;
}

static fl_status zeros(blocks *memory, size_t count, fl_array *out, fl_error *error) {
    FL_TRY(take(memory, count, FL_FLOAT32, out, error));
    fl_compute_fill(memory->compute, *out, count, 0.0);
    return FL_OK;
}

/* Of the host. */
static fl_status draw(size_t count, double low, double high, uint64_t stream, float **out, fl_error *error) {
    fl_random random;
    FL_TRY(FL_ALLOCATE(out, count, error));
    fl_random_seed(&random, count, stream);
    for (size_t i = 0; i < count; i++) (*out)[i] = (float)(low + (high - low) * fl_random_uniform(&random));
    return FL_OK;
}

/* unit: the length of a row of `count` numbers is made 1. */
static fl_status drawn(blocks *memory, size_t rows, size_t count, double low, double high, bool unit,
                       fl_array *out, fl_error *error) {
    float *values = NULL;
    FL_TRY(draw(rows * count, low, high, memory->count + 1, &values, error));
    for (size_t r = 0; unit && r < rows; r++) fl_rule_unit(count, values + r * count, values + r * count);
    fl_status status = take(memory, rows * count, FL_FLOAT32, out, error);
    if (status == FL_OK) fl_compute_upload(memory->compute, *out, values, rows * count);
    fl_memory_free(values);
    return status;
}

static fl_status between(blocks *memory, size_t count, double low, double high, fl_array *out,
                         fl_error *error) {
    return drawn(memory, 1, count, low, high, false, out, error);
}

static fl_status unit_rows(blocks *memory, size_t rows, size_t dim, fl_array *out, fl_error *error) {
    return drawn(memory, rows, dim, -1, 1, true, out, error);
}

/* A product with a weight. */

typedef struct linear_case {
    fl_compute *compute;
    fl_weight *weight;
    size_t tokens;
    fl_array input, output;
} linear_case;

static fl_status run_linear(void *context, fl_error *error) {
    linear_case *c = context;
    c->compute->ops->linear(c->compute, c->weight, fl_array_none, c->tokens, c->input, c->output);
    return c->compute->ops->settle(c->compute, error);
}

static fl_status measure_linear(fl_bench *bench, size_t tokens, size_t rows, size_t columns,
                                fl_error *error) {
    blocks memory = {.compute = bench->compute};
    fl_status status = FL_OK;
    linear_case c = {.compute = bench->compute, .tokens = tokens};
    float *values = NULL;
    fl_bench_row row = {.group = "kernels", .name = "linear", .unit = "GFLOP/s"};
    row.flops = 2.0 * (double)tokens * (double)rows * (double)columns;
    row.work = 1e-9 * row.flops;
    if (tokens == 1) row.bytes = sizeof(float) * (double)rows * (double)columns;
    fl_bench_add_number(&row, "tokens", (double)tokens);
    fl_bench_add_number(&row, "rows", (double)rows);
    fl_bench_add_number(&row, "columns", (double)columns);
    FL_TRY_DONE(status, draw(rows * columns, -1, 1, 1, &values, error));
    FL_TRY_DONE(status, between(&memory, tokens * columns, -1, 1, &c.input, error));
    FL_TRY_DONE(status, zeros(&memory, tokens * rows, &c.output, error));
    const fl_tensor tensor = {.data = values,
                              .type = FL_DTYPE_F32,
                              .rank = 2,
                              .shape = {rows, columns},
                              .rows = rows,
                              .columns = columns,
                              .name = "bench"};
    FL_TRY_DONE(status, bench->compute->ops->weight_create(bench->compute, &tensor, &c.weight, error));
    status = fl_bench_measure(bench, &row, run_linear, &c, NULL, error);
    bench->compute->ops->weight_destroy(bench->compute, c.weight);
done:
    release(&memory);
    fl_memory_free(values);
    return status;
}

/* Exact attention. */

typedef struct attention_case {
    fl_compute *compute;
    fl_attention_call call;
    fl_array gradient_query, gradient_key, gradient_value;
} attention_case;

static fl_status run_attention(void *context, fl_error *error) {
    attention_case *c = context;
    c->compute->ops->attention(c->compute, &c->call);
    return c->compute->ops->settle(c->compute, error);
}

static fl_status run_attention_backward(void *context, fl_error *error) {
    attention_case *c = context;
    fl_attention_gradients gradients = {.output = c->call.query,
                                        .query = c->gradient_query,
                                        .key = c->gradient_key,
                                        .value = c->gradient_value};
    c->compute->ops->attention_backward(c->compute, &c->call, &gradients);
    return c->compute->ops->settle(c->compute, error);
}

/* T queries at the end of S keys. */
static fl_status make_attention(blocks *memory, fl_attention_shape shape, size_t tokens, size_t keys,
                                attention_case *c, fl_error *error) {
    size_t queries = tokens * shape.query_heads * shape.head_dim;
    size_t all = shape.kv_heads * keys * shape.head_dim;
    fl_array query, key, value, output, log_sum_exp;
    fl_ascending position = {0};
    FL_TRY(fl_ascending_reserve(&position, memory->compute, keys, error));
    memory->items[memory->count++] = position.values;
    FL_TRY(between(memory, queries, -1, 1, &query, error));
    FL_TRY(between(memory, all, -1, 1, &key, error));
    FL_TRY(between(memory, all, -1, 1, &value, error));
    FL_TRY(zeros(memory, queries, &output, error));
    FL_TRY(zeros(memory, tokens * shape.query_heads, &log_sum_exp, error));
    FL_TRY(zeros(memory, queries, &c->gradient_query, error));
    FL_TRY(zeros(memory, all, &c->gradient_key, error));
    FL_TRY(zeros(memory, all, &c->gradient_value, error));
    c->call = (fl_attention_call){.shape = shape,
                                  .tokens = tokens,
                                  .first_position = keys - tokens,
                                  .query = query,
                                  .keys = keys,
                                  .key = key,
                                  .value = value,
                                  .key_head_stride = keys * shape.head_dim,
                                  .position = position.values,
                                  .output = output,
                                  .log_sum_exp = log_sum_exp};
    return FL_OK;
}

static fl_status measure_attention(fl_bench *bench, size_t tokens, size_t keys, size_t heads, size_t kv_heads,
                                   size_t dim, fl_error *error) {
    const fl_attention_shape shape = {heads, kv_heads, dim, heads * dim, 0.125f};
    blocks memory = {.compute = bench->compute};
    attention_case c = {.compute = bench->compute};
    double pairs = (double)tokens * ((double)keys - 0.5 * (double)(tokens - 1));
    fl_bench_row row = {.group = "kernels", .name = "softmax", .unit = "GFLOP/s"};
    row.flops = fl_bench_softmax_flops(&shape, pairs);
    row.work = 1e-9 * row.flops;
    fl_bench_add_number(&row, "tokens", (double)tokens);
    fl_bench_add_number(&row, "keys", (double)keys);
    fl_bench_add_number(&row, "heads", (double)heads);
    fl_bench_add_number(&row, "kv_heads", (double)kv_heads);
    fl_bench_add_number(&row, "head_dim", (double)dim);
    fl_status status = make_attention(&memory, shape, tokens, keys, &c, error);
    if (status == FL_OK) status = fl_bench_measure(bench, &row, run_attention, &c, NULL, error);
    if (status == FL_OK && tokens > 1) {
        row.name = "softmax backward";
        row.flops *= 2.5;
        row.work *= 2.5;
        status = fl_bench_measure(bench, &row, run_attention_backward, &c, NULL, error);
    }
    release(&memory);
    return status;
}

/* The recurrence. */

typedef struct recurrence_case {
    fl_compute *compute;
    fl_recurrence_call call;
    fl_recurrence_backward_call backward;
} recurrence_case;

static fl_status run_recurrence(void *context, fl_error *error) {
    recurrence_case *c = context;
    FL_TRY(c->compute->ops->recurrence(c->compute, &c->call, error));
    return c->compute->ops->settle(c->compute, error);
}

static fl_status run_recurrence_backward(void *context, fl_error *error) {
    recurrence_case *c = context;
    FL_TRY(c->compute->ops->recurrence_backward(c->compute, &c->backward, error));
    return c->compute->ops->settle(c->compute, error);
}

static fl_status make_recurrence(blocks *memory, fl_transition transition, size_t heads, size_t steps,
                                 size_t dim, recurrence_case *c, fl_error *error) {
    size_t tokens = heads * steps, numbers = tokens * dim;
    bool erases = transition.erase != FL_ERASE_NONE, own = transition.erase == FL_ERASE_DIRECTIONS;
    fl_array query, key, value, decay, strength, output, gradient, state, space;
    FL_TRY(unit_rows(memory, tokens, dim, &query, error));
    FL_TRY(unit_rows(memory, tokens, dim, &key, error));
    FL_TRY(between(memory, numbers, -1, 1, &value, error));
    FL_TRY(between(memory, numbers, -0.6, -0.01, &decay, error));
    FL_TRY(between(memory, tokens, 0, 1, &strength, error));
    FL_TRY(between(memory, numbers, -1, 1, &gradient, error));
    FL_TRY(zeros(memory, numbers, &output, error));
    FL_TRY(zeros(memory, heads * dim * dim, &state, error));
    FL_TRY(zeros(memory, 8 * numbers, &space, error));
    const fl_recurrence_inputs inputs = {.query = query,
                                         .key = key,
                                         .value = value,
                                         .log_decay =
                                             transition.decay != FL_DECAY_NONE ? decay : fl_array_none,
                                         .erase_strength = erases ? strength : fl_array_none,
                                         .erase_read = own ? key : fl_array_none,
                                         .erase_write = own ? key : fl_array_none,
                                         .write = strength};
    c->call = (fl_recurrence_call){.transition = transition,
                                   .heads = heads,
                                   .steps = steps,
                                   .key_dim = dim,
                                   .value_dim = dim,
                                   .inputs = inputs,
                                   .state = state,
                                   .output = output};
    c->backward = (fl_recurrence_backward_call){
        .transition = transition,
        .mode = FL_RECURRENCE_CHUNK,
        .heads = heads,
        .steps = steps,
        .key_dim = dim,
        .value_dim = dim,
        .inputs = inputs,
        .gradient_output = gradient,
        .gradients = {.query = space,
                      .key = fl_array_from(space, numbers),
                      .value = fl_array_from(space, 2 * numbers),
                      .log_decay = transition.decay != FL_DECAY_NONE ? fl_array_from(space, 3 * numbers)
                                                                     : fl_array_none,
                      .erase_strength = erases ? fl_array_from(space, 4 * numbers) : fl_array_none,
                      .erase_read = own ? fl_array_from(space, 5 * numbers) : fl_array_none,
                      .erase_write = own ? fl_array_from(space, 6 * numbers) : fl_array_none,
                      .write = fl_array_from(space, 7 * numbers)}};
    return FL_OK;
}

static fl_status measure_forms(fl_bench *bench, fl_bench_row *row, recurrence_case *c, fl_error *error) {
    double flops = row->flops;
    row->name = "chunk";
    c->call.mode = FL_RECURRENCE_CHUNK;
    FL_TRY(fl_bench_measure(bench, row, run_recurrence, c, NULL, error));
    row->name = "step";
    c->call.mode = FL_RECURRENCE_STEP;
    FL_TRY(fl_bench_measure(bench, row, run_recurrence, c, NULL, error));
    row->name = "chunk backward";
    row->flops = 3 * flops;
    row->work = 3e-9 * flops;
    return fl_bench_measure(bench, row, run_recurrence_backward, c, NULL, error);
}

static fl_status measure_recurrence(fl_bench *bench, const char *name, fl_transition transition, size_t heads,
                                    size_t steps, size_t dim, fl_error *error) {
    blocks memory = {.compute = bench->compute};
    recurrence_case c = {.compute = bench->compute};
    fl_bench_row row = {.group = "kernels", .unit = "GFLOP/s"};
    row.flops = fl_bench_recurrence_flops(transition, heads, steps, dim, dim);
    row.work = 1e-9 * row.flops;
    fl_bench_add_text(&row, "transition", name);
    fl_bench_add_number(&row, "tokens", (double)steps);
    fl_bench_add_number(&row, "heads", (double)heads);
    fl_bench_add_number(&row, "head_dim", (double)dim);
    fl_status status = make_recurrence(&memory, transition, heads, steps, dim, &c, error);
    if (status == FL_OK) status = measure_forms(bench, &row, &c, error);
    release(&memory);
    return status;
}

static fl_status measure_recurrences(fl_bench *bench, size_t heads, size_t steps, size_t dim,
                                     fl_error *error) {
    static const struct {
        const char *name; /* a rule that has it */
        fl_transition transition;
    } kinds[] = {
        {"linear", {FL_DECAY_NONE, FL_ERASE_NONE}},         {"gated", {FL_DECAY_SCALAR, FL_ERASE_NONE}},
        {"gla", {FL_DECAY_CHANNEL, FL_ERASE_NONE}},         {"delta", {FL_DECAY_NONE, FL_ERASE_KEY}},
        {"gated_delta", {FL_DECAY_SCALAR, FL_ERASE_KEY}},   {"kda", {FL_DECAY_CHANNEL, FL_ERASE_KEY}},
        {"rwkv7", {FL_DECAY_CHANNEL, FL_ERASE_DIRECTIONS}},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        FL_TRY(measure_recurrence(bench, kinds[i].name, kinds[i].transition, heads, steps, dim, error));
    return FL_OK;
}

static fl_status measure_products(fl_bench *bench, size_t tokens, fl_error *error) {
    FL_TRY(measure_linear(bench, tokens, 576, 576, error));
    FL_TRY(measure_linear(bench, tokens, 192, 576, error));
    FL_TRY(measure_linear(bench, tokens, 1536, 576, error));
    return measure_linear(bench, tokens, 576, 1536, error);
}

fl_status fl_bench_kernels(fl_bench *bench, fl_error *error) {
    bool quick = bench->settings->quick;
    size_t tokens = quick ? 64 : 1024;
    FL_TRY(measure_products(bench, quick ? 64 : 512, error));
    FL_TRY(measure_products(bench, 1, error));
    if (!quick) FL_TRY(measure_linear(bench, 1, 49152, 576, error));
    FL_TRY(measure_attention(bench, tokens, tokens, 9, 9, 64, error));
    FL_TRY(measure_attention(bench, tokens, tokens, 9, 3, 64, error));
    FL_TRY(measure_attention(bench, tokens, tokens, 32, 32, 128, error));
    FL_TRY(measure_attention(bench, 1, 2 * tokens, 9, 3, 64, error));
    FL_TRY(measure_recurrences(bench, 9, tokens, 64, error));
    return quick ? FL_OK : measure_recurrences(bench, 32, tokens, 128, error);
}
