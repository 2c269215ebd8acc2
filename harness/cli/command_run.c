/* run CONFIG: one cell or a sweep; what is there already is skipped. */
#include <stdio.h>
#include <string.h>

#include "analysis/plot_nmse.h"
#include "harness/base/memory.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/console.h"
#include "harness/cli/evaluation.h"
#include "harness/cli/summary.h"
#include "harness/store/folder.h"
#include "harness/cli/cell_list.h"

enum { PATH_BYTES = 4096 };

static const char *const state_words[] = {
    [FL_CELL_PENDING] = "not run",           [FL_CELL_DONE] = "kept",     [FL_CELL_COMPUTED] = "new",
    [FL_CELL_DUPLICATE] = "same as another", [FL_CELL_FAILED] = "failed",
};

static void on_cell(void *context, const fl_cell_work *cell) {
    fl_console *console = context;
    if (cell->state == FL_CELL_FAILED) {
        fl_console_note(console, "failed: %s: %s", cell->label,
                        cell->message != NULL ? cell->message : "out of memory");
    } else {
        fl_console_note(console, "done: %s (%s)", cell->label, cell->path);
    }
}

static void on_checked(void *context, const fl_cell_work *cell, const fl_self_check_report *report) {
    fl_console *console = context;
    fl_console_note(console, "self check of %s on %zu tokens: %s", cell->label, report->tokens,
                    report->passed ? "passed" : "FAILED");
    for (size_t i = 0; i < report->count; i++) {
        const fl_self_check_row *row = &report->rows[i];
        if (!row->applicable) {
            fl_console_note(console, "  -      %-32s %s", row->name, row->place);
        } else {
            fl_console_note(console, "  %-6s %-32s %.2g (at most %.2g) %s", row->passed ? "ok" : "FAILED",
                            row->name, row->figure, row->bound, row->place);
        }
    }
}

/* Says what was skipped or could not be set up before the computing starts. */
static void announce_group(const fl_cell_list *list, size_t index, const fl_cell_group *group,
                           fl_console *console) {
    size_t pending = 0, kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        const fl_cell_work *cell = &list->cells[i];
        if (cell->group != index) continue;
        pending += cell->state == FL_CELL_PENDING;
        kept += cell->state == FL_CELL_DONE;
        if (cell->state == FL_CELL_FAILED) on_cell(console, cell);
    }
    fl_console_note(console, "%s, %zu sequences, %zu tokens: %zu cells to measure, %zu kept from before",
                    group->bench.model->path, group->text.sequences.count, group->text.tokens, pending, kept);
}

/* false: interrupted, start no further group. */
static bool run_group(fl_cell_list *list, size_t index, const fl_evaluation_options *options,
                      fl_console *console) {
    fl_cell_group group;
    fl_error error;
    fl_status status = fl_cell_group_open(list, index, &group, &error);
    if (status == FL_OK) {
        announce_group(list, index, &group, console);
        status = fl_evaluation_run(list, index, &group, options, &error);
        fl_cell_group_close(list, index, &group);
    }
    fl_console_end_line(console);
    if (status == FL_ERROR_CANCELLED) return false;
    if (status != FL_OK) {
        fl_console_note(console, "failed: %s", error.message);
        fl_cell_group_fail(list, index, &error);
    }
    return true;
}

static bool has_file(const fl_cell_work *cell) {
    return cell->state == FL_CELL_DONE || cell->state == FL_CELL_COMPUTED;
}

static fl_status print_table(const fl_cell_list *list, fl_error *error) {
    fl_summary_row *rows = NULL;
    char path[PATH_BYTES];
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&rows, list->count, error));
    for (size_t i = 0; i < list->count; i++) {
        rows[i].label = list->cells[i].label;
        rows[i].status = state_words[list->cells[i].state];
        if (!has_file(&list->cells[i])) continue;
        FL_TRY_DONE(status, fl_run_summary_read(list->cells[i].path, &rows[i].summary, error));
        rows[i].measured = true;
    }
    fl_summary_print(stdout, rows, list->count);
    snprintf(path, sizeof path, "%s/table.csv", list->out);
    status = fl_summary_write_csv(path, rows, list->count, error);
done:
    for (size_t i = 0; i < list->count; i++) fl_run_summary_release(&rows[i].summary);
    fl_memory_free(rows);
    return status;
}

/* One colour a rule, one dash for everything else in the label. */
static void choose_style(const fl_cell_list *list, fl_plot_curve *curves, const size_t *cells, size_t index) {
    const char *rule = fl_resolved_find(list->cells[cells[index]].experiment->resolved, "variant.rule");
    const char *window = fl_resolved_find(list->cells[cells[index]].experiment->resolved, "variant.window");
    curves[index].colour = curves[index].dash = 0;
    size_t colours = 0, dashes = 0;
    bool colour_known = false, dash_known = false;
    for (size_t i = 0; i < index; i++) {
        const fl_resolved *other = list->cells[cells[i]].experiment->resolved;
        const char *its_rule = fl_resolved_find(other, "variant.rule");
        const char *its_window = fl_resolved_find(other, "variant.window");
        if (curves[i].colour >= colours) colours = curves[i].colour + 1;
        if (curves[i].dash >= dashes) dashes = curves[i].dash + 1;
        if (rule != NULL && its_rule != NULL && strcmp(rule, its_rule) == 0) {
            curves[index].colour = curves[i].colour;
            colour_known = true;
        }
        if (window != NULL && its_window != NULL && strcmp(window, its_window) == 0) {
            curves[index].dash = curves[i].dash;
            dash_known = true;
        }
    }
    if (!colour_known) curves[index].colour = colours;
    if (!dash_known) curves[index].dash = dashes;
}

static fl_status draw_picture(const fl_cell_list *list, size_t *drawn, fl_error *error) {
    fl_plot_curve *curves = NULL;
    size_t *cells = NULL, count = 0;
    fl_status status = FL_OK;
    *drawn = 0;
    FL_TRY_DONE(status, FL_ALLOCATE(&curves, list->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&cells, list->count, error));
    for (size_t i = 0; i < list->count; i++) {
        const fl_cell_work *cell = &list->cells[i];
        if (!has_file(cell) || !cell->experiment->measure.teacher_forced) continue;
        cells[count] = i;
        curves[count].label = cell->label;
        curves[count].run_file = cell->path;
        choose_style(list, curves, cells, count);
        count++;
    }
    if (count > 0)
        FL_TRY_DONE(status,
                    fl_plot_nmse(list->out, list->cells[cells[0]].experiment->name, curves, count, error));
    *drawn = count;
done:
    fl_memory_free(curves);
    fl_memory_free(cells);
    return status;
}

/* Table, picture, and where everything is. Returns false when one of them could not be made. */
static bool present(const fl_cell_list *list, fl_console *console) {
    fl_error error;
    bool good = true;
    size_t drawn = 0;
    if (fl_cell_list_count(list, FL_CELL_DONE) + fl_cell_list_count(list, FL_CELL_COMPUTED) == 0) return true;
    if (print_table(list, &error) != FL_OK) {
        fl_console_note(console, "no table: %s", error.message);
        good = false;
    }
    fl_status status = draw_picture(list, &drawn, &error);
    if (status != FL_OK) {
        fl_console_note(console, "no picture: %s", error.message);
        good = good && status == FL_ERROR_UNSUPPORTED;
    }
    printf("\nrun files  %s/*.h5\ntable      %s/table.csv\n", list->out, list->out);
    if (drawn > 0)
        printf("picture    %s/nmse.png (numbers: nmse_by_layer.csv, nmse_by_position.csv)\n", list->out);
    return good;
}

static int conclude(const fl_command *command, const fl_cell_list *list, bool presented) {
    size_t failed = fl_cell_list_count(list, FL_CELL_FAILED),
           left = fl_cell_list_count(list, FL_CELL_PENDING);
    if (failed > 0)
        fprintf(stderr, "frostline %s: %zu of %zu cells failed:\n", command->name, failed, list->count);
    for (size_t i = 0; i < list->count; i++) {
        const fl_cell_work *cell = &list->cells[i];
        if (cell->state != FL_CELL_FAILED) continue;
        fprintf(stderr, "  %s: %s\n", cell->label, cell->message != NULL ? cell->message : "out of memory");
    }
    if (left > 0)
        fprintf(stderr, "frostline %s: interrupted; %zu cells left: the same command resumes\n",
                command->name, left);
    return failed == 0 && left == 0 && presented ? FL_EXIT_OK : FL_EXIT_FAILURE;
}

static int run(const fl_command *command, int argc, char **argv) {
    const char *out = "results";
    size_t threads = 0;
    const fl_flag flags[] = {
        {"--out", "DIR", &out, NULL, NULL, "where run files, table and picture go (default: results)"},
        {"--threads", "N", NULL, &threads, NULL, "0, the default: all processors"},
    };
    fl_positionals arguments;
    int code = fl_arguments_parse(command, argc, argv, flags, sizeof flags / sizeof flags[0], 1, (size_t)argc,
                                  &arguments);
    if (code >= 0) return code;
    fl_cell_list *list = NULL;
    fl_error error;
    if (fl_cell_list_load(arguments.items[0], arguments.items + 1, arguments.count - 1, out, &list, &error) !=
        FL_OK) {
        return fl_command_fail(command, &error);
    }
    if (fl_folder_create(out, &error) != FL_OK) {
        fl_cell_list_destroy(list);
        return fl_command_fail(command, &error);
    }
    fl_interrupts_install();
    fl_console console;
    fl_progress progress = fl_console_progress(&console);
    const fl_evaluation_options options = {.threads = threads,
                                           .progress = &progress,
                                           .interrupts = fl_interrupts_seen,
                                           .listener = on_cell,
                                           .checked = on_checked,
                                           .context = &console};
    for (size_t i = 0; i < list->groups && fl_interrupts_seen() == 0; i++) {
        if (!run_group(list, i, &options, &console)) break;
    }
    code = conclude(command, list, present(list, &console));
    fl_cell_list_destroy(list);
    return code;
}

const fl_command fl_command_run = {
    .name = "run",
    .arguments = "CONFIG [key=value ...] [--out DIR] [--threads N]",
    .summary = "measures one cell or a sweep; cells that are done are kept",
    .help = "key=value overrides the config, also inside: variant.window=120, text.sequences=4.\n"
            "Interrupt once: finish what is being measured. Twice: stop at once. The same command resumes.",
    .run = run,
};
