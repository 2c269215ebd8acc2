/* Sweep folder: the output directory of a sweep, looked at without its config. */
#ifndef FL_CLI_SWEEP_FOLDER_H
#define FL_CLI_SWEEP_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

/* Whether there is anything of a sweep in it: finished runs or begun ones. */
bool fl_sweep_folder_is_one(const char *path);

/* Prints its runs to standard output: what is done, and of those begun what their journal says and who works
 * on them or why they failed. */
fl_status fl_sweep_folder_print(const char *path, fl_error *error);

/* *paths = fl_memory block of fl_memory blocks: the run files, by run id. Refused, with the runs named, when
 * some have been begun and are not finished. */
fl_status fl_sweep_folder_files(const char *path, char ***paths, size_t *count, fl_error *error);

#endif
