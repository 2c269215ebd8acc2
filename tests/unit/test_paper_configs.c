/* The configs that come with the project: `plan` accepts every one; and the recipe in docs/reading_runs.md
 * runs as it stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "tests/support/fixture.h"
#include "tests/support/sweep_fixture.h"

enum { PATH_BYTES = 1024, COMMAND_BYTES = 8192 };

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...) {
    char command[COMMAND_BYTES], *output = NULL;
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    if (fl_run_command(command, &output) != 0) fail_msg("%s\n%s", command, output);
    fl_memory_free(output);
}

/* A working directory in which every path that the configs name is there: models are the tiny one, data the
 * project's own. */
static void furnish(const char *root) {
    static const char *const models[] = {"Llama-3.1-8B", "Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B",
                                         "Qwen3-8B",     "Qwen3-14B",  "Qwen3-32B",  "smollm2-135m.gguf"};
    static const char *const sets[] = {"mmlu", "piqa", "arc", "hellaswag", "winogrande", "lambada"};
    shell("mkdir %s/models %s/data && ln -s %s/datasets %s/datasets", fl_test_folder(), fl_test_folder(),
          root, fl_test_folder());
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        shell("ln -s %s/model %s/models/%s", fl_sweep_fixture_folder(), fl_test_folder(), models[i]);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        shell("ln -s %s/datasets/questions %s/data/%s", root, fl_test_folder(), sets[i]);
    shell("ln -s %s/datasets/reading.txt %s/data/heldout.txt && ln -s %s/datasets/reading.txt "
          "%s/data/essays.txt && "
          "ln -s %s/datasets/calibration.txt %s/data/train.txt",
          root, fl_test_folder(), root, fl_test_folder(), root, fl_test_folder());
}

/* The tiny model has three layers: how many stay softmax cannot be planned with it. */
static void plan(const char *root, const char *program, const char *config) {
    char command[COMMAND_BYTES], *output = NULL;
    const char *layers = strstr(config, "hybrid") != NULL ? "'variant.softmax_layers=[1]'" : "";
    snprintf(command, sizeof command, "cd %s && %s plan %s/%s %s", fl_test_folder(), program, root, config,
             layers);
    int code = fl_run_command(command, &output);
    if (code != 0 || strstr(output, "missing") == NULL)
        fail_msg("plan %s exits with %d:\n%s", config, code, output);
    fl_memory_free(output);
}

static size_t plan_folder(const char *root, const char *program, const char *name) {
    DIR *directory = opendir(name);
    size_t count = 0;
    if (directory == NULL) fail_msg("there is no %s", name);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name);
        char config[PATH_BYTES];
        if (length < 6 || strcmp(entry->d_name + length - 5, ".yaml") != 0) continue;
        snprintf(config, sizeof config, "%s/%s", name, entry->d_name);
        plan(root, program, config);
        count++;
    }
    closedir(directory);
    return count;
}

static void test_plan_accepts_every_config(void **state) {
    (void)state;
    fl_sweep_fixture(__func__);
    char root[PATH_BYTES], program[2 * PATH_BYTES];
    assert_non_null(getcwd(root, sizeof root));
    const char *given = fl_program_path();
    snprintf(program, sizeof program, "%s%s%s", given[0] == '/' ? "" : root, given[0] == '/' ? "" : "/",
             given);
    furnish(root);
    assert_true(plan_folder(root, program, "configs") >= 1);
    assert_true(plan_folder(root, program, "configs/paper") >= 18);
}

/* The text between "```python" and the next "```". */
static void cut_recipe(const char *document, const char *path) {
    static const char open[] = "```python\n";
    char *text = fl_read_file(document, NULL);
    char *start = strstr(text, open);
    if (start == NULL) fail_msg("%s has no Python in it", document);
    start += sizeof open - 1;
    char *end = strstr(start, "```");
    assert_non_null(end);
    fl_write_file(path, start, (size_t)(end - start));
    fl_memory_free(text);
}

static void test_the_recipe_for_pandas_runs_as_it_stands(void **state) {
    (void)state;
    const char *runs = fl_sweep_fixture(__func__), *python = fl_python_with(__func__, "h5py, pandas");
    char path[PATH_BYTES], command[COMMAND_BYTES], *output = NULL;
    snprintf(path, sizeof path, "%s/recipe.py", fl_test_folder());
    cut_recipe("docs/reading_runs.md", path);
    shell("mkdir %s/results && ln -s %s %s/results/quickstart", fl_test_folder(), runs, fl_test_folder());
    snprintf(command, sizeof command, "cd %s && %s recipe.py", fl_test_folder(), python);
    int code = fl_run_command(command, &output);
    if (code != 0) fail_msg("%s", output);
    static const char *const texts[] = {"layer", "softmax", "kda, softmax layers 1", "0.0000",
                                        "run"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strstr(output, texts[i]) == NULL)
            fail_msg("the recipe does not print \"%s\":\n%s", texts[i], output);
    }
    fl_memory_free(output);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_plan_accepts_every_config),
        TEST(test_the_recipe_for_pandas_runs_as_it_stands),
    };
    return cmocka_run_group_tests(tests, NULL, fl_sweep_fixture_remove);
}
