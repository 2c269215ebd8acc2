/* data check DIR, data list: what the manifests of public sets say of a folder. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/eval/data_check.h"

static const char *const state_words[] = {
    [FL_DATA_SAME] = "same",
    [FL_DATA_UNVERIFIED] = "there",
    [FL_DATA_MISSING] = "missing",
    [FL_DATA_ALTERED] = "ALTERED",
};

static void print_report(const fl_data_report *report, const char *folder) {
    printf("%s: %s\n", report->name, report->title);
    for (size_t i = 0; i < report->count; i++) {
        const fl_data_file *file = &report->files[i];
        if (file->state == FL_DATA_SAME) continue;
        printf("  %-8s %s%s%s\n", state_words[file->state], file->file, file->finding != NULL ? ": " : "",
               file->finding != NULL ? file->finding : "");
    }
    printf("  %zu files: %zu the same, %zu there but without a known SHA-256, %zu missing, %zu altered\n",
           report->count, report->same, report->unverified, report->missing, report->altered);
    if (report->missing + report->altered > 0) printf("  source: %s (%s)\n", report->source, folder);
}

/* *good = nothing is missing or altered. */
static fl_status check_folder(const char *folder, const char *manifests, bool *good, fl_error *error) {
    char **paths = NULL;
    size_t count = 0;
    *good = true;
    FL_TRY(fl_data_manifests_for(folder, manifests, &paths, &count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; status == FL_OK && i < count; i++) {
        fl_data_report report;
        status = fl_data_check(paths[i], folder, &report, error);
        if (status != FL_OK) break;
        print_report(&report, folder);
        *good = *good && report.missing == 0 && report.altered == 0;
        fl_data_report_release(&report);
    }
    fl_data_manifests_release(paths, count);
    return status;
}

static fl_status list_sets(const char *manifests, fl_error *error) {
    char **paths = NULL;
    size_t count = 0;
    FL_TRY(fl_data_manifests_all(manifests, &paths, &count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; status == FL_OK && i < count; i++) {
        fl_data_report report;
        /* Any folder will do: only what the manifest says of the set is printed. */
        status = fl_data_check(paths[i], manifests, &report, error);
        if (status != FL_OK) break;
        printf("%-15s %s\n%-15s %zu file%s, %s; %s\n", report.name, report.title, "", report.count,
               report.count == 1 ? "" : "s", report.licence, report.source);
        fl_data_report_release(&report);
    }
    fl_data_manifests_release(paths, count);
    return status;
}

typedef struct data_flags {
    const char *manifests;
} data_flags;

static const char *actions(size_t index) {
    static const char *const words[] = {"check", "list", NULL};
    return words[index];
}

static int run(const fl_command *command, int argc, char **argv) {
    data_flags given = {.manifests = fl_arguments_input("datasets/manifests")};
    fl_positionals words;
    int code = fl_arguments_parse(command, argc, argv, &given, &words);
    if (code >= 0) return code;
    fl_error error;
    bool good = true;
    fl_status status = FL_OK;
    if (strcmp(words.items[0], "list") == 0 && words.count == 1) {
        status = list_sets(given.manifests, &error);
    } else if (strcmp(words.items[0], "check") == 0 && words.count == 2) {
        status = check_folder(words.items[1], given.manifests, &good, &error);
    } else {
        return fl_arguments_refuse(command, "either `check DIR` or `list`");
    }
    if (status != FL_OK) return fl_command_fail(command, &error);
    return good ? FL_EXIT_OK : FL_EXIT_FAILURE;
}

static const fl_flag flags[] = {
    {.name = "--manifests",
     .value = "DIR",
     .kind = FL_VALUE_FOLDER,
     .input = true,
     .offset = offsetof(data_flags, manifests),
     .help = "of the sets known (default: datasets/manifests)"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "check|list",
     .kind = FL_VALUE_CHOICE,
     .words = actions,
     .help = "check: whether DIR holds a set unaltered; list: the sets known"},
    {.name = "DIR", .kind = FL_VALUE_FOLDER, .optional = true, .help = "the folder to check"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline data list", .what = "what is known, where it comes from"},
    {.line = "frostline data check /data/mmlu", .what = "is it complete and unaltered?"},
    {0},
};

const fl_command fl_command_data = {
    .name = "data",
    .summary = "public data sets: which are known, and whether a folder holds them unaltered",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help =
        "No public set is shipped; a manifest says what one consists of. `check` compares DIR with its own "
        "manifest.json, else with every known set of which DIR holds a file, and fails when something is "
        "missing or altered. A file without a known SHA-256 is compared by its number of rows.",
    .run = run,
};
