/* export RUN.h5|DIR: numbers of run files for other programs. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "analysis/lm_eval_files.h"
#include "analysis/output_file.h"
#include "analysis/run_columns.h"
#include "analysis/run_groups.h"
#include "analysis/run_set.h"
#include "analysis/run_tables.h"
#include "analysis/table.h"
#include "harness/base/memory.h"
#include "harness/cli/absent_note.h"
#include "harness/cli/arguments.h"
#include "harness/cli/column_names.h"
#include "harness/cli/command.h"
#include "harness/cli/words.h"
#include "harness/store/run_file.h"

typedef struct wishes {
    const char *format, *out, *by, *lm_eval, *columns;
    bool summary, each;
    const char *const *paths; /* the leading arguments that exist, and at least one */
    size_t path_count;
    const char *const *datasets;
    size_t dataset_count;
} wishes;

static bool is_page(const wishes *w) {
    return strcmp(w->format, "latex") == 0 || strcmp(w->format, "markdown") == 0;
}

static fl_status write_table(const wishes *w, const fl_table *table, const char *note, fl_error *error) {
    fl_output_file file = {0};
    FILE *stream = stdout;
    if (w->out != NULL) {
        FL_TRY(fl_output_file_open(w->out, &file, error));
        stream = file.stream;
    }
    if (strcmp(w->format, "csv") == 0) fl_table_write_csv(table, stream);
    if (strcmp(w->format, "json") == 0) fl_table_write_json(table, stream);
    if (strcmp(w->format, "latex") == 0) fprintf(stream, note[0] != '\0' ? "%% %s\n" : "%s", note);
    if (strcmp(w->format, "latex") == 0) fl_table_write_latex(table, stream);
    if (strcmp(w->format, "markdown") == 0) fl_table_write_markdown(table, stream);
    if (strcmp(w->format, "markdown") == 0) fprintf(stream, note[0] != '\0' ? "\n%s\n" : "%s", note);
    return w->out != NULL ? fl_output_file_close(&file, error) : FL_OK;
}

static fl_status export_summary(const wishes *w, const fl_run_set *set, fl_error *error) {
    fl_run_groups *groups = NULL;
    fl_column_names columns = {0};
    fl_table table = {0};
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_column_names_split(w->columns, &columns, error));
    FL_TRY_DONE(status, fl_run_groups_make(set, w->each, &groups, error));
    FL_TRY_DONE(status, is_page(w)
                            ? fl_run_columns_page(groups, columns.names, columns.count, &table, error)
                            : fl_run_columns_tidy(groups, columns.names, columns.count, &table, error));
    status = write_table(w, &table, fl_run_columns_note(&table), error);
done:
    fl_table_release(&table);
    fl_run_groups_destroy(groups);
    fl_column_names_release(&columns);
    return status;
}

static fl_status export_long(const wishes *w, const fl_run_set *set, fl_error *error) {
    fl_table table = {0};
    fl_status status =
        w->dataset_count > 0
            ? fl_run_tables_long(set, w->datasets, w->dataset_count, &table, error)
            : fl_run_tables_by_axes(set, w->by != NULL ? w->by : "layer,position", &table, error);
    if (status == FL_OK) status = write_table(w, &table, "", error);
    fl_table_release(&table);
    return status;
}

static fl_status export_runs(const fl_command *command, const wishes *w, int *code, fl_error *error) {
    fl_run_set *set = NULL;
    FL_TRY(fl_run_set_load(w->paths, w->path_count, &set, error));
    *code = fl_absent_note_print(command, set);
    fl_status status = FL_OK;
    if (w->lm_eval != NULL) {
        size_t written = 0;
        fl_text_builder notes = {0};
        status = fl_lm_eval_files_write(set, w->lm_eval, &written, &notes, error);
        if (status == FL_OK && notes.length > 0) fputs(notes.text, stderr);
        fl_text_builder_release(&notes);
        if (status == FL_OK) printf("%zu runs written to %s\n", written, w->lm_eval);
    } else {
        bool is_long = w->dataset_count > 0 || w->by != NULL;
        bool summary = w->summary || w->columns != NULL || (is_page(w) && !is_long);
        status = summary ? export_summary(w, set, error) : export_long(w, set, error);
    }
    fl_run_set_destroy(set);
    return status;
}

static int run(const fl_command *command, int argc, char **argv) {
    wishes w = {.format = "csv"};
    fl_positionals arguments;
    int code = fl_arguments_parse(command, argc, argv, &w, &arguments);
    if (code >= 0) return code;
    w.paths = arguments.items;
    for (w.path_count = 1; w.path_count < arguments.count; w.path_count++) {
        if (access(arguments.items[w.path_count], F_OK) != 0) break;
    }
    w.datasets = arguments.items + w.path_count;
    w.dataset_count = arguments.count - w.path_count;
    if (w.summary + (w.by != NULL) + (w.dataset_count > 0) + (w.lm_eval != NULL) > 1)
        return fl_arguments_refuse(command, "give one of: datasets, --by, --summary, --lm-eval");
    if (w.columns != NULL && (w.by != NULL || w.dataset_count > 0 || w.lm_eval != NULL))
        return fl_arguments_refuse(command, "--columns is of the table with one row a run (--summary)");
    fl_error error;
    fl_status status = export_runs(command, &w, &code, &error);
    return status == FL_OK ? code : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--format",
     .value = "FORMAT",
     .kind = FL_VALUE_CHOICE,
     .offset = offsetof(wishes, format),
     .words = fl_words_export_formats,
     .help = "csv (default), json, markdown or latex"},
    {.name = "--out",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(wishes, out),
     .help = "standard output by default"},
    {.name = "--summary",
     .offset = offsetof(wishes, summary),
     .help = "one row a run: configuration and every metric (Markdown, LaTeX: what fits a page)"},
    {.name = "--columns",
     .value = "A,B,...",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(wishes, columns),
     .help = "of the summary, these columns: label, rule, perplexity, tasks/mmlu/acc, ..."},
    {.name = "--each",
     .offset = offsetof(wishes, each),
     .help = "of the summary, runs that differ only in seeds in rows of their own"},
    {.name = "--by",
     .value = "AXES",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(wishes, by),
     .help = "all datasets with these axes: layer,position (default), layer, layer,head, ..."},
    {.name = "--lm-eval",
     .value = "DIR",
     .kind = FL_VALUE_FOLDER,
     .offset = offsetof(wishes, lm_eval),
     .help = "task results as lm-evaluation-harness writes them"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "PATH", .kind = FL_VALUE_FILE, .help = "a run file, or a folder of them"},
    {.name = "DATASET",
     .kind = FL_VALUE_TEXT,
     .optional = true,
     .repeated = true,
     .help = "a path inside the run files (errors/teacher_forced/nmse) or a group (tasks/mmlu/items); "
             "further PATHs come before"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline export results/quickstart --columns label,nmse,perplexity --format latex",
     .what = "a table for a paper"},
    {.line = "frostline export results/quickstart errors/teacher_forced/nmse --out nmse.csv",
     .what = "one trace of all runs, in long form"},
    {.line = "frostline export results/quickstart --lm-eval lm_eval",
     .what = "for tools that read lm-evaluation-harness"},
    {0},
};

const fl_command fl_command_export = {
    .name = "export",
    .summary = "numbers of run files as CSV, JSON, Markdown, LaTeX, or as lm-evaluation-harness files",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help =
        "Tables are in long form: one row a run and layer, position, ...; beside them the settings that "
        "differ between the runs.\n"
        "In the summary, runs that differ only in seeds are one row: mean, standard deviation (_sd) and n.\n"
        "JSON is a list of records, for pandas.read_json. Arrays with their own shapes are read from the run "
        "files as they are, with h5py.\n"
        "--lm-eval reads the tasks' data files again for the texts; where they are gone or changed, "
        "texts are null.",
    .run = run,
};
