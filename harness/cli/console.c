#include "harness/cli/console.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupts;

static void on_interrupt(int number) {
    static const char once[] = "\ninterrupted: finishing what is being computed (again to stop now)\n";
    static const char twice[] = "\ninterrupted again: stopping\n";
    interrupts++;
    if (interrupts == 1) {
        if (write(STDERR_FILENO, once, sizeof once - 1) < 0) return;
    } else {
        signal(number, SIG_DFL);
        if (write(STDERR_FILENO, twice, sizeof twice - 1) < 0) return;
    }
}

void fl_interrupts_install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int fl_interrupts_seen(void) {
    return interrupts;
}

double fl_console_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
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

/* "1 h 02 min", "3 min 20 s", "45 s" */
static void duration(double seconds, char *out, size_t bytes) {
    long s = (long)(seconds + 0.5);
    if (s >= 3600) {
        snprintf(out, bytes, "%ld h %02ld min", s / 3600, s % 3600 / 60);
    } else if (s >= 60) {
        snprintf(out, bytes, "%ld min %02ld s", s / 60, s % 60);
    } else {
        snprintf(out, bytes, "%ld s", s);
    }
}

static void start_stage(fl_console *console, const char *stage, size_t done, size_t total, double now) {
    fl_console_end_line(console);
    snprintf(console->stage, sizeof console->stage, "%s", stage);
    console->detail[0] = '\0';
    console->stage_start = now;
    console->last_shown = 0;
    console->stage_first = done;
    console->tenths = total > 0 ? done * 10 / total : 0;
    if (!console->terminal) fprintf(stderr, "%s\n", console->stage);
}

/* "training 20/200: loss 2.31, 812 tokens/s, left: 45 s" */
static void print_stage(const fl_console *console, size_t done, size_t total, double now) {
    double spent = now - console->stage_start;
    size_t made = done - console->stage_first;
    fprintf(stderr, "%s %zu/%zu", console->stage, done, total);
    if (console->detail[0] != '\0') fprintf(stderr, ": %s", console->detail);
    if (made == 0 || done >= total || spent <= 1) return;
    char left[32];
    duration(spent / (double)made * (double)(total - done), left, sizeof left);
    fprintf(stderr, ", left: %s", left);
}

/* Whether a line is due where there is no terminal. */
static bool tenth_reached(fl_console *console, size_t done, size_t total) {
    size_t tenths = total > 0 ? done * 10 / total : 0;
    if (console->detail[0] == '\0' || tenths <= console->tenths) return false;
    console->tenths = tenths;
    return true;
}

static void report(void *context, const char *stage, size_t done, size_t total) {
    fl_console *console = context;
    double now = fl_console_seconds();
    bool another = strncmp(console->stage, stage, sizeof console->stage - 1) != 0;
    if (another || done < console->last_done) start_stage(console, stage, done, total, now);
    console->last_done = done;
    if (!console->terminal) {
        if (!tenth_reached(console, done, total)) return;
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
    return interrupts >= 2;
}

fl_progress fl_console_progress(fl_console *console) {
    memset(console, 0, sizeof *console);
    console->terminal = isatty(STDERR_FILENO) == 1;
    return (fl_progress){.report = report, .detail = detail, .cancelled = cancelled, .context = console};
}
