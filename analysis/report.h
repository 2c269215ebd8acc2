/* Report: one self-contained HTML page for a run set. First what the runs say about the three questions that a reader has
 * (report_answer.h), then warnings, the tables with the baselines beside every run, figures as inline SVG with their
 * numbers as downloads, definitions, provenance. It needs no network and no other file, reads without its script, and on a
 * phone; html.h has what every page can do.
 */
#ifndef FL_ANALYSIS_REPORT_H
#define FL_ANALYSIS_REPORT_H

#include <stdbool.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"

/* Writes `path`, whole or not at all. each: runs that differ in seeds only have rows of their own (run_groups.h). The figures are drawn in `figure_folder`, which must exist and keeps
 * them with their numbers as CSV. Without gnuplot, or when a picture fails, the page says so. */
fl_status fl_report_write(const fl_run_set *set, bool each, const char *path, const char *figure_folder,
                          fl_error *error);

#endif
