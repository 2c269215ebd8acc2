/* Figure style: what every picture shares, and gnuplot's quoting. */
#ifndef FL_ANALYSIS_FIGURE_STYLE_H
#define FL_ANALYSIS_FIGURE_STYLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Okabe and Ito's palette without its yellow, which paper swallows; dashes and point shapes. Indices wrap
 * around. */
const char *fl_figure_colour(size_t index); /* "#0072B2" */
const char *fl_figure_dash(size_t index);   /* gnuplot's dashtype */
int fl_figure_point(size_t colour,
                    size_t dash); /* gnuplot's pointtype: one shape a colour, hollow for odd dashes */

/* Text between gnuplot's single quotes, line breaks as spaces. */
void fl_figure_quote(FILE *stream, const char *text);

/* "png", "svg", "pdf". */
bool fl_figure_knows_format(const char *format);
/* Terminal, output `<name>.<format>` and how to read CSV files. `format` must be known; sizes are pixels
 * (hundredths of an inch for PDF). */
void fl_figure_start(FILE *stream, const char *name, const char *format, size_t width, size_t height);

/* Whether positive values lie so far apart that only a logarithmic axis shows them. *least and *most (NaN at
 * first) are widened, so that several calls look at several arrays. */
bool fl_figure_spans_decades(const double *values, size_t count, double *least, double *most);

#endif
