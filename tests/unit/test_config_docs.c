/* What is said of the keys of a config agrees with the program that reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attn_variants/attn_variant.h"
#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

static const char *python(void) {
    const char *name = getenv("FROSTLINE_PYTHON");
    return name != NULL && name[0] != '\0' ? name : "python3";
}

static void test_page_is_what_the_program_says(void **state) {
    (void)state;
    char *output = NULL;
    assert_int_equal(fl_frostline(&output, "config --markdown"), 0);
    char *page = fl_read_file("docs/configuration.md", NULL);
    if (strcmp(page, output) != 0)
        fail_msg("docs/configuration.md is not what `frostline config --markdown` prints; make it anew: "
                 "build/release/frostline config --markdown > docs/configuration.md");
    /* A value that is a mapping has its keys on the page, or its form is told in option_catalogue.c. */
    for (const char *line = strstr(page, "\n| `"); line != NULL; line = strstr(line + 1, "\n| `")) {
        const char *end = strchr(line + 1, '\n'), *kind = strstr(line, " | mapping | "),
                   *below = strstr(line, "; keys below |");
        if (kind != NULL && kind < end && (below == NULL || below > end))
            fail_msg("nothing is said of what is in%.*s", (int)(end - line), line);
    }
    fl_memory_free(page);
    fl_memory_free(output);
}

static void test_a_key_is_explained(void **state) {
    (void)state;
    fl_expect(0, "config variant.window", "newest tokens kept exactly", "whole number from 0 to", "tokens",
              "default    0", NULL);
    fl_expect(0, "config variant.merge", "sum | half | shared_normaliser", NULL);
    fl_expect(0, "config variant.feature_map", "rule       linear", "identity | elu1 | relu | exp",
              "default    elu1", NULL);
    fl_expect(0, "config tasks.0.shots", "few-shot examples", NULL);
    fl_expect(0, "config budget", "variant.cache.budget", NULL);
    fl_expect(0, "config variant.softmax_layers", "every", "hardest", "by", NULL);
    fl_expect(0, "config train", "learning_rate", "self_generated", NULL);
    fl_expect(1, "config variant.windw", "there is no key \"variant.windw\"; did you mean variant.window?",
              NULL);
    fl_expect(2, "config --schema window", "give one of", NULL);
}

static void test_tasks_are_explained(void **state) {
    (void)state;
    fl_expect(0, "tasks", "arc_easy", "lambada_openai", "passkey", NULL);
    fl_expect(0, "tasks mmlu", "SUBJECT_SPLIT.csv", "choice_mass", NULL);
    fl_expect(0, "tasks piqa", "goal, sol1, sol2", "acc_norm", "valid.jsonl", NULL);
    fl_expect(0, "tasks passkey", "made here", "acc_length_N", NULL);
    fl_expect(1, "tasks arc_eazy", "there is no task \"arc_eazy\"; did you mean arc_easy?", NULL);
}

/* After `model` and `text`, unless the case has them itself; `good`: both program and schema take it. */
typedef struct config_case {
    bool good;
    const char *yaml;
} config_case;

static const config_case cases[] = {
    {true, ""},
    {true, "name: 7\n"},
    {true, "variant: {rule: kda, window: 8, sinks: 2, merge: sum}\n"},
    {true, "variant: {rule: kda, gate: {source: constant, value: 0.5}, beta: {bias: -2e0}}\n"},
    {true, "variant: {rule: kda, gate: {rank: 4, form: softplus}, beta: {maximum: 2}}\n"},
    {true, "variant: {rule: linear, feature_map: relu, normaliser: true}\n"},
    {true, "variant: {rule: kda, scale: sqrt_dim, short_conv: null, window: null}\n"},
    {true, "variant: {rule: kda, softmax_layers: [0]}\n"},
    {true, "variant: {rule: kda, softmax_layers: {every: 2}}\n"},
    {true, "variant: {rule: kda, lora: {rank: 2, targets: [q, v]}}\n"},
    {true, "measure: {propagated: false, ablate: [exact]}\n"},
    {true, "sweep: {grid: {variant.rule: [kda, gla], variant.window: [4, 8]}}\n"},
    {true, "sweep: {zip: {variant.window: [4, 8], variant.sinks: [0, 1]}}\n"},
    {true, "sweep: {list: [{variant.rule: kda}, {variant.rule: gla, variant.gate: {bias: 2}}]}\n"},
    {true, "variant: {rule: kda}\nsweep: {grid: {variant.gate: [null, {source: constant, value: 1}]}}\n"},
    {true, "sweep: {grid: {variant.window: [4, 8]}, labels: {variant.window: [narrow, null]}}\n"},
    {true, "sweep: {list: [{variant.window: 4, label: narrow}, {variant.window: 8}]}\n"},
    {false, "sweep: {grid: {variant.window: [4, 8]}, labels: {variant.windw: [narrow, wide]}}\n"},
    {true, "train: {objective: none}\n"},
    {true, "tasks: [{name: passkey, lengths: [64]}, {name: mqar, label: again, pairs: 4}]\n"},
    {false, "variants: {rule: kda}\n"},
    {false, "variant: {rule: kdaa}\n"},
    {false, "variant: {rule: kda, windw: 8}\n"},
    {false, "variant: {rule: kda, window: -1}\n"},
    {false, "variant: {rule: kda, window: 99999999}\n"},
    {false, "variant: {rule: kda, window: wide}\n"},
    {false, "variant: {rule: kda, window: '8'}\n"},
    {false, "variant: {rule: kda, merge: add}\n"},
    {false, "variant: {rule: kda, feature_map: relu}\n"},
    {false, "variant: {rule: delta, gate: {bias: 1}}\n"},
    {false, "variant: {rule: gla, beta: {bias: 1}}\n"},
    {false, "variant: {rule: kda, gate: {source: constant}}\n"},
    {false, "variant: {rule: kda, gate: {value: 0.5}}\n"},
    {false, "variant: {rule: kda, gate: {source: constant, value: 0.5, bias: 1}}\n"},
    {false, "variant: {rule: gated_delta, gate: {rank: 4}}\n"},
    {false, "variant: {rule: kda, scale: twice}\n"},
    {false, "variant: {rule: kda, softmax_layers: {every: 0}}\n"},
    {false, "variant: {rule: kda, softmax_layers: {every: 2, hardest: 1}}\n"},
    {false, "variant: {rule: kda, lora: {targets: [q, x]}}\n"},
    {false, "variant: {rule: kda, normaliser: maybe}\n"},
    {false, "variant: {rule: kda, cache: {budgets: 3}}\n"},
    {false, "variant: [kda]\n"},
    {false, "measure: {propagated: 2}\n"},
    {false, "measure: {ablate: [everything]}\n"},
    {false, "train: {objective: layer_mse, steps: 2}\n"},
    {false, "train: {objective: null, ids: ids.json}\n"},
    {false, "train: {ids: ids.json, path: x.txt}\n"},
    {false, "train: {self_generated: {temperature: 1}}\n"},
    {false, "train: {ids: ids.json, beta1: 1.5}\n"},
    {false, "tasks: {name: passkey}\n"},
    {false, "tasks: [{label: x}]\n"},
    {false, "tasks: [{name: passkeys}]\n"},
    {false, "tasks: [{name: mmlu}]\n"},
    {false, "tasks: [{name: passkey, shots: 2}]\n"},
    {false, "sweep: {grids: {variant.window: [4, 8]}}\n"},
    {false, "sweep: {grid: {variant.windw: [4, 8]}}\n"},
    {false, "sweep: {grid: {variant.window: 4}}\n"},
    {false, "sweep: {grid: {variant.window: []}}\n"},
    {false, "sweep: {grid: {variant.window: [4, wide]}}\n"},
    {false, "sweep: {list: {variant.window: 4}}\n"},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static const char *case_path(size_t index) {
    char name[32];
    snprintf(name, sizeof name, "case%02zu.yaml", index);
    return fl_inside(name);
}

static void write_cases(const char *model) {
    fl_write_ids(fl_inside("ids.json"), 2, 16, 7);
    for (size_t i = 0; i < CASES; i++)
        fl_write_text(case_path(i), "model: {path: %s}\ntext: {ids: %s}\n%s", model, fl_inside("ids.json"),
                      cases[i].yaml);
}

static void test_program_takes_the_good_and_refuses_the_bad(void **state) {
    (void)state;
    write_cases(fl_write_byte_model("test_program_takes_the_good_and_refuses_the_bad", fl_test_folder()));
    for (size_t i = 0; i < CASES; i++) {
        char *output = NULL;
        int code = fl_frostline(&output, "plan %s --out %s", case_path(i), fl_inside("out"));
        if ((code == 0) != cases[i].good) fail_msg("exit %d of\n%s:\n%s", code, cases[i].yaml, output);
        fl_memory_free(output);
    }
}

static void ask_schema(const char *test, char **output) {
    if (fl_shell(NULL, "%s -c 'import jsonschema, yaml'", python()) != 0)
        fl_fixture_skip(test, "python3 with jsonschema and yaml");
    assert_int_equal(fl_frostline(NULL, "config --schema > %s", fl_inside("schema.json")), 0);
    int code = fl_shell(
        output, "%s tests/support/check_schema.py %s %s/case*.yaml configs/*.yaml configs/paper/*.yaml",
        python(), fl_inside("schema.json"), fl_test_folder());
    if (code != 0) fail_msg("%s", *output);
}

static void test_schema_agrees_with_the_program(void **state) {
    (void)state;
    write_cases("model");
    char *output = NULL;
    ask_schema("test_schema_agrees_with_the_program", &output);
    for (size_t i = 0; i < CASES; i++) {
        char line[512];
        snprintf(line, sizeof line, "%s ", case_path(i));
        const char *verdict = strstr(output, line);
        assert_non_null(verdict);
        verdict += strlen(line);
        if ((strncmp(verdict, "ok", 2) == 0) != cases[i].good)
            fail_msg("the schema says\n%.200s\nof\n%s", verdict, cases[i].yaml);
    }
    const char *configs = strstr(output, "configs/");
    assert_non_null(configs);
    if (strstr(configs, "refused") != NULL) fail_msg("a config of ours is refused:\n%s", configs);
    fl_memory_free(output);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_page_is_what_the_program_says),
        TEST(test_a_key_is_explained),
        TEST(test_tasks_are_explained),
        TEST(test_program_takes_the_good_and_refuses_the_bad),
        TEST(test_schema_agrees_with_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
