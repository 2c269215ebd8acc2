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
    FL_FIGURE_MARKS,     /* curves with a mark at every point */
    FL_FIGURE_BARS,      /* one group of bars an x, named by x_names; error bars where errors are given */
    FL_FIGURE_HEAT       /* series are rows (their labels unused), x the columns, the value a colour */
} fl_figure_kind;

typedef struct fl_figure_series {
    const char *label;
    size_t colour, dash; /* wrap around; of lines and marks */
    const double *y;     /* [points]; NaN: no point */
    const double *error; /* [points] standard errors, or NULL; bars only */
} fl_figure_series;

typedef struct fl_figure {
    const char *name; /* of the files */
    fl_figure_kind kind;
    const char *title, *x_label, *y_label;
    bool log_x, log_y;
    bool scattered; /* points need room at the sides, and their marks are larger */
    size_t points;
    const double *x;            /* [points]; NULL: 0, 1, 2, ... */
    const char *const *x_names; /* [points], for bars */
    size_t series_count;
    const fl_figure_series *series;
} fl_figure;

/* format: "png", "svg" or "pdf". FL_ERROR_UNSUPPORTED when gnuplot is not installed: the CSV and the script
 * are there. */
fl_status fl_figure_write(const fl_figure *figure, const char *folder, const char *format, fl_error *error);

/* Whether `format` is one that fl_figure_write knows. */
bool fl_figure_knows_format(const char *format);

#endif
