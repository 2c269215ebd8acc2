/* Arguments: flags as a table, positionals in order. `--name value`, `--name=value`; `--` ends the flags. */
#ifndef FL_CLI_ARGUMENTS_H
#define FL_CLI_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/cli/command.h"

typedef struct fl_flag {
    const char *name;  /* "--out" */
    const char *value; /* what the help calls the value; NULL: a switch */
    const char **text; /* where the value goes, or */
    size_t *number;    /* a decimal number, or */
    bool *given;       /* a switch */
    const char *help;
} fl_flag;

typedef struct fl_positionals {
    const char **items; /* points into argv's own array */
    size_t count;
} fl_positionals;

/* Returns -1 when the command should go on, else the exit code to leave with (after --help, or after a
 * message about wrong usage). Flags and positionals may be mixed. */
int fl_arguments_parse(const fl_command *command, int argc, char **argv, const fl_flag *flags,
                       size_t flag_count, size_t minimum, size_t maximum, fl_positionals *positionals);

/* Prints "frostline NAME: message" and the usage line; returns FL_EXIT_USAGE. */
int fl_arguments_refuse(const fl_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The text of a flag as a number from `minimum` to `maximum`: returns -1 and sets *out, or refuses. text
 * NULL: *out stays. */
int fl_arguments_number(const fl_command *command, const char *flag, const char *text, double minimum,
                        double maximum, double *out);

#endif
