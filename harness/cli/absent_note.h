/* Absent note: what a set of runs lacks, said on standard error by the commands that make something from it. */
#ifndef FL_CLI_ABSENT_NOTE_H
#define FL_CLI_ABSENT_NOTE_H

#include "analysis/run_set.h"
#include "harness/cli/command.h"

/* Nothing when the set is whole. */
/* Returns FL_EXIT_LEFT_OUT when files were left out that cannot be read, else FL_EXIT_OK. */
int fl_absent_note_print(const fl_command *command, const fl_run_set *set);

#endif
