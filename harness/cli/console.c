#include "harness/cli/console.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/base/clock.h"
#include "harness/cli/columns.h"

enum { LINE_BYTES = 1024 };
#define QUIET_SECONDS 20.0 /* without a line, elsewhere than on a terminal */

static volatile sig_atomic_t interrupts, first_signal, held, noticed;
static timer_t deadline;
static bool has_deadline;

static void say(const char *text, size_t bytes) {
    ssize_t written = write(STDERR_FILENO, text, bytes);
    (void)written; /* there is nobody to tell */
}

static void on_interrupt(int number) {
    static const char once[] = "\ninterrupted: stopping at the next safe point (again to stop now)\n";
    static const char twice[] = "\ninterrupted again: stopped\n";
    const struct itimerspec wait = {
        .it_value = {.tv_sec = (time_t)FL_INTERRUPT_SECONDS,
                     .tv_nsec = (long)(1e9 * (FL_INTERRUPT_SECONDS - (double)(time_t)FL_INTERRUPT_SECONDS))}};
    if (interrupts++ > 0) {
        say(twice, sizeof twice - 1);
        _exit(128 + first_signal);
    }
    first_signal = number;
    say(once, sizeof once - 1);
    if (has_deadline) timer_settime(deadline, 0, &wait, NULL);
}

/* No safe point came, and nothing is being written: what is finished is kept, so this is as safe. */
static void on_deadline(int number) {
    static const char text[] = "stopped within a stage; the same command resumes\n";
    (void)number;
    if (held || noticed) return;
    say(text, sizeof text - 1);
    _exit(128 + first_signal);
}

static void handle(int number, void (*handler)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void fl_interrupts_install(bool promptly) {
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGALRM;
    has_deadline = promptly && timer_create(CLOCK_MONOTONIC, &event, &deadline) == 0;
    if (has_deadline) handle(SIGALRM, on_deadline);
    handle(SIGINT, on_interrupt);
    handle(SIGTERM, on_interrupt);
}

int fl_interrupts_seen(void) {
    return interrupts;
}

void fl_interrupts_hold(bool hold) {
    held = hold;
}

int fl_interrupts_exit_status(void) {
    return interrupts > 0 ? 128 + first_signal : 0;
}

void fl_console_end_line(fl_console *console) {
    if (console->line_open) fputc('\n', stderr);
    console->line_open = false;
}

void fl_console_note(fl_console *console, const char *format, ...) {
    fl_console_end_line(console);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

static void start_stage(fl_console *console, const char *stage, size_t done, size_t total, double now) {
    fl_console_end_line(console);
    snprintf(console->stage, sizeof console->stage, "%s", stage);
    console->detail[0] = '\0';
    console->stage_start = now;
    console->last_shown = console->terminal ? 0 : now;
    console->stage_first = done;
    console->tenths = total > 0 ? done * 10 / total : 0;
    if (!console->terminal) fprintf(stderr, "%s\n", console->stage);
}

double fl_console_stage_left(const fl_console *console, size_t done, size_t total, double now) {
    double spent = now - console->stage_start;
    size_t made = done - console->stage_first;
    if (made == 0 || done >= total || spent <= 1) return -1;
    return spent / (double)made * (double)(total - done);
}

static void print_stage(const fl_console *console, size_t done, size_t total, double now) {
    char text[LINE_BYTES];
    size_t columns = fl_columns_of_terminal(stderr);
    double left = fl_console_stage_left(console, done, total, now);
    const fl_progress_line line = {
        .first = console->first_cell,
        .last = console->last_cell,
        .cells = console->clock.cells,
        .stage = console->stage,
        .detail = console->detail,
        .done = done,
        .total = total,
        .stage_left = left,
        .all_left = console->clock.cells > 0 ? fl_run_clock_left(&console->clock, now, left) : -1};
    /* The last column stays free: some terminals break the line when it is written to. */
    fl_progress_line_print(&line, columns > 0 ? columns - 1 : 0, text, sizeof text);
    fputs(text, stderr);
}

/* Whether a line is due where there is no terminal. */
static bool tenth_reached(fl_console *console, size_t done, size_t total, double now) {
    size_t tenths = total > 0 ? done * 10 / total : 0;
    bool told = console->detail[0] != '\0' || now - console->last_shown >= QUIET_SECONDS;
    if (!told || tenths <= console->tenths) return false;
    console->tenths = tenths;
    console->last_shown = now;
    return true;
}

static void report(void *context, const char *stage, size_t done, size_t total) {
    fl_console *console = context;
    double now = fl_clock_seconds();
    bool another = strncmp(console->stage, stage, sizeof console->stage - 1) != 0;
    if (another || done < console->last_done) start_stage(console, stage, done, total, now);
    console->last_done = done;
    if (!console->terminal) {
        if (!tenth_reached(console, done, total, now)) return;
        print_stage(console, done, total, now);
        fputc('\n', stderr);
        return;
    }
    if (done < total && now - console->last_shown < 0.1) return;
    console->last_shown = now;
    fprintf(stderr, "\r\033[K");
    print_stage(console, done, total, now);
    fflush(stderr);
    console->line_open = true;
}

static void detail(void *context, const char *text) {
    fl_console *console = context;
    snprintf(console->detail, sizeof console->detail, "%s", text);
}

static bool cancelled(void *context) {
    (void)context;
    noticed = interrupts > 0;
    return noticed;
}

static void hold(void *context, bool held_now) {
    (void)context;
    fl_interrupts_hold(held_now);
}

fl_progress fl_console_progress(fl_console *console) {
    memset(console, 0, sizeof *console);
    console->terminal = isatty(STDERR_FILENO) == 1;
    return (fl_progress){
        .report = report, .detail = detail, .cancelled = cancelled, .hold = hold, .context = console};
}
