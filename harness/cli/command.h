/* Commands: one file each, one row of a table each. Only this folder prints and decides exit codes.
 *
 * Results go to standard output; progress, notes and errors to standard error, errors as "frostline COMMAND:
 * message". */
#ifndef FL_CLI_COMMAND_H
#define FL_CLI_COMMAND_H

#include "harness/base/status.h"

/* An interrupt is 128 + the signal's number, as in a shell. */
enum {
    FL_EXIT_OK = 0,
    FL_EXIT_FAILURE = 1,
    FL_EXIT_USAGE = 2,
    FL_EXIT_LEFT_OUT = 3,   /* made, but without files that cannot be read */
    FL_EXIT_UNFINISHED = 75 /* nothing went wrong here, but other processes still work on cells (EX_TEMPFAIL) */
};

typedef struct fl_command fl_command;
typedef struct fl_flag fl_flag;             /* arguments.h */
typedef struct fl_positional fl_positional; /* arguments.h */
typedef struct fl_example fl_example;       /* arguments.h */
struct fl_command {
    const char *name;
    const char *summary; /* one line */
    /* Tables that end with an empty row; NULL: none. Every command has an example. */
    const fl_positional *positionals;
    const fl_flag *flags;
    const fl_example *examples;
    /* What --help adds below; may be NULL. Paragraphs are wrapped where they are printed; a line that begins with a space is
     * printed as it is. */
    const char *help;
    /* argv[0] is the command's name. Returns the exit code. */
    int (*run)(const fl_command *command, int argc, char **argv);
};

extern const fl_command fl_command_run, fl_command_plan, fl_command_forward, fl_command_tokenize,
    fl_command_inspect, fl_command_variants, fl_command_table, fl_command_export, fl_command_plot, fl_command_report,
    fl_command_compare, fl_command_merge, fl_command_lab, fl_command_generate, fl_command_data,
    fl_command_bench, fl_command_mix,
    fl_command_completion, fl_command_manual, fl_command_config, fl_command_tasks;

/* All of them, in the order of the help; NULL ends it. */
extern const fl_command *const fl_commands[];
const fl_command *fl_command_find(const char *name); /* NULL when unknown */

/* Prints "frostline NAME: message" and returns FL_EXIT_FAILURE, or what an interrupt exits with. */
int fl_command_fail(const fl_command *command, const fl_error *error);
/* "subject: note: ..." on standard error; NULL: there is nothing to note. */
void fl_command_note(const char *subject, const char *note);

#endif
