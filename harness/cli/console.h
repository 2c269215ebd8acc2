/* Console: progress on standard error, and what an interrupt means.
 *
 * On a terminal, progress is one line rewritten in place and no wider than the terminal (progress_line.h), with an estimate
 * of the time left; elsewhere it is one line a stage, and one every tenth of a stage that has details to tell (training) or
 * lasts.
 *
 * SIGINT or SIGTERM once: stop at the next safe point, which every pass through a layer is (engine/network.h); what stages
 * have finished is kept. A stage that has no such point within FL_INTERRUPT_SECONDS is ended there: files appear whole or
 * not at all, so a resume loses only that stage. Twice: end at once. The exit status is 128 + the signal's number. */
#ifndef FL_CLI_CONSOLE_H
#define FL_CLI_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/progress.h"
#include "harness/cli/progress_line.h"

enum { FL_CONSOLE_STAGE_BYTES = 64 };
#define FL_INTERRUPT_SECONDS 1.7

typedef struct fl_console {
    bool terminal;
    bool line_open; /* a progress line without its newline */
    char stage[FL_CONSOLE_STAGE_BYTES];
    char detail[FL_PROGRESS_DETAIL_BYTES]; /* of the stage; "" = none */
    double stage_start, last_shown;       /* seconds, monotonic */
    size_t stage_first, last_done;        /* done when the stage began, and at the last report */
    size_t tenths;                        /* shown of it, elsewhere than on a terminal */
    fl_run_clock clock;                   /* cells 0: what is done has none */
    size_t first_cell, last_cell;         /* worked on, from 1 */
} fl_console;

/* The fl_progress that reports to this console; the console must outlive it. */
fl_progress fl_console_progress(fl_console *console);
/* Ends an open progress line, so that other output starts on a fresh one. */
void fl_console_end_line(fl_console *console);
/* A line on standard error. */
void fl_console_note(fl_console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Seconds that the stage at hand will still take, from its speed so far; negative: not known. */
double fl_console_stage_left(const fl_console *console, size_t done, size_t total, double now);

/* promptly: a stage without a safe point is ended after FL_INTERRUPT_SECONDS; else it is waited for. */
void fl_interrupts_install(bool promptly);
int fl_interrupts_seen(void);
/* What is being written now is waited for. */
void fl_interrupts_hold(bool hold);
/* 128 + the number of the first signal; 0: there was none. */
int fl_interrupts_exit_status(void);

#endif
