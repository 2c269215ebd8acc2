/* merge FILE...: run files of one cell pooled into one. */
#include <stdio.h>

#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/store/run_merge.h"

static int run(const fl_command *command, int argc, char **argv) {
    const char *out = NULL;
    const fl_flag flags[] = {{"--out", "FILE.h5", &out, NULL, NULL, "the pooled run file"}};
    fl_positionals files;
    int code = fl_arguments_parse(command, argc, argv, flags, 1, 1, (size_t)argc, &files);
    if (code >= 0) return code;
    if (out == NULL) return fl_arguments_refuse(command, "--out is needed");
    fl_error error;
    if (fl_merge_runs(files.items, files.count, out, &error) != FL_OK)
        return fl_command_fail(command, &error);
    printf("%s\n", out);
    return FL_EXIT_OK;
}

const fl_command fl_command_merge = {
    .name = "merge",
    .arguments = "FILE... --out FILE.h5",
    .summary = "run files of one cell (other texts, other seeds) pooled into one",
    .help = "Counts, sums and variances are pooled exactly; every run stays visible inside. A run that is "
            "missing, unfinished\n"
            "or measured otherwise is refused by name.",
    .run = run,
};
