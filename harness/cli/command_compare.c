/* compare A B: two runs or two sweeps, cell by cell, and how surely their figures differ. */
#include <stddef.h>
#include <stdio.h>

#include "analysis/compare_tables.h"
#include "analysis/output_file.h"
#include "analysis/run_compare.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"

typedef struct compare_flags {
    const char *csv, *markdown;
} compare_flags;

static fl_status write_markdown(const fl_run_comparison *c, const char *const names[2], const char *path,
                                fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    fl_compare_tables_markdown(c, names, file.stream);
    return fl_output_file_close(&file, error);
}

static fl_status write_csv(const fl_run_comparison *c, const char *path, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    fl_compare_tables_csv(c, file.stream);
    return fl_output_file_close(&file, error);
}

static fl_status compare(const char *const names[2], const compare_flags *given, fl_error *error) {
    fl_run_set *sets[2] = {NULL, NULL};
    fl_run_comparison *comparison = NULL;
    fl_status status = FL_OK;
    for (size_t i = 0; i < 2; i++) FL_TRY_DONE(status, fl_run_set_load(&names[i], 1, &sets[i], error));
    FL_TRY_DONE(status, fl_run_compare(sets[0], sets[1], &comparison, error));
    fl_compare_tables_text(comparison, names, stdout);
    if (given->csv != NULL) FL_TRY_DONE(status, write_csv(comparison, given->csv, error));
    if (given->markdown != NULL)
        FL_TRY_DONE(status, write_markdown(comparison, names, given->markdown, error));
done:
    fl_run_comparison_destroy(comparison);
    for (size_t i = 0; i < 2; i++) fl_run_set_destroy(sets[i]);
    return status;
}

static int run(const fl_command *command, int argc, char **argv) {
    compare_flags given = {0};
    fl_positionals paths;
    fl_error error;
    int code = fl_arguments_parse(command, argc, argv, &given, &paths);
    if (code >= 0) return code;
    return compare(paths.items, &given, &error) == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--csv",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(compare_flags, csv),
     .help = "also write the table with all digits"},
    {.name = "--markdown",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(compare_flags, markdown),
     .help = "also write what is printed as Markdown"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "A", .kind = FL_VALUE_FILE, .help = "a run file, or a folder of them"},
    {.name = "B", .kind = FL_VALUE_FILE, .help = "another; differences are B - A"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline compare results/seed1 results/seed2 --markdown seeds.md",
     .what = "two sweeps, cell by cell"},
    {.line = "frostline compare results/quickstart/0123456789ab.h5 results/quickstart",
     .what = "one run against every other"},
    {0},
};

const fl_command fl_command_compare = {
    .name = "compare",
    .summary = "two runs or two sweeps, cell by cell: differences, intervals, p",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help =
        "Cells are matched by run id, then by what their configurations share when the keys in which the two "
        "sweeps differ as wholes are left out; cells without a partner are listed. Differences of texts are "
        "paired over the sequences both have measured (bootstrap), of task items over the items both have "
        "(McNemar's exact test). docs/statistics.md has the definitions.",
    .run = run,
};
