/* generate MODEL: text sampled from the frozen model, or from it with a config's variant. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "analysis/output_file.h"
#include "harness/base/clock.h"
#include "harness/base/memory.h"
#include "harness/base/text_file.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/console.h"
#include "harness/run/document_tokens.h"
#include "harness/run/id_lists.h"
#include "harness/run/linearised.h"
#include "harness/cli/positionals.h"
#include "harness/run/workbench.h"
#include "harness/engine/generation.h"

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
        FL_TRY(fl_text_file_read(request->prompt_file, &text, &bytes, error));
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
    fl_command_note(request->model, work->bench.model->note);
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
    double start = fl_clock_seconds();
    fl_status status = fl_generate_sampled(work->bench.network, work->linearised.mechanism, &options,
                                           &work->sequences, error);
    fl_console_end_line(&console);
    FL_TRY(status);
    double seconds = fl_clock_seconds() - start;
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
    fl_positionals model;
    int code = fl_arguments_parse(command, argc, argv, &request, &model);
    if (code < 0) code = check(command, &request);
    if (code >= 0) return code;
    request.model = model.items[0];
    fl_interrupts_install(true);
    fl_error error;
    return generate(&request, &error) == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--tokens",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(generate_request, tokens),
     .help = "of each sequence (default: 256)"},
    {.name = "--sequences",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(generate_request, sequences),
     .help = "how many (default: 1)"},
    {.name = "--temperature",
     .value = "T",
     .kind = FL_VALUE_NUMBER,
     .offset = offsetof(generate_request, temperature),
     .maximum = 1e6,
     .help = "1, the default: the model's own; 0: the likeliest"},
    {.name = "--top-p",
     .value = "P",
     .kind = FL_VALUE_NUMBER,
     .offset = offsetof(generate_request, top_p),
     .maximum = 1,
     .help = "from the likeliest tokens that reach P (default: 1, all)"},
    {.name = "--top-k",
     .value = "K",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(generate_request, top_k),
     .help = "from the K likeliest tokens (default: 0, all)"},
    {.name = "--seed",
     .value = "S",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(generate_request, seed),
     .help = "of the draws (default: 1)"},
    {.name = "--prompt",
     .value = "TEXT",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(generate_request, prompt),
     .help = "what every document begins with"},
    {.name = "--prompt-file",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .input = true,
     .offset = offsetof(generate_request, prompt_file),
     .help = "the same, from a file"},
    {.name = "--config",
     .value = "CONFIG",
     .kind = FL_VALUE_FILE,
     .input = true,
     .offset = offsetof(generate_request, config),
     .help = "linearised with this config's variant (one cell)"},
    {.name = "--ids",
     .offset = offsetof(generate_request, as_ids),
     .help = "a JSON list of lists of token ids instead of text"},
    {.name = "--out",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(generate_request, out),
     .help = "instead of standard output"},
    {.name = "--threads",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(generate_request, threads),
     .help = "0, the default: all processors"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline generate models/smollm2-135m.gguf --tokens 200 --prompt 'The sea'",
     .what = "a text, to the screen"},
    {.line = "frostline generate models/smollm2-135m.gguf --ids --sequences 64 --tokens 1024 --out own.json",
     .what = "what a mechanism can be calibrated on where there is no other text: train: {ids: own.json}"},
    {0},
};

const fl_command fl_command_generate = {
    .name = "generate",
    .summary = "samples text from the frozen model, or from it with a variant",
    .positionals = fl_positionals_model,
    .flags = flags,
    .examples = examples,
    .help = "A sequence is one document after another: where the model ends one (its end-of-text token, kept "
            "in the text), the next starts from nothing but the prompt. The same model, seed and thread "
            "count give the same text.",
    .run = run,
};
