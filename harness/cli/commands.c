/* The table of commands. */
#include <string.h>

#include "harness/cli/command.h"

const fl_command *const fl_commands[] = {
    &fl_command_run,
    &fl_command_plan,
    &fl_command_variants,
    &fl_command_config,
    &fl_command_tasks,
    &fl_command_inspect,
    &fl_command_table,
    &fl_command_compare,
    &fl_command_table,
    &fl_command_report,
    &fl_command_plot,
    &fl_command_export,
    &fl_command_merge,
    &fl_command_forward,
    &fl_command_lab,
    &fl_command_mix,
    &fl_command_generate,
    &fl_command_tokenize,
    &fl_command_data,
    &fl_command_bench,
    &fl_command_completion,
    &fl_command_manual,
    NULL,
};

const fl_command *fl_command_find(const char *name) {
    for (size_t i = 0; fl_commands[i] != NULL; i++) {
        if (strcmp(fl_commands[i]->name, name) == 0) return fl_commands[i];
    }
    return NULL;
}
