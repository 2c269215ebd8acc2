/* plot PATH...: the pictures of a run set. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/figure_style.h"
#include "analysis/plot_facets.h"
#include "analysis/plots.h"
#include "analysis/run_filter.h"
#include "harness/cli/absent_note.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/words.h"
#include "harness/store/folder.h"
#include "harness/config/options.h"

enum { LEAST_MILLIMETRES = 40, MOST_MILLIMETRES = 1000 };

typedef struct plot_output {
    const char *folder, *format;
} plot_output;

static void on_picture(void *context, const char *name) {
    const plot_output *output = context;
    printf("%s/%s.%s\n", output->folder, name, output->format);
}

typedef struct plot_flags {
    const char *folder, *format, *kind, *filter, *facet, *title, *width;
    bool list, each;
} plot_flags;

static const char *width_words(size_t index) {
    static const char *const words[] = {"single", "double", NULL};
    return words[index];
}

/* -1, or an exit code. "single" and "double" are the columns of a paper. */
static int read_width(const fl_command *command, const char *text, double *millimetres) {
    char *end = NULL;
    *millimetres = 0;
    if (text == NULL) return -1;
    if (strcmp(text, "single") == 0)
        *millimetres = FL_FIGURE_SINGLE_MILLIMETRES;
    else if (strcmp(text, "double") == 0)
        *millimetres = FL_FIGURE_DOUBLE_MILLIMETRES;
    else
        *millimetres = strtod(text, &end);
    bool good = (end == NULL || (end != text && *end == '\0')) && *millimetres >= LEAST_MILLIMETRES &&
                *millimetres <= MOST_MILLIMETRES;
    if (good) return -1;
    return fl_arguments_refuse(command, "--width is single, double or %d to %d millimetres, not \"%s\"",
                               LEAST_MILLIMETRES, MOST_MILLIMETRES, text);
}

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
    fl_plot_request request = {.folder = given.folder,
                               .format = given.format,
                               .title = given.title,
                               .facet = given.facet,
                               .each = given.each,
                               .drawn = on_picture,
                               .context = &output};
    code = read_width(command, given.width, &request.width);
    if (code >= 0) return code;
    fl_run_set *set = NULL;
    fl_error error;
    fl_status status = fl_run_set_load(paths.items, paths.count, &set, &error);
    if (status == FL_OK && given.filter != NULL) status = fl_run_filter_apply(set, given.filter, &error);
    if (status == FL_OK) status = fl_folder_create(output.folder, &error);
    request.set = set;
    if (status == FL_OK)
        status = given.kind != NULL ? fl_plot_kind_find(given.kind)->draw(&request, &error)
                                    : fl_plot_all(&request, &error);
    if (status == FL_OK) code = fl_absent_note_print(command, set);
    fl_run_set_destroy(set);
    return status == FL_OK ? code : fl_command_fail(command, &error);
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
    {.name = "--filter",
     .value = "WHICH",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(plot_flags, filter),
     .help = "only some runs: key=value, or a pattern for labels"},
    {.name = "--facet",
     .value = "KEY",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(plot_flags, facet),
     .words = fl_plot_facet_name,
     .help = "panels by rule, exact_set, model, text or a key; or none"},
    {.name = "--each",
     .offset = offsetof(plot_flags, each),
     .help = "runs that differ in seeds only stay apart"},
    {.name = "--title",
     .value = "TEXT",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(plot_flags, title),
     .help = "above the picture; '' for none"},
    {.name = "--width",
     .value = "WIDTH",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(plot_flags, width),
     .words = width_words,
     .help = "single (84 mm), double (174 mm) or millimetres"},
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
    {.line = "frostline plot results/quickstart --kind scores --format pdf --width single",
     .what = "one picture, for a column of a paper"},
    {.line = "frostline plot results/quickstart --filter 'rule=kda|gla and window=56' --facet rule",
     .what = "some runs, a panel a rule"},
    {0},
};

const fl_command fl_command_plot = {
    .name = "plot",
    .summary = "pictures of run files, each with its numbers beside it",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help = "Without --kind: every picture these runs have numbers for. More than eight\n"
            "curves become several panels by themselves, or as --facet says. --filter\n"
            "takes key=value (values with | between them; with or without \"variant.\"),\n"
            "else a shell pattern for labels, and \" and \" between several of them.",
    .run = run,
};
