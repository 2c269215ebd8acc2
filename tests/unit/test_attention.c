#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "harness/compute/compute.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/every_table.h"
#include "tests/support/fixture.h"

static fl_compute *backend(size_t threads) {
    fl_error error = {0};
    fl_compute *compute = NULL;
    if (fl_compute_create_cpu(&(fl_compute_options){threads, SIZE_MAX}, &compute, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    return compute;
}

/* A call and float64 copies of its inputs. */
typedef struct {
    fl_attention_call call;
    size_t queries, keys; /* numbers in query and in key */
    double *query, *key, *value, *output, *log_sum_exp, *largest;
    int32_t *position, *expiry;
} attention_case;

/* Normal numbers, the same in both precisions. */
static float *random_pair(fl_random *random, size_t count, double scale, double **wide) {
    float *narrow = fl_test_block(count, sizeof *narrow);
    *wide = fl_test_block(count, sizeof **wide);
    for (size_t i = 0; i < count; i++) {
        narrow[i] = (float)(scale * fl_random_normal(random));
        (*wide)[i] = (double)narrow[i];
    }
    return narrow;
}

typedef enum { CAUSAL, WINDOW, RANDOM_LIFETIMES } lifetime_kind;

static void lifetimes(attention_case *c, fl_random *random, lifetime_kind kind) {
    size_t sets = c->call.lifetimes_per_head ? c->call.shape.kv_heads : 1, keys = c->call.keys;
    size_t end = c->call.first_position + c->call.tokens;
    c->position = fl_test_block(sets * keys, sizeof *c->position);
    c->expiry = kind == CAUSAL ? NULL : fl_test_block(sets * keys, sizeof *c->expiry);
    for (size_t s = 0; s < sets; s++) {
        size_t at = 0;
        for (size_t i = 0; i < keys; i++) {
            int32_t *position = &c->position[s * keys + i];
            *position = (int32_t)(kind == RANDOM_LIFETIMES ? at : i);
            at += fl_random_below(random, 3);
            if (kind == WINDOW) c->expiry[s * keys + i] = i < 3 ? FL_NEVER : *position + 37;
            if (kind != RANDOM_LIFETIMES) continue;
            c->expiry[s * keys + i] = fl_random_below(random, 4) == 0
                                          ? FL_NEVER
                                          : *position + (int32_t)fl_random_below(random, end + 1);
        }
    }
    c->call.position = fl_test_integers(c->position);
    c->call.expiry = fl_test_integers(c->expiry);
}

static void case_create(attention_case *c, fl_random *random, lifetime_kind kind, bool per_head, size_t heads,
                        size_t kv_heads, size_t dim, size_t tokens, size_t first, size_t keys) {
    memset(c, 0, sizeof *c);
    size_t spare = 2 * dim, stride = keys * dim + spare;
    c->queries = tokens * heads * dim;
    c->keys = kv_heads * stride;
    c->call = (fl_attention_call){.shape = {.query_heads = heads,
                                            .kv_heads = kv_heads,
                                            .head_dim = dim,
                                            .scale = 1.0f / sqrtf((float)dim)},
                                  .tokens = tokens,
                                  .first_position = first,
                                  .keys = keys,
                                  .key_head_stride = stride,
                                  .lifetimes_per_head = per_head};
    c->call.query = fl_test_array(random_pair(random, c->queries, 2.0, &c->query));
    c->call.key = fl_test_array(random_pair(random, c->keys, 2.0, &c->key));
    c->call.value = fl_test_array(random_pair(random, c->keys, 1.0, &c->value));
    c->call.output = fl_test_array(fl_test_block(c->queries, sizeof(float)));
    c->call.log_sum_exp = fl_test_array(fl_test_block(tokens * heads, sizeof(float)));
    c->call.largest = fl_test_array(fl_test_block(tokens * heads, sizeof(float)));
    c->largest = fl_test_block(tokens * heads, sizeof(double));
    c->output = fl_test_block(c->queries, sizeof(double));
    c->log_sum_exp = fl_test_block(tokens * heads, sizeof(double));
    lifetimes(c, random, kind);
}

static void case_destroy(attention_case *c) {
    void *const blocks[] = {(void *)(uintptr_t)fl_test_floats(c->call.query),
                            (void *)(uintptr_t)fl_test_floats(c->call.key),
                            (void *)(uintptr_t)fl_test_floats(c->call.value),
                            fl_test_floats(c->call.output),
                            fl_test_floats(c->call.log_sum_exp),
                            fl_test_floats(c->call.largest),
                            c->largest,
                            c->query,
                            c->key,
                            c->value,
                            c->output,
                            c->log_sum_exp,
                            c->position,
                            c->expiry};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
}

static bool visible(const attention_case *c, size_t kv, size_t token, size_t key) {
    size_t at = (c->call.lifetimes_per_head ? kv * c->call.keys : 0) + key,
           now = c->call.first_position + token;
    return (size_t)c->position[at] <= now && (c->expiry == NULL || now < (size_t)c->expiry[at]);
}

static double logit(const attention_case *c, size_t token, size_t head, size_t key) {
    const fl_attention_shape *s = &c->call.shape;
    size_t kv = head / (s->query_heads / s->kv_heads);
    const double *q = c->query + (token * s->query_heads + head) * s->head_dim;
    const double *k = c->key + kv * c->call.key_head_stride + key * s->head_dim;
    double sum = 0.0;
    for (size_t i = 0; i < s->head_dim; i++) sum += q[i] * k[i];
    return (double)s->scale * sum;
}

/* Softmax by its definition. */
static void expect(attention_case *c) {
    const fl_attention_shape *s = &c->call.shape;
    for (size_t t = 0; t < c->call.tokens; t++) {
        for (size_t h = 0; h < s->query_heads; h++) {
            size_t kv = h / (s->query_heads / s->kv_heads), at = t * s->query_heads + h;
            double highest = -INFINITY, sum = 0.0;
            double *output = c->output + at * s->head_dim;
            memset(output, 0, s->head_dim * sizeof *output);
            for (size_t i = 0; i < c->call.keys; i++) {
                if (visible(c, kv, t, i)) highest = fmax(highest, logit(c, t, h, i));
            }
            for (size_t i = 0; i < c->call.keys; i++) {
                if (!visible(c, kv, t, i)) continue;
                double weight = exp(logit(c, t, h, i) - highest);
                sum += weight;
                const double *value = c->value + kv * c->call.key_head_stride + i * s->head_dim;
                for (size_t d = 0; d < s->head_dim; d++) output[d] += weight * value[d];
            }
            for (size_t d = 0; d < s->head_dim && sum > 0.0; d++) output[d] /= sum;
            c->largest[at] = highest;
            c->log_sum_exp[at] = sum > 0.0 ? highest + log(sum) : -INFINITY;
        }
    }
}

static void check(fl_compute *compute, attention_case *c, const char *what) {
    expect(c);
    compute->ops->attention(compute, &c->call);
    fl_assert_close(fl_test_floats(c->call.output), c->output, c->queries, 2e-6, what);
    size_t heads = c->call.tokens * c->call.shape.query_heads;
    fl_assert_close(fl_test_floats(c->call.log_sum_exp), c->log_sum_exp, heads, 2e-6, what);
    fl_assert_close(fl_test_floats(c->call.largest), c->largest, heads, 2e-6, what);
}

static void test_softmax_equals_its_definition(void **unused) {
    (void)unused;
    static const struct {
        size_t heads, kv_heads, dim, tokens, first, keys;
    } shapes[] = {
        {9, 3, 64, 150, 0, 150}, {4, 4, 32, 129, 0, 129},  {8, 2, 80, 70, 60, 130}, {6, 1, 100, 65, 0, 65},
        {9, 3, 64, 1, 299, 300}, {2, 1, 128, 2, 500, 502}, {4, 2, 60, 3, 17, 20},   {1, 1, 8, 1, 0, 1},
        {14, 2, 64, 33, 7, 40},  {3, 3, 16, 5, 0, 0},
    };
    fl_compute *compute = backend(2);
    fl_random random;
    fl_random_seed(&random, 21, 0);
    fl_worst_reset();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int kind = CAUSAL; kind <= RANDOM_LIFETIMES; kind++) {
            for (size_t per_head = 0; per_head < 2; per_head++) {
                attention_case c;
                char what[96];
                snprintf(what, sizeof what, "shape %zu lifetimes %d per head %zu", i, kind, per_head);
                case_create(&c, &random, (lifetime_kind)kind, per_head == 1, shapes[i].heads,
                            shapes[i].kv_heads, shapes[i].dim, shapes[i].tokens, shapes[i].first,
                            shapes[i].keys);
                check(compute, &c, what);
                case_destroy(&c);
            }
        }
    }
    printf("worst: softmax attention %.2e\n", fl_worst_reset());
    fl_compute_destroy(compute);
}

static void test_a_query_that_sees_no_key_gives_zero(void **unused) {
    (void)unused;
    fl_compute *compute = backend(1);
    fl_random random;
    fl_random_seed(&random, 22, 0);
    attention_case c;
    case_create(&c, &random, WINDOW, false, 2, 1, 16, 40, 0, 30);
    for (size_t i = 0; i < 30; i++) {
        c.position[i] = (int32_t)i + 5;
        c.expiry[i] = 20;
    }
    check(compute, &c, "empty rows");
    for (size_t d = 0; d < 16; d++)
        assert_true(fl_test_floats(c.call.output)[d] == 0.0f &&
                    fl_test_floats(c.call.output)[39 * 32 + d] == 0.0f);
    assert_true(fl_test_floats(c.call.log_sum_exp)[0] == -INFINITY &&
                fl_test_floats(c.call.log_sum_exp)[79] == -INFINITY);
    case_destroy(&c);
    fl_compute_destroy(compute);
}

static void test_large_logits_do_not_overflow_and_nan_does_not_vanish(void **unused) {
    (void)unused;
    fl_compute *compute = backend(1);
    fl_random random;
    fl_random_seed(&random, 23, 0);
    attention_case c;
    case_create(&c, &random, CAUSAL, false, 2, 1, 16, 20, 0, 20);
    float *query = (float *)(uintptr_t)fl_test_floats(c.call.query);
    for (size_t i = 0; i < c.queries; i++) {
        query[i] *= 1000.0f;
        c.query[i] = (double)query[i];
    }
    expect(&c);
    compute->ops->attention(compute, &c.call);
    fl_assert_close(fl_test_floats(c.call.output), c.output, c.queries, 1e-3, "logits of thousands");
    query[19 * 32] = NAN;
    compute->ops->attention(compute, &c.call);
    assert_true(isnan(fl_test_floats(c.call.output)[19 * 32]));
    assert_true(isfinite(fl_test_floats(c.call.output)[18 * 32]));
    case_destroy(&c);
    fl_compute_destroy(compute);
}

static void test_reference_pack_of_softmax(void **unused) {
    (void)unused;
    const char *path = fl_pack_path("reference/rules/rules_f64.safetensors");
    if (path == NULL) fl_fixture_skip("test_reference_pack_of_softmax", "pack reference/rules");
    fl_error error = {0};
    fl_checkpoint *pack = NULL;
    if (fl_checkpoint_open(path, &pack, &error) != FL_OK) fail_msg("%s", error.message);
    size_t queries = 0, values = 0, outputs = 0;
    float *query = fl_fixture_floats(pack, "softmax.q", &queries, NULL);
    float *key = fl_fixture_floats(pack, "softmax.k", &queries, NULL);
    float *value = fl_fixture_floats(pack, "v", &values, NULL);
    double *reference = fl_fixture_doubles(pack, "softmax.o", &outputs, NULL);
    /* Values are wider than keys in the pack: keys and queries get zero channels, which change no logit. */
    enum { HEADS = 3, T = 150, DK = 32, DV = 48 };
    float *wide_query = fl_test_block(T * HEADS * DV, sizeof(float)),
          *wide_key = fl_test_block(HEADS * T * DV, sizeof(float));
    float *output = fl_test_block(T * HEADS * DV, sizeof(float));
    int32_t position[T];
    for (size_t t = 0; t < T; t++) {
        position[t] = (int32_t)t;
        for (size_t h = 0; h < HEADS; h++) {
            memcpy(wide_query + (t * HEADS + h) * DV, query + (h * T + t) * DK, DK * sizeof(float));
            memcpy(wide_key + (h * T + t) * DV, key + (h * T + t) * DK, DK * sizeof(float));
        }
    }
    fl_compute *compute = backend(2);
    fl_attention_call call = {
        .shape = {.query_heads = HEADS, .kv_heads = HEADS, .head_dim = DV, .scale = 1.0f / sqrtf((float)DK)},
        .tokens = T,
        .query = fl_test_array(wide_query),
        .keys = T,
        .key = fl_test_array(wide_key),
        .value = fl_test_array(value),
        .key_head_stride = T * DV,
        .position = fl_test_integers(position),
        .output = fl_test_array(output)};
    compute->ops->attention(compute, &call);
    double *turned = fl_test_block(outputs, sizeof *turned);
    for (size_t t = 0; t < T; t++) {
        for (size_t h = 0; h < HEADS; h++) {
            memcpy(turned + (t * HEADS + h) * DV, reference + (h * T + t) * DV, DV * sizeof *turned);
        }
    }
    fl_worst_reset();
    fl_assert_close(output, turned, outputs, 1e-5, "softmax of the pack");
    printf("worst: reference pack of softmax %.2e\n", fl_worst_reset());
    void *const blocks[] = {query, key, value, reference, wide_query, wide_key, output, turned};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
    fl_compute_destroy(compute);
    fl_checkpoint_close(pack);
}

static double along(const float *gradient, const double *x, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; gradient != NULL && i < count; i++) {
        if (isfinite(x[i])) sum += (double)gradient[i] * x[i];
    }
    return sum;
}

/* The sum of the case's results as they stand times the gradients given. */
static double attention_loss(attention_case *c, const fl_attention_gradients *given) {
    size_t heads = c->call.tokens * c->call.shape.query_heads;
    expect(c);
    return along(fl_test_floats(given->output), c->output, c->queries) +
           along(fl_test_floats(given->log_sum_exp), c->log_sum_exp, heads) +
           along(fl_test_floats(given->largest), c->largest, heads);
}

static double *quotients(attention_case *c, double *x, size_t count, const fl_attention_gradients *given) {
    double *slopes = fl_test_block(count, sizeof *slopes);
    for (size_t i = 0; i < count; i++) {
        double kept = x[i];
        x[i] = kept + 1e-4;
        double up = attention_loss(c, given);
        x[i] = kept - 1e-4;
        slopes[i] = (up - attention_loss(c, given)) / 2e-4;
        x[i] = kept;
    }
    return slopes;
}

static void check_gradients(fl_compute *compute, attention_case *c, const float *output,
                            const float *log_sum_exp, const float *largest) {
    fl_attention_gradients given = {.output = fl_test_array(output),
                                    .log_sum_exp = fl_test_array(log_sum_exp),
                                    .largest = fl_test_array(largest)};
    double *query = quotients(c, c->query, c->queries, &given);
    double *key = quotients(c, c->key, c->keys, &given);
    double *value = quotients(c, c->value, c->keys, &given);
    fl_attention_gradients all = given;
    all.query = fl_test_array(fl_test_block(c->queries, sizeof(float)));
    all.key = fl_test_array(fl_test_block(c->keys, sizeof(float)));
    all.value = fl_test_array(fl_test_block(c->keys, sizeof(float)));
    compute->ops->attention(compute, &c->call);
    for (size_t again = 0; again < 2; again++) { /* with the forward pass's results, then without */
        fl_attention_call call = c->call;
        if (again == 1) call.log_sum_exp = fl_array_none;
        memset(fl_test_floats(all.key), 0, c->keys * sizeof(float));
        memset(fl_test_floats(all.value), 0, c->keys * sizeof(float));
        for (size_t i = 0; i < c->queries; i++) fl_test_floats(all.query)[i] = 7.0f;
        fl_test_floats(all.key)[0] = 2.0f; /* keys and values are added to */
        key[0] += 2.0;
        compute->ops->attention_backward(compute, &call, &all);
        fl_assert_close(fl_test_floats(all.query), query, c->queries, 1e-5, "gradient of query");
        fl_assert_close(fl_test_floats(all.key), key, c->keys, 1e-5, "gradient of key");
        fl_assert_close(fl_test_floats(all.value), value, c->keys, 1e-5, "gradient of value");
        key[0] -= 2.0;
    }
    compute->ops->attention_backward(compute, &c->call, &given);
    void *const blocks[] = {
        query, key, value, fl_test_floats(all.query), fl_test_floats(all.key), fl_test_floats(all.value)};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
}

static void test_gradients_equal_difference_quotients(void **unused) {
    (void)unused;
    fl_compute *compute = backend(2);
    fl_random random;
    fl_random_seed(&random, 25, 0);
    fl_worst_reset();
    for (int kind = CAUSAL; kind <= RANDOM_LIFETIMES; kind++) {
        attention_case c;
        case_create(&c, &random, (lifetime_kind)kind, kind == RANDOM_LIFETIMES, 4, 2, 5, 14, 3, 17);
        double *unused_wide[3];
        float *gradient = random_pair(&random, c.queries, 1.0, &unused_wide[0]);
        float *gradient_log_sum_exp = random_pair(&random, 14 * 4, 1.0, &unused_wide[1]);
        float *gradient_largest = random_pair(&random, 14 * 4, 1.0, &unused_wide[2]);
        check_gradients(compute, &c, gradient, gradient_log_sum_exp, NULL);
        check_gradients(compute, &c, gradient, NULL, gradient_largest);
        check_gradients(compute, &c, NULL, gradient_log_sum_exp, NULL);
        check_gradients(compute, &c, NULL, NULL, gradient_largest);
        void *const blocks[] = {gradient,       gradient_log_sum_exp, gradient_largest,
                                unused_wide[0], unused_wide[1],       unused_wide[2]};
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
        case_destroy(&c);
    }
    printf("worst: attention gradients %.2e\n", fl_worst_reset());
    fl_compute_destroy(compute);
}

/* Over many blocks: the gradient along a random direction against the float64 difference quotient along it.
 */
static void test_gradients_over_many_blocks_along_a_direction(void **unused) {
    (void)unused;
    fl_compute *compute = backend(2);
    fl_random random;
    fl_random_seed(&random, 26, 0);
    attention_case c;
    case_create(&c, &random, WINDOW, false, 4, 2, 16, 300, 0, 300);
    double *wide = NULL, slope = 0.0;
    float *gradient = random_pair(&random, c.queries, 1.0, &wide);
    float *gradients[3] = {fl_test_block(c.queries, sizeof(float)), fl_test_block(c.keys, sizeof(float)),
                           fl_test_block(c.keys, sizeof(float))};
    double *const inputs[3] = {c.query, c.key, c.value};
    const size_t counts[3] = {c.queries, c.keys, c.keys};
    fl_attention_call call = c.call;
    call.output = fl_array_none;
    fl_attention_gradients all = {.output = fl_test_array(gradient),
                                  .query = fl_test_array(gradients[0]),
                                  .key = fl_test_array(gradients[1]),
                                  .value = fl_test_array(gradients[2])};
    compute->ops->attention_backward(compute, &call, &all);
    double *directions[3], losses[2];
    for (size_t a = 0; a < 3; a++) {
        directions[a] = fl_test_block(counts[a], sizeof(double));
        for (size_t i = 0; i < counts[a]; i++) {
            directions[a][i] = fl_random_normal(&random);
            slope += directions[a][i] * (double)gradients[a][i];
        }
    }
    for (size_t side = 0; side < 2; side++) {
        for (size_t a = 0; a < 3; a++) {
            for (size_t i = 0; i < counts[a]; i++)
                inputs[a][i] += (side == 0 ? 1e-5 : -2e-5) * directions[a][i];
        }
        losses[side] = attention_loss(&c, &all);
    }
    double expected = (losses[0] - losses[1]) / 2e-5;
    assert_true(fabs(slope - expected) <= 1e-5 * fabs(expected) + 1e-3);
    for (size_t a = 0; a < 3; a++) {
        fl_memory_free(directions[a]);
        fl_memory_free(gradients[a]);
    }
    fl_memory_free(gradient);
    fl_memory_free(wide);
    case_destroy(&c);
    fl_compute_destroy(compute);
}

static void test_thread_counts_agree(void **unused) {
    (void)unused;
    fl_random random;
    fl_random_seed(&random, 24, 0);
    attention_case c;
    case_create(&c, &random, CAUSAL, false, 9, 3, 64, 200, 0, 200);
    expect(&c);
    float *again = fl_test_block(c.queries, sizeof *again);
    for (size_t threads = 1; threads <= 3; threads++) {
        fl_compute *compute = backend(threads);
        check(compute, &c, "threads");
        memcpy(again, fl_test_floats(c.call.output), c.queries * sizeof *again);
        compute->ops->attention(compute, &c.call);
        assert_memory_equal(again, fl_test_floats(c.call.output), c.queries * sizeof *again);
        fl_compute_destroy(compute);
    }
    fl_memory_free(again);
    case_destroy(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_equals_its_definition),
        cmocka_unit_test(test_a_query_that_sees_no_key_gives_zero),
        cmocka_unit_test(test_large_logits_do_not_overflow_and_nan_does_not_vanish),
        cmocka_unit_test(test_reference_pack_of_softmax),
        cmocka_unit_test(test_gradients_equal_difference_quotients),
        cmocka_unit_test(test_gradients_over_many_blocks_along_a_direction),
        cmocka_unit_test(test_thread_counts_agree),
    };
    return FL_RUN_WITH_EVERY_TABLE(tests);
}
