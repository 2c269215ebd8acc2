#include "harness/cli/progress_line.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "harness/cli/columns.h"

enum { LINE_BYTES = 1024, TIME_BYTES = 32 };

void fl_progress_duration(double seconds, char *out, size_t bytes) {
    long s = (long)(seconds + 0.5);
    if (s >= 3600) {
        snprintf(out, bytes, "%ld h %02ld min", s / 3600, s % 3600 / 60);
    } else if (s >= 60) {
        snprintf(out, bytes, "%ld min %02ld s", s / 60, s % 60);
    } else {
        snprintf(out, bytes, "%ld s", s);
    }
}

static size_t append(char *line, size_t used, const char *before, const char *text) {
    if (used >= LINE_BYTES) return used;
    int made = snprintf(line + used, LINE_BYTES - used, "%s%s", before, text);
    return made > 0 ? used + (size_t)made : used;
}

static size_t append_time(char *line, size_t used, const char *before, double seconds) {
    char text[TIME_BYTES];
    fl_progress_duration(seconds, text, sizeof text);
    return append(line, used, before, text);
}

static void compose(const fl_progress_line *line, bool with_detail, bool with_stage_time, char *out) {
    char head[128] = "", place[64];
    if (line->cells > 0 && line->first == line->last)
        snprintf(head, sizeof head, "cell %zu of %zu: ", line->first, line->cells);
    else if (line->cells > 0)
        snprintf(head, sizeof head, "cells %zu to %zu of %zu: ", line->first, line->last, line->cells);
    snprintf(place, sizeof place, " %zu/%zu", line->done, line->total);
    size_t used = append(out, 0, head, line->stage);
    used = append(out, used, "", place);
    if (with_detail && line->detail[0] != '\0') used = append(out, used, ": ", line->detail);
    const bool stage = with_stage_time && line->stage_left >= 0, all = line->all_left >= 0;
    if (stage) used = append_time(out, used, all ? "; stage " : "; ", line->stage_left);
    if (all) used = append_time(out, used, stage ? ", all " : "; all ", line->all_left);
    if (stage || all) append(out, used, "", " left");
}

void fl_progress_line_print(const fl_progress_line *line, size_t columns, char *out, size_t bytes) {
    char text[LINE_BYTES];
    compose(line, true, true, text);
    if (columns > 0 && fl_columns_of(text) > columns) compose(line, false, true, text);
    if (columns > 0 && fl_columns_of(text) > columns) compose(line, false, line->all_left < 0, text);
    if (columns > 0)
        fl_columns_cut(text, columns, out, bytes);
    else
        snprintf(out, bytes, "%s", text);
}

double fl_run_clock_left(const fl_run_clock *clock, double now, double stage_left) {
    double left = -1;
    if (clock->finished >= clock->cells) return stage_left;
    if (clock->finished > 0) {
        double each = (clock->last_finished - clock->began) / (double)clock->finished;
        left = each * (double)(clock->cells - clock->finished) - (now - clock->last_finished);
    } else if (clock->estimate >= 0) {
        left = clock->estimate - (now - clock->began);
    }
    if (left < 0 && (clock->finished > 0 || clock->estimate >= 0)) left = 0;
    return left < 0 ? -1 : fmax(left, stage_left);
}
