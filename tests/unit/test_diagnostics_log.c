/* Gate quantiles, effective rank, routing logs and binned trends against their definitions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/engine/network.h"
#include "harness/measure/branch_log.h"
#include "harness/measure/text_evaluation.h"
#include "harness/measure/trends.h"
#include "tests/support/arrays.h"
#include "tests/support/fixture.h"

enum { LENGTH = 96, LAYERS = 3, HEADS = 4, KV_HEADS = 2 };

typedef struct {
    fl_model *model;
    fl_compute *compute;
    fl_network *network;
} fl_bench;

static fl_bench bench;

static int open_bench(void **state) {
    *state = NULL;
    const char *path = fl_fixture_or_pack("reference/llama_gqa/config.json");
    if (path == NULL) return 0;
    char folder[1024];
    snprintf(folder, sizeof folder, "%.*s", (int)(strlen(path) - strlen("/config.json")), path);
    fl_compute_options options = {.threads = 2, .widen_budget_bytes = SIZE_MAX};
    assert_int_equal(fl_model_open(folder, &bench.model, NULL), FL_OK);
    assert_int_equal(fl_compute_create_cpu(&options, &bench.compute, NULL), FL_OK);
    assert_int_equal(fl_network_create(bench.model, bench.compute, &bench.network, NULL), FL_OK);
    *state = &bench;
    return 0;
}

static int close_bench(void **state) {
    (void)state;
    fl_network_destroy(bench.network);
    fl_compute_destroy(bench.compute);
    fl_model_close(bench.model);
    return 0;
}

static void evaluate(const char *yaml, fl_text_result *result) {
    fl_document *document = NULL;
    fl_variant *variant = NULL;
    fl_mechanism *mechanism = NULL;
    fl_error error;
    assert_int_equal(fl_document_parse_text(yaml, strlen(yaml), "test", &document, &error), FL_OK);
    if (fl_variant_bind(fl_document_root(document), NULL, &variant, &error) != FL_OK)
        fail_msg("%s", error.message);
    fl_document_destroy(document);
    assert_int_equal(fl_variant_fit(variant, &bench.network->shape, LAYERS, &error), FL_OK);
    assert_int_equal(fl_mechanism_create(variant, &bench.network->shape, LAYERS, &mechanism, &error), FL_OK);
    int32_t ids[2][LENGTH];
    for (int32_t t = 0; t < LENGTH; t++) {
        ids[0][t] = (t * 73 + 11) % 320;
        ids[1][t] = (t * 37 + 5) % 320;
    }
    int32_t *rows[2] = {ids[0], ids[1]};
    size_t lengths[2] = {LENGTH, LENGTH - 10};
    fl_sequences sequences = {2, lengths, rows};
    fl_text_evaluation_options options = {.teacher_forced = true, .diagnostics = true};
    const fl_mechanism *list[1] = {mechanism};
    if (fl_text_evaluation_run(bench.network, &sequences, list, 1, &options, NULL, result, NULL, &error) !=
        FL_OK)
        fail_msg("%s", error.message);
    fl_mechanism_destroy(mechanism);
    fl_variant_destroy(variant);
}

static double effective_rank(fl_compute *compute, size_t value_dim, size_t key_dim, const float *matrix) {
    fl_array made = fl_array_none;
    double rank = 0.0;
    assert_int_equal(compute->ops->allocate(compute, 1, FL_FLOAT64, &made, NULL), FL_OK);
    assert_int_equal(
        compute->ops->effective_rank(compute, 1, value_dim, key_dim, fl_test_array(matrix), made, NULL),
        FL_OK);
    assert_int_equal(compute->ops->download(compute, &rank, made, 1, NULL), FL_OK);
    compute->ops->release(compute, made);
    return rank;
}

static void test_effective_rank_is_that_of_known_spectra(void **state) {
    (void)state;
    enum { N = 6, K = 9 };
    float matrix[N * K] = {0};
    fl_compute *compute = NULL;
    assert_int_equal(fl_compute_create_cpu(&(fl_compute_options){.threads = 1}, &compute, NULL), FL_OK);
    assert_true(effective_rank(compute, N, K, matrix) == 0.0);
    for (int i = 0; i < N; i++) matrix[i * K + i] = 2.0f;
    assert_true(fabs(effective_rank(compute, N, K, matrix) - N) < 1e-9);
    for (int i = 0; i < N * K; i++) matrix[i] = (float)(i / K + 1) * (float)(i % K - 3);
    assert_true(fabs(effective_rank(compute, N, K, matrix) - 1.0) < 1e-6);
    memset(matrix, 0, sizeof matrix);
    matrix[0] = 3.0f;
    matrix[K + 1] = 1.0f;
    double expected = exp(-(0.75 * log(0.75) + 0.25 * log(0.25)));
    assert_true(fabs(effective_rank(compute, N, K, matrix) - expected) < 1e-9);
    matrix[5] = NAN;
    assert_true(isnan(effective_rank(compute, N, K, matrix)));
    fl_compute_destroy(compute);
}

static void test_gate_quantiles_of_constants_and_their_order(void **state) {
    if (*state == NULL)
        fl_fixture_skip("test_gate_quantiles_of_constants_and_their_order", "reference/llama_gqa");
    fl_text_result result;
    evaluate(
        "{rule: gated_delta, gate: {source: constant, value: 0.9}, beta: {source: constant, value: 0.25}}",
        &result);
    for (size_t i = 0; i < LAYERS * HEADS * FL_GATE_QUANTILES; i++) {
        assert_true(fabs(result.gate_quantiles[i] - 0.9) < 1e-3);
        assert_true(fabs(result.beta_quantiles[i] - 0.25) < 1e-3);
    }
    fl_text_result_release(&result);
    evaluate("{rule: kda, window: 4}", &result);
    for (size_t row = 0; row < LAYERS * HEADS; row++) {
        const double *q = result.gate_quantiles + row * FL_GATE_QUANTILES;
        for (int i = 1; i < FL_GATE_QUANTILES; i++) assert_true(q[i] >= q[i - 1]);
        assert_true(q[0] > 0.3 && q[6] < 0.95 && q[6] > q[0]);
        assert_true(result.effective_rank[row] > 1.0 && result.effective_rank[row] <= 16.0);
    }
    fl_text_result_release(&result);
    evaluate("{rule: none, window: 4}", &result);
    assert_true(result.gate_quantiles == NULL && result.beta_quantiles == NULL);
    assert_true(result.effective_rank[0] == 0.0);
    fl_text_result_release(&result);
}

static void test_routing_log_of_a_recency_cache_is_known_in_closed_form(void **state) {
    if (*state == NULL)
        fl_fixture_skip("test_routing_log_of_a_recency_cache_is_known_in_closed_form", "reference/llama_gqa");
    enum { WINDOW = 6, SINKS = 2, BUDGET = 5 };
    fl_text_result result;
    evaluate("{rule: delta, window: 6, sinks: 2, cache: {budget: 5, route: recency}}", &result);
    for (size_t row = 0; row < LAYERS * KV_HEADS; row++) {
        const double *kept = result.routing_kept + row * LENGTH;
        const double *lifetime = result.routing_lifetime + row * LENGTH;
        for (size_t p = 0; p < LENGTH; p++) {
            if (p < SINKS || p + WINDOW >= LENGTH) {
                assert_true(isnan(kept[p]) && isnan(lifetime[p]));
            } else if (p + WINDOW + BUDGET < LENGTH - 10) { /* evicted in both sequences, five steps later */
                assert_true(kept[p] == 0.0 && lifetime[p] == (double)BUDGET);
            }
        }
        assert_true(kept[LENGTH - WINDOW - 1] == 1.0);
    }
    fl_text_result_release(&result);
    evaluate("{rule: delta, window: 6}", &result);
    assert_null(result.routing_kept);
    fl_text_result_release(&result);
}

static void test_trends_pool_back_to_the_heads_errors(void **state) {
    if (*state == NULL) fl_fixture_skip("test_trends_pool_back_to_the_heads_errors", "reference/llama_gqa");
    fl_text_result result;
    evaluate("{rule: kda, window: 4, sinks: 1}", &result);
    double tokens = 2 * LENGTH - 10;
    for (size_t l = 0; l < LAYERS; l++) {
        double count = 0.0, weighted = 0.0, by_residual = 0.0, mean = 0.0;
        const double *edges = result.concentration_edges + l * (FL_TREND_BINS + 1);
        for (size_t b = 0; b < FL_TREND_BINS; b++) {
            size_t at = l * FL_TREND_BINS + b;
            assert_true(edges[b + 1] >= edges[b]);
            count += result.concentration_count[at];
            if (result.concentration_count[at] > 0.0)
                weighted += result.concentration_count[at] * result.concentration_trend_nmse[at];
            if (result.residual_count[at] > 0.0)
                by_residual += result.residual_count[at] * result.residual_trend_nmse[at];
        }
        for (size_t h = 0; h < HEADS; h++) mean += result.head_nmse[l * HEADS + h] / HEADS;
        assert_true(count == tokens * HEADS);
        assert_true(fabs(weighted / count - mean) < 1e-5 * mean);
        assert_true(fabs(by_residual / count - mean) < 1e-5 * mean);
    }
    fl_text_result_release(&result);
}

static void test_trends_thin_long_texts_evenly(void **state) {
    (void)state;
    fl_trend_signals signals;
    assert_int_equal(fl_trend_signals_create(1, 1, 1, 3 * (size_t)FL_TREND_TOKENS, &signals, NULL), FL_OK);
    assert_int_equal(signals.stride, 3);
    double c[100], r[100];
    for (size_t done = 0; done < 3 * (size_t)FL_TREND_TOKENS; done += 100) {
        size_t n = 3 * (size_t)FL_TREND_TOKENS - done < 100 ? 3 * (size_t)FL_TREND_TOKENS - done : 100;
        for (size_t i = 0; i < n; i++) c[i] = r[i] = (double)(done + i);
        fl_trend_signals_append(&signals, 0, n, c, r);
    }
    assert_int_equal(signals.kept[0], signals.room);
    for (size_t i = 0; i < signals.room; i++) assert_true(signals.concentration[i] == (float)(3 * i));
    fl_trend_signals_release(&signals);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_effective_rank_is_that_of_known_spectra),
        cmocka_unit_test(test_gate_quantiles_of_constants_and_their_order),
        cmocka_unit_test(test_routing_log_of_a_recency_cache_is_known_in_closed_form),
        cmocka_unit_test(test_trends_pool_back_to_the_heads_errors),
        cmocka_unit_test(test_trends_thin_long_texts_evenly),
    };
    return cmocka_run_group_tests(tests, open_bench, close_bench);
}
