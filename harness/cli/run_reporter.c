#include "harness/cli/run_reporter.h"

#include <stdio.h>
#include <string.h>

#include "harness/base/clock.h"
#include "harness/cli/command.h"
#include "harness/run/plan_estimate.h"

enum { NAMED_CELLS = 4, NAMES_BYTES = 512 };
#define LOG_SECONDS 1.0           /* between lines of one stage */
#define ESTIMATED_OPERATIONS 1e11 /* less is done sooner than the machine's speed is measured */

static const char *message_of(const fl_cell_work *cell) {
    return cell->message != NULL ? cell->message : "out of memory";
}

static void log_cell(fl_run_reporter *reporter, const char *event, const fl_cell_work *cell,
                     const char *message) {
    const fl_run_log_field fields[] = {{.name = "run_id", .text = cell->run_id},
                                       {.name = "label", .text = cell->label},
                                       {.name = message != NULL ? "message" : NULL, .text = message}};
    fl_run_log_add(reporter->list->log, event, fields, sizeof fields / sizeof fields[0]);
}

static void log_stage(fl_run_reporter *reporter, const char *stage, size_t done, size_t total, double now) {
    const fl_console *console = &reporter->console;
    double left = fl_console_stage_left(console, done, total, now);
    double all = fl_run_clock_left(&console->clock, now, left);
    const fl_run_log_field fields[] = {
        {.name = "stage", .text = stage},
        {.name = "done", .number = (double)done},
        {.name = "total", .number = (double)total},
        {.name = left >= 0 ? "stage_seconds_left" : NULL, .number = left},
        {.name = all >= 0 ? "eta_seconds" : NULL, .number = all},
        {.name = "first_cell", .number = (double)console->first_cell},
        {.name = "last_cell", .number = (double)console->last_cell},
        {.name = "cells", .number = (double)console->clock.cells},
    };
    fl_run_log_add(reporter->list->log, "stage", fields, sizeof fields / sizeof fields[0]);
    reporter->last_logged = now;
}

static void report(void *context, const char *stage, size_t done, size_t total) {
    fl_run_reporter *reporter = context;
    double now = fl_clock_seconds();
    bool another = strcmp(reporter->console.stage, stage) != 0 || done < reporter->console.last_done;
    fl_progress_report(&reporter->on_console, stage, done, total);
    if (another || done == total || now - reporter->last_logged >= LOG_SECONDS)
        log_stage(reporter, stage, done, total, now);
    const char *trouble = fl_run_log_trouble(reporter->list->log);
    if (trouble != NULL) fl_console_note(&reporter->console, "warning: %s", trouble);
}

static void detail(void *context, const char *text) {
    fl_progress_detail(&((fl_run_reporter *)context)->on_console, text);
}

static bool cancelled(void *context) {
    return fl_progress_cancelled(&((fl_run_reporter *)context)->on_console);
}

static void hold(void *context, bool held) {
    fl_progress_hold(&((fl_run_reporter *)context)->on_console, held);
}

/* Cells of the run: those that are over and those that are to be. */
static void count_cells(fl_run_reporter *reporter) {
    fl_run_clock *clock = &reporter->console.clock;
    clock->cells = clock->finished + fl_cell_list_count(reporter->list, FL_CELL_PENDING);
}

void fl_run_reporter_start(fl_run_reporter *reporter, fl_cell_list *list, size_t threads) {
    *reporter = (fl_run_reporter){.list = list, .threads = threads};
    reporter->on_console = fl_console_progress(&reporter->console);
    reporter->progress = (fl_progress){report, detail, cancelled, hold, reporter};
    reporter->console.clock = (fl_run_clock){.began = fl_clock_seconds(), .estimate = -1};
    const fl_run_log_field fields[] = {{.name = "config", .text = list->config},
                                       {.name = "out", .text = list->out},
                                       {.name = "cells", .number = (double)list->count}};
    fl_run_log_add(list->log, "run_begun", fields, sizeof fields / sizeof fields[0]);
}

static void on_begun(void *context, fl_cell_work *const *cells, size_t count) {
    fl_run_reporter *reporter = context;
    count_cells(reporter);
    reporter->console.first_cell = reporter->console.clock.finished + 1;
    reporter->console.last_cell = reporter->console.clock.finished + count;
    for (size_t i = 0; i < count; i++) log_cell(reporter, "cell_begun", cells[i], NULL);
}

static bool fails_likewise(const fl_cell_work *a, const fl_cell_work *b) {
    return b->state == FL_CELL_FAILED && !b->told && strcmp(message_of(a), message_of(b)) == 0;
}

/* "failed: 24 cells (gla, kda, delta, kgla, ...): message" */
static void tell_failure(fl_run_reporter *reporter, const fl_cell_work *first) {
    char names[NAMES_BYTES] = "";
    size_t count = 0, used = 0;
    for (fl_cell_work *cell = reporter->list->cells; cell < reporter->list->cells + reporter->list->count;
         cell++) {
        if (cell != first && !fails_likewise(first, cell)) continue;
        if (count++ < NAMED_CELLS && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", count > 1 ? ", " : "",
                                     cell->label);
        cell->told = true;
        log_cell(reporter, "cell_failed", cell, message_of(cell));
    }
    if (count == 1)
        fl_console_note(&reporter->console, "failed: %s: %s", first->label, message_of(first));
    else
        fl_console_note(&reporter->console, "failed: %zu cells (%s%s): %s", count, names,
                        count > NAMED_CELLS ? ", ..." : "", message_of(first));
}

void fl_run_reporter_failures(fl_run_reporter *reporter) {
    for (size_t i = 0; i < reporter->list->count; i++) {
        const fl_cell_work *cell = &reporter->list->cells[i];
        if (cell->state == FL_CELL_FAILED && !cell->told) tell_failure(reporter, cell);
    }
}

static void on_cell(void *context, const fl_cell_work *cell) {
    fl_run_reporter *reporter = context;
    fl_console *console = &reporter->console;
    if (cell->state == FL_CELL_COMPUTED || cell->state == FL_CELL_FAILED) {
        console->clock.finished++;
        console->clock.last_finished = fl_clock_seconds();
    }
    if (cell->state == FL_CELL_FAILED) {
        fl_run_reporter_failures(reporter);
    } else if (cell->state == FL_CELL_COMPUTED || cell->state == FL_CELL_DONE) {
        fl_console_note(console, "done%s: %s (%s)", cell->state == FL_CELL_DONE ? " elsewhere" : "",
                        cell->label, cell->path);
        log_cell(reporter, "cell_done", cell, NULL);
    } else {
        fl_console_note(console, "running elsewhere: %s", cell->label);
        log_cell(reporter, "cell_elsewhere", cell, NULL);
    }
}

static void on_checked(void *context, const fl_cell_work *cell, const fl_self_check_report *check) {
    fl_console *console = &((fl_run_reporter *)context)->console;
    fl_console_note(console, "self check of %s on %zu tokens: %s", cell->label, check->tokens,
                    check->passed ? "passed" : "FAILED");
    for (size_t i = 0; i < check->count; i++) {
        const fl_self_check_row *row = &check->rows[i];
        if (!row->applicable) {
            fl_console_note(console, "  -      %-32s %s", row->name, row->place);
        } else {
            fl_console_note(console, "  %-6s %-32s %.2g (at most %.2g) %s", row->passed ? "ok" : "FAILED",
                            row->name, row->figure, row->bound, row->place);
        }
    }
}

void fl_run_reporter_listen(fl_run_reporter *reporter, fl_evaluation_options *options) {
    options->progress = &reporter->progress;
    options->begun = on_begun;
    options->listener = on_cell;
    options->checked = on_checked;
    options->context = reporter;
}

/* Of the groups that are not open nothing is known: their cells take as long as this one's. */
static void estimate_time(fl_run_reporter *reporter, size_t index, const fl_cell_group *group,
                          size_t pending) {
    fl_plan_estimate estimate = {0};
    fl_run_clock *clock = &reporter->console.clock;
    double seconds = 0;
    if (pending == 0 || clock->finished > 0) return;
    fl_plan_estimate_add(&estimate, reporter->list, index, group);
    if (estimate.worked_out > 0 && estimate.operations < ESTIMATED_OPERATIONS) return;
    if (fl_plan_estimate_seconds(&estimate, reporter->threads, &seconds, NULL) != FL_OK) return;
    clock->estimate = fl_clock_seconds() - clock->began + seconds * (double)clock->cells / (double)pending;
}

void fl_run_reporter_group(fl_run_reporter *reporter, size_t index, const fl_cell_group *group) {
    const fl_cell_list *list = reporter->list;
    fl_console *console = &reporter->console;
    size_t pending = 0, kept = 0, elsewhere = 0;
    for (size_t i = 0; i < list->count; i++) {
        const fl_cell_work *cell = &list->cells[i];
        if (cell->group != index) continue;
        pending += cell->state == FL_CELL_PENDING;
        kept += cell->state == FL_CELL_DONE;
        elsewhere += cell->state == FL_CELL_ELSEWHERE;
        if (cell->stale) fl_console_note(console, "taking over: %s (its process is gone)", cell->label);
        if (cell->again)
            fl_console_note(console, "measured anew: %s (%s%s)", cell->label,
                            cell->changed != NULL ? "changed: " : "--rerun",
                            cell->changed != NULL ? cell->changed : "");
    }
    fl_console_note(console, "%s, %zu sequences, %zu tokens: %zu cells to measure, %zu kept from before",
                    group->bench.model->path, group->text.sequences.count, group->text.tokens, pending, kept);
    fl_run_reporter_failures(reporter);
    if (elsewhere > 0) fl_console_note(console, "%zu cells are running elsewhere", elsewhere);
    count_cells(reporter);
    estimate_time(reporter, index, group, pending);
}

static void list_cells(const fl_cell_list *list, fl_cell_state state) {
    for (size_t i = 0; i < list->count; i++) {
        if (list->cells[i].state == state) fprintf(stderr, "  %s\n", list->cells[i].label);
    }
}

/* Why was said where they failed, and where all did it is the last word; else which they are. */
static void say_failed(const fl_cell_list *list, const char *command, size_t failed) {
    if (failed == 0 || failed == list->count) return;
    fprintf(stderr, "frostline %s: %zu of %zu cells failed (why is said above):\n", command, failed,
            list->count);
    list_cells(list, FL_CELL_FAILED);
}

static void say_left(const fl_run_reporter *reporter, const char *command, size_t left) {
    if (reporter->disk.message[0] != '\0') {
        fprintf(stderr,
                "frostline %s: %s\nfrostline %s: stopped: no cell has failed, %zu are left; once there is "
                "room, the "
                "same command goes on\n",
                command, reporter->disk.message, command, left);
    } else if (left > 0) {
        fprintf(stderr, "frostline %s: %s%zu cells left: the same command resumes\n", command,
                fl_interrupts_seen() > 0 ? "interrupted; " : "", left);
    }
}

static int exit_status(const fl_run_reporter *reporter, size_t failed, size_t left, size_t elsewhere,
                       size_t others) {
    if (fl_interrupts_seen() > 0 && left + elsewhere > 0) return fl_interrupts_exit_status();
    if (failed + left + others > 0 || reporter->disk.message[0] != '\0') return FL_EXIT_FAILURE;
    return elsewhere > 0 ? FL_EXIT_UNFINISHED : FL_EXIT_OK;
}

int fl_run_reporter_conclude(fl_run_reporter *reporter, const char *command, size_t others) {
    const fl_cell_list *list = reporter->list;
    size_t failed = fl_cell_list_count(list, FL_CELL_FAILED),
           left = fl_cell_list_count(list, FL_CELL_PENDING),
           elsewhere = fl_cell_list_count(list, FL_CELL_ELSEWHERE);
    fl_run_reporter_failures(reporter);
    say_failed(list, command, failed);
    if (elsewhere > 0) {
        fprintf(stderr, "frostline %s: %zu of %zu cells are still running elsewhere:\n", command, elsewhere,
                list->count);
        list_cells(list, FL_CELL_ELSEWHERE);
    }
    say_left(reporter, command, left);
    int status = exit_status(reporter, failed, left, elsewhere, others);
    const fl_run_log_field fields[] = {{.name = "failed", .number = (double)failed},
                                       {.name = "left", .number = (double)left},
                                       {.name = "elsewhere", .number = (double)elsewhere},
                                       {.name = "exit_status", .number = status}};
    fl_run_log_add(list->log, "run_ended", fields, sizeof fields / sizeof fields[0]);
    return status;
}
