/* What the kinds of plots.h share, and the kinds that live in files of their own. Not for other modules. */
#ifndef FL_ANALYSIS_PLOT_PARTS_H
#define FL_ANALYSIS_PLOT_PARTS_H

#include "analysis/figure.h"
#include "analysis/plot_facets.h"
#include "analysis/plots.h"

fl_figure_look fl_plot_look(const fl_plot_request *request);
/* The title asked for, or `own`. */
const char *fl_plot_title(const fl_plot_request *request, const char *own);

/* Draws one picture and reports it. */
fl_status fl_plot_figure(const fl_plot_request *request, const fl_figure *figure, fl_error *error);
void fl_plot_report(const fl_plot_request *request, const char *name);

/* One dataset of every run as curves. */
typedef struct fl_curve_spec {
    const char *csv, *path, *x_label, *y_label;
    const char *x_path; /* x is this dataset, or for [L][edges] the middle of its bins; NULL: 0, 1, 2, ... */
    const char *baseline;  /* path of the same curve with the linear part off; NULL: none */
    const char *interval;  /* metric (intervals.h) with the curve's intervals, by layer; NULL: none */
    const char *reference; /* metric (run_set.h) whose value is a line when all runs share it; NULL: none */
    bool log_x, log_y, marks;
    bool whole_x;     /* x counts something; where it is 0, 1, 2, ... it does */
    bool over_layers; /* [L][X]: the mean over layers is taken */
    bool binned;      /* averaged so that few points remain */
} fl_curve_spec;

/* One picture of one view or two of the same runs. */
fl_status fl_plot_curves(const fl_plot_request *request, const char *name, const char *title,
                         const fl_curve_spec *specs, size_t count, fl_error *error);

fl_status fl_plot_heads(const fl_plot_request *request, fl_error *error);
fl_status fl_plot_scores(const fl_plot_request *request, fl_error *error);
fl_status fl_plot_hybrid(const fl_plot_request *request, fl_error *error);
fl_status fl_plot_bytes(const fl_plot_request *request, fl_error *error);

#endif
