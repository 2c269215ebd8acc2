/* table PATH...: what was measured, on the terminal. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "analysis/run_columns.h"
#include "analysis/run_groups.h"
#include "analysis/run_set.h"
#include "analysis/table.h"
#include "harness/cli/arguments.h"
#include "harness/cli/column_names.h"
#include "harness/cli/command.h"
#include "harness/cli/page_table.h"

typedef struct wishes {
    const char *columns, *sort;
    bool each, descending;
} wishes;

static fl_status sort_table(const wishes *w, fl_table *table, fl_error *error) {
    if (w->sort == NULL) return FL_OK;
    size_t column = fl_table_find(table, w->sort);
    if (column == table->column_count)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "--sort: the table has no column '%s'", w->sort);
    return fl_table_sort(table, column, w->descending, error);
}

static fl_status print(const wishes *w, const fl_run_set *set, fl_error *error) {
    fl_column_names columns = {0};
    fl_run_groups *groups = NULL;
    fl_table table = {0};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_column_names_split(w->columns, &columns, error));
    FL_TRY_DONE(status, fl_run_groups_make(set, w->each, &groups, error));
    FL_TRY_DONE(status, fl_run_columns_page(groups, columns.names, columns.count, &table, error));
    FL_TRY_DONE(status, sort_table(w, &table, error));
    status = fl_page_table_print(stdout, &table, error);
done:
    fl_table_release(&table);
    fl_run_groups_destroy(groups);
    fl_column_names_release(&columns);
    return status;
}

static int run(const fl_command *command, int argc, char **argv) {
    wishes w = {0};
    fl_positionals arguments;
    fl_run_set *set = NULL;
    fl_error error;
    int code = fl_arguments_parse(command, argc, argv, &w, &arguments);
    if (code >= 0) return code;
    fl_status status = fl_run_set_load(arguments.items, arguments.count, &set, &error);
    if (status == FL_OK) status = print(&w, set, &error);
    fl_run_set_destroy(set);
    return status == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--columns",
     .value = "A,B,...",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(wishes, columns),
     .help = "these columns: label, a key of the configuration (rule, train.steps), a metric (kl, "
             "tasks/mmlu/acc)"},
    {.name = "--each",
     .offset = offsetof(wishes, each),
     .help = "runs that differ only in seeds in rows of their own"},
    {.name = "--sort",
     .value = "COLUMN",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(wishes, sort),
     .help = "rows by one of the columns shown, smallest first"},
    {.name = "--descending", .offset = offsetof(wishes, descending), .help = "largest first"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "PATH", .kind = FL_VALUE_FILE, .repeated = true, .help = "a run file, or a folder of them"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline table results/quickstart --sort perplexity", .what = "the best variant first"},
    {.line = "frostline table results/quickstart --columns label,nmse,perplexity,state_bytes",
     .what = "what is asked for"},
    {0},
};

const fl_command fl_command_table = {
    .name = "table",
    .summary = "what the run files of a folder say, as a table on the terminal",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help =
        "Runs that differ only in their seeds are one row: mean and standard deviation over n runs.\n"
        "lin. off: the same run with only the exact set. `export --summary` has every figure, for programs.",
    .run = run,
};
