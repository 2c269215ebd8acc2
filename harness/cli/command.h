/* Commands: one row of a table each, one file each. Only this folder prints and decides exit codes.
 *
 * Results go to standard output; progress, notes and errors to standard error, errors as "frostline COMMAND:
 * message". */
#ifndef FL_CLI_COMMAND_H
#define FL_CLI_COMMAND_H

#include "harness/base/status.h"

enum { FL_EXIT_OK = 0, FL_EXIT_FAILURE = 1, FL_EXIT_USAGE = 2 };

typedef struct fl_command fl_command;
struct fl_command {
    const char *name;
    const char *arguments; /* after the name in the usage line */
    const char *summary;   /* one line */
    const char *help;      /* what --help adds under the flags; may be NULL */
    /* argv[0] is the command's name. Returns the exit code. */
    int (*run)(const fl_command *command, int argc, char **argv);
};

extern const fl_command fl_command_run, fl_command_plan, fl_command_forward, fl_command_tokenize,
    fl_command_inspect, fl_command_variants, fl_command_export, fl_command_plot, fl_command_report,
    fl_command_merge, fl_command_lab, fl_command_generate, fl_command_data,
    fl_command_bench, fl_command_mix;

/* Prints "frostline NAME: message" and returns FL_EXIT_FAILURE. */
int fl_command_fail(const fl_command *command, const fl_error *error);

#endif
