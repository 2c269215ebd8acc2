/* Heat figure: one heat map a run, side by side, all with the same colours for the same values. Files as in
 * figure.h; the CSV is in long form. Zeros are white, values that are not finite grey. */
#ifndef FL_ANALYSIS_FIGURE_HEAT_H
#define FL_ANALYSIS_FIGURE_HEAT_H

#include <stddef.h>

#include "analysis/figure_page.h"
#include "harness/base/status.h"

enum { FL_HEAT_MOST_PANELS = 12 };

typedef struct fl_heat_panel {
    const char *title;
    size_t columns, rows;
    const double *values; /* [columns][rows] */
} fl_heat_panel;

typedef struct fl_heat {
    const char *name, *title, *x_label, *y_label, *value_label; /* x counts columns */
    const char *note;                                           /* below; NULL: none */
    size_t panel_count;                                         /* at most FL_HEAT_MOST_PANELS */
    const fl_heat_panel *panels;
    double least, most; /* where the colours end; positive, least <= most */
} fl_heat;

fl_status fl_heat_write(const fl_heat *heat, const char *folder, const fl_figure_look *look, fl_error *error);

#endif
