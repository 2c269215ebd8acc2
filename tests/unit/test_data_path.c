/* An installed program from another folder: what it finds of its own data, what goes first, what an error
 * says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

/* prefix/bin/frostline with a model, a text and a config under prefix/share/frostline; an empty folder
 * "elsewhere". */
static void install(const char *test) {
    const char *model = fl_write_byte_model(test, fl_test_folder());
    assert_int_equal(
        fl_shell(NULL,
                 "cd '%s' && mkdir -p prefix/bin elsewhere && cd prefix && "
                 "mkdir -p share/frostline/models share/frostline/datasets share/frostline/configs",
                 fl_test_folder()),
        0);
    assert_int_equal(fl_shell(NULL, "cp '%s' '%s' && cp -r '%s' '%s'", fl_program_path(),
                              fl_inside("prefix/bin/frostline"), model,
                              fl_inside("prefix/share/frostline/models/tiny")),
                     0);
    fl_write_text(fl_inside("prefix/share/frostline/datasets/text.txt"), "%s",
                  "A text of the program's own, long enough for one sequence of sixteen bytes and one more.");
    fl_write_text(fl_inside("prefix/share/frostline/configs/own.yaml"),
                  "model: {path: models/tiny}\n"
                  "text: {path: datasets/text.txt, sequence_length: 16, sequences: 2}\n"
                  "variant: {rule: kda, window: 4}\n");
}

/* The installed program in the folder "elsewhere". */
static char *elsewhere(int code, const char *variables, const char *arguments) {
    char *output = NULL;
    int got = fl_shell(&output, "cd '%s' && %s ../prefix/bin/frostline %s", fl_inside("elsewhere"), variables,
                       arguments);
    if (got != code) fail_msg("`%s` exits with %d, not %d:\n%s", arguments, got, code, output);
    return output;
}

static void expect(int code, const char *variables, const char *arguments, const char *text) {
    char *output = elsewhere(code, variables, arguments);
    if (strstr(output, text) == NULL) fail_msg("`%s` does not say \"%s\" but:\n%s", arguments, text, output);
    fl_memory_free(output);
}

static void test_installed_program_finds_its_data_from_any_folder(void **state) {
    (void)state;
    install("test_installed_program_finds_its_data_from_any_folder");
    expect(0, "", "run configs/own.yaml --out results --threads 1", "kda");
    expect(0, "", "inspect models/tiny", "prefix/share/frostline/models/tiny");
    expect(0, "", "forward models/tiny --text datasets/text.txt --out pass.h5", "");
    /* Of another name than its own folders', nothing is looked for. */
    expect(1, "", "inspect share/frostline/models/tiny", "No such file");
}

static void test_working_directory_goes_first_and_a_variable_moves_the_data(void **state) {
    (void)state;
    install("test_working_directory_goes_first_and_a_variable_moves_the_data");
    assert_int_equal(fl_shell(NULL,
                              "cd '%s' && mkdir -p elsewhere/datasets && mv prefix/share/frostline data",
                              fl_test_folder()),
                     0);
    expect(0, "FROSTLINE_DATA=../data", "plan configs/own.yaml --out r", "2 x 16");
    expect(1, "", "plan configs/own.yaml --out r", "cannot open");
    fl_write_text(fl_inside("elsewhere/datasets/text.txt"), "%s", "Twenty-four bytes: 2, 12.");
    expect(0, "FROSTLINE_DATA=../data", "plan configs/own.yaml --out r", "2 x 12");
}

static void test_errors_name_every_place_that_was_tried(void **state) {
    (void)state;
    install("test_errors_name_every_place_that_was_tried");
    expect(1, "", "plan configs/nothing.yaml", "/elsewhere/configs/nothing.yaml and ");
    expect(1, "", "plan configs/nothing.yaml", "/prefix/share/frostline/configs/nothing.yaml)");
    expect(1, "", "plan configs/own.yaml model.path=models/big.gguf",
           "models/big.gguf: cannot open: No such file or directory (tried ");
    expect(1, "", "inspect big.gguf", "/elsewhere/big.gguf)");
    expect(1, "FROSTLINE_DATA=/none", "inspect models/big.gguf",
           "/elsewhere/models/big.gguf and /none/models/big.gguf)");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    unsetenv("FROSTLINE_DATA");
    const struct CMUnitTest tests[] = {
        TEST(test_installed_program_finds_its_data_from_any_folder),
        TEST(test_working_directory_goes_first_and_a_variable_moves_the_data),
        TEST(test_errors_name_every_place_that_was_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
