/* Absent runs: what a folder of run files lacks, by name. Tables and reports made from a folder name what is not in them. */
#ifndef FL_ANALYSIS_ABSENT_RUNS_H
#define FL_ANALYSIS_ABSENT_RUNS_H

#include <stddef.h>

#include "harness/base/status.h"

typedef enum fl_absence {
    FL_ABSENT_FAILED,     /* message: why */
    FL_ABSENT_UNFINISHED, /* begun and not done; message: "" */
    FL_ABSENT_UNREADABLE  /* there is a run file; message: what is wrong with it */
} fl_absence;

typedef struct fl_absent_run {
    fl_absence absence;
    char *name, *message; /* name: the run id, or the file's path */
} fl_absent_run;

typedef struct fl_absent_runs {
    size_t count;
    fl_absent_run *items;
} fl_absent_runs;

fl_status fl_absent_runs_add(fl_absent_runs *runs, fl_absence absence, const char *name, const char *message,
                             fl_error *error);
/* The cells of a folder that have failed, or were begun and are not done. */
fl_status fl_absent_runs_find(const char *folder, fl_absent_runs *runs, fl_error *error);
size_t fl_absent_runs_count(const fl_absent_runs *runs, fl_absence absence);
void fl_absent_runs_release(fl_absent_runs *runs);

#endif
