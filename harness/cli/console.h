/* Console: progress on standard error, and what an interrupt means.
 *
 * On a terminal, progress is one line rewritten in place, with an estimate of the time left; elsewhere it is
 * one line a stage, and one every tenth of a stage that has details to tell (training). SIGINT or SIGTERM
 * once: finish what is being computed, keep it, start nothing new. Twice: stop now; what was being computed
 * is lost, what was finished is not. A third time kills. */
#ifndef FL_CLI_CONSOLE_H
#define FL_CLI_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/base/progress.h"

enum { FL_CONSOLE_STAGE_BYTES = 64, FL_CONSOLE_DETAIL_BYTES = 160 };

typedef struct fl_console {
    bool terminal;
    bool line_open; /* a progress line without its newline */
    char stage[FL_CONSOLE_STAGE_BYTES];
    char detail[FL_CONSOLE_DETAIL_BYTES]; /* of the stage; "" = none */
    double stage_start, last_shown;       /* seconds, monotonic */
    size_t stage_first, last_done;        /* done when the stage began, and at the last report */
    size_t tenths;                        /* shown of it, elsewhere than on a terminal */
} fl_console;

/* The fl_progress that reports to this console; the console must outlive it. */
fl_progress fl_console_progress(fl_console *console);
/* Ends an open progress line, so that other output starts on a fresh one. */
void fl_console_end_line(fl_console *console);
/* A line on standard error. */
void fl_console_note(fl_console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));

double fl_console_seconds(void); /* monotonic clock */

void fl_interrupts_install(void);
int fl_interrupts_seen(void);

#endif
