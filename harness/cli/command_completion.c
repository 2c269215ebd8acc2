/* completion SHELL: the script that completes frostline's commands, flags and their values. */
#include <stdio.h>
#include <string.h>

#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/completion.h"

static const char *shells(size_t index) {
    static const char *const words[] = {"bash", "zsh", NULL};
    return words[index];
}

static int run(const fl_command *command, int argc, char **argv) {
    fl_positionals shell;
    int code = fl_arguments_parse(command, argc, argv, NULL, &shell);
    if (code >= 0) return code;
    (strcmp(shell.items[0], "bash") == 0 ? fl_completion_bash : fl_completion_zsh)(stdout);
    return FL_EXIT_OK;
}

static const fl_positional positionals[] = {
    {.name = "SHELL", .kind = FL_VALUE_CHOICE, .words = shells, .help = "bash or zsh"},
    {0},
};

static const fl_example examples[] = {
    {.line = "source <(frostline completion bash)", .what = "for this shell; in ~/.bashrc for every one"},
    {.line = "frostline completion zsh > ~/.zfunc/_frostline", .what = "where ~/.zfunc is in $fpath"},
    {0},
};

const fl_command fl_command_completion = {
    .name = "completion",
    .summary = "the script by which bash or zsh completes commands, flags and keys",
    .positionals = positionals,
    .examples = examples,
    .help = "`make install` puts both where the shells look for them.",
    .run = run,
};
