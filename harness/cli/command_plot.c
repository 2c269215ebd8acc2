/* plot PATH...: the pictures of a run set. */
#include <stdio.h>
#include <string.h>

#include "analysis/figure_style.h"
#include "analysis/plots.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/store/folder.h"
#include "harness/config/options.h"

enum { MAX_KINDS = 32 };

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

static int refuse_kind(const fl_command *command, const char *name) {
    const char *names[MAX_KINDS];
    size_t count = 0;
    for (; count < MAX_KINDS && fl_plot_kinds[count].name != NULL; count++)
        names[count] = fl_plot_kinds[count].name;
    const char *near = fl_suggest(name, names, count);
    if (near != NULL) return fl_arguments_refuse(command, "no picture \"%s\"; did you mean %s?", name, near);
    return fl_arguments_refuse(command, "no picture \"%s\"; --list names them", name);
}

static int run(const fl_command *command, int argc, char **argv) {
    plot_output output = {.folder = "plots", .format = "png"};
    const char *kind = NULL;
    bool list = false;
    const fl_flag flags[] = {
        {"--kind", "KIND", &kind, NULL, NULL, "one picture only"},
        {"--list", NULL, NULL, NULL, &list, "name the pictures there are"},
        {"--format", "FORMAT", &output.format, NULL, NULL, "png (default), svg or pdf"},
        {"--out", "DIR", &output.folder, NULL, NULL, "where pictures and their CSV go (default: plots)"},
    };
    fl_positionals paths;
    int code = fl_arguments_parse(command, argc, argv, flags, sizeof flags / sizeof flags[0], 0, (size_t)argc,
                                  &paths);
    if (code >= 0) return code;
    for (const fl_plot_kind *k = fl_plot_kinds; list && k->name != NULL; k++)
        printf("%-12s %s\n", k->name, k->summary);
    if (list) return FL_EXIT_OK;
    if (paths.count == 0) return fl_arguments_refuse(command, "an argument is missing");
    if (kind != NULL && fl_plot_kind_find(kind) == NULL) return refuse_kind(command, kind);
    if (!fl_figure_knows_format(output.format)) {
        return fl_arguments_refuse(command, "--format is png, svg or pdf, not \"%s\"", output.format);
    }
    fl_run_set *set = NULL;
    fl_error error;
    fl_status status = fl_run_set_load(paths.items, paths.count, &set, &error);
    if (status == FL_OK) status = fl_folder_create(output.folder, &error);
    if (status == FL_OK) status = draw(set, &output, kind != NULL ? fl_plot_kind_find(kind) : NULL, &error);
    fl_run_set_destroy(set);
    return status == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

const fl_command fl_command_plot = {
    .name = "plot",
    .arguments = "PATH... [--kind KIND] [--format FORMAT] [--out DIR]",
    .summary = "pictures of run files, each with its numbers beside it",
    .help =
        "PATH is a run file or a folder of them. Without --kind: every picture these runs have numbers for.",
    .run = run,
};
