/* Report tables: runs and task scores, the baselines beside every figure. Sortable (html.h). */
#ifndef FL_ANALYSIS_REPORT_TABLES_H
#define FL_ANALYSIS_REPORT_TABLES_H

#include <stdio.h>

#include "analysis/report_certainty.h"
#include "harness/base/status.h"

/* One row a run, or a group of runs that differ in seeds only (mean and standard deviation), with its intervals where they are known; columns that no run has are left out. Runs that diverged, are older
 * or were warned about have a tag. Below it the tidy table of everything as a download. */
fl_status fl_report_runs_write(const fl_report_certainty *certainty, FILE *stream, fl_error *error);

/* A table a task: every metric with its standard error, full model and linear off, paired differences to
 * both, McNemar's p against linear off, the share that reached the state. Nothing when no run has tasks. */
fl_status fl_report_tasks_write(const fl_run_groups *groups, FILE *stream, fl_error *error);

#endif
