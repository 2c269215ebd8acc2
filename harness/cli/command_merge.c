/* merge FILE|DIR...: run files of one cell pooled into one. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/sweep_folder.h"
#include "harness/base/text_file.h"
#include "harness/store/run_file.h"
#include "harness/store/run_merge.h"
#include "harness/store/sweep.h"

typedef struct path_list {
    char **paths;
    size_t count;
} path_list;

/* Takes the paths over. */
static fl_status append(path_list *list, char **paths, size_t count, fl_error *error) {
    fl_status status = FL_RESIZE(&list->paths, list->count, list->count + count, error);
    if (status != FL_OK) {
        fl_sweep_list_release(paths, count);
        return status;
    }
    memcpy(list->paths + list->count, paths, count * sizeof paths[0]);
    list->count += count;
    fl_memory_free(paths);
    return FL_OK;
}

/* A folder stands for all its run files. */
static fl_status add(path_list *list, const char *argument, fl_error *error) {
    char **paths = NULL;
    size_t count = 1;
    if (fl_path_is_folder(argument)) {
        FL_TRY(fl_sweep_folder_files(argument, &paths, &count, error));
        return append(list, paths, count, error);
    }
    FL_TRY(FL_ALLOCATE(&paths, 1, error));
    fl_status status = fl_memory_copy_string(&paths[0], argument, error);
    if (status == FL_OK) return append(list, paths, count, error);
    fl_memory_free(paths);
    return status;
}

/* The pooled file has them; what cannot be read back is not worth a failure now. */
static void print_warnings(const char *path) {
    fl_run_reader *reader = NULL;
    char **texts = NULL;
    size_t count = 0;
    if (fl_run_reader_open(path, &reader, NULL) != FL_OK) return;
    if (fl_run_reader_has(reader, "/warnings") &&
        fl_run_reader_texts(reader, "/warnings", &texts, &count, NULL) == FL_OK) {
        for (size_t i = 0; i < count; i++) printf("warning: %s\n", texts[i]);
        fl_sweep_list_release(texts, count);
    }
    fl_run_reader_close(reader);
}

static fl_status merge(const fl_positionals *arguments, const char *out, fl_error *error) {
    path_list list = {0};
    fl_status status = FL_OK;
    for (size_t i = 0; i < arguments->count && status == FL_OK; i++)
        status = add(&list, arguments->items[i], error);
    if (status == FL_OK) status = fl_merge_runs((const char *const *)list.paths, list.count, out, error);
    if (status == FL_OK) {
        printf("%s: %zu runs pooled\n", out, list.count);
        print_warnings(out);
    }
    fl_sweep_list_release(list.paths, list.count);
    return status;
}

typedef struct merge_flags {
    const char *out;
} merge_flags;

static int run(const fl_command *command, int argc, char **argv) {
    merge_flags given = {0};
    fl_positionals arguments;
    int code = fl_arguments_parse(command, argc, argv, &given, &arguments);
    if (code >= 0) return code;
    fl_error error;
    return merge(&arguments, given.out, &error) == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--out",
     .value = "FILE.h5",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(merge_flags, out),
     .need = FL_NEED_ALWAYS,
     .help = "the pooled run file"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "PATH",
     .kind = FL_VALUE_FILE,
     .repeated = true,
     .help = "a run file, or a folder that stands for all its run files"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline merge results/part1/0123456789ab.h5 results/part2/0123456789ab.h5 --out all.h5",
     .what = "one cell measured on two texts"},
    {.line = "frostline merge results/seeds --out seeds.h5", .what = "every run file of a folder"},
    {0},
};

const fl_command fl_command_merge = {
    .name = "merge",
    .summary = "run files of one cell (other texts, seeds, task items) pooled into one",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help = "Counts, sums and variances are pooled exactly, task items put together and their metrics made "
            "anew; what was measured with a part off is pooled likewise; every run stays visible inside. A "
            "run that is missing, unfinished or measured otherwise, "
            "or an item that two runs hold, is refused by name.",
    .run = run,
};
