/* Dot figure: one score of many runs, a row a run, with standard errors and the baselines beside.
 *
 * A filled dot is the run, a bar its standard error; a hollow diamond the same run with the linear part off,
 * joined to it by a line; vertical lines are the full model and chance. Files as in figure.h. Long names and
 * many runs stay readable, which upright bars do not. */
#ifndef FL_ANALYSIS_FIGURE_DOTS_H
#define FL_ANALYSIS_FIGURE_DOTS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

typedef struct fl_dots {
    const char *name, *title, *x_label;
    bool log_x; /* where the values span enough for it */
    size_t rows;
    const char *const *row_names;             /* [rows], from the top */
    const double *value, *error, *linear_off; /* [rows] NaN: none */
    double full, chance;                      /* NaN: no line */
} fl_dots;

fl_status fl_dots_write(const fl_dots *dots, const char *folder, const char *format, fl_error *error);

#endif
