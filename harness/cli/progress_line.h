/* Progress line: what there is to say of a run at a moment, in one line; and how long all of it will take. */
#ifndef FL_CLI_PROGRESS_LINE_H
#define FL_CLI_PROGRESS_LINE_H

#include <stddef.h>

typedef struct fl_progress_line {
    size_t first, last, cells; /* cells worked on, from 1, of how many; cells 0: there are none to count */
    const char *stage, *detail; /* detail "": none */
    size_t done, total;         /* of the stage */
    double stage_left, all_left; /* seconds; negative: not known */
} fl_progress_line;

/* "cells 1 to 16 of 24: training 20/200: loss 2.31, 812 tokens/s; stage 45 s, all 12 min 20 s left". In fewer columns the
 * detail goes first, then the stage's time, then what hangs over the end. columns 0: as long as it is. */
void fl_progress_line_print(const fl_progress_line *line, size_t columns, char *out, size_t bytes);

/* "1 h 02 min", "3 min 20 s", "45 s" */
void fl_progress_duration(double seconds, char *out, size_t bytes);

/* How long the cells of a run take. All times in seconds of one clock. */
typedef struct fl_run_clock {
    double began;
    double estimate;      /* for all cells, made before the first; negative: none */
    size_t cells;         /* to measure */
    size_t finished;      /* of them, ... */
    double last_finished; /* ... and when the last one was */
} fl_run_clock;

/* Time left: while none is finished, the estimate less the time spent; then the mean time of the finished ones for those that
 * are left, less what has been spent since. Never less than the stage at hand takes (negative: not known). Negative: not
 * known. */
double fl_run_clock_left(const fl_run_clock *clock, double now, double stage_left);

#endif
