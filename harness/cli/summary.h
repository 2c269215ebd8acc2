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

#include "harness/base/status.h"

typedef struct fl_summary_row {
    const char *label;  /* borrowed */
    const char *status; /* "done", "computed", "failed", "not run"; borrowed */
    bool measured;      /* the numbers below are there; NaN where one was not measured */
    bool diverged;
    char tier[16];
    double nmse; /* teacher forced, mean over layers */
    double perplexity, full_perplexity, kl, agreement;
    double off_nmse, off_perplexity; /* linear part off */
    double state_bytes, exact_bytes, linear_share;
} fl_summary_row;

/* Fills the numbers from a run file; label and status are the caller's. */
fl_status fl_summary_read(const char *run_file, fl_summary_row *row, fl_error *error);

void fl_summary_print(FILE *stream, const fl_summary_row *rows, size_t count);
/* The same rows as CSV, whole or not at all. */
fl_status fl_summary_write_csv(const char *path, const fl_summary_row *rows, size_t count, fl_error *error);

#endif
