/* Completion scripts for shells, made from the tables of commands. */
#ifndef FL_CLI_COMPLETION_H
#define FL_CLI_COMPLETION_H

#include <stdio.h>

/* For bash: defines _frostline and binds it. Without the package bash-completion, too. */
void fl_completion_bash(FILE *stream);
/* For zsh: the body of a file _frostline in a folder of $fpath; may be sourced after compinit as well. */
void fl_completion_zsh(FILE *stream);

#endif
