/* run CONFIG: one cell or a sweep; what is there already is skipped, what others work on is left to them. */
#include <dirent.h>
#include <stdint.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "analysis/plots.h"
#include "harness/base/clock.h"
#include "harness/base/memory.h"
#include "harness/cli/arguments.h"
#include "harness/run/cell_claim.h"
#include "harness/run/cell_list.h"
#include "harness/cli/columns.h"
#include "harness/cli/command.h"
#include "harness/cli/console.h"
#include "harness/cli/positionals.h"
#include "harness/cli/run_reporter.h"
#include "harness/run/evaluation.h"
#include "harness/cli/folder_table.h"
#include "harness/cli/summary.h"
#include "harness/cli/score_table.h"
#include "harness/store/folder.h"

static const char *const state_words[] = {
    [FL_CELL_PENDING] = "not run", [FL_CELL_DONE] = "kept",
    [FL_CELL_COMPUTED] = "new",    [FL_CELL_DUPLICATE] = "same as another",
    [FL_CELL_FAILED] = "failed",   [FL_CELL_ELSEWHERE] = "running elsewhere",
};

/* false: interrupted, or nothing can be written: start no further group. */
static bool run_group(fl_cell_list *list, size_t index, const fl_evaluation_options *options,
                      fl_run_reporter *reporter) {
    fl_cell_group group;
    fl_error error;
    fl_status status = fl_cell_group_open(list, index, &group, &error);
    if (status == FL_OK) {
        fl_command_note(group.bench.model->path, group.bench.model->note);
        fl_run_reporter_group(reporter, index, &group);
        status = fl_evaluation_run(list, index, &group, options, &error);
        fl_cell_group_close(list, index, &group);
    }
    fl_console_end_line(&reporter->console);
    if (status == FL_ERROR_CANCELLED) return false;
    if (status == FL_ERROR_DISK) reporter->disk = error;
    if (status == FL_ERROR_DISK) return false;
    if (status != FL_OK) fl_cell_group_fail(list, index, &error);
    fl_run_reporter_failures(reporter);
    return true;
}

static bool has_file(const fl_cell_work *cell) {
    return cell->state == FL_CELL_DONE || cell->state == FL_CELL_COMPUTED;
}

static fl_status print_table(const fl_cell_list *list, fl_error *error) {
    fl_summary_row *rows = NULL;
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&rows, list->count, error));
    for (size_t i = 0; i < list->count; i++) {
        rows[i].label = list->cells[i].label;
        rows[i].status = state_words[list->cells[i].state];
        if (list->cells[i].state != FL_CELL_DUPLICATE) {
            rows[i].warnings = list->cells[i].warnings;
            rows[i].warning_count = list->cells[i].warning_count;
        }
        if (!has_file(&list->cells[i])) continue;
        rows[i].measured = fl_run_entry_read(list->cells[i].path, &rows[i].run, error) == FL_OK;
        if (!rows[i].measured) rows[i].status = "unreadable";
    }
    FL_TRY_DONE(status, fl_summary_print(stdout, fl_columns_of_terminal(stdout), rows, list->count, error));
    status = fl_folder_table_write(list->out, error);
done:
    for (size_t i = 0; i < list->count; i++) fl_run_entry_release(&rows[i].run);
    fl_memory_free(rows);
    return status;
}

static fl_status print_tasks(const fl_cell_list *list, fl_error *error) {
    const char **labels = NULL, **files = NULL;
    size_t count = 0;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&labels, list->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&files, list->count, error));
    for (size_t i = 0; i < list->count; i++) {
        if (!has_file(&list->cells[i])) continue;
        labels[count] = list->cells[i].label;
        files[count++] = list->cells[i].path;
    }
    FL_TRY_DONE(status, fl_score_table_print(stdout, labels, files, count, error));
    if (count > 1) status = fl_folder_table_print_pooled(stdout, files, count, error);
done:
    fl_memory_free(labels);
    fl_memory_free(files);
    return status;
}

static bool is_pictured(const fl_cell_work *cell) {
    return has_file(cell) && cell->experiment->has_text && cell->experiment->measure.teacher_forced;
}

static void note_picture(void *context, const char *name) {
    (void)name;
    *(bool *)context = true;
}

/* The picture of a sweep: what `plot --kind nmse` makes of its run files. */
static fl_status draw_picture(const fl_cell_list *list, bool *drawn, fl_error *error) {
    const char **paths = NULL, *title = NULL;
    size_t count = 0;
    fl_run_set *set = NULL;
    *drawn = false;
    FL_TRY(FL_ALLOCATE(&paths, list->count, error));
    for (size_t i = 0; i < list->count; i++) {
        if (!is_pictured(&list->cells[i])) continue;
        if (title == NULL) title = list->cells[i].experiment->name;
        paths[count++] = list->cells[i].path;
    }
    fl_status status = count > 0 ? fl_run_set_load(paths, count, &set, error) : FL_OK;
    const fl_plot_request request = {.set = set,
                                     .folder = list->out,
                                     .format = "png",
                                     .title = title,
                                     .drawn = note_picture,
                                     .context = drawn};
    if (set != NULL) status = fl_plot_kind_find("nmse")->draw(&request, error);
    fl_run_set_destroy(set);
    fl_memory_free(paths);
    return status;
}

/* Whether a name is that of a table or script which a killed process had begun to write. */
static bool is_unfinished_table(const char *name) {
    static const char *const tables[] = {"table.csv.", "nmse_by_layer.csv.", "nmse_by_position.csv.",
                                         "nmse.gp."};
    size_t length = strlen(name);
    if (length < 5 || strcmp(name + length - 5, ".part") != 0) return false;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if (strncmp(name, tables[i], strlen(tables[i])) == 0) return true;
    }
    return false;
}

/* Nobody writes tables now: the caller holds the lock. */
static void remove_unfinished_tables(const char *out) {
    DIR *folder = opendir(out);
    if (folder == NULL) return;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (is_unfinished_table(entry->d_name)) unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
}

/* Table, picture, and where everything is. Returns false when one of them could not be made. */
static bool present_finished(const fl_cell_list *list, fl_console *console) {
    fl_error error;
    bool good = true;
    bool drawn = false;
    remove_unfinished_tables(list->out);
    if (print_table(list, &error) != FL_OK) {
        fl_console_note(console, "no table: %s", error.message);
        good = false;
    }
    if (print_tasks(list, &error) != FL_OK) {
        fl_console_note(console, "no table of tasks: %s", error.message);
        good = false;
    }
    /* What was measured is there whether it can be drawn or not. */
    if (fl_interrupts_seen() == 0 && draw_picture(list, &drawn, &error) != FL_OK)
        fl_console_note(console, "no picture: %s", error.message);
    printf("\nrun files  %s/*.h5\ntable      %s/table.csv\n", list->out, list->out);
    if (drawn)
        printf("picture    %s/nmse.png (numbers: nmse_by_layer.csv, nmse_by_position.csv)\n", list->out);
    return good;
}

static size_t count_finished(fl_cell_list *list) {
    fl_cell_look_again(list, SIZE_MAX);
    return fl_cell_list_count(list, FL_CELL_DONE) + fl_cell_list_count(list, FL_CELL_COMPUTED);
}

/* Workers that end at the same time write the same table: one after another, the last one with every cell.
 * Where there is nothing to show, nothing is left in the folder. */
static bool present(fl_cell_list *list, fl_console *console) {
    fl_error error;
    int lock = -1;
    if (count_finished(list) == 0) return true;
    /* Without locks (some network file systems) a table may be made of fewer cells than there are; no more.
     */
    if (fl_sweep_lock(list->out, "table", &lock, &error) != FL_OK)
        fl_console_note(console, "no lock: %s", error.message);
    count_finished(list);
    bool good = present_finished(list, console);
    fl_sweep_unlock(lock);
    return good;
}

static size_t list_failed_checks(const fl_command *command, const fl_cell_list *list) {
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (!has_file(&list->cells[i]) || !list->cells[i].check_failed) continue;
        if (count++ == 0) fprintf(stderr, "frostline %s: the self check failed in\n", command->name);
        fprintf(stderr, "  %s (%s)\n", list->cells[i].label, list->cells[i].path);
    }
    return count;
}

/* 1 when --rerun names cells and there is none of such a name: a mistake that would go unseen. */
static size_t count_unmatched(const fl_command *command, const fl_cell_list *list) {
    if (list->rerun == NULL || strcmp(list->rerun, "failed") == 0) return 0;
    for (size_t i = 0; i < list->count; i++) {
        if (list->cells[i].rerun || !list->cells[i].looked_at) return 0;
    }
    fprintf(stderr, "frostline %s: --rerun %s: no cell has a label or run id like that\n", command->name,
            list->rerun);
    return 1;
}

static bool has_pending(const fl_cell_list *list, size_t group) {
    for (size_t i = 0; i < list->count; i++) {
        if (list->cells[i].group == group && list->cells[i].state == FL_CELL_PENDING) return true;
    }
    return false;
}

/* Every group once, then again those with cells that other processes have given up. With seconds to wait,
 * cells running elsewhere are looked at until they are done, given up or the time is over. */
static void run_all(fl_cell_list *list, const fl_evaluation_options *options, size_t wait_seconds,
                    fl_run_reporter *reporter) {
    const double end = fl_clock_seconds() + (double)wait_seconds;
    do {
        for (size_t i = 0; i < list->groups; i++) {
            if (!has_pending(list, i)) continue;
            if (fl_interrupts_seen() > 0 || !run_group(list, i, options, reporter)) return;
        }
        size_t again = fl_cell_look_again(list, SIZE_MAX);
        while (again == 0 && fl_cell_list_count(list, FL_CELL_ELSEWHERE) > 0 && fl_interrupts_seen() == 0 &&
               fl_clock_seconds() < end) {
            nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
            again = fl_cell_look_again(list, SIZE_MAX);
        }
        if (again == 0) return;
    } while (fl_interrupts_seen() == 0);
}

typedef struct run_flags {
    const char *out;
    size_t threads, batch, stale, wait;
    bool self_check, retry_failed, keep_older;
    const char *rerun, *log, *device;
} run_flags;

static fl_status load(const fl_positionals *arguments, const run_flags *flags, fl_cell_list **list,
                      fl_error *error) {
    const char **overrides = NULL;
    char device[64];
    size_t count = arguments->count - 1;
    FL_TRY(FL_ALLOCATE(&overrides, count + 2, error));
    for (size_t i = 0; i < count; i++) overrides[i] = arguments->items[1 + i];
    if (flags->self_check) overrides[count++] = "measure.self_check=true";
    if (flags->device != NULL) {
        snprintf(device, sizeof device, "compute.device=%s", flags->device);
        overrides[count++] = device;
    }
    fl_status status = fl_cell_list_load(arguments->items[0], overrides, count, flags->out, list, error);
    fl_memory_free(overrides);
    if (status != FL_OK) return status;
    const bool failed = flags->rerun != NULL && strcmp(flags->rerun, "failed") == 0;
    (*list)->policy = (fl_sweep_policy){.stale_seconds = (double)flags->stale,
                                        .retry_failed = flags->retry_failed || failed};
    (*list)->keep_older = flags->keep_older;
    (*list)->rerun = flags->rerun;
    return FL_OK;
}

/* A log that cannot be written is no reason not to measure. */
static void open_log(const fl_command *command, fl_cell_list *list, const char *path) {
    fl_error error;
    if (path == NULL || fl_run_log_open(path, &list->log, &error) == FL_OK) return;
    fprintf(stderr, "frostline %s: warning: no log: %s\n", command->name, error.message);
}

static int measure(const fl_command *command, fl_cell_list *list, const run_flags *given) {
    fl_run_reporter reporter;
    fl_evaluation_options options = {
        .threads = given->threads, .batch = given->batch, .interrupts = fl_interrupts_seen};
    fl_interrupts_install(true);
    open_log(command, list, given->log);
    fl_run_reporter_start(&reporter, list, given->threads);
    fl_run_reporter_listen(&reporter, &options);
    list->threads = given->threads;
    list->progress = &reporter.progress;
    run_all(list, &options, given->wait, &reporter);
    fl_interrupts_hold(true);
    bool presented = present(list, &reporter.console);
    /* Trouble with tidiness is no failure. */
    if (count_finished(list) > 0) fl_sweep_tidy(given->out, list->policy.stale_seconds, NULL);
    size_t others = list_failed_checks(command, list) + count_unmatched(command, list) + !presented;
    int code = fl_run_reporter_conclude(&reporter, command->name, others);
    fl_run_log_close(list->log);
    return code;
}

static int run(const fl_command *command, int argc, char **argv) {
    run_flags given = {.out = "results"};
    fl_positionals arguments;
    int code = fl_arguments_parse(command, argc, argv, &given, &arguments);
    if (code >= 0) return code;
    fl_cell_list *list = NULL;
    fl_error error;
    if (load(&arguments, &given, &list, &error) != FL_OK) return fl_command_fail(command, &error);
    /* Before anything is measured. */
    const bool made = access(given.out, F_OK) != 0;
    fl_status status = fl_folder_create(given.out, &error);
    if (status == FL_OK) status = fl_folder_check_writable(given.out, &error);
    if (status == FL_OK) {
        code = measure(command, list, &given);
    } else {
        code = fl_command_fail(command, &error);
    }
    /* Only when there is nothing in it. */
    if (made) rmdir(given.out);
    fl_cell_list_destroy(list);
    return code;
}

static const fl_flag flags[] = {
    {.name = "--out",
     .value = "DIR",
     .kind = FL_VALUE_FOLDER,
     .offset = offsetof(run_flags, out),
     .help = "where run files, table and picture go (default: results)"},
    {.name = "--threads",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(run_flags, threads),
     .help = "0, the default: all processors"},
    {.name = "--device",
     .value = "NAME",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(run_flags, device),
     .help = "compute.device: cpu or cuda"},
    {.name = "--self-check",
     .offset = offsetof(run_flags, self_check),
     .help = "also check every cell's exactness"},
    {.name = "--retry-failed",
     .offset = offsetof(run_flags, retry_failed),
     .help = "cells that failed before are tried again"},
    {.name = "--rerun",
     .value = "WHICH",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(run_flags, rerun),
     .help =
         "measure anew: all, failed, or cells whose label or run id matches (* and ? stand for anything)"},
    {.name = "--keep-older",
     .offset = offsetof(run_flags, keep_older),
     .help = "results that other code has made count as done; every table marks them"},
    {.name = "--batch",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(run_flags, batch),
     .help = "cells taken at a time, at most 16; they share a pass"},
    {.name = "--stale",
     .value = "SECONDS",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(run_flags, stale),
     .help = "another machine's claim that old is taken over (default: 600)"},
    {.name = "--log",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(run_flags, log),
     .help = "appends what happens, a JSON object a line: stages, training steps, cells (docs/running.md)"},
    {.name = "--wait",
     .value = "SECONDS",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(run_flags, wait),
     .help = "stay so long for cells that others may give up"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline run configs/quickstart.yaml --out results/quickstart",
     .what = "measures the cells that are missing there; again: only what is left"},
    {.line = "frostline run my.yaml variant.seed=2 --threads 4", .what = "the same with another seed"},
    {.line = "frostline run my.yaml --rerun kda", .what = "measures the cells with kda in their label anew"},
    {.line = "frostline run my.yaml 'sweep.grid.variant.rule=[gla, kda]'", .what = "another sweep"},
    {0},
};

const fl_command fl_command_run = {
    .name = "run",
    .summary = "measures one cell or a sweep; cells that are done are kept",
    .positionals = fl_positionals_sweep,
    .flags = flags,
    .examples = examples,
    .help =
        "A text can be path (a file or folder), ids (token lists), or self_generated: {tokens: N, "
        "temperature, top_p, top_k, seed}: sampled from the frozen model once and kept beside the run "
        "files; likewise under train.\n"
        "Interrupt once (Ctrl-C, or SIGTERM): stop at the next safe point, within two seconds, and keep "
        "every "
        "finished stage. Twice: at once. The same command resumes.\n"
        "Exit status: 0 all cells are done, 1 some failed or the disk is full, 2 wrong usage, 75 all is well "
        "but others still work on cells, 130 interrupted, 143 ended by SIGTERM.\n"
        "Several processes, also on several machines, may run the same command in one DIR: each takes "
        "cells that nobody has, and none waits for another. --batch 1 spreads a small sweep best.\n"
        "A cell whose result was made by other code (its rule's file or what lies below it has changed) is "
        "measured anew; its old run file stays as RUNID.h5.older until the new one is there.",
    .run = run,
};
