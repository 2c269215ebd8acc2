/* The `variant:` mapping: defaults, every key, and nonsense refused at its own line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "attn_variants/variant.h"
#include "harness/base/memory.h"

static const fl_attention_shape shape = {4, 2, 16, 64, 0.25f};

static fl_variant *bind(const char *yaml, fl_resolved *resolved) {
    fl_error error = {0};
    fl_document *document = NULL;
    fl_variant *variant = NULL;
    if (fl_document_parse_text(yaml, strlen(yaml), "v.yaml", &document, &error) != FL_OK ||
        fl_variant_bind(fl_document_root(document), resolved, &variant, &error) != FL_OK) {
        fail_msg("%s: %s", yaml, error.message);
    }
    fl_document_destroy(document);
    return variant;
}

static void expect_error(const char *yaml, const char *words) {
    fl_error error = {0};
    fl_document *document = NULL;
    fl_variant *variant = NULL;
    assert_int_equal(fl_document_parse_text(yaml, strlen(yaml), "v.yaml", &document, &error), FL_OK);
    if (fl_variant_bind(fl_document_root(document), NULL, &variant, &error) == FL_OK) {
        fail_msg("accepted: %s", yaml);
    }
    assert_null(variant);
    if (strstr(error.message, words) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", yaml, error.message, words);
    fl_document_destroy(document);
}

static void expect_misfit(const char *yaml, const fl_attention_shape *of, size_t layers, const char *words) {
    fl_error error = {0};
    fl_variant *variant = bind(yaml, NULL);
    if (fl_variant_fit(variant, of, layers, &error) == FL_OK) fail_msg("fits: %s", yaml);
    if (strstr(error.message, words) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", yaml, error.message, words);
    fl_variant_destroy(variant);
}

static void test_no_mapping_is_the_frozen_model(void **state) {
    (void)state;
    fl_error error;
    fl_variant *variant = NULL;
    assert_int_equal(fl_variant_bind(NULL, NULL, &variant, &error), FL_OK);
    assert_string_equal(variant->rule->name, "softmax");
    assert_int_equal(fl_variant_fit(variant, &shape, 3, &error), FL_OK);
    for (size_t i = 0; i < 3; i++) assert_true(fl_variant_layer_is_softmax(variant, i));
    fl_variant_destroy(variant);
}

static void test_defaults_are_the_papers(void **state) {
    (void)state;
    fl_variant *variant = bind("{rule: kda}", NULL);
    assert_int_equal(variant->gate_source, FL_GATE_PROJECTED);
    assert_int_equal(variant->gate_rank, 16);
    assert_true(variant->gate_bias == 1.0 && variant->beta_bias == -1.0);
    assert_int_equal(variant->window, 0);
    assert_int_equal(variant->merge, FL_MERGE_SUM);
    assert_int_equal(variant->conv_kernel, 0);
    assert_int_equal(variant->seed, 1);
    assert_false(variant->normaliser);
    assert_false(fl_variant_has_exact_set(variant));
    fl_variant_destroy(variant);
    variant = bind("{rule: ssd}", NULL);
    assert_true(variant->gate_bias == -4.6);
    fl_variant_destroy(variant);
}

static void test_every_pinned_key_arrives_and_is_recorded(void **state) {
    (void)state;
    fl_error error;
    fl_resolved *resolved = NULL;
    assert_int_equal(fl_resolved_create(&resolved, &error), FL_OK);
    fl_variant *variant = bind("rule: kda\n"
                               "gate: {source: projected, rank: 4, bias: 2.5}\n"
                               "beta: {source: constant, value: 0.25}\n"
                               "window: 56\nsinks: 8\nmerge: half\n"
                               "short_conv: {kernel: 3, init: torch}\n"
                               "cache: {budget: 12, route: recency}\n"
                               "softmax_layers: [2, 0]\nmechanism: m.safetensors\nseed: 9\n",
                               resolved);
    assert_int_equal(variant->gate_rank, 4);
    assert_true(variant->gate_bias == 2.5);
    assert_int_equal(variant->beta_source, FL_GATE_CONSTANT);
    assert_true(variant->beta_value == 0.25);
    assert_int_equal(variant->window, 56);
    assert_int_equal(variant->sinks, 8);
    assert_int_equal(variant->merge, FL_MERGE_HALF);
    assert_int_equal(variant->conv_kernel, 3);
    assert_int_equal(variant->conv_init, FL_CONV_TORCH);
    assert_int_equal(variant->cache_budget, 12);
    assert_int_equal(variant->route, FL_ROUTE_RECENCY);
    assert_string_equal(variant->mechanism_path, "m.safetensors");
    assert_int_equal(variant->seed, 9);
    assert_int_equal(fl_variant_fit(variant, &shape, 3, &error), FL_OK);
    assert_true(fl_variant_layer_is_softmax(variant, 0) && fl_variant_layer_is_softmax(variant, 2));
    assert_false(fl_variant_layer_is_softmax(variant, 1));
    static const char *const pairs[][2] = {{"variant.rule", "kda"},
                                           {"variant.gate.rank", "4"},
                                           {"variant.beta.value", "0.25"},
                                           {"variant.window", "56"},
                                           {"variant.short_conv.kernel", "3"},
                                           {"variant.cache.route", "recency"},
                                           {"variant.softmax_layers", "[2, 0]"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const char *value = fl_resolved_find(resolved, pairs[i][0]);
        if (value == NULL) fail_msg("%s is not recorded", pairs[i][0]);
        assert_string_equal(value, pairs[i][1]);
    }
    assert_null(fl_resolved_find(resolved, "variant.gate.value"));
    fl_variant_destroy(variant);
    fl_resolved_destroy(resolved);
}

static void test_rules_bring_their_own_options(void **state) {
    (void)state;
    fl_variant *variant = bind("{rule: linear, feature_map: relu, normaliser: false}", NULL);
    assert_false(variant->normaliser);
    fl_variant_destroy(variant);
    variant = bind("{rule: linear, feature_map: identity}", NULL);
    assert_false(variant->normaliser);
    fl_variant_destroy(variant);
    variant = bind("{rule: linear}", NULL);
    assert_true(variant->normaliser);
    fl_variant_destroy(variant);
    expect_error("{rule: kda, feature_map: elu1}", "feature_map");
    expect_error("{rule: linear, feature_map: gelu}", "v.yaml:1:");
    expect_error("{rule: delta_product, householder_steps: 9}", "householder_steps");
}

static void test_unknown_rules_and_keys_are_named_with_a_suggestion(void **state) {
    (void)state;
    expect_error("window: 3\nrule: gated_dela\n", "v.yaml:2:7");
    expect_error("{rule: gated_dela}", "did you mean \"gated_delta\"?");
    expect_error("{rule: [kda]}", "rule");
    expect_error("rule: kda\nwindows: 3\n", "v.yaml:2");
    expect_error("rule: kda\ngate: {sauce: projected}\n", "source");
    expect_error("[kda]", "mapping");
}

static void test_gates_that_make_no_sense_are_refused_at_their_line(void **state) {
    (void)state;
    expect_error("rule: delta\ngate: {source: constant, value: 0.5}\n", "v.yaml:2");
    expect_error("{rule: delta, gate: {source: projected}}", "rule delta takes no gate");
    expect_error("{rule: gla, beta: {source: projected}}", "rule gla takes no beta");
    expect_error("{rule: none, gate: {source: projected}}", "takes no gate");
    expect_error("rule: gla\ngate:\n  source: constant\n", "value");
    expect_error("rule: gla\ngate:\n  source: constant\n  value: 0.9\n  rank: 4\n", "v.yaml:5");
    expect_error("{rule: gla, gate: {value: 0.9}}", "only source: constant takes a value");
    expect_error("{rule: gated, gate: {rank: 4}}", "per channel");
    expect_error("{rule: gla, gate: {source: constant, value: 1.5}}", "value");
    expect_error("{rule: gla, gate: 0.9}", "gate");
}

static void test_normaliser_and_merges_need_a_positive_kernel(void **state) {
    (void)state;
    expect_error("rule: kda\nnormaliser: true\n", "v.yaml:2");
    expect_error("{rule: kda, merge: shared_normaliser}", "never negative");
    expect_error("{rule: linear, feature_map: identity, merge: shared_normaliser}", "with these options");
    expect_error("{rule: hedgehog, normaliser: false, merge: lolcats}", "needs normaliser: true");
    expect_error("{rule: linear, merge: shared}", "shared_normaliser");
    fl_variant_destroy(bind("{rule: linear, feature_map: identity, normaliser: true}", NULL));
    fl_variant_destroy(bind("{rule: none, merge: shared_normaliser}", NULL));
}

static void test_interventions_have_their_ranges(void **state) {
    (void)state;
    expect_error("{rule: kda, short_conv: {kernel: 0}}", "kernel");
    expect_error("{rule: kda, short_conv: {init: zeros}}", "init");
    expect_error("{rule: kda, cache: {route: newest}}", "route");
    expect_error("{rule: kda, window: -1}", "window");
    expect_error("{rule: kda, softmax_layers: 3}", "softmax_layers");
    expect_error("{rule: kda, softmax_layers: [1, 1]}", "twice");
    expect_error("{rule: kda, softmax_layers: {every: 0}}", "every");
    expect_error("{rule: kda, softmax_layers: {every: 2, hardest: 1}}", "not both");
    expect_error("{rule: kda, softmax_layers: {hardest: 2, by: error}}", "by");
}

static void test_every_nth_and_hardest_layers(void **state) {
    (void)state;
    fl_error error;
    fl_variant *variant = bind("{rule: kda, softmax_layers: {every: 4}}", NULL);
    assert_int_equal(fl_variant_fit(variant, &shape, 9, &error), FL_OK);
    for (size_t i = 0; i < 9; i++)
        assert_int_equal(fl_variant_layer_is_softmax(variant, i), i == 3 || i == 7);
    fl_variant_destroy(variant);
    variant = bind("{rule: kda, softmax_layers: {hardest: 2, by: nmse}}", NULL);
    assert_int_equal(variant->softmax_hardest, 2);
    assert_int_equal(variant->softmax_hardest_by, 2);
    assert_int_equal(fl_variant_fit(variant, &shape, 9, &error), FL_OK);
    assert_int_equal(fl_variant_set_softmax_layers(variant, (size_t[]){5, 1}, 2, &error), FL_OK);
    assert_true(fl_variant_layer_is_softmax(variant, 1) && fl_variant_layer_is_softmax(variant, 5));
    fl_variant_destroy(variant);
}

static void test_what_does_not_fit_the_model_is_refused(void **state) {
    (void)state;
    expect_misfit("{rule: kda, softmax_layers: [3]}", &shape, 3, "no layer 3");
    expect_misfit("{rule: kda, softmax_layers: {hardest: 4}}", &shape, 3, "hardest 4");
    fl_attention_shape wide = {4, 2, 256, 64, 0.1f};
    expect_misfit("{rule: taylor}", &wide, 3, "rule taylor");
    wide.head_dim = FL_RULE_MAX_HEAD_DIM + 1;
    expect_misfit("{rule: kda}", &wide, 3, "head dimension");
    fl_attention_shape uneven = {5, 2, 16, 64, 0.1f};
    expect_misfit("{rule: kda}", &uneven, 3, "5 query heads");
}

static void test_linear_off_keeps_the_exact_set_and_the_hybrid(void **state) {
    (void)state;
    fl_error error;
    fl_variant *off = NULL;
    fl_variant *variant =
        bind("{rule: linear, window: 5, sinks: 2, merge: shared_normaliser, softmax_layers: [1], "
             "short_conv: {kernel: 2}, cache: {budget: 3}, mechanism: m.safetensors}",
             NULL);
    assert_int_equal(fl_variant_fit(variant, &shape, 3, &error), FL_OK);
    assert_int_equal(fl_variant_linear_off(variant, &off, &error), FL_OK);
    fl_variant_destroy(variant);
    assert_string_equal(off->rule->name, "none");
    assert_int_equal(off->window, 5);
    assert_int_equal(off->sinks, 2);
    assert_int_equal(off->cache_budget, 3);
    assert_int_equal(off->merge, FL_MERGE_SUM);
    assert_int_equal(off->conv_kernel, 0);
    assert_null(off->mechanism_path);
    assert_true(fl_variant_layer_is_softmax(off, 1) && !fl_variant_layer_is_softmax(off, 0));
    assert_int_equal(fl_variant_fit(off, &shape, 3, &error), FL_OK);
    fl_variant_destroy(off);
}

static void test_an_allocation_that_fails_leaves_nothing_behind(void **state) {
    (void)state;
    const char *yaml = "{rule: linear, softmax_layers: [1], mechanism: m.safetensors}";
    fl_error error;
    fl_document *document = NULL;
    assert_int_equal(fl_document_parse_text(yaml, strlen(yaml), "v.yaml", &document, &error), FL_OK);
    for (size_t n = 1;; n++) {
        fl_variant *variant = NULL;
        fl_memory_fail_at(n);
        fl_status status = fl_variant_bind(fl_document_root(document), NULL, &variant, &error);
        fl_memory_fail_at(0);
        if (status == FL_OK) {
            assert_true(n > 3);
            fl_variant_destroy(variant);
            break;
        }
        assert_int_equal(status, FL_ERROR_MEMORY);
        assert_null(variant);
    }
    fl_document_destroy(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_mapping_is_the_frozen_model),
        cmocka_unit_test(test_defaults_are_the_papers),
        cmocka_unit_test(test_every_pinned_key_arrives_and_is_recorded),
        cmocka_unit_test(test_rules_bring_their_own_options),
        cmocka_unit_test(test_unknown_rules_and_keys_are_named_with_a_suggestion),
        cmocka_unit_test(test_gates_that_make_no_sense_are_refused_at_their_line),
        cmocka_unit_test(test_normaliser_and_merges_need_a_positive_kernel),
        cmocka_unit_test(test_interventions_have_their_ranges),
        cmocka_unit_test(test_every_nth_and_hardest_layers),
        cmocka_unit_test(test_what_does_not_fit_the_model_is_refused),
        cmocka_unit_test(test_linear_off_keeps_the_exact_set_and_the_hybrid),
        cmocka_unit_test(test_an_allocation_that_fails_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
