/* Plots: the pictures of a run set, one kind a row of a table.
 *
 * Curves of one rule (or, where the rule is no axis, of one value of the first axis) share a colour, runs
 * that agree in all other axes a dash. Every picture is one fl_figure: picture, script and CSV beside each
 * other. Runs that lack the numbers are left out, and the title counts those that are there. */
#ifndef FL_ANALYSIS_PLOTS_H
#define FL_ANALYSIS_PLOTS_H

#include <stddef.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"

typedef struct fl_plot_request {
    const fl_run_set *set;
    const char *folder, *format; /* "png", "svg", "pdf" */
    /* Told the base name of every picture drawn; may be NULL. */
    void (*drawn)(void *context, const char *name);
    void *context;
} fl_plot_request;

typedef struct fl_plot_kind {
    const char *name, *summary;
    /* FL_ERROR_ARGUMENT when no run of the set has the numbers. */
    fl_status (*draw)(const fl_plot_request *request, fl_error *error);
} fl_plot_kind;

/* Ends with a row without a name. */
extern const fl_plot_kind fl_plot_kinds[];

const fl_plot_kind *fl_plot_kind_find(const char *name); /* NULL when unknown */

#endif
