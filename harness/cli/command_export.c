/* export RUN.h5|DIR: numbers of run files for other programs. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/lm_eval_files.h"
#include "analysis/npz.h"
#include "analysis/output_file.h"
#include "analysis/run_set.h"
#include "analysis/run_tables.h"
#include "analysis/table.h"
#include "harness/base/memory.h"
#include "harness/cli/absent_note.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/words.h"
#include "harness/store/run_file.h"

typedef struct wishes {
    const char *format, *out, *by, *lm_eval;
    bool summary;
    const char *const *paths; /* the leading arguments that exist, and at least one */
    size_t path_count;
    const char *const *datasets;
    size_t dataset_count;
} wishes;

static bool is_folder(const char *path) {
    struct stat information;
    return stat(path, &information) == 0 && S_ISDIR(information.st_mode);
}

static fl_status write_table(const wishes *w, const fl_table *table, fl_error *error) {
    if (strcmp(w->format, "npz") == 0) return fl_table_write_npz(table, w->out, error);
    fl_output_file file = {0};
    FILE *stream = stdout;
    if (w->out != NULL) {
        FL_TRY(fl_output_file_open(w->out, &file, error));
        stream = file.stream;
    }
    if (strcmp(w->format, "csv") == 0) fl_table_write_csv(table, stream);
    if (strcmp(w->format, "json") == 0) fl_table_write_json(table, stream);
    if (strcmp(w->format, "latex") == 0) fl_table_write_latex(table, stream);
    return w->out != NULL ? fl_output_file_close(&file, error) : FL_OK;
}

typedef struct array_writer {
    const wishes *wishes;
    fl_run_reader *reader;
    fl_npz *npz;
    size_t written;
} array_writer;

static bool is_wanted(const wishes *w, const char *path) {
    for (size_t i = 0; i < w->dataset_count; i++) {
        const char *from = w->datasets[i][0] == '/' ? path : path + 1;
        size_t bytes = strlen(w->datasets[i]);
        if (strncmp(from, w->datasets[i], bytes) == 0 && (from[bytes] == '\0' || from[bytes] == '/'))
            return true;
    }
    return w->dataset_count == 0;
}

static fl_status add_array(void *context, const char *path, size_t rank, const size_t *shape,
                           fl_error *error) {
    (void)rank, (void)shape;
    array_writer *writer = context;
    double *data = NULL;
    char **texts = NULL;
    size_t axes = 0, sizes[4], count = 0;
    if (!is_wanted(writer->wishes, path)) return FL_OK;
    writer->written++;
    if (fl_run_reader_doubles(writer->reader, path, &data, &axes, sizes, NULL) == FL_OK) {
        fl_status status = fl_npz_add_doubles(writer->npz, path + 1, axes, sizes, data, error);
        fl_memory_free(data);
        return status;
    }
    FL_TRY(fl_run_reader_texts(writer->reader, path, &texts, &count, error));
    fl_status status = fl_npz_add_texts(writer->npz, path + 1, count, (const char *const *)texts, error);
    for (size_t i = 0; i < count; i++) fl_memory_free(texts[i]);
    fl_memory_free(texts);
    return status;
}

/* One file's datasets with their own shapes. */
static fl_status write_arrays(const wishes *w, fl_error *error) {
    array_writer writer = {.wishes = w};
    FL_TRY(fl_run_reader_open(w->paths[0], &writer.reader, error));
    fl_status status = fl_npz_open(w->out, &writer.npz, error);
    if (status == FL_OK) {
        status = fl_run_reader_visit(writer.reader, add_array, &writer, error);
        if (status == FL_OK && writer.written == 0)
            status =
                fl_error_set(error, FL_ERROR_ARGUMENT, "%s: there is no %s", w->paths[0], w->datasets[0]);
        if (status == FL_OK) {
            status = fl_npz_close(writer.npz, error);
        } else {
            fl_npz_discard(writer.npz);
        }
    }
    fl_run_reader_close(writer.reader);
    return status;
}

static fl_status make_table(const wishes *w, const fl_run_set *set, fl_table *out, fl_error *error) {
    if (w->summary && strcmp(w->format, "latex") == 0) return fl_run_tables_compact(set, out, error);
    if (w->summary) return fl_run_tables_summary(set, out, error);
    if (w->dataset_count > 0) return fl_run_tables_long(set, w->datasets, w->dataset_count, out, error);
    return fl_run_tables_by_axes(set, w->by != NULL ? w->by : "layer,position", out, error);
}

static fl_status export_runs(const fl_command *command, const wishes *w, fl_error *error) {
    fl_run_set *set = NULL;
    FL_TRY(fl_run_set_load(w->paths, w->path_count, &set, error));
    fl_absent_note_print(command, set);
    fl_status status = FL_OK;
    if (w->lm_eval != NULL) {
        size_t written = 0;
        fl_text_builder notes = {0};
        status = fl_lm_eval_files_write(set, w->lm_eval, &written, &notes, error);
        if (status == FL_OK && notes.length > 0) fputs(notes.text, stderr);
        fl_text_builder_release(&notes);
        if (status == FL_OK) printf("%zu runs written to %s\n", written, w->lm_eval);
    } else {
        fl_table table = {0};
        status = make_table(w, set, &table, error);
        if (status == FL_OK) status = write_table(w, &table, error);
        fl_table_release(&table);
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
    bool arrays = strcmp(w.format, "npz") == 0;
    if (arrays && w.out == NULL && w.lm_eval == NULL)
        return fl_arguments_refuse(command, "npz needs --out FILE");
    fl_error error;
    fl_status status;
    if (arrays && !w.summary && w.by == NULL && w.lm_eval == NULL && w.path_count == 1 &&
        !is_folder(w.paths[0])) {
        status = write_arrays(&w, &error);
    } else {
        status = export_runs(command, &w, &error);
    }
    return status == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--format",
     .value = "FORMAT",
     .kind = FL_VALUE_CHOICE,
     .offset = offsetof(wishes, format),
     .words = fl_words_export_formats,
     .help = "csv (default), json, npz or latex"},
    {.name = "--out",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(wishes, out),
     .help = "standard output by default (npz needs a file)"},
    {.name = "--summary",
     .offset = offsetof(wishes, summary),
     .help = "one row a run: configuration and every metric (LaTeX: what fits a page)"},
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
    {.line = "frostline export results/quickstart --summary --format latex", .what = "a table for a paper"},
    {.line = "frostline export results/quickstart errors/teacher_forced/nmse --out nmse.csv",
     .what = "one trace of all runs, in long form"},
    {.line = "frostline export results/quickstart --lm-eval lm_eval",
     .what = "for tools that read lm-evaluation-harness"},
    {0},
};

const fl_command fl_command_export = {
    .name = "export",
    .summary = "numbers of run files as CSV, JSON, NPZ, LaTeX, or as lm-evaluation-harness files",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help = "Tables are in long form: one row a run and layer, position, ...; beside them the settings that "
            "differ between the runs.\n"
            "NPZ of a single file holds its datasets with their own shapes, under their paths.\n"
            "--lm-eval reads the tasks' data files again for the texts; where they are gone or changed, "
            "texts are null.",
    .run = run,
};
