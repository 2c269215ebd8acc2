/* Folder table: what a folder's run files say, made anew whenever `run` ends. */
#ifndef FL_CLI_FOLDER_TABLE_H
#define FL_CLI_FOLDER_TABLE_H

#include <stddef.h>
#include <stdio.h>

#include "harness/base/status.h"

/* <folder>/table.csv, whole or not at all: one row a run file that is there, also of other experiments; one column an axis
 * and a figure (analysis/run_columns.h). */
fl_status fl_folder_table_write(const char *folder, fl_error *error);

/* The same runs pooled over seeds, for reading; nothing when no two of them differ in seeds only. */
fl_status fl_folder_table_print_pooled(FILE *stream, const char *const *run_files, size_t count, fl_error *error);

#endif
