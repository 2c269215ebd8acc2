/* The run-time self check, branch ablations and the hardness of layers, on the tiny reference checkpoints. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "attn_variants/ablation.h"
#include "harness/base/memory.h"
#include "harness/engine/network.h"
#include "harness/measure/hardness.h"
#include "harness/measure/self_check.h"
#include "tests/support/fixture.h"

enum { TOKENS = 160 };

typedef struct {
    fl_model *model;
    fl_compute *compute;
    fl_network *network;
    fl_hash hash;
    int32_t ids[TOKENS];
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
    assert_int_equal(fl_model_hash(bench.model, &bench.hash, NULL), FL_OK);
    for (int32_t t = 0; t < TOKENS; t++) bench.ids[t] = (t * 73 + 11) % 320;
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

static void require_bench(void **state, const char *test) {
    if (*state == NULL) fl_fixture_skip(test, "reference/llama_gqa");
}

static fl_variant *variant_of(const char *yaml) {
    fl_document *document = NULL;
    fl_variant *variant = NULL;
    fl_error error;
    assert_int_equal(fl_document_parse_text(yaml, strlen(yaml), "test", &document, &error), FL_OK);
    if (fl_variant_bind(fl_document_root(document), NULL, &variant, &error) != FL_OK)
        fail_msg("%s", error.message);
    fl_document_destroy(document);
    if (fl_variant_fit(variant, &bench.network->shape, 3, &error) != FL_OK) fail_msg("%s", error.message);
    return variant;
}

static fl_mechanism *mechanism_of(const fl_variant *variant) {
    fl_mechanism *mechanism = NULL;
    assert_int_equal(fl_mechanism_create(variant, &bench.network->shape, 3, &mechanism, NULL), FL_OK);
    return mechanism;
}

static void run(const fl_mechanism *mechanism, fl_self_check_report *report) {
    fl_error error;
    fl_status status =
        fl_self_check_run(bench.network, mechanism, bench.ids, TOKENS, 0, &bench.hash, report, &error);
    if (status != FL_OK) fail_msg("%s", error.message);
}

static const fl_self_check_row *row_of(const fl_self_check_report *report, const char *name) {
    for (size_t i = 0; i < report->count; i++) {
        if (strcmp(report->rows[i].name, name) == 0) return &report->rows[i];
    }
    fail_msg("no check %s", name);
    return NULL;
}

static void test_every_invariant_holds_for_every_composition(void **state) {
    require_bench(state, "test_every_invariant_holds_for_every_composition");
    static const char *const variants[] = {
        "{rule: none, window: 8, sinks: 2}",
        "{rule: softmax}",
        "{rule: kda, window: 8, sinks: 2}",
        "{rule: kda, short_conv: {kernel: 8}, window: 8, sinks: 2}",
        "{rule: gla}",
        "{rule: kgla, window: 1}",
        "{rule: delta, window: 6, sinks: 2, cache: {budget: 4, route: self_recall}}",
        "{rule: gated_delta, window: 6, cache: {budget: 5, route: key_norm}, merge: half}",
        "{rule: kda, window: 6, sinks: 1, cache: {budget: 5, route: attention_mass}}",
        "{rule: linear, feature_map: elu1, window: 8, sinks: 2, merge: shared_normaliser}",
        "{rule: delta, sinks: 3}",
        "{rule: kda, window: 8, sinks: 2, softmax_layers: [1]}",
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        fl_variant *variant = variant_of(variants[i]);
        fl_mechanism *mechanism = mechanism_of(variant);
        fl_self_check_report report;
        run(mechanism, &report);
        for (size_t r = 0; r < report.count; r++) {
            const fl_self_check_row *row = &report.rows[r];
            if (row->applicable && !row->passed)
                fail_msg("%s: %s: %g > %g at %s", variants[i], row->name, row->figure, row->bound,
                         row->place);
        }
        assert_true(report.passed);
        fl_mechanism_destroy(mechanism);
        fl_variant_destroy(variant);
    }
}

static void test_checks_that_do_not_apply_say_why(void **state) {
    require_bench(state, "test_checks_that_do_not_apply_say_why");
    fl_variant *variant = variant_of("{rule: gla}");
    fl_mechanism *mechanism = mechanism_of(variant);
    fl_self_check_report report;
    run(mechanism, &report);
    const fl_self_check_row *row = row_of(&report, "short_prompt_is_softmax");
    assert_false(row->applicable);
    assert_non_null(strstr(row->place, "no window"));
    assert_false(row_of(&report, "identity_convolution")->applicable);
    assert_true(row_of(&report, "chunk_equals_step")->applicable);
    fl_mechanism_destroy(mechanism);
    fl_variant_destroy(variant);
}

static void test_changed_weights_are_reported(void **state) {
    require_bench(state, "test_changed_weights_are_reported");
    fl_variant *variant = variant_of("{rule: none, window: 4}");
    fl_mechanism *mechanism = mechanism_of(variant);
    fl_self_check_report report;
    fl_hash other = fl_hash_bytes("x", 1);
    assert_int_equal(fl_self_check_run(bench.network, mechanism, bench.ids, TOKENS, 0, &other, &report, NULL),
                     FL_OK);
    assert_false(report.passed);
    assert_false(row_of(&report, "weights_unchanged")->passed);
    fl_mechanism_destroy(mechanism);
    fl_variant_destroy(variant);
}

/* A rule that is wrong on purpose: what it writes depends on how often it was called. */
static atomic_int calls;

static void wrong_prepare(const fl_rule_input *input, fl_rule_output *output) {
    fl_rule_raw_inputs(input, output);
    output->value[0] += (float)(atomic_fetch_add(&calls, 1) % 7);
}

static const fl_rule wrong_rule = {
    .abi = FL_RULE_ABI,
    .name = "wrong",
    .summary = "a rule with hidden state",
    .equation = "S = S + v k^T",
    .source = "this test",
    .transition = {FL_DECAY_NONE, FL_ERASE_NONE},
    .prepare = wrong_prepare,
    .prepare_backward = fl_rule_raw_inputs_backward,
};

static void test_a_rule_with_hidden_state_is_caught_with_its_place(void **state) {
    require_bench(state, "test_a_rule_with_hidden_state_is_caught_with_its_place");
    fl_variant *variant = NULL;
    assert_int_equal(fl_variant_bind_rule(&wrong_rule, NULL, NULL, &variant, NULL), FL_OK);
    assert_int_equal(fl_variant_fit(variant, &bench.network->shape, 3, NULL), FL_OK);
    fl_mechanism *mechanism = mechanism_of(variant);
    fl_self_check_report report;
    run(mechanism, &report);
    assert_false(report.passed);
    const fl_self_check_row *row = row_of(&report, "split_equals_whole");
    assert_false(row->passed);
    assert_non_null(strstr(row->place, "layer "));
    assert_non_null(strstr(row->place, "position "));
    fl_mechanism_destroy(mechanism);
    fl_variant_destroy(variant);
}

static void test_ablation_keeps_the_other_parameters(void **state) {
    require_bench(state, "test_ablation_keeps_the_other_parameters");
    fl_variant *variant = variant_of("{rule: kda, window: 8, sinks: 2, short_conv: {init: torch}, seed: 9}");
    fl_mechanism *mechanism = mechanism_of(variant);
    for (int branch = 0; branch < FL_BRANCH_COUNT; branch++) {
        fl_variant *ablated = NULL;
        fl_mechanism *derived = NULL;
        assert_int_equal(fl_variant_ablate(variant, (fl_branch)branch, &ablated, NULL), FL_OK);
        assert_non_null(ablated);
        assert_int_equal(fl_mechanism_derive(mechanism, ablated, &derived, NULL), FL_OK);
        if (branch == FL_BRANCH_LINEAR) assert_string_equal(ablated->rule->name, "none");
        if (branch == FL_BRANCH_EXACT) assert_false(fl_variant_has_exact_set(ablated));
        if (branch == FL_BRANCH_CONVOLUTION) {
            assert_null(fl_mechanism_find(derived, 0, "conv.q.weight"));
            assert_memory_equal(fl_mechanism_find(derived, 1, "gate.w1"),
                                fl_mechanism_find(mechanism, 1, "gate.w1"), 64 * 16 * sizeof(float));
        }
        if (branch == FL_BRANCH_GATE) {
            assert_null(fl_mechanism_find(derived, 0, "gate.w1"));
            assert_memory_equal(fl_mechanism_find(derived, 2, "conv.k.weight"),
                                fl_mechanism_find(mechanism, 2, "conv.k.weight"), 64 * 8 * sizeof(float));
        }
        fl_mechanism_destroy(derived);
        fl_variant_destroy(ablated);
    }
    fl_variant *absent = NULL, *pure = variant_of("{rule: delta}");
    assert_int_equal(fl_variant_ablate(pure, FL_BRANCH_GATE, &absent, NULL), FL_OK);
    assert_null(absent);
    assert_int_equal(fl_variant_ablate(pure, FL_BRANCH_EXACT, &absent, NULL), FL_OK);
    assert_null(absent);
    fl_variant_destroy(pure);
    fl_mechanism_destroy(mechanism);
    fl_variant_destroy(variant);
}

static void test_hardest_layers_are_measured_and_listed(void **state) {
    require_bench(state, "test_hardest_layers_are_measured_and_listed");
    static const char *const signals[] = {"key_concentration", "projection_residual", "nmse"};
    int32_t *rows[1] = {bench.ids};
    size_t lengths[1] = {TOKENS};
    fl_sequences sequences = {1, lengths, rows};
    for (int by = 0; by < 3; by++) {
        char yaml[160];
        snprintf(yaml, sizeof yaml, "{rule: kda, window: 8, sinks: 2, softmax_layers: {hardest: 2, by: %s}}",
                 signals[by]);
        fl_variant *variant = variant_of(yaml);
        double signal[3] = {0};
        fl_error error;
        if (fl_hardness_resolve(bench.network, &sequences, variant, NULL, signal, &error) != FL_OK)
            fail_msg("%s", error.message);
        assert_int_equal(variant->softmax_layer_count, 2);
        size_t left = 0;
        while (fl_variant_layer_is_softmax(variant, left)) left++;
        for (size_t l = 0; l < 3; l++) {
            assert_true(isfinite(signal[l]) && signal[l] > 0.0);
            double sign = by == 0 ? -1.0 : 1.0;
            assert_true(sign * signal[l] >= sign * signal[left]);
        }
        fl_variant_destroy(variant);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_invariant_holds_for_every_composition),
        cmocka_unit_test(test_checks_that_do_not_apply_say_why),
        cmocka_unit_test(test_changed_weights_are_reported),
        cmocka_unit_test(test_a_rule_with_hidden_state_is_caught_with_its_place),
        cmocka_unit_test(test_ablation_keeps_the_other_parameters),
        cmocka_unit_test(test_hardest_layers_are_measured_and_listed),
    };
    return cmocka_run_group_tests(tests, open_bench, close_bench);
}
