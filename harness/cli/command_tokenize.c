/* tokenize MODEL [--text FILE]: ids as one JSON list per input line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/json_string.h"
#include "harness/cli/workbench.h"

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

static int run(const fl_command *command, int argc, char **argv) {
    const char *path = NULL;
    bool special = false;
    const fl_flag flags[] = {
        {"--text", "FILE", &path, NULL, NULL, "read from here instead of standard input"},
        {"--special", NULL, NULL, NULL, &special,
         "let the tokenizer add its beginning- and end-of-sequence tokens"},
    };
    fl_positionals model;
    int code = fl_arguments_parse(command, argc, argv, flags, sizeof flags / sizeof flags[0], 1, 1, &model);
    if (code >= 0) return code;
    fl_error error;
    fl_tokenizer *tokenizer = NULL;
    if (fl_workbench_tokenizer(model.items[0], &tokenizer, &error) != FL_OK)
        return fl_command_fail(command, &error);
    FILE *file = path != NULL ? fopen(path, "rb") : stdin;
    fl_status status = FL_OK;
    if (file == NULL) {
        status = fl_error_set(&error, FL_ERROR_IO, "%s: %s", path, strerror(errno));
    } else {
        status = tokenize_stream(tokenizer, file, path != NULL ? path : "standard input", special, &error);
        if (file != stdin) fclose(file);
    }
    fl_tokenizer_close(tokenizer);
    return status == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

const fl_command fl_command_tokenize = {
    .name = "tokenize",
    .arguments = "MODEL [--text FILE] [--special]",
    .summary = "token ids of texts, one JSON list per input line",
    .help = "MODEL is a .gguf file, a Hugging Face folder or a tokenizer.json. Every input line is one JSON "
            "string.",
    .run = run,
};
