/* plot PATH...: the pictures of a run set. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "analysis/figure_style.h"
#include "analysis/plots.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/words.h"
#include "harness/store/folder.h"
#include "harness/config/options.h"

typedef struct plot_output {
    const char *folder, *format;
    size_t count;
} plot_output;

static void on_picture(void *context, const char *name) {
    plot_output *output = context;
    output->count++;
    printf("%s/%s.%s\n", output->folder, name, output->format);
}

/* All kinds that have numbers; with `only`, that one. */
static fl_status draw(const fl_run_set *set, plot_output *output, const fl_plot_kind *only, fl_error *error) {
    const fl_plot_request request = {.set = set,
                                     .folder = output->folder,
                                     .format = output->format,
                                     .drawn = on_picture,
                                     .context = output};
    if (only != NULL) return only->draw(&request, error);
    for (const fl_plot_kind *kind = fl_plot_kinds; kind->name != NULL; kind++) {
        fl_status status = kind->draw(&request, error);
        if (status != FL_OK && status != FL_ERROR_ARGUMENT) return status;
    }
    if (output->count > 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "these runs hold nothing to plot");
}

typedef struct plot_flags {
    const char *folder, *format, *kind;
    bool list;
} plot_flags;

static int run(const fl_command *command, int argc, char **argv) {
    plot_flags given = {.folder = "plots", .format = "png"};
    fl_positionals paths;
    int code = fl_arguments_parse(command, argc, argv, &given, &paths);
    if (code >= 0) return code;
    for (const fl_plot_kind *k = fl_plot_kinds; given.list && k->name != NULL; k++)
        printf("%-12s %s\n", k->name, k->summary);
    if (given.list) return FL_EXIT_OK;
    if (paths.count == 0) return fl_arguments_refuse(command, "an argument is missing");
    plot_output output = {.folder = given.folder, .format = given.format};
    fl_run_set *set = NULL;
    fl_error error;
    fl_status status = fl_run_set_load(paths.items, paths.count, &set, &error);
    if (status == FL_OK) status = fl_folder_create(output.folder, &error);
    if (status == FL_OK)
        status = draw(set, &output, given.kind != NULL ? fl_plot_kind_find(given.kind) : NULL, &error);
    fl_run_set_destroy(set);
    return status == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--kind",
     .value = "KIND",
     .kind = FL_VALUE_CHOICE,
     .offset = offsetof(plot_flags, kind),
     .words = fl_words_pictures,
     .help = "one picture only"},
    {.name = "--list", .offset = offsetof(plot_flags, list), .help = "name the pictures there are"},
    {.name = "--format",
     .value = "FORMAT",
     .kind = FL_VALUE_CHOICE,
     .offset = offsetof(plot_flags, format),
     .words = fl_words_picture_formats,
     .help = "png (default), svg or pdf"},
    {.name = "--out",
     .value = "DIR",
     .kind = FL_VALUE_FOLDER,
     .offset = offsetof(plot_flags, folder),
     .help = "where pictures and their CSV go (default: plots)"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "PATH",
     .kind = FL_VALUE_FILE,
     .optional = true,
     .repeated = true,
     .help = "a run file, or a folder of them"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline plot results/quickstart --out plots",
     .what = "every picture these runs have numbers for"},
    {.line = "frostline plot results/quickstart --kind scores --format pdf",
     .what = "one picture, for a paper"},
    {0},
};

const fl_command fl_command_plot = {
    .name = "plot",
    .summary = "pictures of run files, each with its numbers beside it",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help = "Without --kind: every picture these runs have numbers for.",
    .run = run,
};
