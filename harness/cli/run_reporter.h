/* Run reporter: what `run` says while it works: progress with the time left, cells begun, done and failed, and the log.
 *
 * A failure is said once, when it happens, with the cells it concerns: one mistake in a sweep of 24 cells is one message. */
#ifndef FL_CLI_RUN_REPORTER_H
#define FL_CLI_RUN_REPORTER_H

#include "harness/run/cell_list.h"
#include "harness/cli/console.h"
#include "harness/run/evaluation.h"
#include "harness/run/run_log.h"

typedef struct fl_run_reporter {
    fl_cell_list *list; /* borrowed */
    size_t threads;     /* of the run, for the estimate */
    fl_console console;
    fl_progress on_console, progress; /* progress: what the run reports to */
    double last_logged;               /* stage, seconds */
    fl_error disk;                    /* why nothing can be written any more; message "": it can */
} fl_run_reporter;

/* The reporter must not move. */
void fl_run_reporter_start(fl_run_reporter *reporter, fl_cell_list *list, size_t threads);
/* The members of the options that tell it what happens. */
void fl_run_reporter_listen(fl_run_reporter *reporter, fl_evaluation_options *options);
/* An open group: what is kept, taken over or cannot be set up, and how long the rest will take. */
void fl_run_reporter_group(fl_run_reporter *reporter, size_t index, const fl_cell_group *group);
/* Cells that have failed and were not told of. */
void fl_run_reporter_failures(fl_run_reporter *reporter);
/* What the run came to, on standard error and in the log; returns the exit status. others: what else went wrong. */
int fl_run_reporter_conclude(fl_run_reporter *reporter, const char *command, size_t others);

#endif
