/* Dot figure: one score of many runs, a row a run, with its uncertainty and the baselines beside.
 *
 * A filled dot is the run, a bar how sure it is; a hollow diamond the same run with the linear part off,
 * joined to it by a line; vertical lines are the full model and chance. A run without a finite value has the
 * word "diverged" in its row. Files as in figure.h. Long names and many runs stay readable, which upright bars
 * do not: the page grows with the rows, and a name that is longer than its column is broken into lines. */
#ifndef FL_ANALYSIS_FIGURE_DOTS_H
#define FL_ANALYSIS_FIGURE_DOTS_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/figure_page.h"
#include "harness/base/status.h"

typedef struct fl_dots {
    const char *name, *title, *x_label;
    const char *bar; /* what the bars are: "standard error" */
    bool log_x; /* where the values span enough for it */
    size_t rows;
    const char *const *row_names;             /* [rows], from the top */
    const double *value, *low, *high; /* [rows] value: NaN: diverged; ends of its bar: NaN: none */
    const double *linear_off;         /* [rows] NaN: none */
    double full, chance;                      /* NaN: no line */
} fl_dots;

fl_status fl_dots_write(const fl_dots *dots, const char *folder, const fl_figure_look *look, fl_error *error);

#endif
