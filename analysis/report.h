/* Report: one self-contained HTML page for a run set: table with the baselines beside every run, warnings,
 * figures as inline SVG, provenance. It needs no network, no script and no other file, and reads on a phone.
 */
#ifndef FL_ANALYSIS_REPORT_H
#define FL_ANALYSIS_REPORT_H

#include "analysis/run_set.h"
#include "harness/base/status.h"

/* Writes `path`, whole or not at all. The figures are drawn in `figure_folder`, which must exist and keeps
 * them with their numbers as CSV. Without gnuplot the page says that it has no figures. */
fl_status fl_report_write(const fl_run_set *set, const char *path, const char *figure_folder,
                          fl_error *error);

#endif
