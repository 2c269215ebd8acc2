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
#include "harness/compute/cpu_kernels.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/every_table.h"

static fl_compute *backend(size_t threads, size_t budget) {
    fl_error error = {0};
    fl_compute *compute = NULL;
    if (fl_compute_create_cpu(&(fl_compute_options){threads, budget}, &compute, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    return compute;
}

static double exact_silu(double x) {
    return x / (1.0 + exp(-x));
}
/* C = A B^T in float64, A [m][k], B [n][k]. */
static double *exact_product(size_t m, size_t n, size_t k, const float *a, const float *b) {
    double *c = fl_test_block(m * n, sizeof *c);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (size_t x = 0; x < k; x++) sum += (double)a[i * k + x] * (double)b[j * k + x];
            c[i * n + j] = sum;
        }
    }
    return c;
}

/* A tensor with random stored bytes whose block scales are small half-precision numbers. */
static fl_tensor random_tensor(fl_random *random, fl_dtype type, size_t rows, size_t columns) {
    size_t bytes = rows * fl_dtype_row_bytes(type, columns), step = fl_dtype_block_bytes(type);
    unsigned char *data = fl_test_block(bytes, 1);
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)fl_random_below(random, 256);
    fl_tensor tensor = {.data = data,
                        .type = type,
                        .rank = 2,
                        .shape = {rows, columns},
                        .rows = rows,
                        .columns = columns,
                        .name = "random"};
    if (type == FL_DTYPE_F32) {
        for (size_t i = 0; i < rows * columns; i++) ((float *)data)[i] = (float)fl_random_normal(random);
        return tensor;
    }
    size_t scales[FL_DTYPE_COUNT] = {[FL_DTYPE_Q2_K] = 80, [FL_DTYPE_Q3_K] = 108, [FL_DTYPE_Q6_K] = 208};
    bool has_minimum = type == FL_DTYPE_Q4_1 || type == FL_DTYPE_Q5_1 || type == FL_DTYPE_Q2_K ||
                       type == FL_DTYPE_Q4_K || type == FL_DTYPE_Q5_K;
    for (size_t i = scales[type]; i < bytes; i += step) {
        data[i + 1] = (unsigned char)((data[i + 1] & 0x83) | 0x2c); /* exponent near 2^-4 */
        if (has_minimum) data[i + 3] = (unsigned char)((data[i + 3] & 0x83) | 0x2c);
        if (type == FL_DTYPE_BF16) data[i + 1] = (unsigned char)((data[i + 1] & 0x80) | 0x3e);
    }
    return tensor;
}

static void check_weight(fl_compute *compute, const fl_tensor *tensor, fl_random *random) {
    size_t rows = tensor->rows, columns = tensor->columns;
    fl_error error = {0};
    fl_weight *weight = NULL;
    if (compute->ops->weight_create(compute, tensor, &weight, &error) != FL_OK) fail_msg("%s", error.message);
    float *values = fl_test_block(rows * columns, sizeof *values), *bias = fl_test_normals(random, rows, 1.0);
    fl_tensor_widen_rows(tensor, 0, rows, values);
    static const size_t token_counts[] = {0, 1, 2, 3, 5, 6, 7, 40, 70};
    for (size_t i = 0; i < sizeof token_counts / sizeof *token_counts; i++) {
        size_t tokens = token_counts[i];
        float *input = fl_test_normals(random, tokens * columns, 1.0),
              *output = fl_test_block(tokens * rows, sizeof *output);
        double *expected = exact_product(tokens, rows, columns, input, values);
        compute->ops->linear(compute, weight, fl_array_none, tokens, fl_test_array(input),
                             fl_test_array(output));
        fl_assert_close(output, expected, tokens * rows, 1e-6, fl_dtype_name(tensor->type));
        for (size_t j = 0; j < tokens * rows; j++) expected[j] += (double)bias[j % rows];
        compute->ops->linear(compute, weight, fl_test_array(bias), tokens, fl_test_array(input),
                             fl_test_array(output));
        fl_assert_close(output, expected, tokens * rows, 1e-6, "with bias");
        fl_memory_free(input);
        fl_memory_free(output);
        fl_memory_free(expected);
    }
    const int32_t ids[4] = {0, (int32_t)rows - 1, 3, 3};
    float *embedded = fl_test_block(4 * columns, sizeof *embedded);
    compute->ops->embed(compute, weight, 4, fl_test_integers(ids), fl_test_array(embedded));
    for (size_t t = 0; t < 4; t++) {
        assert_memory_equal(embedded + t * columns, values + (size_t)ids[t] * columns,
                            columns * sizeof *values);
    }
    fl_memory_free(embedded);
    fl_memory_free(values);
    fl_memory_free(bias);
    compute->ops->weight_destroy(compute, weight);
}

static void test_linear_and_embed_for_every_stored_type_widened_and_streamed(void **unused) {
    (void)unused;
    fl_random random;
    fl_random_seed(&random, 32, 0);
    fl_worst_reset();
    for (int type = 0; type < FL_DTYPE_COUNT; type++) {
        fl_tensor tensor = random_tensor(&random, (fl_dtype)type, 333,
                                         fl_dtype_block_elements((fl_dtype)type) > 96 ? 256 : 96);
        fl_compute *widened = backend(2, SIZE_MAX), *streamed = backend(2, 0);
        check_weight(widened, &tensor, &random);
        check_weight(streamed, &tensor, &random);
        fl_compute_destroy(widened);
        fl_compute_destroy(streamed);
        fl_memory_free((void *)(uintptr_t)tensor.data);
    }
    printf("worst: linear, every stored type %.2e\n", fl_worst_reset());
}

static void test_linear_backward_is_the_product_with_the_weight(void **unused) {
    (void)unused;
    fl_random random;
    fl_random_seed(&random, 33, 0);
    fl_tensor tensor = random_tensor(&random, FL_DTYPE_Q8_0, 300, 224);
    float *values = fl_test_block(300 * 224, sizeof *values),
          *turned = fl_test_block(300 * 224, sizeof *turned);
    fl_tensor_widen_rows(&tensor, 0, 300, values);
    for (size_t i = 0; i < 300 * 224; i++) turned[i % 224 * 300 + i / 224] = values[i];
    float *gradient = fl_test_normals(&random, 50 * 300, 1.0),
          *input = fl_test_block(50 * 224, sizeof *input);
    double *expected = exact_product(50, 224, 300, gradient, turned);
    for (size_t budget = 0; budget < 2; budget++) {
        fl_compute *compute = backend(2, budget == 0 ? 0 : SIZE_MAX);
        fl_weight *weight = NULL;
        assert_int_equal(compute->ops->weight_create(compute, &tensor, &weight, NULL), FL_OK);
        compute->ops->linear_backward(compute, weight, 50, fl_test_array(gradient), fl_test_array(input),
                                      false);
        fl_assert_close(input, expected, 50 * 224, 1e-6, "gradient of the input");
        compute->ops->linear_backward(compute, weight, 50, fl_test_array(gradient), fl_test_array(input),
                                      true);
        for (size_t i = 0; i < 50 * 224; i++) input[i] *= 0.5f;
        fl_assert_close(input, expected, 50 * 224, 1e-6, "accumulated gradient");
        compute->ops->weight_destroy(compute, weight);
        fl_compute_destroy(compute);
    }
    void *const blocks[] = {values, turned, gradient, input, expected, (void *)(uintptr_t)tensor.data};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
}

static void test_widening_stops_at_the_budget_and_absent_tensors_are_refused(void **unused) {
    (void)unused;
    fl_random random;
    fl_random_seed(&random, 34, 0);
    fl_compute *compute = backend(1, 64 * 32 * sizeof(float));
    fl_tensor tensor = random_tensor(&random, FL_DTYPE_F16, 64, 32);
    fl_weight *first = NULL, *second = NULL;
    fl_error error = {0};
    assert_int_equal(compute->ops->weight_create(compute, &tensor, &first, &error), FL_OK);
    assert_int_equal(compute->ops->weight_create(compute, &tensor, &second, &error), FL_OK);
    float input[32] = {1.0f, 2.0f}, widened[64], streamed[64];
    compute->ops->linear(compute, first, fl_array_none, 1, fl_test_array(input), fl_test_array(widened));
    compute->ops->linear(compute, second, fl_array_none, 1, fl_test_array(input), fl_test_array(streamed));
    assert_memory_equal(widened, streamed, sizeof widened);
    compute->ops->weight_destroy(compute, first);
    compute->ops->weight_destroy(compute, second);
    fl_tensor absent = {.name = "model.absent"};
    assert_int_equal(compute->ops->weight_create(compute, &absent, &first, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "model.absent"));
    fl_memory_fail_at(1);
    assert_int_equal(compute->ops->weight_create(compute, &tensor, &first, &error), FL_ERROR_MEMORY);
    fl_memory_fail_at(2);
    assert_int_equal(compute->ops->weight_create(compute, &tensor, &first, &error), FL_ERROR_MEMORY);
    assert_null(first);
    fl_memory_free((void *)(uintptr_t)tensor.data);
    fl_compute_destroy(compute);
}

static void test_create_reports_every_failed_allocation(void **unused) {
    (void)unused;
    for (size_t n = 1; n < 6; n++) {
        fl_compute *compute = NULL;
        fl_memory_fail_at(n);
        assert_int_equal(fl_compute_create_cpu(&(fl_compute_options){1, 0}, &compute, NULL), FL_ERROR_MEMORY);
        assert_null(compute);
    }
    fl_memory_fail_at(0);
}

static void test_matmul_in_every_orientation(void **unused) {
    (void)unused;
    fl_random random;
    fl_random_seed(&random, 35, 0);
    fl_compute *compute = backend(2, 0);
    static const size_t sizes[][3] = {{3, 5, 7}, {200, 130, 64}, {64, 700, 33}, {1, 1, 0}, {600, 20, 64}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
        float *a = fl_test_normals(&random, m * k, 1.0), *b = fl_test_normals(&random, n * k, 1.0),
              *start = fl_test_normals(&random, m * n, 1.0);
        float *at = fl_test_block(m * k, sizeof *at), *bt = fl_test_block(n * k, sizeof *bt),
              *c = fl_test_block(m * n, sizeof *c);
        for (size_t i = 0; i < m * k; i++) at[i % k * m + i / k] = a[i];
        for (size_t i = 0; i < n * k; i++) bt[i % k * n + i / k] = b[i];
        double *expected = exact_product(m, n, k, a, b);
        for (size_t i = 0; i < m * n; i++) expected[i] = 2.0 * expected[i] + 0.5 * (double)start[i];
        for (int way = 0; way < 4; way++) {
            bool ta = way & 1, tb = (way & 2) == 0; /* B is stored [n][k] when transposed */
            memcpy(c, start, m * n * sizeof *c);
            compute->ops->matmul(compute, ta, tb, m, n, k, 2.0f, fl_test_array(ta ? at : a), ta ? m : k,
                                 fl_test_array(tb ? b : bt), tb ? k : n, 0.5f, fl_test_array(c), n);
            fl_assert_close(c, expected, m * n, 1e-6, "matmul");
        }
        void *const blocks[] = {a, b, start, at, bt, c, expected};
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
    }
    fl_compute_destroy(compute);
}

static double exact_norm(size_t columns, const double *x, const double *weight, double epsilon, size_t at) {
    double sum = 0.0;
    for (size_t i = 0; i < columns; i++) sum += x[i] * x[i];
    return x[at] / sqrt(sum / (double)columns + epsilon) * weight[at];
}

static void test_rms_norm_and_its_gradient(void **unused) {
    (void)unused;
    enum { ROWS = 33, COLUMNS = 77 };
    fl_random random;
    fl_random_seed(&random, 36, 0);
    fl_compute *compute = backend(2, 0);
    float *input = fl_test_normals(&random, ROWS * COLUMNS, 1.0),
          *weight = fl_test_normals(&random, COLUMNS, 1.0);
    float *gradient = fl_test_normals(&random, ROWS * COLUMNS, 1.0),
          *output = fl_test_block(ROWS * COLUMNS, sizeof *output);
    input[3] = 2.6e4f; /* what position 0 carries in real models */
    double x[COLUMNS], w[COLUMNS], expected[COLUMNS];
    for (size_t i = 0; i < COLUMNS; i++) w[i] = (double)weight[i];
    compute->ops->rms_norm(compute, ROWS, COLUMNS, fl_test_array(input), fl_test_array(weight), 1e-5,
                           fl_test_array(output));
    fl_worst_reset();
    for (size_t row = 0; row < ROWS; row++) {
        for (size_t i = 0; i < COLUMNS; i++) x[i] = (double)input[row * COLUMNS + i];
        for (size_t i = 0; i < COLUMNS; i++) expected[i] = exact_norm(COLUMNS, x, w, 1e-5, i);
        fl_assert_close(output + row * COLUMNS, expected, COLUMNS, 1e-6, "rms norm");
    }
    compute->ops->rms_norm_backward(compute, ROWS, COLUMNS, fl_test_array(input), fl_test_array(weight), 1e-5,
                                    fl_test_array(gradient), fl_test_array(output), false);
    for (size_t row = 0; row < ROWS; row++) {
        for (size_t i = 0; i < COLUMNS; i++) x[i] = (double)input[row * COLUMNS + i];
        for (size_t i = 0; i < COLUMNS; i++) {
            double kept = x[i], step = 1e-5 * fmax(1.0, fabs(kept)), slope = 0.0;
            for (int side = -1; side <= 1; side += 2) {
                x[i] = kept + side * step;
                for (size_t j = 0; j < COLUMNS; j++) {
                    slope += side * (double)gradient[row * COLUMNS + j] * exact_norm(COLUMNS, x, w, 1e-5, j);
                }
            }
            x[i] = kept;
            expected[i] = slope / (2.0 * step);
        }
        fl_assert_close(output + row * COLUMNS, expected, COLUMNS, 1e-5, "gradient of rms norm");
    }
    float *twice = fl_test_block(ROWS * COLUMNS, sizeof *twice);
    memcpy(twice, output, ROWS * COLUMNS * sizeof *twice);
    compute->ops->rms_norm_backward(compute, ROWS, COLUMNS, fl_test_array(input), fl_test_array(weight), 1e-5,
                                    fl_test_array(gradient), fl_test_array(twice), true);
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        assert_true(fabsf(twice[i] - 2.0f * output[i]) <= 1e-6f * fabsf(twice[i]));
    printf("worst: rms norm and gradient %.2e\n", fl_worst_reset());
    void *const blocks[] = {input, weight, gradient, output, twice};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
    fl_compute_destroy(compute);
}

static void test_rope_rotates_by_float32_angles_and_back(void **unused) {
    (void)unused;
    enum { T = 70, HEADS = 3, DIM = 20, ROTARY = 16, FIRST = 5000 };
    fl_random random;
    fl_random_seed(&random, 37, 0);
    fl_compute *compute = backend(2, 0);
    float frequencies[ROTARY / 2], *x = fl_test_normals(&random, T * HEADS * DIM, 1.0),
                                   *start = fl_test_block(T * HEADS * DIM, sizeof *x);
    double *expected = fl_test_block(T * HEADS * DIM, sizeof *expected);
    for (size_t i = 0; i < ROTARY / 2; i++) frequencies[i] = powf(10000.0f, -(float)i / 8.0f);
    memcpy(start, x, T * HEADS * DIM * sizeof *x);
    for (size_t i = 0; i < T * HEADS * DIM; i++) {
        size_t d = i % DIM, t = i / (HEADS * DIM);
        expected[i] = (double)x[i];
        if (d >= ROTARY) continue;
        double angle = (double)((float)(FIRST + t) * frequencies[d % 8]), sign = d < 8 ? -1.0 : 1.0;
        expected[i] =
            1.25 * ((double)x[i] * cos(angle) + sign * (double)x[d < 8 ? i + 8 : i - 8] * sin(angle));
    }
    compute->ops->rope(compute, T, HEADS, DIM, FIRST, ROTARY, fl_test_array(frequencies), 1.25f, 1,
                       fl_test_array(x));
    fl_assert_close(x, expected, T * HEADS * DIM, 3e-7, "rope");
    for (size_t i = 0; i < T * HEADS * DIM; i++)
        expected[i] = (double)start[i] * (i % DIM < ROTARY ? 1.5625 : 1.0);
    compute->ops->rope(compute, T, HEADS, DIM, FIRST, ROTARY, fl_test_array(frequencies), 1.25f, -1,
                       fl_test_array(x));
    fl_assert_close(x, expected, T * HEADS * DIM, 1e-6, "rope and back");
    /* A later range, a part of the table, and other frequencies. */
    memcpy(x, start, T * HEADS * DIM * sizeof *x);
    compute->ops->rope(compute, 1, HEADS, DIM, FIRST + 3, ROTARY, fl_test_array(frequencies), 1.0f, 1,
                       fl_test_array(x));
    double angle = (double)((float)(FIRST + 3) * frequencies[2]);
    double low = (double)start[2] * cos(angle) - (double)start[10] * sin(angle);
    assert_true(fabs((double)x[2] - low) < 1e-6);
    frequencies[2] = 0.5f;
    memcpy(x, start, T * HEADS * DIM * sizeof *x);
    compute->ops->rope(compute, 1, HEADS, DIM, 2, ROTARY, fl_test_array(frequencies), 1.0f, 1,
                       fl_test_array(x));
    assert_true(fabs((double)x[2] - ((double)start[2] * cos(1.0) - (double)start[10] * sin(1.0))) < 1e-6);
    fl_memory_free(x);
    fl_memory_free(start);
    fl_memory_free(expected);
    fl_compute_destroy(compute);
}

static double exact_activation(fl_activation activation, double x) {
    switch (activation) {
    case FL_ACTIVATION_SILU:
        return exact_silu(x);
    case FL_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case FL_ACTIVATION_GELU:
        return 0.5 * x * erfc(-x * 0.7071067811865476);
    }
    return NAN;
}

static void test_gated_activations_and_their_gradients(void **unused) {
    (void)unused;
    enum { N = 40003 };
    fl_random random;
    fl_random_seed(&random, 38, 0);
    fl_compute *compute = backend(2, 0);
    float *gate = fl_test_normals(&random, N, 3.0), *up = fl_test_normals(&random, N, 1.0),
          *gradient = fl_test_normals(&random, N, 1.0);
    float *output = fl_test_block(N, sizeof *output), *gradient_gate = fl_test_block(N, sizeof(float)),
          *gradient_up = fl_test_block(N, sizeof(float));
    double *expected = fl_test_block(N, sizeof *expected), *expected_gate = fl_test_block(N, sizeof(double)),
           *expected_up = fl_test_block(N, sizeof(double));
    fl_worst_reset();
    for (int activation = FL_ACTIVATION_SILU; activation <= FL_ACTIVATION_GELU; activation++) {
        for (size_t i = 0; i < N; i++) {
            double g = (double)gate[i], d = (double)gradient[i],
                   value = exact_activation((fl_activation)activation, g);
            double slope = (exact_activation((fl_activation)activation, g + 1e-5) -
                            exact_activation((fl_activation)activation, g - 1e-5)) /
                           2e-5;
            expected[i] = value * (double)up[i];
            expected_gate[i] = d * (double)up[i] * slope;
            expected_up[i] = d * value;
        }
        compute->ops->gated_activation(compute, (fl_activation)activation, N, fl_test_array(gate),
                                       fl_test_array(up), fl_test_array(output));
        fl_assert_close(output, expected, N, 1e-6, "activation");
        compute->ops->gated_activation_backward(compute, (fl_activation)activation, N, fl_test_array(gate),
                                                fl_test_array(up), fl_test_array(gradient),
                                                fl_test_array(gradient_gate), fl_test_array(gradient_up));
        fl_assert_close(gradient_gate, expected_gate, N, 1e-6, "gradient of the gate");
        fl_assert_close(gradient_up, expected_up, N, 1e-6, "gradient of up");
    }
    printf("worst: gated activations and gradients %.2e\n", fl_worst_reset());
    memcpy(output, up, N * sizeof *up);
    compute->ops->add(compute, N, fl_test_array(output), fl_test_array(gate));
    for (size_t i = 0; i < N; i++) assert_true(output[i] == up[i] + gate[i]);
    void *const blocks[] = {gate,        up,       gradient,      output,     gradient_gate,
                            gradient_up, expected, expected_gate, expected_up};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) fl_memory_free(blocks[i]);
    fl_compute_destroy(compute);
}

static void test_linear_is_the_same_for_every_thread_count(void **unused) {
    (void)unused;
    fl_random random;
    fl_random_seed(&random, 39, 0);
    fl_tensor tensor = random_tensor(&random, FL_DTYPE_F32, 1000, 96);
    float *input = fl_test_normals(&random, 70 * 96, 1.0), *first = fl_test_block(70 * 1000, sizeof *first),
          *output = fl_test_block(70 * 1000, sizeof *output);
    for (size_t threads = 1; threads <= 3; threads++) {
        fl_compute *compute = backend(threads, 0);
        fl_weight *weight = NULL;
        assert_int_equal(compute->ops->weight_create(compute, &tensor, &weight, NULL), FL_OK);
        compute->ops->linear(compute, weight, fl_array_none, 70, fl_test_array(input),
                             fl_test_array(threads == 1 ? first : output));
        if (threads > 1) assert_true(fl_compare_float_floats(output, first, 70 * 1000).relative <= 1e-6);
        compute->ops->weight_destroy(compute, weight);
        fl_compute_destroy(compute);
    }
    fl_memory_free(input);
    fl_memory_free(first);
    fl_memory_free(output);
    fl_memory_free((void *)(uintptr_t)tensor.data);
}

static void test_widened_weights_leave_room_for_a_large_file(void **state) {
    (void)state;
    const size_t gib = (size_t)1 << 30, memory = 24 * gib;
    static const struct {
        double file_gib, bytes_a_weight;
    } cases[] = {{0.1, 0.625}, {1, 2}, {13.5, 2}, {16, 2}, {19, 2}, {19.5, 2}, {12, 0.625}, {18, 0.625}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double file = cases[i].file_gib * (double)gib;
        const size_t parameters = (size_t)(file / cases[i].bytes_a_weight);
        const size_t budget = fl_compute_widen_budget(memory, (size_t)file, parameters);
        assert_true(budget <= memory / 2);
        const double share = (double)budget / (4.0 * (double)parameters);
        const double together = (double)budget + file * (1.0 - (share < 1.0 ? share : 1.0));
        if (budget > 0 && share < 1.0) assert_true(together <= 0.8 * (double)memory * 1.001);
        if (file > 0.8 * (double)memory) assert_int_equal(budget, 0);
        if (file < 0.3 * (double)memory) assert_int_equal(budget, memory / 2);
    }
    /* Float32 weights are used in place. */
    assert_int_equal(fl_compute_widen_budget(memory, 20 * gib, 5 * gib), memory / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widened_weights_leave_room_for_a_large_file),
        cmocka_unit_test(test_linear_and_embed_for_every_stored_type_widened_and_streamed),
        cmocka_unit_test(test_linear_backward_is_the_product_with_the_weight),
        cmocka_unit_test(test_widening_stops_at_the_budget_and_absent_tensors_are_refused),
        cmocka_unit_test(test_create_reports_every_failed_allocation),
        cmocka_unit_test(test_matmul_in_every_orientation),
        cmocka_unit_test(test_rms_norm_and_its_gradient),
        cmocka_unit_test(test_rope_rotates_by_float32_angles_and_back),
        cmocka_unit_test(test_gated_activations_and_their_gradients),
        cmocka_unit_test(test_linear_is_the_same_for_every_thread_count),
    };
    return FL_RUN_WITH_EVERY_TABLE(tests);
}
