/* Figure axis: from where to where, linear or logarithmic, and the numbers written at it.
 *
 * Made here and not by gnuplot, so that an axis without any finite value still has ends, one with nearly
 * equal values does not blow up their differences, and every number at it has room. */
#ifndef FL_ANALYSIS_FIGURE_AXIS_H
#define FL_ANALYSIS_FIGURE_AXIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { FL_AXIS_MOST_TICKS = 24, FL_AXIS_TICK_BYTES = 24 };

/* What the data cover. Starts as {0}. */
typedef struct fl_axis_span {
    size_t count, positive;                /* finite values; those above 0 */
    double least, most;                    /* of the finite values */
    double least_positive, most_positive;  /* of the positive ones */
} fl_axis_span;

void fl_axis_span_add(fl_axis_span *span, const double *values, size_t count);

typedef struct fl_axis_wish {
    bool log;        /* where the values lie so far apart that only a logarithmic axis shows them */
    bool tight;      /* ends where the data end */
    bool whole;      /* counts something: no fractions */
    size_t numbers;  /* written at it, about; at least 2 */
    double length, font; /* points: fewer numbers where they would touch each other side by side; 0: they stand
                            above each other */
} fl_axis_wish;

typedef struct fl_axis_tick {
    double at;
    char text[FL_AXIS_TICK_BYTES];
} fl_axis_tick;

typedef struct fl_axis {
    double low, high; /* low < high; positive when log */
    bool log;
    size_t tick_count;
    fl_axis_tick ticks[FL_AXIS_MOST_TICKS];
} fl_axis;

/* Positive values more than 20 times apart: below that a linear axis shows more, with better numbers. */
bool fl_axis_span_is_wide(const fl_axis_span *span);
/* A linear axis starts at 0 when the values come near it, and covers at least a tenth of the largest value:
 * what differs by a percent looks like it. A logarithmic axis does not go below 1e-6, or 1e-6 of the largest
 * value if that is below 1: there is rounding. Ends lie on numbers of the axis unless it is tight. */
void fl_axis_fit(const fl_axis_span *span, const fl_axis_wish *wish, fl_axis *out);

/* gnuplot's range, scale and tics of axis 'x' or 'y'; without numbers when they stand elsewhere. */
void fl_axis_write(FILE *stream, const fl_axis *axis, char which, bool numbered);
/* Room that the widest number takes at this font size. */
double fl_axis_number_width(const fl_axis *axis, double size);
/* Where a value lies between low (0) and high (1); outside for values beyond the ends. */
double fl_axis_place(const fl_axis *axis, double value);

#endif
