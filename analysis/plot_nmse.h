/* The picture of a sweep: teacher-forced nMSE by layer and by position, one curve a run file.
 *
 * Writes into `folder`: nmse_by_layer.csv and nmse_by_position.csv (the numbers, one column a curve), nmse.gp
 * (the gnuplot script that reads them) and, through gnuplot, nmse.png. The same run files give the same
 * bytes. Curves that are zero everywhere (the softmax reference) cannot be drawn on a logarithmic axis: the
 * legend says so. By position is the mean over layers, averaged over bins of equal width so that at most
 * FL_PLOT_POSITION_BINS points remain. */
#ifndef FL_ANALYSIS_PLOT_NMSE_H
#define FL_ANALYSIS_PLOT_NMSE_H

#include <stddef.h>

#include "harness/base/status.h"

enum { FL_PLOT_POSITION_BINS = 64 };

typedef struct fl_plot_curve {
    const char *label;
    const char *run_file;
    size_t colour, dash; /* curves of one rule share a colour, of one exact set a dash; both wrap around */
} fl_plot_curve;

/* FL_ERROR_UNSUPPORTED when gnuplot is not installed: the CSV files and the script are there all the same.
 * Run files without teacher-forced errors are FL_ERROR_ARGUMENT. */
fl_status fl_plot_nmse(const char *folder, const char *title, const fl_plot_curve *curves, size_t count,
                       fl_error *error);

#endif
