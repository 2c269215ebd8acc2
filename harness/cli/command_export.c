/* export PATH...: tables and datasets of run files as CSV, JSON, NPZ or LaTeX. */
#include <stdio.h>
#include <string.h>

#include "analysis/export.h"
#include "analysis/output_file.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"

typedef struct export_request {
    const char *dataset, *format, *out;
    bool tidy;
    fl_export_format as;
} export_request;

static fl_status write_export(const fl_run_set *set, const export_request *request, FILE *stream,
                              fl_error *error) {
    if (request->tidy) return fl_export_tidy(set, stream, error);
    if (request->dataset != NULL) return fl_export_dataset(set, request->dataset, request->as, stream, error);
    return fl_export_summary(set, request->as, stream, error);
}

static fl_status export_set(const fl_run_set *set, const export_request *request, fl_error *error) {
    if (request->out == NULL) return write_export(set, request, stdout, error);
    fl_output_file file;
    FL_TRY(fl_output_file_open(request->out, &file, error));
    fl_status status = write_export(set, request, file.stream, error);
    if (status == FL_OK) return fl_output_file_close(&file, error);
    fl_output_file_discard(&file);
    return status;
}

static bool find_format(const char *name, fl_export_format *out) {
    for (int i = 0; fl_export_format_names[i] != NULL; i++) {
        if (strcmp(fl_export_format_names[i], name) != 0) continue;
        *out = (fl_export_format)i;
        return true;
    }
    return false;
}

static int run(const fl_command *command, int argc, char **argv) {
    export_request request = {.format = "csv"};
    const fl_flag flags[] = {
        {"--dataset", "NAME", &request.dataset, NULL, NULL,
         "one dataset of every run (/errors/teacher_forced/nmse)"},
        {"--tidy", NULL, NULL, NULL, &request.tidy, "one row a run x layer x position"},
        {"--format", "FORMAT", &request.format, NULL, NULL,
         "csv (default), json, npz (datasets), tex (the table)"},
        {"--out", "FILE", &request.out, NULL, NULL, "instead of standard output"},
    };
    fl_positionals paths;
    int code = fl_arguments_parse(command, argc, argv, flags, sizeof flags / sizeof flags[0], 1, (size_t)argc,
                                  &paths);
    if (code >= 0) return code;
    if (!find_format(request.format, &request.as)) {
        return fl_arguments_refuse(command, "--format is csv, json, npz or tex, not \"%s\"", request.format);
    }
    if (request.tidy && (request.dataset != NULL || request.as != FL_EXPORT_CSV)) {
        return fl_arguments_refuse(command, "--tidy is a CSV of its own: no --dataset, no other --format");
    }
    fl_run_set *set = NULL;
    fl_error error;
    if (fl_run_set_load(paths.items, paths.count, &set, &error) != FL_OK)
        return fl_command_fail(command, &error);
    fl_status status = export_set(set, &request, &error);
    fl_run_set_destroy(set);
    return status == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

const fl_command fl_command_export = {
    .name = "export",
    .arguments = "PATH... [--dataset NAME | --tidy] [--format FORMAT] [--out FILE]",
    .summary = "the table, a dataset or everything by layer and position, for other programs",
    .help = "PATH is a run file or a folder of them. Without --dataset and --tidy: one row a run.",
    .run = run,
};
