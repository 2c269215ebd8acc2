/* The completion scripts in the shells they are for, and the manual page in roff. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness/base/memory.h"
#include "tests/support/command_fixture.h"
#include "tests/support/fixture.h"

static void need(const char *program, const char *test) {
    if (fl_shell(NULL, "command -v %s >/dev/null", program) != 0) fl_fixture_skip(test, program);
}

/* `output` has every word of the list, each on a line of its own, and none of those after a "-". */
static void expect_words(const char *line, const char *output, const char *const *words) {
    for (; *words != NULL; words++) {
        char wanted[128];
        const bool absent = words[0][0] == '!';
        snprintf(wanted, sizeof wanted, "\n%s\n", words[0] + absent);
        if ((strstr(output, wanted) != NULL) == absent)
            fail_msg("\"%s\": %s is %s:\n%s", line, words[0] + absent, absent ? "offered" : "missing",
                     output);
    }
}

typedef struct completion_case {
    const char *line;
    const char *const *words;
} completion_case;

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const completion_case cases[] = {
    {"frostline ", WORDS("run", "plan", "variants", "completion", "!--out")},
    {"frostline variants k", WORDS("kda", "kgla", "!gla")},
    {"frostline run --", WORDS("--out", "--threads", "--self-check", "--help", "!--slurm")},
    {"frostline plan x.yaml --sl", WORDS("--slurm", "!--out")},
    {"frostline export x --format ", WORDS("csv", "markdown", "latex", "!png")},
    {"frostline data ", WORDS("check", "list")},
    {"frostline run x.yaml variant.wi", WORDS("variant.window=", "!variant.rule=")},
    {"frostline config variant.cache.b", WORDS("variant.cache.budget", "!variant.window")},
    {"frostline tasks arc", WORDS("arc_easy", "arc_challenge", "!mmlu")},
    {"frostline inspect runs", WORDS("runs_one.h5")},
};

static void test_bash_completes(void **state) {
    (void)state;
    need("bash", "test_bash_completes");
    fl_write_text(fl_inside("runs_one.h5"), "x");
    fl_write_text(fl_inside("ask.sh"), "source <(\"$FROSTLINE\" completion bash)\n"
                                       "read -r -a COMP_WORDS <<<\"$1\"\n"
                                       "[[ $1 == *' ' ]] && COMP_WORDS+=('')\n"
                                       "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                                       "_frostline\n"
                                       "echo; printf '%%s\\n' \"${COMPREPLY[@]}\"\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *output = NULL;
        int code = fl_shell(
            &output, "program=$(realpath \"$FROSTLINE\") && cd '%s' && FROSTLINE=$program bash ask.sh '%s'",
            fl_inside(""), cases[i].line);
        if (code != 0) fail_msg("exit %d: %s", code, output);
        expect_words(cases[i].line, output, cases[i].words);
        fl_memory_free(output);
    }
}

static void test_zsh_completes(void **state) {
    (void)state;
    need("zsh", "test_zsh_completes");
    fl_write_text(fl_inside("runs_one.h5"), "x");
    assert_int_equal(fl_shell(NULL, "mkdir '%s' && \"$FROSTLINE\" completion zsh > '%s'",
                              fl_inside("functions"), fl_inside("functions/_frostline")),
                     0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *output = NULL;
        const completion_case *asked = &cases[i];
        int code = fl_shell(&output,
                            "script=$(realpath tests/support/zsh_complete.zsh) && cd '%s' && echo && zsh -f "
                            "\"$script\" %s '%s'",
                            fl_inside(""), i % 2 == 0 ? "functions" : "functions/_frostline", asked->line);
        if (code != 0) fail_msg("exit %d: %s", code, output);
        expect_words(asked->line, output, asked->words);
        fl_memory_free(output);
    }
}

static void test_manual_is_good_roff_and_complete(void **state) {
    (void)state;
    need("groff", "test_manual_is_good_roff_and_complete");
    char *output = NULL;
    fl_shell(&output, "\"$FROSTLINE\" manual | groff -man -Tascii -ww -z");
    assert_string_equal(output, "");
    fl_memory_free(output);
    assert_int_equal(fl_shell(&output, "\"$FROSTLINE\" manual | groff -man -Tascii -P-cbou"), 0);
    static const char *const wanted[] = {"NAME",        "SYNOPSIS",          "COMMANDS",
                                         "EXIT STATUS", "ENVIRONMENT",       "--slurm",
                                         "--top-p P",   "FROSTLINE_KERNELS", "regrouped sum"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (strstr(output, wanted[i]) == NULL) fail_msg("no %s in the page", wanted[i]);
    }
    fl_memory_free(output);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fl_test_folder_make, fl_test_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_bash_completes),
        TEST(test_zsh_completes),
        TEST(test_manual_is_good_roff_and_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
