/* Figure legend: the names of curves and points with a sample of each, in as many columns as have room, as
 * high as they need. No name is shortened: one that is longer than the page is broken into lines. */
#ifndef FL_ANALYSIS_FIGURE_LEGEND_H
#define FL_ANALYSIS_FIGURE_LEGEND_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/figure_page.h"

typedef struct fl_legend_entry {
    const char *label, *note; /* note: "zero everywhere", ...; NULL: none */
    const char *colour, *dash;
    double line;  /* points; 0: none */
    int shape;    /* gnuplot's pointtype; 0: none */
    double point; /* its size */
} fl_legend_entry;

typedef struct fl_legend {
    size_t count;
    const fl_legend_entry *entries;
    double width; /* of the room it has */
} fl_legend;

double fl_legend_height(const fl_legend *legend, double font);
/* The texts; then, when all else has been plotted, the samples, as a plot of their own. */
void fl_legend_draw(fl_page *page, const fl_legend *legend, double left, double top);
void fl_legend_plot(fl_page *page, const fl_legend *legend, double left, double top);

#endif
