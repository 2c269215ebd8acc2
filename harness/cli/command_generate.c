/* generate MODEL: text sampled from the frozen model, or from it with a config's variant. */
#include <stdio.h>
#include <string.h>

#include "analysis/output_file.h"
#include "harness/base/memory.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/console.h"
#include "harness/cli/document_tokens.h"
#include "harness/cli/id_lists.h"
#include "harness/cli/linearised.h"
#include "harness/cli/workbench.h"
#include "harness/engine/generation.h"
#include "harness/measure/text_documents.h"

/* What separates sequences where the model has no end-of-text token: the line the text reader splits at. */
static const char document_line[] = "\n<|endofdoc|>\n";

typedef struct generate_request {
    const char *model, *config, *out, *prompt, *prompt_file;
    bool as_ids;
    size_t threads, seed, sequences, tokens, top_k;
    double temperature, top_p;
} generate_request;

typedef struct generate_work {
    fl_workbench bench;
    fl_linearised linearised;
    fl_tokenizer *tokenizer; /* NULL when neither text nor prompt needs one */
    fl_document_tokens ends;
    int32_t *prompt;
    size_t prompt_tokens, prompt_shown;
    fl_sequences sequences;
} generate_work;

static void release(generate_work *work) {
    fl_sequences_release(&work->sequences);
    fl_memory_free(work->prompt);
    fl_tokenizer_close(work->tokenizer);
    fl_linearised_release(&work->linearised);
    fl_workbench_close(&work->bench);
}

/* The prompt's tokens as the tokenizer begins a text, else the token documents begin with. */
static fl_status make_prompt(const generate_request *request, generate_work *work, fl_error *error) {
    char *text = NULL;
    size_t bytes = 0;
    if (request->prompt == NULL && request->prompt_file == NULL) {
        FL_TRY(FL_ALLOCATE(&work->prompt, 1, error));
        work->prompt[0] = work->ends.start;
        work->prompt_tokens = 1;
        return FL_OK;
    }
    if (request->prompt != NULL) {
        FL_TRY(fl_memory_copy_string(&text, request->prompt, error));
        bytes = strlen(text);
    } else {
        FL_TRY(fl_text_read_file(request->prompt_file, &text, &bytes, error));
    }
    fl_status status =
        fl_tokenizer_encode(work->tokenizer, text, bytes, true, &work->prompt, &work->prompt_tokens, error);
    fl_memory_free(text);
    FL_TRY(status);
    size_t hidden = fl_tokenizer_adds_bos(work->tokenizer) && work->prompt_tokens > 0;
    work->prompt_shown = work->prompt_tokens - hidden;
    if (work->prompt_shown > 0) return FL_OK;
    return fl_error_set(error, FL_ERROR_ARGUMENT, "the prompt is empty");
}

static fl_status prepare(const generate_request *request, generate_work *work, fl_error *error) {
    FL_TRY(fl_workbench_open(request->model, &work->bench, error));
    FL_TRY(fl_document_tokens_of(work->bench.model, &work->ends, error));
    if (!request->as_ids || request->prompt != NULL || request->prompt_file != NULL)
        FL_TRY(fl_workbench_tokenizer(request->model, &work->tokenizer, error));
    FL_TRY(make_prompt(request, work, error));
    FL_TRY(fl_workbench_prepare(&work->bench, request->threads, error));
    if (request->config == NULL) return FL_OK;
    return fl_linearised_load(request->config, &work->bench, NULL, &work->linearised, error);
}

static fl_status sample(const generate_request *request, generate_work *work, fl_error *error) {
    fl_console console;
    const fl_progress progress = fl_console_progress(&console);
    const fl_generation_options options = {
        .sequences = request->sequences,
        .tokens = request->tokens,
        .sampling = {request->temperature, request->top_p, request->top_k},
        .seed = request->seed,
        .prompt = work->prompt,
        .prompt_tokens = work->prompt_tokens,
        .prompt_shown = work->prompt_shown,
        .stops = work->ends.stops,
        .stop_count = work->ends.stop_count,
        .progress = &progress,
    };
    double start = fl_console_seconds();
    fl_status status = fl_generate_sampled(work->bench.network, work->linearised.mechanism, &options,
                                           &work->sequences, error);
    fl_console_end_line(&console);
    FL_TRY(status);
    double seconds = fl_console_seconds() - start;
    size_t tokens = request->sequences * request->tokens;
    fl_console_note(&console, "%zu tokens in %.1f s: %.0f tokens/s", tokens, seconds,
                    (double)tokens / seconds);
    return FL_OK;
}

static fl_status print_ids(FILE *stream, const fl_tokenizer *tokenizer, const int32_t *ids, size_t count,
                           fl_error *error) {
    char *text = NULL;
    size_t bytes = 0;
    FL_TRY(fl_tokenizer_decode(tokenizer, ids, count, false, &text, &bytes, error));
    fwrite(text, 1, bytes, stream);
    fl_memory_free(text);
    return FL_OK;
}

static bool is_ended(const generate_work *work, int32_t last) {
    for (size_t i = 0; i < work->ends.stop_count; i++) {
        if (work->ends.stops[i] == last) return true;
    }
    return false;
}

static fl_status print_text(FILE *stream, const generate_work *work, fl_error *error) {
    for (size_t s = 0; s < work->sequences.count; s++) {
        const int32_t *ids = work->sequences.ids[s];
        size_t count = work->sequences.lengths[s];
        FL_TRY(print_ids(stream, work->tokenizer, ids, count, error));
        if (s + 1 == work->sequences.count || is_ended(work, ids[count - 1])) continue;
        if (work->ends.stop_count > 0) {
            FL_TRY(print_ids(stream, work->tokenizer, work->ends.stops, 1, error));
        } else {
            fputs(document_line, stream);
        }
    }
    fputc('\n', stream);
    return FL_OK;
}

static fl_status print_to(FILE *stream, const generate_request *request, const generate_work *work,
                          fl_error *error) {
    if (!request->as_ids) return print_text(stream, work, error);
    fl_id_lists_print(stream, &work->sequences);
    return FL_OK;
}

static fl_status generate(const generate_request *request, fl_error *error) {
    generate_work work = {0};
    fl_output_file file = {0};
    fl_status status = FL_OK;
    /* Opened before the work, so that an output that cannot be written is known at once. */
    if (request->out != NULL) FL_TRY(fl_output_file_open(request->out, &file, error));
    FL_TRY_DONE(status, prepare(request, &work, error));
    FL_TRY_DONE(status, sample(request, &work, error));
    FL_TRY_DONE(status, print_to(request->out != NULL ? file.stream : stdout, request, &work, error));
    if (request->out != NULL) status = fl_output_file_close(&file, error);
done:
    fl_output_file_discard(&file);
    release(&work);
    return status;
}

static int check(const fl_command *command, const generate_request *request) {
    if (request->sequences == 0 || request->tokens == 0)
        return fl_arguments_refuse(command, "--sequences and --tokens are at least 1");
    if (request->prompt != NULL && request->prompt_file != NULL)
        return fl_arguments_refuse(command, "give --prompt or --prompt-file, not both");
    if (!(request->top_p > 0)) return fl_arguments_refuse(command, "--top-p must be above 0");
    return -1;
}

static int run(const fl_command *command, int argc, char **argv) {
    generate_request request = {.seed = 1, .sequences = 1, .tokens = 256, .temperature = 1, .top_p = 1};
    const char *temperature = NULL, *top_p = NULL;
    const fl_flag flags[] = {
        {"--tokens", "N", NULL, &request.tokens, NULL, "of each sequence (default: 256)"},
        {"--sequences", "N", NULL, &request.sequences, NULL, "how many (default: 1)"},
        {"--temperature", "T", &temperature, NULL, NULL, "1, the default: the model's own; 0: the likeliest"},
        {"--top-p", "P", &top_p, NULL, NULL, "from the likeliest tokens that reach P (default: 1, all)"},
        {"--top-k", "K", NULL, &request.top_k, NULL, "from the K likeliest tokens (default: 0, all)"},
        {"--seed", "S", NULL, &request.seed, NULL, "of the draws (default: 1)"},
        {"--prompt", "TEXT", &request.prompt, NULL, NULL, "what every document begins with"},
        {"--prompt-file", "FILE", &request.prompt_file, NULL, NULL, "the same, from a file"},
        {"--config", "CONFIG", &request.config, NULL, NULL,
         "linearised with this config's variant (one cell)"},
        {"--ids", NULL, NULL, NULL, &request.as_ids, "a JSON list of lists of token ids instead of text"},
        {"--out", "FILE", &request.out, NULL, NULL, "instead of standard output"},
        {"--threads", "N", NULL, &request.threads, NULL, "0, the default: all processors"},
    };
    fl_positionals model;
    int code = fl_arguments_parse(command, argc, argv, flags, sizeof flags / sizeof flags[0], 1, 1, &model);
    if (code < 0)
        code = fl_arguments_number(command, "--temperature", temperature, 0, 1e6, &request.temperature);
    if (code < 0) code = fl_arguments_number(command, "--top-p", top_p, 0, 1, &request.top_p);
    if (code < 0) code = check(command, &request);
    if (code >= 0) return code;
    request.model = model.items[0];
    fl_interrupts_install();
    fl_error error;
    return generate(&request, &error) == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

const fl_command fl_command_generate = {
    .name = "generate",
    .arguments = "MODEL [--tokens N] [--sequences N] [--temperature T] [--prompt TEXT] [--ids] [--out FILE]",
    .summary = "samples text from the frozen model, or from it with a variant",
    .help = "A sequence is one document after another: where the model ends one (its end-of-text token, kept "
            "in the text), the\n"
            "next starts from nothing but the prompt. The same model, seed and thread count give the same "
            "text.\n"
            "Text of its own can calibrate a mechanism where there is no other: frostline generate MODEL "
            "--ids --sequences 64\n"
            "--tokens 1024 --out own.json, then train: {ids: own.json}.",
    .run = run,
};
