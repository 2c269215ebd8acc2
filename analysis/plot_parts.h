/* What the kinds of plots.h share, and the kinds that live in files of their own. Not for other modules. */
#ifndef FL_ANALYSIS_PLOT_PARTS_H
#define FL_ANALYSIS_PLOT_PARTS_H

#include "analysis/figure.h"
#include "analysis/plots.h"

/* Which runs look alike: colour and dash [set->count] each. */
void fl_plot_styles(const fl_run_set *set, size_t *colour, size_t *dash);

/* Do two runs keep the same tokens exactly, in the same layers? Such runs share their linear-off baseline. */
bool fl_plot_same_exact_set(const fl_run_entry *a, const fl_run_entry *b);

/* Draws one picture and reports it. */
fl_status fl_plot_curves(const fl_plot_request *request, const fl_figure *figure, fl_error *error);
void fl_plot_report(const fl_plot_request *request, const char *name);

fl_status fl_plot_heads(const fl_plot_request *request, fl_error *error);
fl_status fl_plot_scores(const fl_plot_request *request, fl_error *error);
fl_status fl_plot_hybrid(const fl_plot_request *request, fl_error *error);
fl_status fl_plot_bytes(const fl_plot_request *request, fl_error *error);

#endif
