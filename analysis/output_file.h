/* Output file: a text file that appears whole or not at all. */
#ifndef FL_ANALYSIS_OUTPUT_FILE_H
#define FL_ANALYSIS_OUTPUT_FILE_H

#include <stdio.h>

#include "harness/base/status.h"

typedef struct fl_output_file {
    FILE *stream; /* write here; errors are found at the close */
    char *path, *temporary;
} fl_output_file;

fl_status fl_output_file_open(const char *path, fl_output_file *out, fl_error *error);
/* Syncs and renames to the final name, or deletes and reports when any write failed. *file is empty whatever happens.
 */
fl_status fl_output_file_close(fl_output_file *file, fl_error *error);
/* Deletes what was written. An empty *file is fine. */
void fl_output_file_discard(fl_output_file *file);

/* One field of a CSV row, quoted when it must be. */
void fl_output_csv_text(FILE *stream, const char *text);
/* A number with 9 significant digits; NaN and infinities as nan, inf, -inf. */
void fl_output_csv_number(FILE *stream, double number);

#endif
