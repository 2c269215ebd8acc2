/* report PATH...: one HTML page for a run set. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "analysis/report.h"
#include "harness/cli/absent_note.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/store/folder.h"

enum { PATH_BYTES = 4096 };

/* "a/report.html" -> "a/report_figures" */
static fl_status make_figure_folder(const char *page, char folder[PATH_BYTES], fl_error *error) {
    size_t length = strlen(page);
    if (length > 5 && strcmp(page + length - 5, ".html") == 0) length -= 5;
    int written = snprintf(folder, PATH_BYTES, "%.*s_figures", (int)length, page);
    if (written < 0 || written >= PATH_BYTES)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "--out: path too long");
    return fl_folder_create(folder, error);
}

typedef struct report_flags {
    const char *out;
    bool each;
} report_flags;

static int run(const fl_command *command, int argc, char **argv) {
    report_flags given = {.out = "report.html"};
    fl_positionals paths;
    int code = fl_arguments_parse(command, argc, argv, &given, &paths);
    if (code >= 0) return code;
    const char *out = given.out;
    fl_run_set *set = NULL;
    fl_error error;
    char figures[PATH_BYTES];
    fl_status status = fl_run_set_load(paths.items, paths.count, &set, &error);
    if (status == FL_OK) status = make_figure_folder(out, figures, &error);
    if (status == FL_OK) status = fl_report_write(set, given.each, out, figures, &error);
    if (status == FL_OK) code = fl_absent_note_print(command, set);
    fl_run_set_destroy(set);
    if (status != FL_OK) return fl_command_fail(command, &error);
    printf("%s\n", out);
    return code;
}

static const fl_flag flags[] = {
    {.name = "--out",
     .value = "FILE.html",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(report_flags, out),
     .help = "the page (default: report.html)"},
    {.name = "--each",
     .offset = offsetof(report_flags, each),
     .help = "runs that differ in seeds only have rows of their own"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "PATH", .kind = FL_VALUE_FILE, .repeated = true, .help = "a run file, or a folder of them"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline report results/quickstart --out quickstart.html",
     .what = "the whole sweep on one page"},
    {0},
};

const fl_command fl_command_report = {
    .name = "report",
    .summary = "one self-contained HTML page: tables, warnings, figures, provenance",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help = "The figures and their numbers also stay in FILE_figures.",
    .run = run,
};
