/* Figure: curves or points as a picture, always with the numbers beside it.
 *
 * Writes <folder>/<csv>.csv of every view, <folder>/<name>.gp (the gnuplot script that reads them) and,
 * through gnuplot, <name>.png, .svg or .pdf. The same numbers give the same bytes.
 *
 * A figure is one panel or several side by side (small multiples) that share their axes, and one legend below
 * all of them. A view is one set of axes with its numbers: the panels of a figure with two views are rows, of
 * which each shows both. Colours are Okabe and Ito's, told apart by the colour-blind, and every series has a
 * dash or point shape of its own too, so that a black-and-white print can be read.
 *
 * Values that are not finite: of a series that diverged they are marks at the upper edge with the word
 * "diverged" and are called so in the legend; of others they are gaps. A series of zeros cannot be drawn on a
 * logarithmic axis: the legend says that it is zero everywhere. */
#ifndef FL_ANALYSIS_FIGURE_H
#define FL_ANALYSIS_FIGURE_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/figure_page.h"
#include "harness/base/status.h"

typedef enum fl_figure_role {
    FL_FIGURE_CURVE = 0, /* in its colour */
    FL_FIGURE_BASELINE,  /* grey: what a curve has to beat */
    FL_FIGURE_FULL,      /* black: the full model */
    FL_FIGURE_CHANCE     /* light grey: guessing */
} fl_figure_role;

/* A line of the legend and the look of the series that belong to it. No two have the same colour and dash
 * (FL_ERROR_ARGUMENT: they could not be told apart). */
typedef struct fl_figure_entry {
    const char *label;
    fl_figure_role role;
    size_t colour, dash; /* they wrap around; colour of baselines: which grey */
} fl_figure_entry;

typedef struct fl_figure_series {
    const char *name;     /* its column in the CSV */
    size_t entry;         /* index */
    const bool *panels;   /* [panel_count] where it is drawn; NULL: everywhere */
    const double *y;      /* [points] */
    size_t length;        /* points it has: what lies behind them is NaN and means nothing */
    const double *low, *high; /* [points] ends of its band; both or NULL */
    bool diverged;        /* values that are not finite mean that, not that there are none */
} fl_figure_series;

/* A horizontal line in every panel. */
typedef struct fl_figure_reference {
    const char *name; /* in the CSV */
    size_t entry;
    double y; /* finite */
} fl_figure_reference;

typedef struct fl_figure_view {
    const char *csv; /* name of its file */
    const char *x_label, *y_label;
    bool log_x, log_y;  /* where the values span enough for it */
    bool marks;         /* a mark at every point */
    bool scattered;     /* points need room at the sides, and their marks are larger */
    bool unjoined;      /* marks alone, no line from one to the next */
    bool whole_x;       /* x counts something */
    size_t points;
    const double *x; /* [points] */
    size_t series_count;
    const fl_figure_series *series;
    size_t reference_count;
    const fl_figure_reference *references;
} fl_figure_view;

enum { FL_FIGURE_MOST_VIEWS = 2 };

typedef struct fl_figure {
    const char *name;  /* of the script and the picture */
    const char *title; /* "" or NULL: none */
    const char *note;  /* small, below the legend; NULL: none */
    size_t panel_count;
    const char *const *panel_titles; /* [panel_count]; NULL: none */
    size_t entry_count;
    const fl_figure_entry *entries;
    size_t view_count;
    const fl_figure_view *views;
} fl_figure;

/* FL_ERROR_UNSUPPORTED when gnuplot is not installed: the CSV and the script are there. */
fl_status fl_figure_write(const fl_figure *figure, const char *folder, const fl_figure_look *look,
                          fl_error *error);

#endif
