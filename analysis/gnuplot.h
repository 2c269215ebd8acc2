/* Gnuplot: runs a script in the folder of its data. */
#ifndef FL_ANALYSIS_GNUPLOT_H
#define FL_ANALYSIS_GNUPLOT_H

#include "harness/base/status.h"

/* Runs `gnuplot script` with `folder` as working directory. FL_ERROR_UNSUPPORTED when there is no gnuplot;
 * FL_ERROR_IO with what it said when it failed. */
fl_status fl_gnuplot_run(const char *folder, const char *script, fl_error *error);

#endif
