/* The tools around the experiments, from outside: generate, lab, data. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/measure/text_source.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"
#include "tests/support/network_fixture.h"
#include "tests/support/tokenizer_cases.h"

enum { TEXT_BYTES = 8192, PATH_BYTES = 1024, VOCABULARY = 262, END = 261 };

static int set_up(void **state) {
    fl_test_folder_make(state);
    fl_tiny_model_options options = {.vocabulary = VOCABULARY, .scale = 0.2f};
    fl_tiny_model_write(fl_test_folder(), &options);
    const fl_tokenizer_parts parts = {
        .added_tokens =
            "[{\"id\": 261, \"content\": \"<|endoftext|>\", \"special\": true, \"single_word\": false, "
            "\"lstrip\": false, \"rstrip\": false, \"normalized\": false}]"};
    char *json = fl_tokenizer_json(&parts);
    fl_write_file(fl_inside("tokenizer.json"), json, strlen(json));
    fl_memory_free(json);
    return 0;
}

static void succeed(const char *arguments) {
    char *output = NULL;
    if (fl_frostline(&output, "%s", arguments) != 0) fail_msg("frostline %s: %s", arguments, output);
    fl_memory_free(output);
}

static const char *generate(const char *flags, const char *name) {
    static char arguments[TEXT_BYTES];
    snprintf(arguments, sizeof arguments, "generate %s --threads 2 %s --out %s", fl_test_folder(), flags,
             fl_inside(name));
    return arguments;
}

static bool same_file(const char *a, const char *b) {
    size_t a_bytes = 0, b_bytes = 0;
    char *a_text = fl_read_file(fl_inside(a), &a_bytes), *b_text = fl_read_file(fl_inside(b), &b_bytes);
    bool same = a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0;
    fl_memory_free(a_text);
    fl_memory_free(b_text);
    return same;
}

static void test_generated_ids_are_a_text_and_the_same_every_time(void **state) {
    (void)state;
    succeed(generate("--ids --sequences 3 --tokens 40", "a.json"));
    succeed(generate("--ids --sequences 3 --tokens 40", "b.json"));
    succeed(generate("--ids --sequences 3 --tokens 40 --seed 2", "c.json"));
    assert_true(same_file("a.json", "b.json"));
    assert_false(same_file("a.json", "c.json"));
    fl_text_source source;
    fl_error error = {0};
    if (fl_text_source_from_ids(fl_inside("a.json"), VOCABULARY, 0, 0, &source, &error) != FL_OK)
        fail_msg("%s", error.message);
    assert_int_equal(source.sequences.count, 3);
    for (size_t i = 0; i < 3; i++) assert_int_equal(source.sequences.lengths[i], 40);
    fl_text_source_release(&source);
}

static void test_generated_text_begins_with_the_prompt_and_separates_documents(void **state) {
    (void)state;
    succeed(generate("--prompt 'hello hello' --sequences 4 --tokens 5", "text.txt"));
    size_t bytes = 0, documents = 0;
    char *text = fl_read_file(fl_inside("text.txt"), &bytes);
    for (const char *at = text;; documents++) {
        assert_int_equal(strncmp(at, "hello hello", 11), 0);
        at = strstr(at, "<|endoftext|>");
        if (at == NULL) break;
        at += strlen("<|endoftext|>");
    }
    fl_memory_free(text);
    assert_int_equal(documents, 3);
    fl_write_file(fl_inside("prompt.txt"), "hello hello", 11);
    char flags[PATH_BYTES];
    snprintf(flags, sizeof flags, "--prompt-file %s --sequences 4 --tokens 5", fl_inside("prompt.txt"));
    succeed(generate(flags, "again.txt"));
    assert_true(same_file("text.txt", "again.txt"));
}

static void test_temperature_0_draws_nothing_and_speed_is_shown(void **state) {
    (void)state;
    fl_expect(0, generate("--ids --temperature 0 --tokens 20 --sequences 2 --seed 1", "a.json"),
              "40 tokens in ", "tokens/s", NULL);
    succeed(generate("--ids --temperature 0 --tokens 20 --sequences 2 --seed 2", "b.json"));
    succeed(generate("--ids --top-k 1 --tokens 20 --sequences 2 --seed 3", "c.json"));
    succeed(generate("--ids --top-p 1e-9 --tokens 20 --sequences 2 --seed 4", "d.json"));
    assert_true(same_file("a.json", "b.json"));
    assert_true(same_file("a.json", "c.json"));
    assert_true(same_file("a.json", "d.json"));
}

static void test_a_variant_generates_another_text(void **state) {
    (void)state;
    static const char config[] = "variant: {rule: kda, window: 2, sinks: 0}\n";
    fl_write_file(fl_inside("variant.yaml"), config, strlen(config));
    char flags[PATH_BYTES];
    snprintf(flags, sizeof flags, "--ids --tokens 30 --config %s", fl_inside("variant.yaml"));
    succeed(generate(flags, "variant.json"));
    succeed(generate("--ids --tokens 30", "frozen.json"));
    assert_false(same_file("variant.json", "frozen.json"));
    static const char sweep[] = "variant: {rule: kda}\nsweep: {grid: {variant.window: [2, 4]}}\n";
    fl_write_file(fl_inside("variant.yaml"), sweep, strlen(sweep));
    fl_expect(1, generate(flags, "no.json"), "a sweep of 2 cells", NULL);
    assert_int_not_equal(access(fl_inside("no.json"), F_OK), 0);
}

static void test_wrong_flags_of_generate_are_refused(void **state) {
    (void)state;
    fl_expect(2, "generate", "argument is missing", NULL);
    fl_expect(2, generate("--temperature warm", "x"), "--temperature needs a number, not \"warm\"", NULL);
    fl_expect(2, generate("--temperature -1", "x"), "--temperature must lie between", NULL);
    fl_expect(2, generate("--top-p 1.5", "x"), "--top-p must lie between 0 and 1", NULL);
    fl_expect(2, generate("--top-p 0", "x"), "--top-p must be above 0", NULL);
    fl_expect(2, generate("--tokens 0", "x"), "at least 1", NULL);
    fl_expect(2, generate("--prompt a --prompt-file b", "x"), "not both", NULL);
    fl_expect(1, generate("--prompt-file /nowhere/prompt", "x"), "/nowhere/prompt", NULL);
    fl_expect(1, "generate /nowhere/model --tokens 1", "/nowhere/model", NULL);
    assert_int_not_equal(access(fl_inside("x"), F_OK), 0);
}

static void test_the_lab_shows_interference_overwriting_and_what_cannot_be_held(void **state) {
    (void)state;
    fl_expect(0, "lab --pairs 1,8 --trials 4 --dimension 8", "recall error", "delta ", "gated_delta",
              "softmax: left out", NULL);
    fl_expect(1, "lab softmax", "no matrix state", NULL);
    fl_expect(1, "lab nothing", "no rule \"nothing\"", NULL);
    fl_expect(2, "lab delta --pairs 1,x", "--pairs is a list", NULL);
    fl_expect(0, "lab --help", "regrouped sum", "overwrite", "capacity", NULL);
    char arguments[PATH_BYTES];
    snprintf(arguments, sizeof arguments, "lab delta --overwrite --pairs 4 --out %s", fl_inside("lab.csv"));
    succeed(arguments);
    char *csv = fl_read_file(fl_inside("lab.csv"), NULL);
    static const char head[] = "rule,pairs,recall_error,recall_error_stderr,cosine,cosine_old,";
    assert_int_equal(strncmp(csv, head, strlen(head)), 0);
    double error = NAN, deviation = NAN, cosine = NAN, old = NAN;
    assert_int_equal(
        sscanf(strchr(csv, '\n') + 1, "delta,4,%lf,%lf,%lf,%lf", &error, &deviation, &cosine, &old), 4);
    assert_true(error > 0 && error < 0.3 && cosine > 0.9 && fabs(old) < 0.3);
    fl_memory_free(csv);
}

static void test_data_check_tells_complete_altered_and_unknown_folders_apart(void **state) {
    (void)state;
    fl_expect(0, "data list", "hellaswag", "HellaSwag", "mmlu", NULL);
    fl_expect(0, "data check datasets/questions", "0 missing, 0 altered", NULL);
    char arguments[PATH_BYTES];
    snprintf(arguments, sizeof arguments, "data check %s", fl_test_folder());
    fl_expect(1, arguments, "holds no file of a known set", NULL);
    fl_write_file(fl_inside("hellaswag_val.jsonl"), "{}\n", 3);
    fl_expect(1, arguments, "ALTERED", "hellaswag_val.jsonl: 1 rows, 10042 expected", "1 altered", NULL);
    static const char own[] =
        "{\"name\": \"own\", \"files\": [{\"file\": \"a.txt\"}, {\"file\": \"b.txt\"}]}";
    fl_write_file(fl_inside("manifest.json"), own, strlen(own));
    fl_write_file(fl_inside("a.txt"), "x", 1);
    fl_expect(1, arguments, "missing  b.txt", "1 there", "1 missing, 0 altered", NULL);
    fl_write_file(fl_inside("b.txt"), "x", 1);
    fl_expect(0, arguments, "2 there", NULL);
    fl_expect(2, "data", "argument is missing", NULL);
    fl_expect(2, "data check", "check DIR", NULL);
    fl_expect(2, "data list more", "check DIR", NULL);
    fl_expect(1, "data list --manifests /nowhere", "/nowhere", NULL);
}

/* A config of the tiny model, measured on its own text after `train`. */
static const char *own_text_config(const char *train) {
    static char arguments[TEXT_BYTES];
    char config[TEXT_BYTES];
    snprintf(config, sizeof config,
             "model: {path: %s}\n"
             "text: {self_generated: {tokens: 100}, sequence_length: 40}\n"
             "variant: {rule: kda, window: 4, sinks: 1}\n"
             "measure: {propagated: false, diagnostics: false}\n%s\n",
             fl_test_folder(), train);
    fl_write_file(fl_inside("own.yaml"), config, strlen(config));
    snprintf(arguments, sizeof arguments, "%s --out %s --threads 2", fl_inside("own.yaml"), fl_inside("out"));
    return arguments;
}

static void run_own(int code, const char *command, const char *config, const char *text) {
    char arguments[3 * TEXT_BYTES];
    snprintf(arguments, sizeof arguments, "%s %s", command, config);
    fl_expect(code, arguments, text, NULL);
}

static char *shell(const char *format) {
    char command[PATH_BYTES + TEXT_BYTES], *output = NULL;
    snprintf(command, sizeof command, format, fl_inside("out"));
    fl_run_command(command, &output);
    return output;
}

static void test_a_model_is_calibrated_and_measured_on_its_own_text(void **state) {
    (void)state;
    static const char train[] =
        "train: {objective: layer_mse, steps: 20, warmup_steps: 2, sequence_length: 40, "
        "self_generated: {tokens: 200}}";
    const char *config = own_text_config(train);
    run_own(0, "plan", config, "3 x 40");
    char *ids = shell("ls %s 2>/dev/null | wc -l");
    assert_int_equal(atoi(ids), 0); /* a plan samples nothing */
    fl_memory_free(ids);
    run_own(0, "run", config, "training 10/20: loss ");
    char *before = shell("cd %s && ls self_generated-*.json && md5sum self_generated-*.json");
    assert_non_null(strstr(before, "self_generated-"));
    /* The plan's run id is the run's: what is there is kept. */
    run_own(0, "plan", config, "1 done");
    /* The texts are sampled once: another variant finds them. */
    char other[2 * TEXT_BYTES];
    snprintf(other, sizeof other, "%s variant.window=6", config);
    run_own(0, "run", other, "kda");
    char *after = shell("cd %s && ls self_generated-*.json && md5sum self_generated-*.json");
    assert_string_equal(after, before);
    fl_memory_free(after);
    /* An emptied file is made again, the same. */
    fl_memory_free(shell("cd %s && truncate -s 0 self_generated-*.json"));
    snprintf(other, sizeof other, "%s variant.window=7", config);
    run_own(0, "run", other, "kda");
    after = shell("cd %s && ls self_generated-*.json && md5sum self_generated-*.json");
    assert_string_equal(after, before);
    fl_memory_free(before);
    fl_memory_free(after);
}

static void test_own_text_is_refused_where_it_makes_no_sense(void **state) {
    (void)state;
    run_own(1, "run",
            own_text_config("train: {objective: layer_mse, steps: 2, sequence_length: 40, self_generated: "
                            "{tokens: 100, seed: 1}}"),
            "are also in the evaluation text");
    run_own(1, "plan", own_text_config("train: {steps: 2, path: a, self_generated: {tokens: 100}}"),
            "exactly one of path, ids and self_generated");
    run_own(1, "plan", own_text_config("train: {steps: 2, self_generated: {temperature: 1}}"),
            "train.self_generated.tokens is missing");
    run_own(1, "plan", own_text_config("train: {steps: 2, self_generated: {tokens: 100, top_p: 2}}"),
            "top_p");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_generated_ids_are_a_text_and_the_same_every_time),
        CASE(test_generated_text_begins_with_the_prompt_and_separates_documents),
        CASE(test_temperature_0_draws_nothing_and_speed_is_shown),
        CASE(test_a_variant_generates_another_text),
        CASE(test_wrong_flags_of_generate_are_refused),
        CASE(test_the_lab_shows_interference_overwriting_and_what_cannot_be_held),
        CASE(test_a_model_is_calibrated_and_measured_on_its_own_text),
        CASE(test_own_text_is_refused_where_it_makes_no_sense),
        CASE(test_data_check_tells_complete_altered_and_unknown_folders_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
