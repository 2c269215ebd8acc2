/* The cpu backend's kernels against the machine's own sgemm: best time of several repeats, and GFLOP/s
 * counted on each kernel's own algorithm (a triangle of a product counts as half). usage: bench_kernels
 * [threads]... */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/compute/compute.h"
#include "harness/compute/cpu_recurrence.h"

enum { REPEATS = 7 };

static clockid_t bench_clock = CLOCK_MONOTONIC;

static double now(void) {
    struct timespec t;
    clock_gettime(bench_clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *numbers(size_t count, double scale) {
    fl_random random;
    float *x = NULL;
    fl_random_seed(&random, count, 0);
    if (FL_ALLOCATE(&x, count, NULL) != FL_OK) exit(1);
    for (size_t i = 0; i < count; i++) x[i] = (float)(scale * fl_random_normal(&random));
    return x;
}

typedef void (*bench_body)(fl_compute *compute, void *context);

static double best_time(fl_compute *compute, bench_body body, void *context) {
    double best = 1e9;
    body(compute, context);
    for (size_t i = 0; i < REPEATS; i++) {
        double start = now();
        body(compute, context);
        double time = now() - start;
        if (time < best) best = time;
    }
    return best;
}

static double peak; /* GFLOP/s of sgemm with as many threads, this run */

static void report(const char *name, double seconds, double flops) {
    double rate = flops / seconds * 1e-9;
    printf("%-44s %9.3f ms %8.1f GFLOP/s %5.1f%% of peak\n", name, seconds * 1e3, rate,
           peak > 0.0 ? 100.0 * rate / peak : 100.0);
}

typedef struct {
    size_t m, n, k;
    float *a, *b, *c;
} product;

static void product_body(fl_compute *compute, void *context) {
    product *p = context;
    compute->ops->matmul(compute, false, false, p->m, p->n, p->k, 1.0f, p->a, p->k, p->b, p->n, 0.0f, p->c,
                         p->n);
}

static void bench_product(fl_compute *compute, const char *name, size_t m, size_t n, size_t k) {
    product p = {m, n, k, numbers(m * k, 1.0), numbers(k * n, 1.0), numbers(m * n, 1.0)};
    double time = best_time(compute, product_body, &p), flops = 2.0 * (double)m * (double)n * (double)k;
    if (peak == 0.0) peak = flops / time * 1e-9;
    report(name, time, flops);
    fl_memory_free(p.a);
    fl_memory_free(p.b);
    fl_memory_free(p.c);
}

typedef struct {
    fl_weight *weight;
    size_t tokens;
    float *input, *output;
} linear_case;

static void linear_body(fl_compute *compute, void *context) {
    linear_case *l = context;
    compute->ops->linear(compute, l->weight, NULL, l->tokens, l->input, l->output);
}

static void bench_linear(fl_compute *compute, size_t tokens, size_t rows, size_t columns) {
    float *values = numbers(rows * columns, 1.0);
    fl_tensor tensor = {.data = values,
                        .type = FL_DTYPE_F32,
                        .rank = 2,
                        .shape = {rows, columns},
                        .rows = rows,
                        .columns = columns,
                        .name = "bench"};
    linear_case l = {NULL, tokens, numbers(tokens * columns, 1.0), numbers(tokens * rows, 1.0)};
    if (compute->ops->weight_create(compute, &tensor, &l.weight, NULL) != FL_OK) exit(1);
    char name[64];
    snprintf(name, sizeof name, "linear T%zu [%zu][%zu]", tokens, rows, columns);
    double time = best_time(compute, linear_body, &l);
    report(name, time, 2.0 * (double)tokens * (double)rows * (double)columns);
    if (tokens == 1) printf("    weight read at %.1f GB/s\n", (double)(rows * columns) * 4e-9 / time);
    compute->ops->weight_destroy(compute, l.weight);
    fl_memory_free(values);
    fl_memory_free(l.input);
    fl_memory_free(l.output);
}

typedef struct {
    fl_attention_call call;
    float *gradient_query, *gradient_key, *gradient_value;
} attention_case;

static void attention_body(fl_compute *compute, void *context) {
    compute->ops->attention(compute, &((attention_case *)context)->call);
}

static void attention_backward_body(fl_compute *compute, void *context) {
    attention_case *c = context;
    compute->ops->attention_backward(compute, &c->call, c->call.query, NULL, c->gradient_query,
                                     c->gradient_key, c->gradient_value);
}

static void bench_attention(fl_compute *compute, size_t tokens, size_t keys, size_t heads, size_t kv_heads,
                            size_t dim) {
    size_t *position = NULL, queries = tokens * heads * dim, all = kv_heads * keys * dim;
    if (FL_ALLOCATE(&position, keys, NULL) != FL_OK) exit(1);
    for (size_t i = 0; i < keys; i++) position[i] = i;
    attention_case c = {.call = {.shape = {heads, kv_heads, dim, heads * dim, 0.125f},
                                 .tokens = tokens,
                                 .first_position = keys - tokens,
                                 .query = numbers(queries, 1.0),
                                 .keys = keys,
                                 .key = numbers(all, 1.0),
                                 .value = numbers(all, 1.0),
                                 .key_head_stride = keys * dim,
                                 .position = position,
                                 .output = numbers(queries, 1.0),
                                 .log_sum_exp = numbers(tokens * heads, 1.0)},
                        .gradient_query = numbers(queries, 1.0),
                        .gradient_key = numbers(all, 1.0),
                        .gradient_value = numbers(all, 1.0)};
    double pairs = (double)tokens * ((double)keys - 0.5 * (double)(tokens - 1)) * (double)heads;
    char name[64];
    snprintf(name, sizeof name, "softmax T%zu of %zu H%zu/%zu D%zu", tokens, keys, heads, kv_heads, dim);
    report(name, best_time(compute, attention_body, &c), 4.0 * pairs * (double)dim);
    if (tokens > 1) {
        snprintf(name, sizeof name, "softmax backward T%zu H%zu/%zu D%zu", tokens, heads, kv_heads, dim);
        report(name, best_time(compute, attention_backward_body, &c), 10.0 * pairs * (double)dim);
    }
    void *const blocks[] = {position,
                            (void *)(uintptr_t)c.call.query,
                            (void *)(uintptr_t)c.call.key,
                            (void *)(uintptr_t)c.call.value,
                            c.call.output,
                            c.call.log_sum_exp,
                            c.gradient_query,
                            c.gradient_key,
                            c.gradient_value};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
}

typedef struct {
    fl_recurrence_call call;
    fl_recurrence_backward_call backward;
} rule_case;

static void rule_body(fl_compute *compute, void *context) {
    if (compute->ops->recurrence(compute, &((rule_case *)context)->call, NULL) != FL_OK) exit(1);
}

static void rule_backward_body(fl_compute *compute, void *context) {
    if (compute->ops->recurrence_backward(compute, &((rule_case *)context)->backward, NULL) != FL_OK) exit(1);
}

static void unit_rows(float *x, size_t rows, size_t dim) {
    for (size_t r = 0; r < rows; r++) {
        float length = cblas_snrm2((int)dim, x + r * dim, 1);
        cblas_sscal((int)dim, 1.0f / length, x + r * dim, 1);
    }
}

static float *between(size_t count, double low, double high) {
    fl_random random;
    float *x = NULL;
    fl_random_seed(&random, count, 1);
    if (FL_ALLOCATE(&x, count, NULL) != FL_OK) exit(1);
    for (size_t i = 0; i < count; i++) x[i] = (float)(low + (high - low) * fl_random_uniform(&random));
    return x;
}

/* Work of the chunk form, in floating-point operations, a triangle counted as half a square. */
static double chunk_flops(fl_transition transition, size_t heads, size_t steps, size_t dim) {
    double d = (double)dim, c = (double)FL_CHUNK_TOKENS, tokens = (double)(heads * steps);
    double state = transition.erase == FL_ERASE_NONE ? 4.0 : transition.erase == FL_ERASE_KEY ? 6.0 : 8.0;
    double triangles = transition.erase == FL_ERASE_NONE ? 2.0 : transition.erase == FL_ERASE_KEY ? 4.0 : 8.0;
    return tokens * (state * d * d + triangles * c * d);
}

static void bench_rule(fl_compute *compute, const char *rule, fl_transition transition, size_t heads,
                       size_t steps, size_t dim) {
    size_t tokens = heads * steps, keys = tokens * dim, state = heads * dim * dim;
    rule_case c = {
        .call = {.transition = transition, .heads = heads, .steps = steps, .key_dim = dim, .value_dim = dim}};
    float *key = numbers(keys, 1.0), *query = numbers(keys, 1.0), *decay = between(keys, -0.6, -0.01);
    float *strength = between(tokens, 0.0, 1.0), *gradient = numbers(keys, 1.0),
          *space = numbers(8 * keys, 0.0);
    unit_rows(key, tokens, dim);
    unit_rows(query, tokens, dim);
    bool erases = transition.erase != FL_ERASE_NONE, directions = transition.erase == FL_ERASE_DIRECTIONS;
    c.call.inputs = (fl_recurrence_inputs){.query = query,
                                           .key = key,
                                           .value = numbers(keys, 1.0),
                                           .log_decay = transition.decay != FL_DECAY_NONE ? decay : NULL,
                                           .erase_strength = erases ? strength : NULL,
                                           .erase_read = directions ? key : NULL,
                                           .erase_write = directions ? key : NULL,
                                           .write = strength};
    c.call.state = numbers(state, 0.0);
    c.call.output = numbers(keys, 0.0);
    char name[64];
    for (int mode = FL_RECURRENCE_STEP; mode <= FL_RECURRENCE_CHUNK; mode++) {
        c.call.mode = (fl_recurrence_mode)mode;
        snprintf(name, sizeof name, "%s %s T%zu H%zu D%zu", rule,
                 mode == FL_RECURRENCE_STEP ? "step" : "chunk", steps, heads, dim);
        memset(c.call.state, 0, state * sizeof(float));
        report(name, best_time(compute, rule_body, &c), chunk_flops(transition, heads, steps, dim));
    }
    c.backward = (fl_recurrence_backward_call){.transition = transition,
                                               .mode = FL_RECURRENCE_CHUNK,
                                               .heads = heads,
                                               .steps = steps,
                                               .key_dim = dim,
                                               .value_dim = dim,
                                               .inputs = c.call.inputs,
                                               .gradient_output = gradient};
    c.backward.gradients =
        (fl_recurrence_gradients){.query = space,
                                  .key = space + keys,
                                  .value = space + 2 * keys,
                                  .log_decay = transition.decay != FL_DECAY_NONE ? space + 3 * keys : NULL,
                                  .erase_strength = erases ? space + 4 * keys : NULL,
                                  .erase_read = directions ? space + 5 * keys : NULL,
                                  .erase_write = directions ? space + 6 * keys : NULL,
                                  .write = space + 7 * keys};
    snprintf(name, sizeof name, "%s backward T%zu H%zu D%zu", rule, steps, heads, dim);
    report(name, best_time(compute, rule_backward_body, &c),
           3.0 * chunk_flops(transition, heads, steps, dim));
    void *const blocks[] = {
        key,          query,        decay, strength, gradient, space, (void *)(uintptr_t)c.call.inputs.value,
        c.call.state, c.call.output};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
}

static void bench_threads(size_t threads) {
    static const struct {
        const char *name;
        fl_transition transition;
    } rules[] = {
        {"linear", {FL_DECAY_NONE, FL_ERASE_NONE}}, {"gla", {FL_DECAY_CHANNEL, FL_ERASE_NONE}},
        {"delta", {FL_DECAY_NONE, FL_ERASE_KEY}},   {"gated_delta", {FL_DECAY_SCALAR, FL_ERASE_KEY}},
        {"kda", {FL_DECAY_CHANNEL, FL_ERASE_KEY}},  {"dplr", {FL_DECAY_CHANNEL, FL_ERASE_DIRECTIONS}},
    };
    fl_compute *compute = NULL;
    if (fl_compute_create_cpu(&(fl_compute_options){threads, SIZE_MAX}, &compute, NULL) != FL_OK) exit(1);
    printf("threads: %zu\n", fl_threads_count(compute->threads));
    peak = 0.0;
    bench_product(compute, "sgemm 1024 x 1024 x 1024 (peak)", 1024, 1024, 1024);
    bench_linear(compute, 512, 1536, 576);
    bench_linear(compute, 512, 576, 1536);
    bench_linear(compute, 512, 192, 576);
    bench_linear(compute, 1, 1536, 576);
    bench_linear(compute, 1, 49152, 576);
    bench_attention(compute, 1024, 1024, 9, 9, 64);
    bench_attention(compute, 1024, 1024, 9, 3, 64);
    bench_attention(compute, 1, 2048, 9, 3, 64);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        bench_rule(compute, rules[i].name, rules[i].transition, 9, 1024, 64);
    }
    bench_rule(compute, "kda", (fl_transition){FL_DECAY_CHANNEL, FL_ERASE_KEY}, 32, 1024, 128);
    fl_compute_destroy(compute);
}

int main(int count, char **arguments) {
    int at = 1;
    if (at < count && strcmp(arguments[at], "--processor-time") == 0) {
        bench_clock = CLOCK_PROCESS_CPUTIME_ID;
        at++;
    }
    if (at == count) bench_threads(0);
    for (; at < count; at++) bench_threads((size_t)strtoul(arguments[at], NULL, 10));
    return 0;
}
