/* The vector kernels: every table that this machine runs, each against float64. */
#include <float.h>
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
#include "harness/compute/cpu_kernels.h"
#include "harness/compute/vector_math.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/every_table.h"

/* Units in the last place between x and the exact value; results that round to 0 or infinity count as such.
 */
static double ulps(float x, double exact) {
    if (isnan(x) || isnan(exact)) return isnan(x) && isnan(exact) ? 0.0 : INFINITY;
    if (x == (float)exact) return 0.0;
    if (isinf(x) || isinf((float)exact)) return INFINITY;
    int exponent = 0;
    frexp(exact, &exponent);
    return fabs((double)x - exact) / fmax(ldexp(1.0, exponent - 24), 1.401298464324817e-45);
}

static double exact_exp(double x) {
    return exp(x);
}
static double exact_sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}
static double exact_silu(double x) {
    return x / (1.0 + exp(-x));
}
static double exact_softplus(double x) {
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}
static double exact_log_sigmoid(double x) {
    return fmin(x, 0.0) - log1p(exp(-fabs(x)));
}

typedef void (*vector_function)(size_t, const float *, float *);

static double worst_ulps(vector_function function, double (*exact)(double), double low, double high,
                         double *at) {
    enum { BLOCK = 1021 };
    float x[BLOCK], y[BLOCK];
    double worst = 0.0, step = (high - low) / 700000.0;
    for (double start = low; start < high; start += BLOCK * step) {
        for (size_t i = 0; i < BLOCK; i++) x[i] = (float)(start + (double)i * step);
        function(BLOCK, x, y);
        for (size_t i = 0; i < BLOCK; i++) {
            double error = ulps(y[i], exact((double)x[i]));
            if (error <= worst) continue;
            worst = error;
            *at = (double)x[i];
        }
    }
    return worst;
}

static void test_elementary_functions_stay_within_their_bounds(void **unused) {
    (void)unused;
    const fl_kernels *kernels = fl_kernels_current();
    const struct {
        const char *name;
        vector_function function;
        double (*exact)(double);
        double bound, low;
    } functions[] = {
        {"exp", kernels->exp, exact_exp, 1.5, -110.0},
        {"sigmoid", kernels->sigmoid, exact_sigmoid, 2.5, -110.0},
        {"silu", kernels->silu, exact_silu, 3.5, -87.0},
        {"softplus", kernels->softplus, exact_softplus, 3.0, -110.0},
        {"log_sigmoid", kernels->log_sigmoid, exact_log_sigmoid, 3.0, -110.0},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        double at = 0.0,
               wide = worst_ulps(functions[i].function, functions[i].exact, functions[i].low, 95.0, &at);
        double narrow = worst_ulps(functions[i].function, functions[i].exact, -2.0, 2.0, &at);
        double worst = fmax(wide, narrow);
        printf("worst: %s (%s) %.2f ulp\n", functions[i].name, kernels->name, worst);
        if (!(worst <= functions[i].bound)) fail_msg("%s: %.2f ulp at %.9g", functions[i].name, worst, at);
    }
}

static void test_the_exponential_in_float64(void **unused) {
    (void)unused;
    enum { N = 4099, LIMITS = 37 };
    const fl_kernels *kernels = fl_kernels_current();
    fl_random random;
    fl_random_seed(&random, 12, 0);
    float x[N];
    double y[N], worst = 0.0;
    for (double scale = 0.01; scale < 1000.0; scale *= 3.0) {
        const double shift = scale * fl_random_normal(&random);
        for (size_t i = 0; i < N; i++) x[i] = (float)(shift - scale * fl_random_uniform(&random));
        kernels->exp_wide(N, x, shift, y);
        for (size_t i = 0; i < N; i++) {
            const long double exact = expl((long double)((double)x[i] - shift));
            if ((double)x[i] - shift < -708.0) {
                assert_true(y[i] == 0.0);
            } else {
                worst = fmax(worst, (double)(fabsl((long double)y[i] - exact) / exact));
            }
        }
    }
    printf("worst: exponential in float64 (%s) %.3g\n", kernels->name, worst);
    assert_true(worst <= 2 * DBL_EPSILON);
    for (size_t i = 0; i < LIMITS; i++) x[i] = (const float[4]){-INFINITY, NAN, 3.0f, -1e30f}[i % 4];
    kernels->exp_wide(LIMITS, x, 3.0, y);
    for (size_t i = 0; i < LIMITS; i++) {
        const double expected = i % 4 == 2 ? 1.0 : 0.0;
        assert_true(i % 4 == 1 ? isnan(y[i]) : y[i] == expected);
    }
}

/* In every lane: full vectors and what is left behind them. */
static void test_elementary_functions_at_the_limits(void **unused) {
    (void)unused;
    enum { N = 5 * 9 };
    float x[N], y[N];
    for (size_t i = 0; i < N; i++)
        x[i] = (const float[5]){-INFINITY, INFINITY, NAN, 1000.0f, -1000.0f}[i % 5];
    fl_vector_exp(N, x, y);
    for (float *z = y; z < y + N; z += 5)
        assert_true(z[0] == 0.0f && z[1] == INFINITY && isnan(z[2]) && z[3] == INFINITY && z[4] == 0.0f);
    fl_vector_sigmoid(N, x, y);
    for (float *z = y; z < y + N; z += 5)
        assert_true(z[0] == 0.0f && z[1] == 1.0f && isnan(z[2]) && z[3] == 1.0f && z[4] == 0.0f);
    fl_vector_log_sigmoid(N, x, y);
    for (float *z = y; z < y + N; z += 5)
        assert_true(z[0] == -INFINITY && z[1] == 0.0f && isnan(z[2]) && z[3] == 0.0f && z[4] == -1000.0f);
    fl_vector_softplus(N, x, y);
    for (float *z = y; z < y + N; z += 5)
        assert_true(z[0] == 0.0f && z[1] == INFINITY && isnan(z[2]) && z[3] == 1000.0f && z[4] == 0.0f);
    fl_vector_silu(N, x, y);
    for (float *z = y; z < y + N; z += 5)
        assert_true(z[1] == INFINITY && isnan(z[2]) && z[3] == 1000.0f && z[4] == 0.0f);
}

static void test_powers_of_differences_keep_their_accuracy_far_from_zero(void **unused) {
    (void)unused;
    const fl_kernels *kernels = fl_kernels_current();
    double a[37], b[37];
    float y[37];
    for (size_t i = 0; i < 37; i++) {
        a[i] = -5000.0 - 1.7 * (double)i;
        b[i] = -5000.3 + 2.1 * (double)i;
    }
    kernels->exp2_difference(37, a, b, y);
    for (size_t i = 0; i < 37; i++) {
        double exact = exp2(a[i] - b[i]);
        if (exact < 1.2e-38) exact = 0.0;
        assert_true(fabs((double)y[i] - exact) <= 2e-7 * exact);
    }
    kernels->exp2_shifted(37, a, -5000.0, y);
    for (size_t i = 0; i < 37; i++) {
        double exact = exp2(a[i] + 5000.0);
        assert_true(fabs((double)y[i] - exact) <= 2e-7 * exact);
    }
    for (size_t at = 0; at < 37; at++) {
        float log_decay[37] = {0};
        double sum[37], kept = a[at];
        log_decay[at] = NAN;
        kernels->accumulate_decay(37, log_decay, NULL, a, sum);
        assert_true(isnan(sum[at]) && sum[at == 0 ? 1 : at - 1] == 0.0);
        a[at] = NAN;
        kernels->exp2_difference(37, a, b, y);
        assert_true(isnan(y[at]));
        kernels->exp2_shifted(37, a, -5000.0, y);
        assert_true(isnan(y[at]) && !isnan(y[at == 0 ? 1 : at - 1]));
        a[at] = kept;
    }
}

static void test_triangular_solves(void **unused) {
    (void)unused;
    const fl_kernels *kernels = fl_kernels_current();
    fl_random source, *random = &source;
    fl_random_seed(random, 31, 0);
    static const size_t sizes[][2] = {{1, 1},   {3, 8},   {4, 16},  {7, 20},
                                      {64, 64}, {33, 65}, {16, 24}, {64, 8}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s][0], m = sizes[s][1];
        float *a = fl_test_normals(random, n * n, 0.2), *x = fl_test_normals(random, n * m, 1.0),
              *right = fl_test_block(n * m, sizeof(float));
        double *expected = fl_test_block(n * m, sizeof *expected);
        for (int transposed = 0; transposed < 2; transposed++) {
            memcpy(right, x, n * m * sizeof *x);
            for (size_t i = 0; i < n * m; i++) expected[i] = (double)x[i];
            for (size_t step = 0; step < n; step++) {
                size_t i = transposed ? n - 1 - step : step;
                for (size_t j = transposed ? i + 1 : 0; j < (transposed ? n : i); j++) {
                    double factor = (double)(transposed ? a[j * n + i] : a[i * n + j]);
                    for (size_t c = 0; c < m; c++) expected[i * m + c] -= factor * expected[j * m + c];
                }
            }
            (transposed ? kernels->solve_unit_lower_transposed : kernels->solve_unit_lower)(n, m, a, n, right,
                                                                                            m);
            fl_assert_close(right, expected, n * m, 2e-5, "triangular solve");
        }
        fl_memory_free(a);
        fl_memory_free(x);
        fl_memory_free(right);
        fl_memory_free(expected);
    }
}

static double left_entry(const fl_small_product *p, size_t i, size_t k) {
    if (p->shape == FL_LOWER_LEFT && k > i) return 0.0;
    if (p->shape == FL_UPPER_LEFT && k < i) return 0.0;
    return (double)(p->transpose_a ? p->a[k * p->stride_a + i] : p->a[i * p->stride_a + k]);
}

/* One product of every shape and orientation; entries that are not wanted are not compared. */
static void check_product(const fl_kernels *kernels, fl_random *random, size_t m, size_t n, size_t k,
                          int way) {
    fl_small_product p = {.shape = (fl_product_shape)(way / 8),
                          .transpose_a = way & 1,
                          .transpose_b = (way & 2) != 0,
                          .accumulate = (way & 4) != 0,
                          .m = m,
                          .n = n,
                          .k = k,
                          .alpha = -0.5f};
    p.stride_a = (p.transpose_a ? m : k) + 3;
    p.stride_b = p.transpose_b ? k : n;
    p.stride_c = n + 1;
    float *a = fl_test_normals(random, (p.transpose_a ? k : m) * p.stride_a, 1.0);
    float *b = fl_test_normals(random, (p.transpose_b ? n : k) * p.stride_b, 1.0),
          *c = fl_test_normals(random, m * p.stride_c, 1.0);
    float *kept = fl_test_block(m * n, sizeof *kept);
    double *expected = fl_test_block(m * n, sizeof *expected);
    p.a = a;
    p.b = b;
    p.c = c;
    for (size_t i = 0; i < m; i++) {
        if (p.shape == FL_LOWER_LEFT ||
            p.shape == FL_UPPER_LEFT) { /* the kernel may rely on the zeros being there */
            for (size_t x = 0; x < k; x++) {
                float *entry = p.transpose_a ? &a[x * p.stride_a + i] : &a[i * p.stride_a + x];
                *entry = (float)left_entry(&p, i, x);
            }
        }
        for (size_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (size_t x = 0; x < k; x++) {
                sum += left_entry(&p, i, x) *
                       (double)(p.transpose_b ? b[j * p.stride_b + x] : b[x * p.stride_b + j]);
            }
            expected[i * n + j] = -0.5 * sum + (p.accumulate ? (double)c[i * p.stride_c + j] : 0.0);
        }
    }
    kernels->product(&p);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            bool wanted = p.shape != FL_LOWER_OUTPUT || j <= i;
            kept[i * n + j] = wanted ? c[i * p.stride_c + j] : (float)expected[i * n + j];
        }
    }
    fl_assert_close(kept, expected, m * n, 1e-6, "small product");
    void *const blocks[] = {a, b, c, kept, expected};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
}

static void test_small_products_of_every_shape(void **unused) {
    (void)unused;
    static const size_t sizes[][3] = {{1, 1, 1},   {6, 16, 8},   {64, 64, 64},  {13, 33, 20},
                                      {7, 5, 600}, {50, 60, 50}, {20, 65, 300}, {48, 48, 64}};
    fl_random random;
    fl_random_seed(&random, 40, 0);
    fl_worst_reset();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int way = 0; way < 32; way++) {
            check_product(fl_kernels_current(), &random, sizes[s][0], sizes[s][1], sizes[s][2], way);
        }
    }
    printf("worst: small products %.2e\n", fl_worst_reset());
}

enum { LONGEST = 75 };

/* Numbers for one length, each array at an address that is no multiple of a vector, with marks behind the
 * results. */
typedef struct short_arrays {
    size_t n;
    float x[LONGEST + 1], y[LONGEST + 1], before[LONGEST + 1], z[LONGEST + 9];
    double expected[LONGEST];
} short_arrays;

static float *result_of(short_arrays *a) {
    for (size_t i = 0; i < LONGEST + 9; i++) a->z[i] = i >= 1 && i <= a->n ? a->before[i] : 77.0f;
    return a->z + 1;
}

static void check_result(short_arrays *a, const char *kernel) {
    fl_assert_close(a->z + 1, a->expected, a->n, 3e-7, kernel);
    for (size_t i = a->n + 1; i < LONGEST + 9; i++) {
        if (a->z[i] != 77.0f) fail_msg("%s, length %zu: wrote behind its result", kernel, a->n);
    }
    assert_true(a->z[0] == 77.0f);
}

#define EXPECT(value)                                                                                        \
    for (size_t i = 0; i < a->n; i++) {                                                                      \
        double x = (double)a->x[i + 1], y = (double)a->y[i + 1], z = (double)a->before[i + 1];               \
        (void)x, (void)y, (void)z;                                                                           \
        a->expected[i] = (value);                                                                            \
    }

static void check_elementwise(const fl_kernels *kernels, short_arrays *a) {
    const float *left = a->x + 1, *right = a->y + 1;
    size_t n = a->n;
    EXPECT(z + 0.3f * x)
    kernels->axpy(n, 0.3f, left, result_of(a));
    check_result(a, "axpy");
    EXPECT(-0.7f * x)
    kernels->scale(n, -0.7f, left, result_of(a));
    check_result(a, "scale");
    EXPECT(x * z)
    kernels->multiply(n, left, result_of(a), a->z + 1);
    check_result(a, "multiply");
    EXPECT(1.0 / x)
    kernels->reciprocal(n, left, result_of(a));
    check_result(a, "reciprocal");
    EXPECT(z + x * y)
    kernels->multiply_add(n, left, right, result_of(a));
    check_result(a, "multiply_add");
    EXPECT(0.3f * x * y)
    kernels->scale_multiply(n, 0.3f, left, right, result_of(a));
    check_result(a, "scale_multiply");
    EXPECT(z * (y + 2.0))
    kernels->shift_multiply(n, result_of(a), right, 2.0f, a->z + 1);
    check_result(a, "shift_multiply");
    EXPECT(exp(x))
    kernels->exp(n, left, result_of(a));
    check_result(a, "exp");
    EXPECT(exact_silu(x) * y)
    kernels->silu_gate(n, left, right, result_of(a));
    check_result(a, "silu_gate");
    EXPECT(z * exact_silu(x))
    float other[LONGEST + 1];
    kernels->silu_gate_backward(n, left, right, result_of(a), other, a->z + 1);
    check_result(a, "silu_gate_backward");
}

static void check_rotation(const fl_kernels *kernels, short_arrays *a) {
    float low[LONGEST + 1];
    for (int back = 0; back < 2; back++) {
        double sign = back ? -1.0 : 1.0;
        memcpy(low, a->y, sizeof low);
        EXPECT(z * cos(x) + y * sign * sin(x))
        float cosine[LONGEST], sine[LONGEST];
        for (size_t i = 0; i < a->n; i++) cosine[i] = cosf(a->x[i + 1]), sine[i] = sinf(a->x[i + 1]);
        kernels->rotate(a->n, cosine, sine, back, low + 1, result_of(a));
        check_result(a, "rotate");
        EXPECT(y * cos(x) - z * sign * sin(x))
        fl_assert_close(low + 1, a->expected, a->n, 3e-7, "rotate");
    }
}

static void check_reductions(const fl_kernels *kernels, short_arrays *a) {
    const float *left = a->x + 1, *right = a->y + 1;
    double dot = 0.0, size = 0.0, squares = 0.0, exponentials = 0.0, sums[LONGEST], products[LONGEST];
    float largest = -INFINITY;
    for (size_t i = 0; i < a->n; i++) {
        dot += (double)left[i] * (double)right[i];
        size += fabs((double)left[i] * (double)right[i]);
        squares += (double)left[i] * (double)left[i];
        exponentials += exp((double)left[i] - 0.5);
        largest = fmaxf(largest, left[i]);
        sums[i] = (double)i;
        products[i] = (double)i - (double)left[i] * (double)right[i];
    }
    assert_true(fabs((double)kernels->dot(a->n, left, right) - dot) <= 1e-6 * size);
    assert_true(fabs(kernels->sum_of_squares(a->n, left) - squares) <= 1e-14 * squares);
    kernels->accumulate_products(a->n, -1.0, left, right, sums);
    fl_assert_close_doubles(sums, products, a->n, 1e-15, "accumulate_products");
    assert_true(kernels->maximum(a->n, left) == largest);
    EXPECT(exp(x - 0.5))
    float sum = kernels->exp_sum(a->n, 0.5f, left, result_of(a));
    assert_true(fabs((double)sum - exponentials) <= 1e-6 * exponentials);
    check_result(a, "exp_sum");
    double all = 0.0;
    for (size_t i = 0; i < a->n; i++) all += exp((double)left[i]);
    EXPECT(exp(x) / all)
    fl_vector_softmax(a->n, left, result_of(a));
    check_result(a, "softmax");
}

static void check_decay(const fl_kernels *kernels, short_arrays *a) {
    double before[LONGEST], start[LONGEST], sum[LONGEST], expected[LONGEST], widest = 0.0;
    for (size_t i = 0; i < a->n; i++) {
        if (i % 7 == 3) a->x[i + 1] = -INFINITY;
        before[i] = -10.0 * (double)i;
        start[i] = 5.0;
        expected[i] = before[i] + 1.4426950408889634 * fmax((double)a->x[i + 1], -300.0);
        widest = fmax(widest, start[i] - expected[i]);
    }
    double found = kernels->accumulate_decay(a->n, a->x + 1, before, start, sum);
    assert_true(fabs(found - widest) <= 1e-14 * widest);
    fl_assert_close_doubles(sum, expected, a->n, 1e-15, "accumulate_decay");
    assert_true(kernels->accumulate_decay(a->n, a->x + 1, NULL, NULL, sum) == 0.0);
}

static void test_short_and_odd_lengths(void **unused) {
    (void)unused;
    fl_random random;
    fl_random_seed(&random, 47, 0);
    fl_worst_reset();
    for (size_t n = 0; n <= LONGEST; n++) {
        short_arrays a = {.n = n};
        for (size_t i = 0; i <= LONGEST; i++) {
            a.x[i] = (float)fl_random_normal(&random);
            a.y[i] = (float)fl_random_normal(&random);
            a.before[i] = (float)fl_random_normal(&random);
        }
        check_elementwise(fl_kernels_current(), &a);
        check_rotation(fl_kernels_current(), &a);
        check_reductions(fl_kernels_current(), &a);
        check_decay(fl_kernels_current(), &a);
    }
    printf("worst: elementwise (%s) %.2e\n", fl_kernels_current()->name, fl_worst_reset());
}

static void test_the_maximum_passes_over_nan_wherever_it_is(void **unused) {
    (void)unused;
    const fl_kernels *kernels = fl_kernels_current();
    float x[LONGEST];
    for (size_t n = 1; n <= LONGEST; n++) {
        for (size_t at = 0; at < n; at++) {
            for (size_t i = 0; i < n; i++) x[i] = -5.0f - (float)i;
            x[at] = NAN;
            assert_true(kernels->maximum(n, x) == (n == 1 ? -INFINITY : at == 0 ? -6.0f : -5.0f));
            assert_true(isnan(kernels->exp_sum(n, 0.0f, x, x)) && isnan(x[at]));
        }
    }
}

/* The state, [dv][dk], after one step, and what the query reads from it. */
static void exact_step(size_t dv, size_t dk, const fl_step_inputs *in, double *state, double *output) {
    for (size_t v = 0; v < dv; v++) {
        double *row = state + v * dk, erased = 0.0;
        output[v] = 0.0;
        for (size_t i = 0; i < dk; i++) {
            if (in->decay != NULL) row[i] *= (double)in->decay[i];
            if (in->erase_read != NULL) erased += row[i] * (double)in->erase_read[i];
        }
        for (size_t i = 0; i < dk; i++) {
            row[i] += (double)in->write * (double)in->value[v] * (double)in->key[i];
            if (in->erase_read != NULL)
                row[i] -= (double)in->erase_strength * erased * (double)in->erase_write[i];
            output[v] += row[i] * (double)in->query[i];
        }
    }
}

static void check_step(const fl_kernels *kernels, fl_random *random, size_t dv, size_t dk) {
    float *state = fl_test_normals(random, dv * dk, 1.0), *x = fl_test_normals(random, 5 * dk, 0.3);
    float *value = fl_test_normals(random, dv, 1.0), *output = fl_test_block(dv, sizeof *output);
    double *expected = fl_test_block(dv * dk, sizeof *expected), *read = fl_test_block(dv, sizeof *read);
    for (size_t i = 0; i < dv * dk; i++) expected[i] = (double)state[i];
    fl_step_inputs in = {.query = x,
                         .key = x + dk,
                         .value = value,
                         .decay = x + 2 * dk,
                         .erase_read = x + 3 * dk,
                         .erase_write = x + 4 * dk,
                         .erase_strength = 0.3f,
                         .write = 0.7f};
    for (size_t kind = 0; kind < 4; kind++) {
        if (kind == 1) in.erase_write = in.erase_read = in.key;
        if (kind == 2) in.decay = NULL;
        if (kind == 3) in.erase_read = in.erase_write = NULL;
        kernels->recurrence_step(dv, dk, &in, state, output);
        exact_step(dv, dk, &in, expected, read);
        fl_assert_close(state, expected, dv * dk, 1e-6, "state after a step");
        fl_assert_close(output, read, dv, 1e-5, "output of a step");
    }
    void *const blocks[] = {state, x, value, output, expected, read};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
}

static void check_few_tokens(const fl_kernels *kernels, fl_random *random, size_t rows, size_t columns) {
    enum { TOKENS = 5 };
    size_t count = TOKENS * rows;
    float *matrix = fl_test_normals(random, rows * columns, 1.0),
          *input = fl_test_normals(random, TOKENS * columns, 1.0);
    float *output = fl_test_block(count, sizeof *output),
          *sums = fl_test_block(TOKENS * columns, sizeof *sums);
    double *expected = fl_test_block(count, sizeof *expected),
           *total = fl_test_block(TOKENS * columns, sizeof *total);
    for (size_t i = 0; i < TOKENS * columns; i++) total[i] = (double)(sums[i] = input[i]);
    for (size_t t = 0; t < TOKENS; t++) {
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < columns; c++)
                expected[t * rows + r] += (double)matrix[r * columns + c] * (double)input[t * columns + c];
        }
    }
    kernels->rows_times_tokens(rows, columns, matrix, TOKENS, input, output, rows);
    fl_assert_close(output, expected, count, 1e-6, "rows_times_tokens");
    for (size_t i = 0; i < count; i++) {
        for (size_t c = 0; c < columns; c++)
            total[i / rows * columns + c] += (double)output[i] * (double)matrix[i % rows * columns + c];
    }
    kernels->tokens_times_rows(TOKENS, rows, columns, output, rows, matrix, sums);
    fl_assert_close(sums, total, TOKENS * columns, 1e-6, "tokens_times_rows");
    fl_vector_times_rows(rows, columns, matrix, input + columns, output);
    fl_assert_close(output, expected + rows, rows, 1e-6, "a matrix times a vector");
    for (size_t c = 0; c < columns; c++) total[c] = 0.0;
    for (size_t i = 0; i < rows * columns; i++)
        total[i % columns] += (double)output[i / columns] * (double)matrix[i];
    fl_vector_weigh_rows(rows, columns, output, matrix, sums);
    fl_assert_close(sums, total, columns, 1e-6, "a vector times a matrix");
    void *const blocks[] = {matrix, input, output, sums, expected, total};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
}

static void test_steps_and_products_for_few_tokens(void **unused) {
    (void)unused;
    static const size_t dims[][2] = {{1, 1}, {4, 8}, {5, 13}, {64, 64}, {65, 60}, {30, 100}, {16, 79}};
    fl_random random;
    fl_random_seed(&random, 45, 0);
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        check_step(fl_kernels_current(), &random, dims[i][0], dims[i][1]);
        check_few_tokens(fl_kernels_current(), &random, dims[i][0], dims[i][1]);
    }
}

static bool machine_runs(const char *name) {
    for (size_t i = 0; fl_kernels_at(i) != NULL; i++) {
        if (strcmp(fl_kernels_at(i)->name, name) == 0) return true;
    }
    return false;
}

static void test_tables_are_selected_by_name(void **unused) {
    (void)unused;
    static const char *const names[] = {"avx512", "avx2", "baseline"};
    const fl_kernels *before = fl_kernels_current();
    fl_error error = {0};
    for (size_t i = 0; i < 3; i++) {
        if (machine_runs(names[i])) {
            assert_int_equal(fl_kernels_select(names[i], &error), FL_OK);
            assert_string_equal(fl_kernels_current()->name, names[i]);
        } else {
            printf("skipped: %s kernels: this machine does not run them\n", names[i]);
            assert_int_equal(fl_kernels_select(names[i], &error), FL_ERROR_ARGUMENT);
            assert_non_null(strstr(error.message, "does not run"));
        }
    }
    assert_true(machine_runs("baseline"));
    assert_int_equal(fl_kernels_select("avx1024", &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "avx1024"));
    assert_string_equal(fl_kernels_current()->name, "baseline");
    assert_int_equal(fl_kernels_select(NULL, &error), FL_OK);
    assert_ptr_equal(fl_kernels_current(), fl_kernels_at(0));
    assert_int_equal(fl_kernels_select(before->name, &error), FL_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementary_functions_stay_within_their_bounds),
        cmocka_unit_test(test_the_exponential_in_float64),
        cmocka_unit_test(test_elementary_functions_at_the_limits),
        cmocka_unit_test(test_powers_of_differences_keep_their_accuracy_far_from_zero),
        cmocka_unit_test(test_triangular_solves),
        cmocka_unit_test(test_small_products_of_every_shape),
        cmocka_unit_test(test_short_and_odd_lengths),
        cmocka_unit_test(test_the_maximum_passes_over_nan_wherever_it_is),
        cmocka_unit_test(test_steps_and_products_for_few_tokens),
        cmocka_unit_test(test_tables_are_selected_by_name),
    };
    return FL_RUN_WITH_EVERY_TABLE(tests);
}
