/* Sizes of tasks for plans: prompts counted by their bytes, shared beginnings once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/eval/task_size.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

static fl_task_size size_of(const fl_task_config *config) {
    fl_task_size size;
    fl_error error;
    if (fl_task_size_estimate(config, &size, &error) != FL_OK) fail_msg("%s", error.message);
    return size;
}

static void test_a_shared_beginning_counts_once_and_limits_are_heeded(void **state) {
    (void)state;
    /* Contexts "Question: Who is it?\nAnswer:" and "Question: Who was it?\nAnswer:", answers " me", " him".
     */
    fl_write_text(fl_inside("choices.jsonl"),
                  "{\"question\": \"Who is it?\", \"choices\": [\"me\", \"him\"], \"answer\": 0}\n"
                  "{\"question\": \"Who was it?\", \"choices\": [\"me\", \"him\"], \"answer\": 0}\n");
    fl_task_config config;
    assert_int_equal(fl_task_config_default("multiple_choice", fl_inside("choices.jsonl"), &config, NULL),
                     FL_OK);
    const size_t first = strlen("Question: Who is it?\nAnswer:"), answers = strlen(" me him"),
                 rest = strlen("was it?\nAnswer:");
    fl_task_size size = size_of(&config);
    assert_true(size.tokens * FL_TASK_BYTES_PER_TOKEN == (double)(first + rest + 2 * answers));
    assert_true(size.longest * FL_TASK_BYTES_PER_TOKEN == (double)(first + 1 + strlen(" him")));
    config.share = false;
    size = size_of(&config);
    assert_true(size.tokens * FL_TASK_BYTES_PER_TOKEN == (double)(2 * first + 2 * (first + 1) + 2 * answers));
    config.limit = 1;
    size = size_of(&config);
    assert_true(size.tokens * FL_TASK_BYTES_PER_TOKEN == (double)(2 * first + answers));
    fl_task_config_clear(&config);
}

static void test_made_prompts_have_the_lengths_asked_for(void **state) {
    (void)state;
    fl_task_config config;
    assert_int_equal(fl_task_config_default("mqar", NULL, &config, NULL), FL_OK);
    config.samples = 3;
    assert_true(size_of(&config).tokens == 3 * (512 + 1024) && size_of(&config).longest == 1024);
    fl_task_config_clear(&config);
    assert_int_equal(fl_task_config_default("passkey", NULL, &config, NULL), FL_OK);
    assert_true(size_of(&config).tokens >= 5 * (512 + 1024));
    fl_task_config_clear(&config);
}

static void test_data_that_cannot_be_read_are_an_error(void **state) {
    (void)state;
    fl_task_config config;
    fl_task_size size;
    fl_error error;
    assert_int_equal(fl_task_config_default("piqa", fl_inside("none.jsonl"), &config, NULL), FL_OK);
    assert_int_not_equal(fl_task_size_estimate(&config, &size, &error), FL_OK);
    assert_non_null(strstr(error.message, "none.jsonl"));
    fl_task_config_clear(&config);
}

static void test_plan_counts_tasks(void **state) {
    (void)state;
    const char *model = fl_write_byte_model(__func__, fl_test_folder());
    fl_write_text(fl_inside("t.yaml"),
                  "name: t\nmodel: {path: %s}\nvariant: {window: 8}\n"
                  "tasks: [{name: associative_recall, pairs: 4, vocabulary: 200}]\n"
                  "sweep: {grid: {variant.rule: [none, gla]}}\n",
                  model);
    char arguments[2048], *output = NULL;
    snprintf(arguments, sizeof arguments, "plan %s --out %s", fl_inside("t.yaml"), fl_inside("out"));
    assert_int_equal(fl_frostline(&output, "%s", arguments), 0);
    if (strstr(output, "2 to do") == NULL || strstr(output, "for one worker here") == NULL ||
        strstr(output, "not counted") != NULL)
        fail_msg("%s", output);
    fl_memory_free(output);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_shared_beginning_counts_once_and_limits_are_heeded),
        TEST(test_made_prompts_have_the_lengths_asked_for),
        TEST(test_data_that_cannot_be_read_are_an_error),
        TEST(test_plan_counts_tasks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
