/* Rules by themselves: the registry's checks, prepare's derivative, unit length, and the reference pack's
 * float64 outputs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/base/random.h"
#include "tests/support/arrays.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"
#include "tests/support/mixer_case.h"
#include "tests/support/prepare_check.h"

static void must(fl_status status, const fl_error *error) {
    if (status != FL_OK) fail_msg("%s", error->message);
}

/* Registry. */

static void test_every_registered_rule_is_sound(void **state) {
    (void)state;
    fl_error error;
    must(fl_rule_registry_check(&error), &error);
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        assert_ptr_equal(fl_rule_find(fl_rule_registry[i]->name), fl_rule_registry[i]);
    }
    assert_null(fl_rule_find("no_such_rule"));
}

static void expect_fault(const fl_rule *rule, const char *words) {
    fl_error error = {0};
    const fl_rule *const rules[] = {rule, NULL};
    assert_int_equal(fl_rule_list_check(rules, &error), FL_ERROR_ARGUMENT);
    if (strstr(error.message, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", error.message, words);
}

static void test_unsound_rules_are_refused_by_name(void **state) {
    (void)state;
    fl_rule rule = *fl_rule_find("kda");
    rule.abi = FL_RULE_ABI + 1;
    expect_fault(&rule, "rule kda: abi 2");
    rule = *fl_rule_find("kda");
    rule.prepare_backward = NULL;
    expect_fault(&rule, "no prepare_backward");
    rule = *fl_rule_find("kda");
    rule.source = NULL;
    expect_fault(&rule, "source");
    rule = *fl_rule_find("kda");
    rule.name = "";
    expect_fault(&rule, "without a name");
    rule = *fl_rule_find("kda");
    rule.default_gate_bias = NAN;
    expect_fault(&rule, "not finite");
    rule = *fl_rule_find("kda");
    rule.beta_activation = FL_ACTIVATE_UNSET;
    expect_fault(&rule, "rule kda: a beta, and no beta_activation");
    rule = *fl_rule_find("kda");
    rule.gate_activation = FL_ACTIVATE_UNSET;
    expect_fault(&rule, "rule kda: a gate, and no gate_activation");
    rule = *fl_rule_find("kda");
    rule.gate = FL_GATE_NONE;
    expect_fault(&rule, "rule kda: a gate_activation, and no gate");
    rule = *fl_rule_find("kda");
    rule.beta = false;
    expect_fault(&rule, "rule kda: a beta_activation, and no beta");
    rule = *fl_rule_find("longhorn");
    fl_rule_factor factor = rule.factors[0];
    rule.factors = &factor;
    factor.activation = FL_ACTIVATE_UNSET;
    expect_fault(&rule, "rule longhorn: a factor without an activation");
    rule = *fl_rule_find("oja");
    rule.own.read = NULL;
    expect_fault(&rule, "not complete");
    rule = *fl_rule_find("oja");
    rule.own.read_backward = NULL;
    expect_fault(&rule, "only one of write_backward");
    rule = *fl_rule_find("none");
    rule.beta = true;
    expect_fault(&rule, "stateless");
    rule = *fl_rule_find("delta_product");
    rule.normaliser = true;
    expect_fault(&rule, "micro steps");
    const fl_rule *const twice[] = {fl_rule_find("gla"), fl_rule_find("gla"), NULL};
    fl_error error;
    assert_int_equal(fl_rule_list_check(twice, &error), FL_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "twice"));
}

static void test_unsound_options_and_parameters_are_refused(void **state) {
    (void)state;
    fl_rule rule = *fl_rule_find("random_features");
    fl_option option = rule.options[0];
    rule.options = &option;
    option.default_text = "5000";
    expect_fault(&rule, "outside its range");
    option.default_text = "many";
    expect_fault(&rule, "no number");
    option = fl_rule_find("random_features")->options[0];
    option.help = NULL;
    expect_fault(&rule, "without help");
    rule = *fl_rule_find("linear");
    option = rule.options[0];
    rule.options = &option;
    option.default_text = "cosine";
    expect_fault(&rule, "not among its choices");
    rule = *fl_rule_find("comba");
    fl_rule_parameter parameter = rule.parameters[0];
    rule.parameters = &parameter;
    rule.parameter_count = 1;
    parameter.axes = "DH";
    expect_fault(&rule, "first axis");
    parameter.axes = "HX";
    expect_fault(&rule, "axes");
    parameter = fl_rule_find("comba")->parameters[0];
    parameter.init = "random";
    expect_fault(&rule, "init");
}

/* Pieces. */

static void test_unit_length_of_zero_and_tiny_vectors_is_finite(void **state) {
    (void)state;
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f}, y[4];
    assert_true(fl_rule_unit(4, x, y) == 0.0f);
    for (size_t i = 0; i < 4; i++) assert_true(y[i] == 0.0f);
    float tiny[4] = {3e-20f, 4e-20f, 0.0f, 0.0f};
    fl_rule_unit(4, tiny, y);
    assert_true(fabsf(y[0] - 3e-8f) < 1e-14f && fabsf(y[1] - 4e-8f) < 1e-14f);
    float huge[4] = {3e30f, 4e30f, 0.0f, 0.0f};
    fl_rule_unit(4, huge, y);
    assert_true(fabsf(y[0] - 0.6f) < 1e-6f && fabsf(y[1] - 0.8f) < 1e-6f);
}

/* Derivatives. */

static void test_prepare_backward_is_the_derivative_of_prepare(void **state) {
    (void)state;
    static const char *const more[] = {"",
                                       "feature_map: identity",
                                       "feature_map: relu",
                                       "feature_map: exp",
                                       "unit: false",
                                       "features: 7",
                                       "householder_steps: 3, negative_eigenvalues: false",
                                       "decay_first: true",
                                       "lower_bound: 0.3",
                                       "shifts: 2",
                                       "normalise: false",
                                       "static: true"};
    double worst = 0.0;
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        const fl_rule *rule = fl_rule_registry[i];
        if (rule->prepare == NULL) continue;
        for (size_t j = 0; j < sizeof more / sizeof more[0]; j++) {
            char yaml[128], key[32] = "";
            if (j > 0) snprintf(key, sizeof key, "%.*s", (int)strcspn(more[j], ":"), more[j]);
            bool has = j == 0;
            for (size_t k = 0; k < rule->option_count; k++)
                has = has || strcmp(rule->options[k].key, key) == 0;
            if (!has) continue;
            snprintf(yaml, sizeof yaml, "{%s}", more[j]);
            double difference = fl_prepare_check(rule, yaml, 11);
            if (!(difference < 2e-3))
                fail_msg("rule %s %s: relative difference %.3g", rule->name, yaml, difference);
            if (difference > worst) worst = difference;
        }
    }
    printf("worst: finite differences against prepare_backward %.2g\n", worst);
}

/* Reference pack. */

enum { HEADS = 3, STEPS = 150, KEY_DIM = 32, VALUE_DIM = 48 };

typedef struct pack_rule {
    const char *pack, *rule;
} pack_rule;

/* The pack has unit q and k, other value and key dimensions, and gates as they are: prepare is called with D
 * = Dk for the key side, and the values are put beside it. */
static void run_pack_rule(const fl_checkpoint *file, fl_compute *compute, const pack_rule *names) {
    fl_error error;
    const fl_rule *rule = fl_rule_find(names->rule);
    float *query = fl_fixture_floats(file, "q", NULL, NULL), *key = fl_fixture_floats(file, "k", NULL, NULL);
    float *value = fl_fixture_floats(file, "v", NULL, NULL),
          *beta = fl_fixture_floats(file, "beta", NULL, NULL);
    double *gate = fl_fixture_doubles(file, rule->gate == FL_GATE_CHANNEL ? "a" : "g", NULL, NULL);
    size_t gate_width = rule->gate == FL_GATE_CHANNEL ? KEY_DIM : 1;
    static float log_decay[HEADS * STEPS * KEY_DIM], strength[HEADS * STEPS], write[HEADS * STEPS];
    static float queries[HEADS * STEPS * KEY_DIM], keys[HEADS * STEPS * KEY_DIM];
    int identity = 0;
    for (size_t i = 0; i < HEADS * STEPS; i++) {
        float log_gate[KEY_DIM], values[KEY_DIM];
        for (size_t j = 0; j < gate_width; j++) log_gate[j] = (float)log(gate[i * gate_width + j]);
        fl_rule_input input = {.head_dim = KEY_DIM,
                               .query = query + i * KEY_DIM,
                               .key = key + i * KEY_DIM,
                               .value = key + i * KEY_DIM,
                               .gate = log_gate,
                               .beta = beta[i],
                               .options = &identity};
        fl_rule_output output = {.query = queries + i * KEY_DIM,
                                 .key = keys + i * KEY_DIM,
                                 .value = values,
                                 .log_decay = log_decay + i * gate_width,
                                 .erase_strength = strength + i,
                                 .write = write + i};
        rule->prepare(&input, &output);
    }
    float *output = NULL, *final = NULL;
    must(FL_ALLOCATE(&output, HEADS * STEPS * VALUE_DIM, &error), &error);
    must(FL_ALLOCATE(&final, HEADS * VALUE_DIM * KEY_DIM, &error), &error);
    fl_recurrence_call call = {.transition = rule->transition,
                               .heads = HEADS,
                               .steps = STEPS,
                               .key_dim = KEY_DIM,
                               .value_dim = VALUE_DIM,
                               .inputs = {.query = fl_test_array(queries),
                                          .key = fl_test_array(keys),
                                          .value = fl_test_array(value),
                                          .log_decay = fl_test_array(log_decay),
                                          .erase_strength = fl_test_array(strength),
                                          .write = fl_test_array(rule->has_write ? write : NULL)},
                               .state = fl_test_array(final),
                               .output = fl_test_array(output)};
    must(compute->ops->recurrence(compute, &call, &error), &error);
    char name[32];
    snprintf(name, sizeof name, "%s.o", names->pack);
    double *expected = fl_fixture_doubles(file, name, NULL, NULL);
    fl_assert_close(output, expected, HEADS * STEPS * VALUE_DIM, 1e-4, name);
    fl_memory_free(expected);
    snprintf(name, sizeof name, "%s.S", names->pack);
    expected = fl_fixture_doubles(file, name, NULL, NULL);
    fl_assert_close(final, expected, HEADS * VALUE_DIM * KEY_DIM, 1e-4, name);
    fl_memory_free(expected);
    fl_memory_free(output);
    fl_memory_free(final);
    fl_memory_free(query);
    fl_memory_free(key);
    fl_memory_free(value);
    fl_memory_free(beta);
    fl_memory_free(gate);
}

static void test_rules_equal_the_reference_packs_float64_outputs_and_states(void **state) {
    (void)state;
    static const pack_rule rules[] = {{"linear", "linear"}, {"ema", "gated"},
                                      {"decay", "decay"},   {"gla", "gla"},
                                      {"delta", "delta"},   {"gated_delta", "gated_delta"},
                                      {"kda", "kda"}};
    const char *path = fl_fixture_or_pack("reference/rules/rules_f64.safetensors");
    if (path == NULL) fl_fixture_skip("rules", "pack reference");
    fl_error error;
    fl_checkpoint *file = NULL;
    fl_compute *compute = NULL;
    fl_compute_options options = {.threads = 2, .widen_budget_bytes = 0};
    must(fl_checkpoint_open(path, &file, &error), &error);
    must(fl_compute_create_cpu(&options, &compute, &error), &error);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) run_pack_rule(file, compute, &rules[i]);
    printf("worst: reference rules %.2g\n", fl_worst_reset());
    fl_compute_destroy(compute);
    fl_checkpoint_close(file);
}

/* Documents. */

static void test_the_page_of_rules_is_what_the_program_writes(void **state) {
    (void)state;
    char *page = NULL;
    assert_int_equal(fl_frostline(&page, "variants --markdown"), 0);
    size_t bytes = 0;
    char *kept = fl_read_file(fl_fixture_path("../../docs/rules.md"), &bytes);
    if (strcmp(page, kept) != 0) fail_msg("docs/rules.md is not what `frostline variants --markdown` writes");
    fl_memory_free(page);
    fl_memory_free(kept);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_registered_rule_is_sound),
        cmocka_unit_test(test_unsound_rules_are_refused_by_name),
        cmocka_unit_test(test_unsound_options_and_parameters_are_refused),
        cmocka_unit_test(test_unit_length_of_zero_and_tiny_vectors_is_finite),
        cmocka_unit_test(test_prepare_backward_is_the_derivative_of_prepare),
        cmocka_unit_test(test_the_page_of_rules_is_what_the_program_writes),
        cmocka_unit_test(test_rules_equal_the_reference_packs_float64_outputs_and_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
