/* Sweeps over rules whose common part holds keys that not every rule takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "attn_variants/unused_keys.h"
#include "attn_variants/variant.h"
#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

static fl_error problem;

/* Cells of a config, with what is unused left out. */
static fl_experiment_list *cells_of(const char *text) {
    fl_experiment_list *list = NULL;
    if (fl_experiment_parse(text, "c.yaml", NULL, 0, &list, &problem) != FL_OK ||
        fl_unused_keys_drop(list, &problem) != FL_OK)
        fail_msg("%s", problem.message);
    return list;
}

/* "gate, beta" of a cell, without the "variant." */
static const char *unused(const fl_experiment_list *list, size_t cell) {
    static char text[256];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < list->cells[cell]->unused_count; i++) {
        const char *key = list->cells[cell]->unused[i];
        assert_int_equal(strncmp(key, "variant.", 8), 0);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : "", key + 8);
    }
    return text;
}

/* What binding the cell's variant says: "" or the message. */
static const char *bound(const fl_experiment_list *list, size_t cell) {
    static char text[sizeof problem.message];
    fl_variant *variant = NULL;
    fl_experiment *experiment = list->cells[cell];
    text[0] = '\0';
    if (fl_variant_bind(experiment->variant, experiment->resolved, &variant, &problem) != FL_OK)
        snprintf(text, sizeof text, "%s", problem.message);
    fl_variant_destroy(variant);
    return text;
}

static void test_a_key_that_one_rule_takes_is_left_out_of_the_others(void **state) {
    (void)state;
    static const struct {
        const char *rule, *unused;
    } rows[] = {{"none", "gate, beta, normaliser, scale, feature_map"},
                {"softmax", "gate, beta, normaliser, scale, feature_map"},
                {"linear", "gate, beta"},
                {"gated", "gate.rank, beta, normaliser, feature_map"},
                {"gla", "beta, normaliser, feature_map"},
                {"gated_delta", "gate.rank, normaliser, feature_map"},
                {"delta", "gate, normaliser, feature_map"},
                {"kda", "normaliser, feature_map"}};
    enum { RULES = sizeof rows / sizeof rows[0] };
    char text[1024] =
        "variant: {gate: {bias: 2.0, rank: 4}, beta: {bias: 0.5}, scale: 2.0, feature_map: relu, "
        "normaliser: true}\nsweep: {grid: {variant.rule: [";
    for (size_t i = 0; i < RULES; i++) {
        size_t bytes = strlen(text);
        snprintf(text + bytes, sizeof text - bytes, "%s%s", i > 0 ? ", " : "", rows[i].rule);
    }
    snprintf(text + strlen(text), sizeof text - strlen(text), "]}}\n");
    fl_experiment_list *list = cells_of(text);
    assert_int_equal(list->count, RULES);
    for (size_t i = 0; i < RULES; i++) {
        assert_string_equal(unused(list, i), rows[i].unused);
        assert_string_equal(bound(list, i), "");
    }
    fl_experiment_list_destroy(list);
}

static void test_a_key_that_no_cell_takes_is_an_error(void **state) {
    (void)state;
    fl_experiment_list *list =
        cells_of("variant: {gate: {bias: 2}}\nsweep: {grid: {variant.rule: [delta, linear]}}\n");
    for (size_t i = 0; i < 2; i++) assert_string_equal(unused(list, i), "");
    assert_string_equal(bound(list, 0), "c.yaml:1:17: rule delta takes no gate");
    assert_string_equal(bound(list, 1), "c.yaml:1:17: rule linear takes no gate");
    fl_experiment_list_destroy(list);
    list = cells_of("variant: {gtae: {bias: 2}}\nsweep: {grid: {variant.rule: [delta, kda]}}\n");
    for (size_t i = 0; i < 2; i++) assert_non_null(strstr(bound(list, i), "unknown key 'variant.gtae'"));
    fl_experiment_list_destroy(list);
    list = cells_of("variant: {rule: delta, gate: {bias: 2}}\n");
    assert_string_equal(bound(list, 0), "c.yaml:1:30: rule delta takes no gate");
    fl_experiment_list_destroy(list);
}

static void test_what_an_entry_of_its_own_sets_is_not_left_out(void **state) {
    (void)state;
    fl_experiment_list *list = cells_of("sweep:\n  list:\n    - {variant.rule: kda, variant.gate.bias: 1}\n"
                                        "    - {variant.rule: delta, variant.gate.bias: 1}\n");
    assert_string_equal(unused(list, 1), "");
    assert_string_equal(bound(list, 0), "");
    assert_non_null(strstr(bound(list, 1), "rule delta takes no gate"));
    fl_experiment_list_destroy(list);
    list = cells_of("sweep: {zip: {variant.rule: [kda, delta], variant.gate.bias: [1, 1]}}\n");
    assert_non_null(strstr(bound(list, 1), "rule delta takes no gate"));
    fl_experiment_list_destroy(list);
    /* null is the default, of every rule. */
    list = cells_of("sweep: {zip: {variant.rule: [kda, delta], variant.gate: [{bias: 1}, null]}}\n");
    assert_string_equal(bound(list, 1), "");
    fl_experiment_list_destroy(list);
}

static void test_a_rule_with_faulty_options_is_left_to_the_binder(void **state) {
    (void)state;
    fl_experiment_list *list = cells_of("variant: {feature_map: nonsense, beta: {bias: 1}}\n"
                                        "sweep: {grid: {variant.rule: [linear, delta]}}\n");
    assert_string_equal(unused(list, 0), "");
    assert_non_null(strstr(bound(list, 0), "nonsense"));
    fl_experiment_list_destroy(list);
}

/* The run ids of `plan` for a config; at most two lines apart. */
static void run_ids(const char *variant, const char *sweep, char ids[8][13], size_t *count) {
    char *output = NULL;
    fl_write_text(fl_inside("c.yaml"), "model: {path: %s}\ntext: {ids: %s}\nvariant: %s\n%s\n",
                  fl_reference_model(__func__), fl_inside("ids.json"), variant, sweep);
    assert_int_equal(fl_frostline(&output, "plan %s --out %s", fl_inside("c.yaml"), fl_inside("out")), 0);
    *count = 0;
    const char *line = strchr(output, '\n');
    for (; line != NULL && line[1] != '\n' && line[1] != '\0' && *count < 8; line = strchr(line + 1, '\n'))
        snprintf(ids[(*count)++], 13, "%.12s", line + 1);
    fl_memory_free(output);
}

static void test_the_run_id_is_that_of_a_cell_written_without_the_key(void **state) {
    (void)state;
    char swept[8][13], plain[8][13];
    size_t count = 0;
    fl_write_ids(fl_inside("ids.json"), 1, 40, 37);
    run_ids("{window: 8, gate: {bias: 2, rank: 4}, normaliser: false}",
            "sweep: {grid: {variant.rule: [delta, gated_delta, linear, kda]}}", swept, &count);
    assert_int_equal(count, 4);
    static const char *const alone[] = {
        "{rule: delta, window: 8}", "{rule: gated_delta, window: 8, gate: {bias: 2}}",
        "{rule: linear, window: 8, normaliser: false}", "{rule: kda, window: 8, gate: {bias: 2, rank: 4}}"};
    for (size_t i = 0; i < 4; i++) {
        run_ids(alone[i], "", plain, &count);
        assert_int_equal(count, 1);
        assert_string_equal(swept[i], plain[0]);
    }
}

static void test_plan_and_run_file_name_what_is_unused(void **state) {
    (void)state;
    char *output = NULL, command[1024];
    fl_write_ids(fl_inside("ids.json"), 1, 40, 37);
    fl_write_text(fl_inside("c.yaml"),
                  "model: {path: %s}\ntext: {ids: %s}\nvariant: {window: 8}\n"
                  "sweep: {grid: {variant.rule: [delta, kda], variant.gate.bias: [0, 1]}}\n",
                  fl_reference_model(__func__), fl_inside("ids.json"));
    snprintf(command, sizeof command, "plan %s --out %s", fl_inside("c.yaml"), fl_inside("out"));
    fl_expect(0, command, "delta  (unused: variant.gate)", "kda, bias 0\n", "3 cells: 3 to do",
              "1 the same as another", NULL);
    assert_int_equal(fl_frostline(NULL, "run %s --out %s", fl_inside("c.yaml"), fl_inside("out")), 0);
    fl_shell(&output, "for f in %s/*.h5; do h5dump -d /config_unused $f 2>/dev/null; done", fl_inside("out"));
    assert_non_null(strstr(output, "\"variant.gate\""));
    fl_memory_free(output);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_that_one_rule_takes_is_left_out_of_the_others),
        cmocka_unit_test(test_a_key_that_no_cell_takes_is_an_error),
        cmocka_unit_test(test_what_an_entry_of_its_own_sets_is_not_left_out),
        cmocka_unit_test(test_a_rule_with_faulty_options_is_left_to_the_binder),
        cmocka_unit_test_setup_teardown(test_the_run_id_is_that_of_a_cell_written_without_the_key,
                                        fl_test_folder_make, fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_plan_and_run_file_name_what_is_unused, fl_test_folder_make,
                                        fl_test_folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
