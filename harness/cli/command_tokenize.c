/* tokenize MODEL [--text FILE]: ids as one JSON list per input line. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/input_file.h"
#include "harness/base/memory.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/json_string.h"
#include "harness/run/workbench.h"

static fl_status tokenize_line(const fl_tokenizer *tokenizer, const char *line, size_t bytes, bool special,
                               fl_error *error) {
    char *text = NULL;
    int32_t *ids = NULL;
    size_t text_bytes = 0, count = 0;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_json_string_decode(line, bytes, &text, &text_bytes, error));
    FL_TRY_DONE(status, fl_tokenizer_encode(tokenizer, text, text_bytes, special, &ids, &count, error));
    putchar('[');
    for (size_t i = 0; i < count; i++) printf("%s%d", i > 0 ? ", " : "", (int)ids[i]);
    printf("]\n");
done:
    fl_memory_free(text);
    fl_memory_free(ids);
    return status;
}

static fl_status tokenize_stream(const fl_tokenizer *tokenizer, FILE *file, const char *name, bool special,
                                 fl_error *error) {
    char *line = NULL;
    size_t room = 0;
    fl_status status = FL_OK;
    ssize_t bytes = 0;
    for (size_t number = 1; status == FL_OK && (bytes = getline(&line, &room, file)) >= 0; number++) {
        status = tokenize_line(tokenizer, line, (size_t)bytes, special, error);
        if (status != FL_OK) fl_error_prepend(error, status, "%s:%zu", name, number);
    }
    if (status == FL_OK && ferror(file)) {
        status = fl_error_set(error, FL_ERROR_IO, "%s: %s", name, strerror(errno));
    }
    free(line);
    return status;
}

typedef struct tokenize_flags {
    const char *path;
    bool special;
} tokenize_flags;

/* path: NULL for standard input, which may be a pipe. */
static fl_status tokenize_lines(const fl_tokenizer *tokenizer, const char *path, bool special,
                                fl_error *error) {
    if (path == NULL) return tokenize_stream(tokenizer, stdin, "standard input", special, error);
    int descriptor;
    size_t size;
    FL_TRY(fl_input_open(path, &descriptor, &size, error));
    FILE *file = fdopen(descriptor, "rb");
    if (file == NULL) {
        close(descriptor);
        return fl_error_set(error, FL_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    }
    fl_status status = tokenize_stream(tokenizer, file, path, special, error);
    fclose(file);
    return status;
}

static int run(const fl_command *command, int argc, char **argv) {
    tokenize_flags given = {0};
    fl_positionals model;
    int code = fl_arguments_parse(command, argc, argv, &given, &model);
    if (code >= 0) return code;
    fl_error error;
    fl_tokenizer *tokenizer = NULL;
    if (fl_workbench_tokenizer(model.items[0], &tokenizer, &error) != FL_OK)
        return fl_command_fail(command, &error);
    fl_status status = tokenize_lines(tokenizer, given.path, given.special, &error);
    fl_tokenizer_close(tokenizer);
    return status == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--text",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .input = true,
     .offset = offsetof(tokenize_flags, path),
     .help = "read from here instead of standard input"},
    {.name = "--special",
     .offset = offsetof(tokenize_flags, special),
     .help = "let the tokenizer add its beginning- and end-of-sequence tokens"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "MODEL",
     .kind = FL_VALUE_FILE,
     .help = "a .gguf file, a Hugging Face folder or a tokenizer.json"},
    {0},
};

static const fl_example examples[] = {
    {.line = "echo '\"Hello, world\"' | frostline tokenize models/smollm2-135m.gguf",
     .what = "one JSON list of ids"},
    {0},
};

const fl_command fl_command_tokenize = {
    .name = "tokenize",
    .summary = "token ids of texts, one JSON list per input line",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help = "Every input line is one JSON string.",
    .run = run,
};
