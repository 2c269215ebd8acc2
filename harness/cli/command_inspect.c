/* inspect PATH: what a checkpoint, a model folder, a run file or the folder of a sweep holds. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/sweep_folder.h"
#include "harness/base/text_file.h"
#include "harness/model/describe.h"
#include "harness/store/run_file.h"

static void print_shape(size_t rank, const size_t *shape) {
    for (size_t i = 0; i < rank; i++) printf("%s%zu", i > 0 ? " x " : "", shape[i]);
    if (rank == 0) printf("scalar");
}

static fl_status print_dataset(void *context, const char *path, size_t rank, const size_t *shape,
                               fl_error *error) {
    (void)context, (void)error;
    printf("  %-52s ", path);
    print_shape(rank, shape);
    printf("\n");
    return FL_OK;
}

static void print_attribute(fl_run_reader *reader, const char *name) {
    char *text = NULL;
    if (fl_run_reader_attribute_text(reader, "/", name, &text, NULL) == FL_OK)
        printf("%-12s %s\n", name, text);
    fl_memory_free(text);
}

static fl_status print_text(fl_run_reader *reader, const char *path, fl_error *error) {
    char *text = NULL;
    if (!fl_run_reader_has(reader, path)) return FL_OK;
    FL_TRY(fl_run_reader_text(reader, path, &text, error));
    printf("\n%s\n%s", path, text);
    fl_memory_free(text);
    return FL_OK;
}

static fl_status inspect_run_file(const char *path, fl_error *error) {
    static const char *const names[] = {"format", "version", "run_id", "label",
                                        "status", "tier",    "model",  "revision"};
    fl_run_reader *reader = NULL;
    FL_TRY(fl_run_reader_open(path, &reader, error));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) print_attribute(reader, names[i]);
    printf("\ndatasets\n");
    fl_status status = fl_run_reader_visit(reader, print_dataset, NULL, error);
    if (status == FL_OK) status = print_text(reader, "/config", error);
    fl_run_reader_close(reader);
    return status;
}

static fl_status inspect_checkpoint(const char *path, fl_error *error) {
    char *text = NULL;
    FL_TRY(fl_model_describe(path, &text, error));
    fputs(text, stdout);
    fl_memory_free(text);
    return FL_OK;
}

static fl_status inspect(const char *path, fl_error *error) {
    static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};
    unsigned char start[8] = {0};
    if (fl_path_is_folder(path) && fl_sweep_folder_is_one(path)) return fl_sweep_folder_print(path, error);
    if (fl_path_is_folder(path)) return inspect_checkpoint(path, error);
    size_t got;
    FL_TRY(fl_input_start(path, start, sizeof start, &got, error));
    if (got == sizeof start && memcmp(start, signature, sizeof start) == 0)
        return inspect_run_file(path, error);
    return inspect_checkpoint(path, error);
}

static int run(const fl_command *command, int argc, char **argv) {
    fl_positionals file;
    int code = fl_arguments_parse(command, argc, argv, NULL, &file);
    if (code >= 0) return code;
    fl_error error;
    return inspect(file.items[0], &error) == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

static const fl_positional positionals[] = {
    {.name = "PATH",
     .kind = FL_VALUE_FILE,
     .help = "a checkpoint, a model's folder, a run file, or the folder of a sweep"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline inspect models/smollm2-135m.gguf", .what = "architecture, tensors, tokenizer"},
    {.line = "frostline inspect results/quickstart", .what = "the cells of a sweep"},
    {.line = "frostline inspect results/quickstart/0123456789ab.h5",
     .what = "the datasets and the resolved config of one"},
    {0},
};

const fl_command fl_command_inspect = {
    .name = "inspect",
    .summary = "what a checkpoint, a model folder, a run file or a sweep's folder holds",
    .positionals = positionals,
    .examples = examples,
    .run = run,
};
