/* Export: run files as CSV, JSON, NPZ or a LaTeX table. Equal run files give equal bytes. NaN and infinities
 * are kept: nan, inf, -inf in CSV, null in JSON (which has no other word for them), themselves in NPZ. */
#ifndef FL_ANALYSIS_EXPORT_H
#define FL_ANALYSIS_EXPORT_H

#include <stdio.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"

typedef enum fl_export_format {
    FL_EXPORT_CSV = 0,
    FL_EXPORT_JSON,
    FL_EXPORT_NPZ,
    FL_EXPORT_TEX
} fl_export_format;

/* "csv", "json", "npz", "tex"; NULL-terminated, in the order of fl_export_format. */
extern const char *const fl_export_format_names[];

/* One row a run: the axes, tier, the numbers of run_summary.h, task metrics. CSV, JSON or TEX. */
fl_status fl_export_summary(const fl_run_set *set, fl_export_format format, FILE *stream, fl_error *error);

/* One dataset of every run ("/errors/teacher_forced/nmse"; numbers, or for CSV and JSON texts). CSV is
 * long-form: one row a value, its indices by name (layer, head, position, ...). NPZ holds one float64 array a
 * run, called by its run id. A run without the dataset is an error: it would go unnoticed in a pooled figure.
 */
fl_status fl_export_dataset(const fl_run_set *set, const char *dataset, fl_export_format format, FILE *stream,
                            fl_error *error);

/* Tidy CSV of a whole sweep: one row a run x layer x position, the axes as columns, then the errors and
 * diagnostics at that place (means over heads). */
fl_status fl_export_tidy(const fl_run_set *set, FILE *stream, fl_error *error);

#endif
