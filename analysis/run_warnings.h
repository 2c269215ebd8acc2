/* Run warnings: what was measured and can hardly be meant, each text once with the cells it is about; and cells whose numbers
 * are equal. */
#ifndef FL_ANALYSIS_RUN_WARNINGS_H
#define FL_ANALYSIS_RUN_WARNINGS_H

#include <stddef.h>
#include <stdio.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"

/* A cell and its warnings; all borrowed. */
typedef struct fl_warned {
    const char *label;
    char *const *warnings;
    size_t count;
} fl_warned;

/* A text and the places in the list of the cells that have it. */
typedef struct fl_warning_group {
    const char *text; /* borrowed */
    size_t count;
    size_t *cells; /* owned */
} fl_warning_group;

/* In order of first appearance. *groups = fl_memory block. */
fl_status fl_run_warnings_group(const fl_warned *rows, size_t count, fl_warning_group **groups, size_t *group_count,
                                fl_error *error);
void fl_run_warnings_release(fl_warning_group *groups, size_t group_count);

/* "warning: text", and below it the cells when they are not all. */
fl_status fl_run_warnings_print(FILE *stream, const fl_warned *rows, size_t count, fl_error *error);

/* twin_of[i]: the first run whose figures (errors, language model, tasks; not those of baselines, bytes and times) are those of
 * run i to the last bit, i itself when there is none before it. Runs without figures, or with figures that are not finite, are
 * nobody's twins; NULL entries are passed over. */
void fl_run_twins_find(const fl_run_entry *const *runs, size_t count, size_t *twin_of);

#endif
