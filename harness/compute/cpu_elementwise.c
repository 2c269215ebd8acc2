#include <assert.h>
#include <math.h>
#include <string.h>

#include "harness/compute/cpu_backend.h"

/* Numbers an item should work on, so that waking a thread pays. */
enum { ITEM_NUMBERS = 1 << 14 };

static size_t at_most(size_t a, size_t b) {
    return a < b ? a : b;
}
static size_t pieces(size_t n, size_t piece) {
    return (n + piece - 1) / piece;
}

/* Rows of `columns` numbers that make an item. */
static size_t item_rows(size_t columns) {
    return columns >= ITEM_NUMBERS ? 1 : ITEM_NUMBERS / (columns + 1) + 1;
}

typedef struct {
    const fl_kernels *kernels;
    size_t rows, columns, per_item;
    const float *input, *weight;
    double epsilon;
    float *output;
    const float *gradient_output; /* backward only; output is then the gradient of the input */
    bool accumulate;
} norm_context;

static double inverse_root(const norm_context *c, const float *x) {
    double mean = c->kernels->sum_of_squares(c->columns, x) / (double)c->columns;
    return 1.0 / sqrt(mean + c->epsilon);
}

static void rms_norm_item(void *context, size_t item, size_t worker) {
    const norm_context *c = context;
    size_t first = item * c->per_item, end = at_most(first + c->per_item, c->rows);
    (void)worker;
    for (size_t row = first; row < end; row++) {
        const float *x = c->input + row * c->columns;
        float factor = (float)inverse_root(c, x);
        c->kernels->scale_multiply(c->columns, factor, x, c->weight, c->output + row * c->columns);
    }
}

void fl_cpu_rms_norm(fl_compute *compute, size_t rows, size_t columns, fl_array input, fl_array weight,
                     double epsilon, fl_array output) {
    norm_context c = {.kernels = fl_cpu_of(compute)->kernels,
                      .rows = rows,
                      .columns = columns,
                      .per_item = item_rows(columns),
                      .input = fl_cpu_floats(input),
                      .weight = fl_cpu_floats(weight),
                      .epsilon = epsilon,
                      .output = fl_cpu_floats(output)};
    fl_threads_for(compute->threads, pieces(rows, c.per_item), rms_norm_item, &c);
}

/* With n = r x, r = (mean(x^2) + eps)^(-1/2) and g = gradient . weight: dx = r (g - n mean(g n)). */
static void rms_norm_backward_item(void *context, size_t item, size_t worker) {
    const norm_context *c = context;
    size_t first = item * c->per_item, end = at_most(first + c->per_item, c->rows);
    (void)worker;
    for (size_t row = first; row < end; row++) {
        const float *x = c->input + row * c->columns, *gradient = c->gradient_output + row * c->columns;
        float *out = c->output + row * c->columns;
        double r = inverse_root(c, x), along = 0.0;
        for (size_t i = 0; i < c->columns; i++)
            along += (double)gradient[i] * (double)c->weight[i] * (double)x[i];
        double slope = r * r * r * along / (double)c->columns;
        for (size_t i = 0; i < c->columns; i++) {
            double value = r * (double)gradient[i] * (double)c->weight[i] - slope * (double)x[i];
            out[i] = (float)(c->accumulate ? (double)out[i] + value : value);
        }
    }
}

void fl_cpu_rms_norm_backward(fl_compute *compute, size_t rows, size_t columns, fl_array input,
                              fl_array weight, double epsilon, fl_array gradient_output,
                              fl_array gradient_input, bool accumulate) {
    norm_context c = {.kernels = fl_cpu_of(compute)->kernels,
                      .rows = rows,
                      .columns = columns,
                      .per_item = item_rows(columns),
                      .input = fl_cpu_floats(input),
                      .weight = fl_cpu_floats(weight),
                      .epsilon = epsilon,
                      .output = fl_cpu_floats(gradient_input),
                      .gradient_output = fl_cpu_floats(gradient_output),
                      .accumulate = accumulate};
    fl_threads_for(compute->threads, pieces(rows, c.per_item), rms_norm_backward_item, &c);
}

typedef struct {
    const fl_kernels *kernels;
    fl_rotation_table *table;
    size_t tokens, heads, head_dim, per_item;
    size_t table_offset; /* table row of token 0 */
    int direction;
    float *x; /* [T][heads][D] */
} rope_context;

static void rotation_item(void *context, size_t item, size_t worker) {
    const rope_context *c = context;
    fl_rotation_table *table = c->table;
    size_t first = item * c->per_item, end = at_most(first + c->per_item, table->positions);
    (void)worker;
    for (size_t row = first; row < end; row++) {
        float position = (float)(table->first_position + row);
        float *cosines = table->values + row * 2 * table->pairs, *sines = cosines + table->pairs;
        for (size_t i = 0; i < table->pairs; i++) {
            float angle = position * table->inverse_frequencies[i];
            cosines[i] = cosf(angle) * table->attention_factor;
            sines[i] = sinf(angle) * table->attention_factor;
        }
    }
}

/* Makes the table hold positions first .. first + count - 1; count of them fit. */
static void rotation_table_fill(fl_compute *compute, size_t pairs, size_t first, size_t count,
                                const float *inverse_frequencies, float attention_factor) {
    fl_rotation_table *table = &fl_cpu_of(compute)->rotation;
    bool same = table->pairs == pairs && table->attention_factor == attention_factor &&
                memcmp(table->inverse_frequencies, inverse_frequencies, pairs * sizeof(float)) == 0;
    if (same && first >= table->first_position && first + count <= table->first_position + table->positions)
        return;
    table->pairs = pairs;
    table->first_position = first;
    table->positions = count;
    table->attention_factor = attention_factor;
    memcpy(table->inverse_frequencies, inverse_frequencies, pairs * sizeof(float));
    rope_context c = {.table = table, .per_item = 16};
    fl_threads_for(compute->threads, pieces(count, c.per_item), rotation_item, &c);
}

static void rope_item(void *context, size_t item, size_t worker) {
    const rope_context *c = context;
    size_t first = item * c->per_item, end = at_most(first + c->per_item, c->tokens), pairs = c->table->pairs;
    (void)worker;
    for (size_t t = first; t < end; t++) {
        const float *cosines = c->table->values + (c->table_offset + t) * 2 * pairs;
        for (size_t h = 0; h < c->heads; h++) {
            float *x = c->x + (t * c->heads + h) * c->head_dim;
            c->kernels->rotate(pairs, cosines, cosines + pairs, c->direction < 0, x, x + pairs);
        }
    }
}

void fl_cpu_rope(fl_compute *compute, size_t tokens, size_t heads, size_t head_dim, size_t first_position,
                 size_t rotary_dim, fl_array inverse_frequencies, float attention_factor, int direction,
                 fl_array x) {
    size_t pairs = rotary_dim / 2;
    assert(rotary_dim % 2 == 0 && rotary_dim <= head_dim && pairs <= FL_CPU_MAX_ROTARY_PAIRS);
    if (pairs == 0) return;
    size_t capacity = FL_CPU_ROTATION_TABLE / (2 * pairs);
    fl_rotation_table *table = &fl_cpu_of(compute)->rotation;
    for (size_t t = 0; t < tokens; t += capacity) {
        size_t count = at_most(capacity, tokens - t), position = first_position + t;
        rotation_table_fill(compute, pairs, position, count, fl_cpu_floats(inverse_frequencies),
                            attention_factor);
        rope_context c = {.kernels = fl_cpu_of(compute)->kernels,
                          .table = table,
                          .tokens = count,
                          .heads = heads,
                          .head_dim = head_dim,
                          .per_item = item_rows(heads * head_dim),
                          .table_offset = position - table->first_position,
                          .direction = direction,
                          .x = fl_cpu_floats(x) + t * heads * head_dim};
        fl_threads_for(compute->threads, pieces(count, c.per_item), rope_item, &c);
    }
}

typedef struct {
    const fl_kernels *kernels;
    fl_activation activation;
    size_t count;
    const float *gate, *up, *gradient_output;
    float *output, *gradient_gate, *gradient_up;
} gate_context;

static void gelu_gate(size_t n, const float *gate, const float *up, float *output) {
    for (size_t i = 0; i < n; i++) {
        output[i] = 0.5f * gate[i] * (1.0f + erff(gate[i] * 0.70710678f)) * up[i];
    }
}

static void gelu_gate_backward(size_t n, const float *gate, const float *up, const float *gradient,
                               float *gradient_gate, float *gradient_up) {
    for (size_t i = 0; i < n; i++) {
        float x = gate[i], cumulative = 0.5f * (1.0f + erff(x * 0.70710678f));
        float density = 0.39894228f * expf(-0.5f * x * x), d = gradient[i];
        gradient_gate[i] = d * up[i] * (cumulative + x * density);
        gradient_up[i] = d * x * cumulative;
    }
}

static void gate_item(void *context, size_t item, size_t worker) {
    const gate_context *c = context;
    size_t first = item * ITEM_NUMBERS, n = at_most(ITEM_NUMBERS, c->count - first);
    (void)worker;
    void (*const gate[])(size_t, const float *, const float *, float *) = {
        [FL_ACTIVATION_SILU] = c->kernels->silu_gate,
        [FL_ACTIVATION_GELU_TANH] = c->kernels->gelu_tanh_gate,
        [FL_ACTIVATION_GELU] = gelu_gate,
    };
    gate[c->activation](n, c->gate + first, c->up + first, c->output + first);
}

void fl_cpu_gated_activation(fl_compute *compute, fl_activation activation, size_t count, fl_array gate,
                             fl_array up, fl_array output) {
    gate_context c = {.kernels = fl_cpu_of(compute)->kernels,
                      .activation = activation,
                      .count = count,
                      .gate = fl_cpu_floats(gate),
                      .up = fl_cpu_floats(up),
                      .output = fl_cpu_floats(output)};
    fl_threads_for(compute->threads, pieces(count, ITEM_NUMBERS), gate_item, &c);
}

static void gate_backward_item(void *context, size_t item, size_t worker) {
    const gate_context *c = context;
    size_t first = item * ITEM_NUMBERS, n = at_most(ITEM_NUMBERS, c->count - first);
    (void)worker;
    void (*const backward[])(size_t, const float *, const float *, const float *, float *, float *) = {
        [FL_ACTIVATION_SILU] = c->kernels->silu_gate_backward,
        [FL_ACTIVATION_GELU_TANH] = c->kernels->gelu_tanh_gate_backward,
        [FL_ACTIVATION_GELU] = gelu_gate_backward,
    };
    backward[c->activation](n, c->gate + first, c->up + first, c->gradient_output + first,
                            c->gradient_gate + first, c->gradient_up + first);
}

void fl_cpu_gated_activation_backward(fl_compute *compute, fl_activation activation, size_t count,
                                      fl_array gate, fl_array up, fl_array gradient_output,
                                      fl_array gradient_gate, fl_array gradient_up) {
    gate_context c = {.kernels = fl_cpu_of(compute)->kernels,
                      .activation = activation,
                      .count = count,
                      .gate = fl_cpu_floats(gate),
                      .up = fl_cpu_floats(up),
                      .gradient_output = fl_cpu_floats(gradient_output),
                      .gradient_gate = fl_cpu_floats(gradient_gate),
                      .gradient_up = fl_cpu_floats(gradient_up)};
    fl_threads_for(compute->threads, pieces(count, ITEM_NUMBERS), gate_backward_item, &c);
}

typedef struct {
    const fl_kernels *kernels;
    size_t count;
    float *x;
    const float *y;
} add_context;

static void add_item(void *context, size_t item, size_t worker) {
    const add_context *c = context;
    size_t first = item * ITEM_NUMBERS;
    (void)worker;
    c->kernels->axpy(at_most(ITEM_NUMBERS, c->count - first), 1.0f, c->y + first, c->x + first);
}

void fl_cpu_add(fl_compute *compute, size_t count, fl_array x, fl_array y) {
    add_context c = {fl_cpu_of(compute)->kernels, count, fl_cpu_floats(x), fl_cpu_floats(y)};
    fl_threads_for(compute->threads, pieces(count, ITEM_NUMBERS), add_item, &c);
}
