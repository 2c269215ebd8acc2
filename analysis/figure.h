/* Figure: numbers as a picture, always with the numbers beside it.
 *
 * Writes <folder>/<name>.csv, <name>.gp (the gnuplot script that reads it) and, through gnuplot, <name>.png,
 * .svg or .pdf. The same numbers give the same bytes. Colours are Okabe and Ito's, told apart by the
 * colour-blind, and every series has a dash or point shape of its own too, so that a black-and-white print
 * can be read. On a logarithmic axis a series without any positive value is not drawn, and the legend says
 * so. */
#ifndef FL_ANALYSIS_FIGURE_H
#define FL_ANALYSIS_FIGURE_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/status.h"

typedef enum fl_figure_kind {
    FL_FIGURE_LINES = 0, /* one curve a series over x */
    FL_FIGURE_MARKS      /* curves with a mark at every point */
} fl_figure_kind;

typedef struct fl_figure_series {
    const char *label;
    size_t colour, dash; /* wrap around */
    bool is_baseline;    /* grey whatever its colour */
    const double *y;     /* [points]; NaN: no point */
} fl_figure_series;

/* A horizontal line: the full model's value, say. */
typedef struct fl_figure_reference {
    const char *label;
    double y; /* finite */
} fl_figure_reference;

typedef struct fl_figure {
    const char *name; /* of the files */
    fl_figure_kind kind;
    const char *title, *x_label, *y_label;
    bool log_x, log_y; /* where the values span enough for it */
    bool scattered;    /* points need room at the sides, and their marks are larger */
    bool whole_x;      /* scattered: x counts something */
    size_t points;
    const double *x; /* [points]; NULL: 0, 1, 2, ... */
    size_t series_count;
    const fl_figure_series *series;
    size_t reference_count;
    const fl_figure_reference *references;
} fl_figure;

/* format: "png", "svg" or "pdf". FL_ERROR_UNSUPPORTED when gnuplot is not installed: the CSV and the script
 * are there. */
fl_status fl_figure_write(const fl_figure *figure, const char *folder, const char *format, fl_error *error);

#endif
