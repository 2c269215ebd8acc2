/* Figure style: what every picture shares, and gnuplot's quoting. */
#ifndef FL_ANALYSIS_FIGURE_STYLE_H
#define FL_ANALYSIS_FIGURE_STYLE_H

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

#endif
