/* The device's other operations beside the cpu's, which their own tests compare with definitions: both get
 * the same numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/compute/compute.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"

enum { MOST_RESULTS = 64 };

/* What an instance has made, on the host. */
typedef struct {
    size_t used, count[MOST_RESULTS];
    float *at[MOST_RESULTS];
} outcome;

static void keep(outcome *out, fl_compute *compute, fl_array array, size_t count) {
    assert_true(out->used < MOST_RESULTS);
    out->count[out->used] = count;
    out->at[out->used++] = fl_brought_back(compute, array, count);
}

/* `count` normal numbers on the instance. */
static fl_array normals(fl_compute *compute, fl_random *random, size_t count, double scale) {
    float *numbers = fl_test_normals(random, count, scale);
    fl_array placed = fl_placed(compute, numbers, count);
    fl_memory_free(numbers);
    return placed;
}

/* float64 results are compared as float32 beside their rest: 1e-6 of what float32 holds. */
static void keep_wide(outcome *out, fl_compute *compute, fl_array array, size_t count) {
    fl_error error = {0};
    double *wide = fl_test_block(count, sizeof *wide);
    float *narrow = fl_test_block(count, sizeof *narrow);
    assert_true(out->used < MOST_RESULTS);
    if (compute->ops->download(compute, wide, array, count, &error) != FL_OK) fail_msg("%s", error.message);
    for (size_t i = 0; i < count; i++) narrow[i] = (float)wide[i];
    fl_memory_free(wide);
    out->count[out->used] = count;
    out->at[out->used++] = narrow;
}

static void keep_index(outcome *out, fl_compute *compute, fl_array array, size_t count) {
    fl_error error = {0};
    int32_t index[16];
    double *as_double = fl_test_block(count, sizeof *as_double);
    assert_true(count <= 16);
    if (compute->ops->download(compute, index, array, count, &error) != FL_OK) fail_msg("%s", error.message);
    for (size_t i = 0; i < count; i++) as_double[i] = index[i];
    keep_wide(out, compute, fl_placed_array(compute, as_double, FL_FLOAT64, count), count);
    fl_memory_free(as_double);
}

typedef void (*fl_operation)(fl_compute *, fl_random *, outcome *);

static void compare(fl_operation run, double bound) {
    fl_compute *const instances[2] = {fl_cuda_device(), fl_cuda_device_host()};
    for (uint64_t seed = 0; seed < 2; seed++) {
        outcome outcomes[2] = {0};
        fl_cuda_device_seed(seed);
        for (size_t i = 0; i < 2; i++) {
            fl_random random;
            fl_random_seed(&random, 41, seed);
            run(instances[i], &random, &outcomes[i]);
            fl_cuda_device_sweep();
        }
        for (size_t i = 0; i < outcomes[0].used; i++) {
            const fl_difference d =
                fl_compare_float_floats(outcomes[0].at[i], outcomes[1].at[i], outcomes[0].count[i]);
            if (d.not_finite > 0 || d.relative > bound)
                fail_msg("result %zu: %.3g off, at %zu: %.9g, cpu %.9g", i, d.relative, d.largest_at,
                         (double)outcomes[0].at[i][d.largest_at], (double)outcomes[1].at[i][d.largest_at]);
            fl_memory_free(outcomes[0].at[i]);
            fl_memory_free(outcomes[1].at[i]);
        }
    }
}

static void run_memory(fl_compute *compute, fl_random *random, outcome *out) {
    enum { ROWS = 300, FROM = 7, TO = 9, COUNT = 5 };
    int32_t index[ROWS];
    for (size_t i = 0; i < ROWS; i++) index[i] = (int32_t)(i * 31 % ROWS);
    fl_array from = normals(compute, random, ROWS * FROM, 1.0), to = fl_placed_zeros(compute, ROWS * TO);
    const fl_array source = from, target = to;
    const fl_array rows = fl_placed_array(compute, index, FL_INT32, ROWS);
    compute->ops->fill(compute, target, ROWS * TO, -2.5);
    compute->ops->copy_rows(compute, target, TO, source, FROM, ROWS, COUNT);
    keep(out, compute, to, ROWS * TO);
    compute->ops->gather_rows(compute, target, TO, source, FROM, rows, ROWS, COUNT);
    keep(out, compute, to, ROWS * TO);
    compute->ops->copy_rows(compute, target, TO, source, 0, ROWS, COUNT);
    keep(out, compute, to, ROWS * TO);
    compute->ops->add(compute, ROWS, to, from);
    keep(out, compute, to, ROWS * TO);
}

static void run_borrow(fl_compute *compute, fl_random *random, outcome *out) {
    float *numbers = fl_test_normals(random, 100, 1.0);
    fl_error error = {0};
    fl_array array;
    for (uint64_t version = 0; version < 3; version++) {
        if (compute->ops->borrow(compute, numbers, 100, FL_FLOAT32, version / 2, &array, &error) != FL_OK)
            fail_msg("%s", error.message);
        keep(out, compute, array, 100);
        if (version == 1) numbers[3] = 77.0f;
    }
    compute->ops->forget(compute, numbers);
    fl_memory_free(numbers);
}

static void run_matmul(fl_compute *compute, fl_random *random, outcome *out) {
    enum { M = 70, N = 45, K = 37, STRIDE = 80 };
    fl_array a = normals(compute, random, STRIDE * STRIDE, 1.0),
             b = normals(compute, random, STRIDE * STRIDE, 1.0);
    for (int kind = 0; kind < 8; kind++) {
        fl_array c = normals(compute, random, M * STRIDE, 1.0);
        compute->ops->matmul(compute, (kind & 1) != 0, (kind & 2) != 0, M, N, K, 1.5f, a, STRIDE, b, STRIDE,
                             (kind & 4) != 0 ? 0.5f : 0.0f, c, STRIDE);
        keep(out, compute, c, M * STRIDE);
    }
    fl_array c = normals(compute, random, M * STRIDE, 1.0);
    compute->ops->matmul(compute, false, false, M, N, 0, 1.0f, a, STRIDE, b, STRIDE, 0.0f, c, STRIDE);
    keep(out, compute, c, M * STRIDE);
}

static void run_weight(fl_compute *compute, fl_random *random, outcome *out) {
    enum { ROWS = 66, COLUMNS = 96, TOKENS = 13 };
    static const int32_t ids[TOKENS] = {5, 0, 65, 5, 1, 2, 3, 4, 6, 7, 8, 9, 10};
    fl_array bias = normals(compute, random, ROWS, 1.0),
             input = normals(compute, random, TOKENS * COLUMNS, 1.0);
    fl_array output = fl_placed_zeros(compute, TOKENS * ROWS),
             gradient = normals(compute, random, TOKENS * ROWS, 1.0);
    unsigned char *bytes = fl_test_block(ROWS * COLUMNS, 4);
    for (size_t i = 0; i < ROWS * COLUMNS * 2; i++)
        bytes[2 * i] = (unsigned char)fl_random_below(random, 256);
    for (size_t i = 0; i < ROWS * COLUMNS * 2; i++)
        bytes[2 * i + 1] = (unsigned char)(0x38 + fl_random_below(random, 4));
    for (int permuted = 0; permuted < 2; permuted++) {
        fl_error error = {0};
        fl_weight *weight = NULL;
        const fl_tensor tensor = {.data = bytes,
                                  .type = permuted ? FL_DTYPE_BF16 : FL_DTYPE_F32,
                                  .rank = 2,
                                  .shape = {ROWS, COLUMNS},
                                  .rows = ROWS,
                                  .columns = COLUMNS,
                                  .permuted_heads = permuted ? 3 : 0,
                                  .name = "random"};
        if (compute->ops->weight_create(compute, &tensor, &weight, &error) != FL_OK)
            fail_msg("%s", error.message);
        compute->ops->linear(compute, weight, permuted ? bias : fl_array_none, TOKENS, input, output);
        keep(out, compute, output, TOKENS * ROWS);
        compute->ops->linear_backward(compute, weight, TOKENS, gradient, input, permuted == 1);
        keep(out, compute, input, TOKENS * COLUMNS);
        compute->ops->embed(compute, weight, TOKENS, fl_placed_array(compute, ids, FL_INT32, TOKENS), input);
        keep(out, compute, input, TOKENS * COLUMNS);
        compute->ops->weight_destroy(compute, weight);
    }
    fl_memory_free(bytes);
}

static void run_norm(fl_compute *compute, fl_random *random, outcome *out) {
    enum { ROWS = 21, COLUMNS = 100, COUNT = ROWS * COLUMNS };
    fl_array input = normals(compute, random, COUNT, 3.0), weight = normals(compute, random, COLUMNS, 1.0);
    fl_array output = fl_placed_zeros(compute, COUNT), gradient = normals(compute, random, COUNT, 1.0);
    compute->ops->rms_norm(compute, ROWS, COLUMNS, input, weight, 1e-5, output);
    keep(out, compute, output, COUNT);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        compute->ops->rms_norm_backward(compute, ROWS, COLUMNS, input, weight, 1e-5, gradient, output,
                                        accumulate == 1);
        keep(out, compute, output, COUNT);
    }
    compute->ops->rms_norm(compute, ROWS, COLUMNS, input, weight, 1e-5, input);
    keep(out, compute, input, COUNT);
}

static void run_rope(fl_compute *compute, fl_random *random, outcome *out) {
    enum { TOKENS = 19, HEADS = 3, DIM = 24, PAIRS = 8 };
    float frequencies[PAIRS];
    for (int i = 0; i < PAIRS; i++) frequencies[i] = powf(10000.0f, -(float)i / PAIRS);
    fl_array x = normals(compute, random, TOKENS * HEADS * DIM, 1.0),
             placed = fl_placed(compute, frequencies, PAIRS);
    compute->ops->rope(compute, TOKENS, HEADS, DIM, 1000, 2 * PAIRS, placed, 1.25f, 1, x);
    keep(out, compute, x, TOKENS * HEADS * DIM);
    compute->ops->rope(compute, TOKENS, HEADS, DIM, 7, 2 * PAIRS, placed, 1.0f, -1, x);
    keep(out, compute, x, TOKENS * HEADS * DIM);
}

static void run_activation(fl_compute *compute, fl_random *random, outcome *out) {
    enum { COUNT = 1000 };
    for (int activation = FL_ACTIVATION_SILU; activation <= FL_ACTIVATION_GELU; activation++) {
        fl_array gate = normals(compute, random, COUNT, 3.0), up = normals(compute, random, COUNT, 1.0);
        fl_array gradient = normals(compute, random, COUNT, 1.0), of_gate = fl_placed_zeros(compute, COUNT),
                 of_up = fl_placed_zeros(compute, COUNT);
        compute->ops->gated_activation_backward(compute, (fl_activation)activation, COUNT, gate, up, gradient,
                                                of_gate, of_up);
        compute->ops->gated_activation(compute, (fl_activation)activation, COUNT, gate, up, gate);
        keep(out, compute, gate, COUNT);
        keep(out, compute, of_gate, COUNT);
        keep(out, compute, of_up, COUNT);
    }
}

static void run_gates(fl_compute *compute, fl_random *random, outcome *out) {
    enum { TOKENS = 45, HEADS = 3, WIDTH = 20, COLUMNS = HEADS * WIDTH };
    static const struct {
        fl_gate_activation activation;
        float maximum;
        bool rate, bias;
    } kinds[] = {{FL_ACTIVATE_LOG_SIGMOID, 0.0f, false, true}, {FL_ACTIVATE_SIGMOID, 1.0f, false, true},
                 {FL_ACTIVATE_SIGMOID, 2.0f, false, false},    {FL_ACTIVATE_TANH, 0.0f, false, false},
                 {FL_ACTIVATE_RAW, 0.0f, false, true},         {FL_ACTIVATE_RAW, 0.0f, true, true}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fl_array values = normals(compute, random, TOKENS * COLUMNS, 4.0),
                 bias = normals(compute, random, COLUMNS, 1.0);
        fl_array rate = normals(compute, random, HEADS, 1.0),
                 gradient = normals(compute, random, TOKENS * COLUMNS, 1.0);
        fl_array of_bias = normals(compute, random, COLUMNS, 1.0),
                 of_rate = normals(compute, random, HEADS, 1.0);
        const fl_gates_call call = {.tokens = TOKENS,
                                    .heads = HEADS,
                                    .width = WIDTH,
                                    .activation = kinds[i].activation,
                                    .maximum = kinds[i].maximum,
                                    .bias = kinds[i].bias ? bias : fl_array_none,
                                    .rate = kinds[i].rate ? rate : fl_array_none,
                                    .values = values};
        const fl_gates_gradients gradients = {.values = gradient,
                                              .bias = kinds[i].bias ? of_bias : fl_array_none,
                                              .rate = kinds[i].rate ? of_rate : fl_array_none};
        compute->ops->gates(compute, &call);
        keep(out, compute, values, TOKENS * COLUMNS);
        compute->ops->gates_backward(compute, &call, &gradients);
        keep(out, compute, gradient, TOKENS * COLUMNS);
        keep(out, compute, of_bias, COLUMNS);
        keep(out, compute, of_rate, HEADS);
    }
}

static void run_short_conv(fl_compute *compute, fl_random *random, outcome *out) {
    enum { HEADS = 6, SOURCES = 2, DIM = 20, KERNEL = 4, CHANNELS = HEADS * DIM, WIDTH = SOURCES * DIM };
    for (size_t tokens = 2; tokens < 60; tokens += 47) {
        fl_array history = normals(compute, random, (KERNEL - 1) * WIDTH, 1.0);
        const fl_short_conv_call call = {.tokens = tokens,
                                         .heads = HEADS,
                                         .source_heads = SOURCES,
                                         .head_dim = DIM,
                                         .kernel = KERNEL,
                                         .input = normals(compute, random, tokens * WIDTH, 1.0),
                                         .history = history,
                                         .weight = normals(compute, random, CHANNELS * KERNEL, 1.0),
                                         .bias = normals(compute, random, CHANNELS, 1.0),
                                         .taps = fl_placed_zeros(compute, KERNEL * CHANNELS),
                                         .output = fl_placed_zeros(compute, tokens * CHANNELS)};
        const fl_short_conv_gradients gradients = {.output = normals(compute, random, tokens * CHANNELS, 1.0),
                                                   .input = normals(compute, random, tokens * WIDTH, 1.0),
                                                   .weight = normals(compute, random, CHANNELS * KERNEL, 1.0),
                                                   .bias = normals(compute, random, CHANNELS, 1.0)};
        compute->ops->short_conv(compute, &call);
        keep(out, compute, call.output, tokens * CHANNELS);
        compute->ops->short_conv_remember(compute, &call, history);
        keep(out, compute, history, (KERNEL - 1) * WIDTH);
        compute->ops->short_conv_backward(compute, &call, &gradients);
        keep(out, compute, gradients.input, tokens * WIDTH);
        keep(out, compute, gradients.weight, CHANNELS * KERNEL);
        keep(out, compute, gradients.bias, CHANNELS);
    }
}

static void run_bonus_and_heads(fl_compute *compute, fl_random *random, outcome *out) {
    enum { TOKENS = 23, HEADS = 6, SOURCES = 2, DIM = 20, STRIDE = DIM + 3, COUNT = TOKENS * HEADS * DIM };
    fl_array bonus = normals(compute, random, COUNT, 1.0),
             value = normals(compute, random, TOKENS * SOURCES * DIM, 1.0);
    fl_array read = normals(compute, random, TOKENS * HEADS * STRIDE, 1.0);
    const fl_bonus_call call = {.tokens = TOKENS,
                                .heads = HEADS,
                                .value_heads = SOURCES,
                                .head_dim = DIM,
                                .bonus = bonus,
                                .value = value,
                                .read = read,
                                .read_stride = STRIDE,
                                .read_head_stride = TOKENS * STRIDE};
    compute->ops->add_bonus(compute, &call);
    keep(out, compute, read, TOKENS * HEADS * STRIDE);
    compute->ops->add_heads(compute, TOKENS, HEADS, SOURCES, DIM, bonus, value);
    keep(out, compute, value, TOKENS * SOURCES * DIM);
}

/* A call of the merge; its exact set empty at some places, its state at others. */
static void run_one_merge(fl_compute *compute, fl_random *random, outcome *out, fl_merge merge,
                          bool normaliser, bool with_read, bool with_exact) {
    enum { TOKENS = 11, HEADS = 3, DIM = 40, ROWS = TOKENS * HEADS };
    const size_t value_dim = DIM + (normaliser ? 1 : 0), reads = ROWS * value_dim;
    float *read = fl_test_normals(random, reads, 1.0), *log_sum_exp = fl_test_normals(random, ROWS, 3.0);
    for (size_t i = 0; normaliser && i < ROWS; i++) {
        float *mass = &read[i * value_dim + DIM];
        *mass = i % 5 == 0 ? 0.0f : fabsf(*mass);
    }
    log_sum_exp[2] = -INFINITY;
    fl_array exact = normals(compute, random, ROWS * DIM, 1.0), largest = normals(compute, random, ROWS, 1.0);
    fl_merge_call call = {.merge = merge,
                          .normaliser = normaliser,
                          .tokens = TOKENS,
                          .heads = HEADS,
                          .head_dim = DIM,
                          .value_dim = value_dim,
                          .read_stride = value_dim,
                          .read_head_stride = TOKENS * value_dim};
    call.read = with_read ? fl_placed(compute, read, reads) : fl_array_none;
    call.exact = with_exact ? exact : fl_array_none;
    call.log_sum_exp = with_exact ? fl_placed(compute, log_sum_exp, ROWS) : fl_array_none;
    call.largest = with_exact ? largest : fl_array_none;
    call.window_factor = normals(compute, random, HEADS, 1.0);
    call.output = fl_placed_zeros(compute, ROWS * DIM);
    fl_merge_gradients gradients = {.output = normals(compute, random, ROWS * DIM, 1.0)};
    gradients.read = with_read ? fl_placed_zeros(compute, reads) : fl_array_none;
    gradients.exact = with_exact ? fl_placed_zeros(compute, ROWS * DIM) : fl_array_none;
    gradients.log_sum_exp = with_exact ? fl_placed_zeros(compute, ROWS) : fl_array_none;
    gradients.largest = with_exact ? fl_placed_zeros(compute, ROWS) : fl_array_none;
    gradients.window_factor =
        fl_merge_has_gamma(merge) ? normals(compute, random, HEADS, 1.0) : fl_array_none;
    compute->ops->merge(compute, &call);
    compute->ops->merge_backward(compute, &call, &gradients);
    keep(out, compute, call.output, ROWS * DIM);
    if (fl_array_is(gradients.window_factor)) keep(out, compute, gradients.window_factor, HEADS);
    if (with_read) keep(out, compute, gradients.read, reads);
    if (with_exact) keep(out, compute, gradients.exact, ROWS * DIM);
    if (with_exact) keep(out, compute, gradients.log_sum_exp, ROWS);
    if (with_exact) keep(out, compute, gradients.largest, ROWS);
    fl_memory_free(read);
    fl_memory_free(log_sum_exp);
}

static void run_merge(fl_compute *compute, fl_random *random, outcome *out) {
    for (int merge = FL_MERGE_SUM; merge <= FL_MERGE_LOLCATS_INVARIANT; merge++)
        run_one_merge(compute, random, out, (fl_merge)merge, true, true, true);
    run_one_merge(compute, random, out, FL_MERGE_SUM, false, true, true);
    run_one_merge(compute, random, out, FL_MERGE_HALF, false, true, false);
    run_one_merge(compute, random, out, FL_MERGE_HALF, false, false, true);
}

static void run_rows(fl_compute *compute, fl_random *random, outcome *out) {
    enum { ROWS = 19, COLUMNS = 70, COUNT = ROWS * COLUMNS };
    fl_array x = normals(compute, random, COUNT, 1.0), y = normals(compute, random, COUNT, 1.0);
    const fl_array first = fl_placed_array(compute, NULL, FL_FLOAT64, ROWS),
                   second = fl_placed_array(compute, NULL, FL_FLOAT64, ROWS);
    const fl_array at = fl_placed_array(compute, NULL, FL_INT32, 1);
    compute->ops->fill(compute, x, COLUMNS, 0.0);
    compute->ops->row_errors(compute, ROWS, COLUMNS, x, y, first, second);
    keep_wide(out, compute, first, ROWS);
    keep_wide(out, compute, second, ROWS);
    compute->ops->row_moments(compute, ROWS, COLUMNS, x, first, second);
    keep_wide(out, compute, first, ROWS);
    keep_wide(out, compute, second, ROWS);
    compute->ops->subtract_squares(compute, COUNT, y, x, first);
    keep(out, compute, x, COUNT);
    keep_wide(out, compute, first, 1);
    compute->ops->scale(compute, COUNT, 0.75f, x);
    keep(out, compute, x, COUNT);
    compute->ops->first_not_finite(compute, COUNT, x, at);
    keep_index(out, compute, at, 1);
    compute->ops->fill(compute, fl_array_from(x, 1203), 100, (double)NAN);
    compute->ops->first_not_finite(compute, COUNT, x, at);
    keep_index(out, compute, at, 1);
}

static void run_key_geometry(fl_compute *compute, fl_random *random, outcome *out) {
    enum { TOKENS = 9, HEADS = 2, DIM = 24 };
    const fl_array sum = fl_placed_array(compute, NULL, FL_FLOAT64, HEADS * DIM),
                   product = fl_placed_array(compute, NULL, FL_FLOAT64, HEADS * DIM * DIM);
    for (size_t seen = 0; seen <= TOKENS; seen += TOKENS) {
        const fl_key_geometry_call call = {
            .tokens = TOKENS,
            .kv_heads = HEADS,
            .head_dim = DIM,
            .seen = seen,
            .key = normals(compute, random, TOKENS * HEADS * DIM, 1.0),
            .sum = sum,
            .product = product,
            .concentration = fl_placed_array(compute, NULL, FL_FLOAT64, HEADS * TOKENS),
            .residual = fl_placed_array(compute, NULL, FL_FLOAT64, HEADS * TOKENS)};
        compute->ops->key_geometry(compute, &call);
        keep_wide(out, compute, call.concentration, HEADS * TOKENS);
        keep_wide(out, compute, call.residual, HEADS * TOKENS);
        keep_wide(out, compute, sum, HEADS * DIM);
    }
}

/* Rows with a tie for the largest, with an infinity, with a NaN, of NaN alone. */
static float *hostile_logits(fl_random *random, size_t rows, size_t vocabulary) {
    float *logits = fl_test_normals(random, rows * vocabulary, 3.0);
    logits[vocabulary + 300] = logits[vocabulary + 77] = 50.0f;
    logits[2 * vocabulary + 5] = INFINITY;
    logits[3 * vocabulary + 9] = NAN;
    for (size_t i = 0; i < vocabulary; i++) logits[4 * vocabulary + i] = NAN;
    return logits;
}

static void run_logits(fl_compute *compute, fl_random *random, outcome *out) {
    enum { ROWS = 7, VOCABULARY = 1003, COUNT = ROWS * VOCABULARY };
    float *hostile = hostile_logits(random, ROWS, VOCABULARY);
    fl_logit_rows_call call = {
        .rows = ROWS, .vocabulary = VOCABULARY, .logits = fl_placed(compute, hostile, COUNT)};
    call.log_sum_exp = fl_placed_array(compute, NULL, FL_FLOAT64, ROWS);
    call.best = fl_placed_array(compute, NULL, FL_INT32, ROWS);
    for (int precision = FL_LOG_SOFTMAX_FLOAT64; precision <= FL_LOG_SOFTMAX_FLOAT32; precision++) {
        call.precision = (fl_log_softmax_precision)precision;
        compute->ops->logit_rows(compute, &call);
        keep_wide(out, compute, call.log_sum_exp, ROWS);
        keep_index(out, compute, call.best, ROWS);
    }
    const fl_array log_sum_exp = fl_placed_array(compute, NULL, FL_FLOAT64, ROWS),
                   p = fl_placed_array(compute, NULL, FL_FLOAT64, COUNT);
    fl_array own = normals(compute, random, COUNT, 3.0), other = normals(compute, random, COUNT, 3.0);
    const fl_array result = fl_placed_array(compute, NULL, FL_FLOAT64, ROWS);
    call.precision = FL_LOG_SOFTMAX_FLOAT64;
    call.logits = other;
    compute->ops->logit_rows(compute, &call);
    compute->ops->logit_rows(compute, &(fl_logit_rows_call){.rows = ROWS,
                                                            .vocabulary = VOCABULARY,
                                                            .logits = own,
                                                            .log_sum_exp = log_sum_exp,
                                                            .probabilities = p});
    keep_wide(out, compute, p, COUNT);
    compute->ops->logit_divergence(compute, &(fl_logit_divergence_call){.rows = ROWS,
                                                                        .vocabulary = VOCABULARY,
                                                                        .probabilities = p,
                                                                        .logits = own,
                                                                        .log_sum_exp = log_sum_exp,
                                                                        .other_logits = other,
                                                                        .other_log_sum_exp = call.log_sum_exp,
                                                                        .divergence = result});
    keep_wide(out, compute, result, ROWS);
    fl_memory_free(hostile);
}

static void run_logit_gradient(fl_compute *compute, fl_random *random, outcome *out) {
    enum { ROWS = 3, VOCABULARY = 777, COUNT = ROWS * VOCABULARY };
    static const int32_t targets[ROWS] = {0, 776, 300};
    for (int kind = 0; kind < 3; kind++) {
        const fl_logit_gradient_call call = {
            .rows = ROWS,
            .vocabulary = VOCABULARY,
            .targets = kind > 0 ? fl_placed_array(compute, targets, FL_INT32, ROWS) : fl_array_none,
            .target_logits = kind > 0 ? fl_array_none : normals(compute, random, COUNT, 3.0),
            .weight = 0.3,
            .gradient = kind < 2,
            .logits = normals(compute, random, COUNT, 3.0),
            .loss = fl_placed_array(compute, NULL, FL_FLOAT64, ROWS)};
        compute->ops->logit_gradient(compute, &call);
        keep_wide(out, compute, call.loss, ROWS);
        if (call.gradient) keep(out, compute, call.logits, COUNT);
    }
}

static void memory_slots(void **state) {
    (void)state;
    compare(run_memory, 0.0);
    compare(run_borrow, 0.0);
}
static void products(void **state) {
    (void)state;
    compare(run_matmul, 1e-6);
    compare(run_weight, 1e-6);
}
static void norms_and_rotations(void **state) {
    (void)state;
    compare(run_norm, 1e-6);
    compare(run_rope, 2e-6);
}
static void activations_and_gates(void **state) {
    (void)state;
    compare(run_activation, 1e-6);
    compare(run_gates, 1e-6);
}
static void convolution_bonus_and_merge(void **state) {
    (void)state;
    compare(run_short_conv, 1e-6);
    compare(run_bonus_and_heads, 1e-6);
    compare(run_merge, 1e-6);
}

static void measuring(void **state) {
    (void)state;
    compare(run_rows, 1e-6);
    compare(run_key_geometry, 1e-6);
    compare(run_logits, 1e-6);
    compare(run_logit_gradient, 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_slots),
        cmocka_unit_test(products),
        cmocka_unit_test(norms_and_rotations),
        cmocka_unit_test(activations_and_gates),
        cmocka_unit_test(convolution_bonus_and_merge),
        cmocka_unit_test(measuring),
    };
    return cmocka_run_group_tests(tests, fl_cuda_device_open, fl_cuda_device_close);
}
