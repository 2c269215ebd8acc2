/* Plots: the pictures of a run set, one kind a row of a table.
 *
 * Every picture is one fl_figure (or dots, or heat maps): picture, script and CSV beside each other. What is
 * a curve, where it stands and how it looks is found in one place, plot_facets.h. Runs that lack the numbers
 * are left out, and the title counts those that are there. */
#ifndef FL_ANALYSIS_PLOTS_H
#define FL_ANALYSIS_PLOTS_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/figure_page.h"
#include "analysis/run_set.h"
#include "harness/base/status.h"

typedef struct fl_plot_request {
    const fl_run_set *set;
    const char *folder, *format; /* "png", "svg", "pdf" */
    double width;                /* millimetres; 0: as wide as a page, with the dots of a screen */
    const char *title;           /* NULL: the picture's own; "": none */
    bool each;                   /* runs that differ in seeds only stay apart (run_groups.h) */
    const char *facet;           /* plot_facets.h; NULL: as needed */
    /* Told the base name of every picture drawn; may be NULL. */
    void (*drawn)(void *context, const char *name);
    void *context;
} fl_plot_request;

typedef struct fl_plot_kind {
    const char *name, *summary;
    /* FL_ERROR_ARGUMENT when no run of the set has the numbers. */
    fl_status (*draw)(const fl_plot_request *request, fl_error *error);
    bool only_by_name; /* shows what other kinds show: not among all of them */
} fl_plot_kind;

/* Ends with a row without a name. */
extern const fl_plot_kind fl_plot_kinds[];

const fl_plot_kind *fl_plot_kind_find(const char *name); /* NULL when unknown */

/* All kinds for which the runs have numbers. A picture that fails does not keep the others from being drawn:
 * the first failure is returned at the end. FL_ERROR_ARGUMENT when there is nothing to draw. */
fl_status fl_plot_all(const fl_plot_request *request, fl_error *error);

#endif
