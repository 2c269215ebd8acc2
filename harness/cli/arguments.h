/* Arguments of a command, as tables: what --help, the completion scripts and the man page print, and what is parsed, are the
 * same rows. `--name value`, `--name=value`; `--` ends the flags; flags and positionals may be mixed. */
#ifndef FL_CLI_ARGUMENTS_H
#define FL_CLI_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/cli/command.h"

typedef enum fl_value {
    FL_VALUE_NONE,   /* a switch: bool */
    FL_VALUE_TEXT,   /* const char *, points into argv: any text; completed with `words` where there are some */
    FL_VALUE_FILE,   /* the same; completed with names of files */
    FL_VALUE_FOLDER, /* the same; of folders */
    FL_VALUE_CHOICE, /* the same; one of `words`, anything else is refused */
    FL_VALUE_COUNT,  /* size_t: a decimal number */
    FL_VALUE_NUMBER  /* double */
} fl_value;

/* Word number `index`, NULL behind the last one. */
typedef const char *fl_words(size_t index);

typedef enum fl_need {
    FL_NEED_NONE,
    FL_NEED_ALWAYS, /* refused without it */
    FL_NEED_EITHER  /* of the flags marked so, exactly one */
} fl_need;

struct fl_flag {
    const char *name;  /* "--out"; NULL ends a table */
    const char *value; /* what the help calls the value; NULL: a switch */
    const char *help;
    fl_value kind;
    size_t offset;           /* of the member in the command's struct of flags; its type is the kind's */
    fl_words *words;         /* or NULL */
    double minimum, maximum; /* of a number, inclusive; both 0 = any */
    bool input;              /* a file or folder that is read: found as data_path.h says */
    fl_need need;
};

struct fl_positional {
    const char *name; /* "CONFIG"; NULL ends a table */
    const char *help;
    fl_value kind; /* TEXT, FILE, FOLDER or CHOICE */
    bool optional, repeated;
    fl_words *words;
};

struct fl_example {
    const char *line; /* a whole command, "frostline run ..."; NULL ends a table */
    const char *what;
};

typedef struct fl_positionals {
    const char **items; /* in argv's own array; files and folders as data_path.h finds them */
    size_t count;
} fl_positionals;

/* Fills `flags`, the struct that the offsets of command->flags point into. Returns -1 when the command should go on, else the
 * exit code to leave with (after --help, or after a message about wrong usage). */
int fl_arguments_parse(const fl_command *command, int argc, char **argv, void *flags,
                       fl_positionals *positionals);

/* A path as data_path.h finds it; valid until the program ends. What cannot be looked for stays as it is. */
const char *fl_arguments_input(const char *path);

/* Prints "frostline NAME: message" and the usage line; returns FL_EXIT_USAGE. */
int fl_arguments_refuse(const fl_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
