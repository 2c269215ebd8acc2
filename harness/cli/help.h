/* What a command's tables say, as text for a reader. */
#ifndef FL_CLI_HELP_H
#define FL_CLI_HELP_H

#include <stdio.h>

#include "harness/cli/command.h"

enum { FL_HELP_WIDTH = 80 };

/* "frostline run CONFIG [KEY=VALUE...] [--out DIR] ...", wrapped, after `lead` ("usage: "). */
void fl_help_usage(FILE *stream, const char *lead, const fl_command *command);
/* The whole help: usage, summary, arguments, flags, examples, the rest. */
void fl_help_print(FILE *stream, const fl_command *command);
/* `text` in lines of at most FL_HELP_WIDTH columns, each indented by `indent`; the first line goes on at column `column`. A
 * newline in the text stays one, and lines that begin with a space stay as they are. Ends with a newline. */
void fl_help_wrap(FILE *stream, size_t indent, size_t column, const char *text);
/* One entry of a list: `name`, then `text` in a column of its own. */
void fl_help_entry(FILE *stream, const char *name, const char *text);

#endif
