/* Score table: benchmark scores of cells on the terminal, the full model and "linear off" always beside, with
 * the paired difference on the same items. */
#ifndef FL_CLI_SCORE_TABLE_H
#define FL_CLI_SCORE_TABLE_H

#include <stddef.h>
#include <stdio.h>

#include "harness/base/status.h"

/* One row a cell and task, read from run files; nothing is printed when none has tasks. */
fl_status fl_score_table_print(FILE *stream, const char *const *labels, const char *const *run_files,
                               size_t count, fl_error *error);

#endif
