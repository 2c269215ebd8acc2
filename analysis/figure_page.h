/* Figure page: a picture's size, its lettering and what is drawn beside the axes.
 *
 * A page is a gnuplot script in which every text stands at a place that was computed from its width: nothing
 * is left out, clipped or written over something else because there was no room, the page grows instead.
 * Lengths are typographic points (1/72 inch) from the upper left corner; the same in every format. */
#ifndef FL_ANALYSIS_FIGURE_PAGE_H
#define FL_ANALYSIS_FIGURE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "harness/base/status.h"

/* Widths of a paper's columns; PNG has 300 dots an inch at a width that was asked for, else 200. */
typedef struct fl_figure_look {
    const char *format; /* "png", "svg" or "pdf" */
    double width;       /* millimetres; 0: 174, for the screen */
} fl_figure_look;

enum { FL_FIGURE_SINGLE_MILLIMETRES = 84, FL_FIGURE_DOUBLE_MILLIMETRES = 174 };

typedef struct fl_page {
    FILE *stream;
    double width, height, font; /* points; of the ordinary lettering */
    bool has_bold;              /* gnuplot's SVG has no bold lettering */
} fl_page;

double fl_page_width(const fl_figure_look *look);
/* 8, or 7 in a single column. */
double fl_page_font(const fl_figure_look *look);

/* Terminal, output `<name>.<format>`, how to read CSV files. */
void fl_page_open(fl_page *page, FILE *stream, const char *name, const fl_figure_look *look, double height);
void fl_page_close(fl_page *page);

typedef enum fl_page_align { FL_PAGE_LEFT = 0, FL_PAGE_CENTRE, FL_PAGE_RIGHT } fl_page_align;

/* A look of lettering; size in points. */
typedef struct fl_page_type {
    double size;
    fl_page_align align;
    const char *colour; /* NULL: black */
    bool bold, upright; /* upright: reads from below to above */
} fl_page_type;

/* Height of text broken to a width, and the text itself with its top at y; returns that height. */
double fl_page_text_height(const char *text, const fl_page_type *type, double width);
double fl_page_text(fl_page *page, double x, double y, double width, const char *text,
                    const fl_page_type *type);

/* gnuplot's pointtype. */
void fl_page_point(fl_page *page, double x, double y, int shape, double size, const char *colour);

/* Where the axes of the next plot lie. What the page's texts drew so far is drawn with that plot. */
void fl_page_place(fl_page *page, double left, double top, double right, double bottom);
/* Axes that are the page itself, in points, for what only a plot can draw: SVG has dashes of its own in no
 * other place. */
void fl_page_place_whole(fl_page *page);
/* Between two plots: what belongs to the page has been drawn. */
void fl_page_clear(fl_page *page);

#endif
