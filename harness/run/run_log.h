/* Run log: what a run does, one JSON object a line, for dashboards that follow the file while it grows.
 *
 * Every line has `time` (UTC, ISO 8601, milliseconds) and `event`; what else is described in docs/running.md. A line is written
 * whole and flushed; a file that is there is gone on with, on a fresh line. NaN and infinities, which JSON lacks, are the
 * strings "nan", "inf", "-inf". A log that cannot be written is a warning and the end of the log, never the run's failure. */
#ifndef FL_RUN_RUN_LOG_H
#define FL_RUN_RUN_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_run_log fl_run_log;

typedef struct fl_run_log_field {
    const char *name;
    const char *text; /* NULL: the number */
    double number;
} fl_run_log_field;

fl_status fl_run_log_open(const char *path, fl_run_log **out, fl_error *error);
/* Fields with a NULL name are left out. log NULL: nothing happens. */
void fl_run_log_add(fl_run_log *log, const char *event, const fl_run_log_field *fields, size_t count);
/* Why it ended early, once; NULL: it did not, or that has been told. */
const char *fl_run_log_trouble(fl_run_log *log);
/* NULL is fine. */
void fl_run_log_close(fl_run_log *log);

#endif
