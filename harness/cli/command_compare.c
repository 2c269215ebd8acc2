/* compare A [B]: two runs or two sweeps, cell by cell, or one beside its baselines, and how surely figures
 * differ. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "analysis/compare_tables.h"
#include "analysis/output_file.h"
#include "analysis/run_compare.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"

typedef struct compare_flags {
    const char *csv, *markdown, *with;
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

static fl_status write_all(const fl_run_comparison *c, const char *const names[2], const compare_flags *given,
                           fl_error *error) {
    fl_compare_tables_text(c, names, stdout);
    if (given->csv != NULL) FL_TRY(write_csv(c, given->csv, error));
    return given->markdown != NULL ? write_markdown(c, names, given->markdown, error) : FL_OK;
}

static fl_status compare_two(const char *const names[2], const compare_flags *given, fl_error *error) {
    fl_run_set *sets[2] = {NULL, NULL};
    fl_run_comparison *comparison = NULL;
    fl_status status = FL_OK;
    for (size_t i = 0; i < 2; i++) FL_TRY_DONE(status, fl_run_set_load(&names[i], 1, &sets[i], error));
    FL_TRY_DONE(status, fl_run_compare(sets[0], sets[1], &comparison, error));
    status = write_all(comparison, names, given, error);
done:
    fl_run_comparison_destroy(comparison);
    for (size_t i = 0; i < 2; i++) fl_run_set_destroy(sets[i]);
    return status;
}

static fl_status compare_own(const char *name, const compare_flags *given, fl_error *error) {
    const bool full = given->with != NULL && strcmp(given->with, "full") == 0;
    const char *const names[2] = {name, name};
    fl_run_set *set = NULL;
    fl_run_comparison *comparison = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_run_set_load(&name, 1, &set, error));
    FL_TRY_DONE(status,
                fl_run_compare_baseline(set, full ? FL_SIDE_FULL : FL_SIDE_LINEAR_OFF, &comparison, error));
    status = write_all(comparison, names, given, error);
done:
    fl_run_comparison_destroy(comparison);
    fl_run_set_destroy(set);
    return status;
}

static int run(const fl_command *command, int argc, char **argv) {
    compare_flags given = {0};
    fl_positionals paths;
    fl_error error;
    int code = fl_arguments_parse(command, argc, argv, &given, &paths);
    if (code >= 0) return code;
    if (paths.count == 2 && given.with != NULL)
        return fl_arguments_refuse(command, "--with is for one set of runs; two were given");
    fl_status status = paths.count == 2 ? compare_two(paths.items, &given, &error)
                                        : compare_own(paths.items[0], &given, &error);
    return status == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

static const char *baseline_name(size_t index) {
    static const char *const names[] = {"linear_off", "full"};
    return index < 2 ? names[index] : NULL;
}

static const fl_flag flags[] = {
    {.name = "--with",
     .value = "BASELINE",
     .kind = FL_VALUE_CHOICE,
     .words = baseline_name,
     .offset = offsetof(compare_flags, with),
     .help = "of A alone: each run with its linear part off (the default), or the full model"},
    {.name = "--csv",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(compare_flags, csv),
     .help = "also write the table, with nine digits"},
    {.name = "--markdown",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(compare_flags, markdown),
     .help = "also write what is printed as Markdown"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "A", .kind = FL_VALUE_FILE, .help = "a run file, or a folder of them"},
    {.name = "B", .kind = FL_VALUE_FILE, .optional = true, .help = "another; differences are B - A"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline compare results/seed1 results/seed2 --markdown seeds.md",
     .what = "two sweeps, cell by cell"},
    {.line = "frostline compare results/quickstart",
     .what = "is the linear part worth having, and how surely"},
    {.line = "frostline compare results/quickstart/0123456789ab.h5 results/quickstart",
     .what = "one run against every other"},
    {0},
};

const fl_command fl_command_compare = {
    .name = "compare",
    .summary = "runs, sweeps or a sweep and its baselines: differences, intervals, p",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help =
        "A alone: each run beside itself without its linear part, or beside the full model. A and B: cells "
        "are matched by run id, then by what their configurations share when the keys in which the two "
        "sweeps differ as wholes are left out; cells without a partner are listed. Differences of texts are "
        "paired over the sequences both have measured (bootstrap), of task items over the items both have "
        "(McNemar's exact test). docs/statistics.md has the definitions.",
    .run = run,
};
