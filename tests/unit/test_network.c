/* The network: weights of a model as the backend sees them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/engine/network.h"
#include "tests/support/arrays.h"
#include "tests/support/compare.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"

enum { VOCABULARY = 23, E = FL_TINY_MODEL_DIM };

static void test_vectors_are_widened_and_absent_ones_are_null(void **state) {
    (void)state;
    fl_test_network under_test = fl_test_network_open(fl_fixture_path("reference/qwen3"), 1);
    const fl_network *network = under_test.network;
    const fl_model *model = under_test.model;
    float expected[64];
    for (size_t l = 0; l < model->config.layers; l++) {
        fl_tensor_widen_row(&model->layers[l].input_norm, 0, expected);
        assert_memory_equal(fl_test_floats(network->layers[l].input_norm), expected, sizeof expected);
        assert_int_equal(model->layers[l].key_norm.columns, 32);
        fl_tensor_widen_row(&model->layers[l].key_norm, 0, expected);
        assert_memory_equal(fl_test_floats(network->layers[l].key_norm), expected, 32 * sizeof(float));
        assert_null(fl_test_floats(network->layers[l].query_bias));
        assert_null(fl_test_floats(network->layers[l].down_bias));
    }
    fl_tensor_widen_row(&model->final_norm, 0, expected);
    assert_memory_equal(fl_test_floats(network->final_norm), expected, sizeof expected);
    fl_test_network_close(&under_test);
}

static void test_a_tied_head_shares_the_embedding(void **state) {
    (void)state;
    fl_test_network tied = fl_test_network_open(fl_fixture_path("reference/qwen3"), 1);
    fl_test_network untied = fl_test_network_open(fl_fixture_path("reference/llama_gqa"), 1);
    assert_ptr_equal(tied.network->head, tied.network->embedding);
    assert_ptr_not_equal(untied.network->head, untied.network->embedding);
    assert_int_equal(untied.network->shape.query_heads, 4);
    assert_int_equal(untied.network->shape.kv_heads, 2);
    fl_test_network_close(&tied);
    fl_test_network_close(&untied);
}

static void test_logits_are_the_head_times_the_hidden_state(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    float head[VOCABULARY * E], hidden[2 * E], logits[2 * VOCABULARY];
    for (size_t v = 0; v < VOCABULARY; v++) {
        for (size_t e = 0; e < E; e++) head[v * E + e] = (float)v * 0.5f + (float)e;
    }
    fl_tiny_model_options options = {.vocabulary = VOCABULARY, .scale = 0.1f, .head = head};
    fl_tiny_model_write(directory, &options);
    fl_test_network under_test = fl_test_network_open(directory, 1);
    for (size_t e = 0; e < 2 * E; e++) hidden[e] = e < E ? 1.0f : (e == E ? 2.0f : 0.0f);
    fl_network_logits(under_test.network, 2, fl_test_array(hidden), fl_test_array(logits));
    double expected[2 * VOCABULARY];
    for (size_t v = 0; v < VOCABULARY; v++) {
        expected[v] = (double)v * 0.5 * E + E * (E - 1) / 2.0;
        expected[VOCABULARY + v] = (double)v;
    }
    fl_assert_close(logits, expected, 2 * VOCABULARY, 1e-6, "logits");
    fl_test_network_close(&under_test);
    fl_temporary_remove(directory);
}

static void test_cache_bytes_grow_up_to_the_sliding_window(void **state) {
    (void)state;
    const char *directory = fl_temporary_directory();
    fl_tiny_model_options options = {.vocabulary = VOCABULARY,
                                     .model_type = "mistral",
                                     .scale = 0.1f,
                                     .extra_config = ", \"sliding_window\": 16"};
    fl_tiny_model_write(directory, &options);
    fl_test_network under_test = fl_test_network_open(directory, 1);
    size_t token = 2 * 2 * 8 * sizeof(float); /* key and value, 2 heads of 8 */
    assert_int_equal(fl_network_cache_bytes(under_test.network, 0, 0), 0);
    assert_int_equal(fl_network_cache_bytes(under_test.network, 0, 5), 5 * token);
    assert_int_equal(fl_network_cache_bytes(under_test.network, 1, 500), 16 * token);
    fl_test_network_close(&under_test);
    fl_temporary_remove(directory);
}

static void test_every_failing_allocation_is_reported_and_leaks_nothing(void **state) {
    (void)state;
    fl_test_network under_test = fl_test_network_open(fl_fixture_path("reference/llama_gqa"), 1);
    size_t failures = 0;
    for (size_t n = 1; n < 200; n++) {
        fl_network *network = NULL;
        fl_error error = {0};
        fl_memory_fail_at(n);
        fl_status status = fl_network_create(under_test.model, under_test.compute, &network, &error);
        fl_memory_fail_at(0);
        fl_network_destroy(network);
        if (status == FL_OK) break;
        assert_int_equal(status, FL_ERROR_MEMORY);
        failures++;
    }
    assert_true(failures >= 3 && failures < 199);
    fl_test_network_close(&under_test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_are_widened_and_absent_ones_are_null),
        cmocka_unit_test(test_a_tied_head_shares_the_embedding),
        cmocka_unit_test(test_logits_are_the_head_times_the_hidden_state),
        cmocka_unit_test(test_cache_bytes_grow_up_to_the_sliding_window),
        cmocka_unit_test(test_every_failing_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
