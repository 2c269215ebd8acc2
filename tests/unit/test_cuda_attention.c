/* Attention and its gradients on the device beside the cpu's (test_attention compares these with the
 * definition). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/compute/compute.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"

typedef enum { CAUSAL = 0, WINDOW, RANDOM_LIFETIMES, LIFETIME_KINDS } lifetime_kind;

/* Host arrays of a call and of the gradients of its results. */
typedef struct {
    fl_attention_call call;
    size_t queries, rows, keys; /* numbers of query, [T][H], numbers of key */
    float *query, *key, *value, *of_output, *of_log_sum_exp, *of_largest;
    int32_t *position, *expiry;
    bool causal; /* without expiries */
} attention_case;

typedef struct {
    size_t heads, kv_heads, dim, tokens, first, keys;
} case_shape;

/* Groups that do and do not fill 64 rows, one larger than that, rows of keys that are no multiple of 16
 * bytes, every size of head. */
static const case_shape shapes[] = {{9, 3, 64, 70, 0, 70}, {2, 1, 32, 65, 3, 68},  {8, 2, 80, 20, 100, 130},
                                    {6, 1, 98, 10, 0, 10}, {4, 2, 128, 9, 60, 70}, {2, 2, 250, 5, 33, 38},
                                    {70, 1, 16, 3, 5, 8},  {3, 3, 5, 4, 0, 0},     {9, 3, 64, 1, 200, 201}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void make_lifetimes(attention_case *c, fl_random *random, lifetime_kind kind) {
    const size_t sets = c->call.lifetimes_per_head ? c->call.shape.kv_heads : 1, keys = c->call.keys;
    c->position = fl_test_block(sets * keys + 1, sizeof *c->position);
    c->expiry = fl_test_block(sets * keys + 1, sizeof *c->expiry);
    for (size_t i = 0; i < sets * keys; i++) {
        const size_t key = i % keys;
        const bool late = kind == RANDOM_LIFETIMES && key > 0;
        c->position[i] = late ? c->position[i - 1] + (int32_t)fl_random_below(random, 3) : (int32_t)key;
        c->expiry[i] = kind == WINDOW && key >= 3 ? (int32_t)key + 17 : FL_NEVER;
        if (kind == RANDOM_LIFETIMES && fl_random_below(random, 4) > 0)
            c->expiry[i] = c->position[i] + (int32_t)fl_random_below(random, 90);
    }
    c->causal = kind == CAUSAL;
}

static void case_create(attention_case *c, fl_random *random, const case_shape *s, lifetime_kind kind,
                        bool per_head) {
    memset(c, 0, sizeof *c);
    const size_t stride = s->keys * s->dim + 4;
    c->queries = s->tokens * s->heads * s->dim;
    c->rows = s->tokens * s->heads;
    c->keys = s->kv_heads * stride;
    c->call = (fl_attention_call){.shape = {.query_heads = s->heads,
                                            .kv_heads = s->kv_heads,
                                            .head_dim = s->dim,
                                            .scale = 1.0f / sqrtf((float)s->dim)},
                                  .tokens = s->tokens,
                                  .first_position = s->first,
                                  .keys = s->keys,
                                  .key_head_stride = stride,
                                  .lifetimes_per_head = per_head};
    c->query = fl_test_normals(random, c->queries, 2.0);
    c->key = fl_test_normals(random, c->keys, 2.0);
    c->value = fl_test_normals(random, c->keys, 1.0);
    c->of_output = fl_test_normals(random, c->queries, 1.0);
    c->of_log_sum_exp = fl_test_normals(random, c->rows, 1.0);
    c->of_largest = fl_test_normals(random, c->rows, 1.0);
    make_lifetimes(c, random, kind);
}

static void case_destroy(attention_case *c) {
    void *const blocks[] = {c->query,          c->key,        c->value,    c->of_output,
                            c->of_log_sum_exp, c->of_largest, c->position, c->expiry};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
}

enum { RESULTS = 6 }; /* output, log_sum_exp, largest; gradients of query, key, value */

/* Runs forward and backward on an instance: results as host blocks. */
static void run(fl_compute *compute, const attention_case *c, bool with_largest, bool again,
                float *results[RESULTS]) {
    fl_attention_call call = c->call;
    const size_t lifetimes = call.keys * (call.lifetimes_per_head ? call.shape.kv_heads : 1);
    call.position = fl_placed_array(compute, c->position, FL_INT32, lifetimes);
    if (!c->causal) call.expiry = fl_placed_array(compute, c->expiry, FL_INT32, lifetimes);
    call.query = fl_placed(compute, c->query, c->queries);
    call.key = fl_placed(compute, c->key, c->keys);
    call.value = fl_placed(compute, c->value, c->keys);
    call.output = fl_placed_zeros(compute, c->queries);
    call.log_sum_exp = fl_placed_zeros(compute, c->rows);
    call.largest = fl_placed_zeros(compute, c->rows);
    fl_array key = fl_placed(compute, c->value, c->keys),
             value = fl_placed(compute, c->key, c->keys); /* added to */
    fl_attention_gradients gradients = {
        .output = fl_placed(compute, c->of_output, c->queries),
        .log_sum_exp = with_largest ? fl_array_none : fl_placed(compute, c->of_log_sum_exp, c->rows),
        .largest = with_largest ? fl_placed(compute, c->of_largest, c->rows) : fl_array_none,
        .query = fl_placed_zeros(compute, c->queries),
        .key = key,
        .value = value};
    compute->ops->attention(compute, &call);
    results[0] = fl_brought_back(compute, call.output, c->queries);
    results[1] = fl_brought_back(compute, call.log_sum_exp, c->rows);
    results[2] = fl_brought_back(compute, call.largest, c->rows);
    if (again) call.log_sum_exp = fl_array_none;
    compute->ops->attention_backward(compute, &call, &gradients);
    results[3] = fl_brought_back(compute, gradients.query, c->queries);
    results[4] = fl_brought_back(compute, gradients.key, c->keys);
    results[5] = fl_brought_back(compute, gradients.value, c->keys);
    fl_cuda_device_sweep();
}

static void compare(const attention_case *c, float *const own[RESULTS], float *const cpu[RESULTS],
                    const char *what) {
    static const char *const names[RESULTS] = {
        "output", "log_sum_exp", "largest", "gradient of query", "gradient of key", "gradient of value"};
    const size_t counts[RESULTS] = {c->queries, c->rows, c->rows, c->queries, c->keys, c->keys};
    static const double bounds[RESULTS] = {2e-6, 2e-6, 2e-6, 1e-5, 1e-5, 1e-5};
    for (size_t i = 0; i < RESULTS; i++) {
        const fl_difference difference = fl_compare_float_floats(own[i], cpu[i], counts[i]);
        if (difference.not_finite > 0 || difference.relative > bounds[i])
            fail_msg("%s, %s: %.3g off, at %zu: %g, cpu %g", what, names[i], difference.relative,
                     difference.largest_at, (double)own[i][difference.largest_at],
                     (double)cpu[i][difference.largest_at]);
        fl_memory_free(own[i]);
        fl_memory_free(cpu[i]);
    }
}

static void attention_and_gradients_are_the_cpus(void **state) {
    (void)state;
    fl_compute *device = fl_cuda_device();
    fl_random random;
    fl_random_seed(&random, 31, 0);
    for (size_t i = 0; i < SHAPES * LIFETIME_KINDS; i++) {
        const lifetime_kind kind = (lifetime_kind)(i % LIFETIME_KINDS);
        attention_case c;
        char what[64];
        float *own[RESULTS], *cpu[RESULTS];
        snprintf(what, sizeof what, "shape %zu, lifetimes %d", i / LIFETIME_KINDS, kind);
        fl_cuda_device_seed(i);
        case_create(&c, &random, &shapes[i / LIFETIME_KINDS], kind, i % 2 == 1);
        run(device, &c, i % 4 == 2, i % 2 == 0, own);
        run(fl_cuda_device_host(), &c, i % 4 == 2, i % 2 == 0, cpu);
        compare(&c, own, cpu, what);
        case_destroy(&c);
    }
}

/* A query of NaN is not hidden, and harms no other row. */
static void nan_does_not_vanish(void **state) {
    (void)state;
    fl_compute *device = fl_cuda_device();
    attention_case c;
    float *results[RESULTS];
    fl_random random;
    fl_random_seed(&random, 32, 0);
    case_create(&c, &random, &(case_shape){2, 1, 16, 20, 0, 20}, CAUSAL, false);
    for (size_t i = 0; i < c.queries; i++) c.query[i] *= 1000.0f; /* logits of thousands */
    c.query[19 * 32] = NAN;
    run(device, &c, false, false, results);
    assert_true(isnan(results[0][19 * 32]));
    for (size_t i = 0; i < 19 * 32; i++) assert_true(isfinite(results[0][i]));
    for (size_t i = 0; i < RESULTS; i++) fl_memory_free(results[i]);
    case_destroy(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_and_gradients_are_the_cpus),
        cmocka_unit_test(nan_does_not_vanish),
    };
    return cmocka_run_group_tests(tests, fl_cuda_device_open, fl_cuda_device_close);
}
