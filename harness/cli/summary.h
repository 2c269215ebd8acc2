/* Summary: what a run file says in one row, and the table of many.
 *
 * Read back from run files, so that a cell computed yesterday and one computed now look the same. Every row
 * carries the full model and the same run with its linear part off beside it; a row whose linear part is no
 * gain is marked. */
#ifndef FL_CLI_SUMMARY_H
#define FL_CLI_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"

typedef struct fl_summary_row {
    const char *label;  /* borrowed */
    const char *status; /* "new", "kept", "failed", "not run", ...; borrowed */
    bool measured;      /* the run is there */
    char *const *warnings; /* [warning_count] borrowed: of a run that is not there, or whose file has none */
    size_t warning_count;
    fl_run_entry run;
} fl_summary_row;

/* Below the table: the warnings, each once, and which rows have equal numbers. */
/* room: columns of the terminal, or 0: figures that do not fit are left out by how much they say, and named below. */
fl_status fl_summary_print(FILE *stream, size_t room, const fl_summary_row *rows, size_t count, fl_error *error);

#endif
