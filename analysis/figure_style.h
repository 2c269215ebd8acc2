/* Figure style: colours, dashes, points and gnuplot's quoting, which every picture shares. */
#ifndef FL_ANALYSIS_FIGURE_STYLE_H
#define FL_ANALYSIS_FIGURE_STYLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Okabe and Ito's palette without its yellow, which paper swallows, and its black, which is the full model's;
 * dashes and point shapes. Indices wrap around: colour and dash together tell FL_FIGURE_COLOURS *
 * FL_FIGURE_DASHES series apart. */
enum { FL_FIGURE_COLOURS = 6, FL_FIGURE_DASHES = 6 };
const char *fl_figure_colour(size_t index); /* "#0072B2" */
const char *fl_figure_dash(size_t index);   /* gnuplot's dashtype */
int fl_figure_point(size_t colour,
                    size_t dash); /* gnuplot's pointtype: one shape a colour, hollow for odd dashes */

/* The first `bytes` of a text between gnuplot's single quotes, as it will be drawn letter by letter: control
 * characters are spaces, bytes that are no UTF-8 are question marks. */
void fl_figure_quote(FILE *stream, const char *text, size_t bytes);

/* "png", "svg", "pdf". */
bool fl_figure_knows_format(const char *format);

#endif
