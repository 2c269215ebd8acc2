/* mix VARIANT INPUTS.safetensors: one layer's token mixing on tensors from a file, forward and backward. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/words.h"
#include "harness/compute/compute.h"
#include "harness/config/node.h"
#include "harness/engine/mix.h"

static const char *const forms[] = {"auto", "step", "chunk"}; /* in the order of fl_recurrence_mode */

static const char *form_names(size_t index) {
    return index < sizeof forms / sizeof forms[0] ? forms[index] : NULL;
}

/* `form` is one of the names. */
static fl_recurrence_mode find_form(const char *form) {
    size_t i = 0;
    while (strcmp(forms[i], form) != 0) i++;
    return (fl_recurrence_mode)i;
}

/* A bare name is a rule. */
static fl_status parse_variant(const char *text, fl_document **out, fl_error *error) {
    char mapping[256];
    if (strchr(text, '{') == NULL && strchr(text, ':') == NULL) {
        snprintf(mapping, sizeof mapping, "{rule: %s}", text);
        text = mapping;
    }
    return fl_document_parse_text(text, strlen(text), "command line", out, error);
}

static fl_status mix(fl_mix_request *request, const char *variant, size_t threads, fl_error *error) {
    fl_document *document = NULL;
    fl_compute *compute = NULL;
    fl_mix_summary summary = {0};
    const fl_compute_options options = {.threads = threads};
    FL_TRY(parse_variant(variant, &document, error));
    request->variant = fl_document_root(document);
    fl_status status = fl_compute_create_cpu(&options, &compute, error);
    if (status == FL_OK) status = fl_mix_run(compute, request, &summary, error);
    if (status == FL_OK) {
        printf("%s: T %zu, H %zu, Hkv %zu, D %zu; %zu parameters, %zu numbers of state a head%s\n",
               request->out, summary.tokens, summary.shape.query_heads, summary.shape.kv_heads,
               summary.shape.head_dim, summary.parameters, summary.state_floats,
               summary.gradients ? "; with gradients" : "");
    }
    fl_compute_destroy(compute);
    fl_document_destroy(document);
    return status;
}

typedef struct mix_flags {
    fl_mix_request request;
    const char *form;
    size_t threads;
} mix_flags;

static int run(const fl_command *command, int argc, char **argv) {
    mix_flags given = {.form = "auto"};
    fl_positionals arguments;
    int code = fl_arguments_parse(command, argc, argv, &given, &arguments);
    if (code >= 0) return code;
    given.request.mode = find_form(given.form);
    given.request.inputs = arguments.items[1];
    fl_error error;
    return mix(&given.request, arguments.items[0], given.threads, &error) == FL_OK
               ? FL_EXIT_OK
               : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--out",
     .value = "FILE",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(mix_flags, request.out),
     .need = FL_NEED_ALWAYS,
     .help = "where the results go, as safetensors"},
    {.name = "--form",
     .value = "FORM",
     .kind = FL_VALUE_CHOICE,
     .offset = offsetof(mix_flags, form),
     .words = form_names,
     .help = "of the recurrence: auto (the default), step or chunk"},
    {.name = "--cut",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(mix_flags, request.cut),
     .help = "two forward calls, the first of N tokens"},
    {.name = "--threads",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(mix_flags, threads),
     .help = "0, the default: all processors"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "VARIANT",
     .kind = FL_VALUE_TEXT,
     .words = fl_words_rules,
     .help = "a rule's name or a variant mapping: '{rule: kda, window: 56, sinks: 8}'"},
    {.name = "INPUTS.safetensors",
     .kind = FL_VALUE_FILE,
     .help = "q [T][H][D], k and v [T][Hkv][D], h [T][E] (what gates are projected from); optional: state "
             "[H][Dv][Dk], p.NAME (mechanism parameters, named as in a mechanism file without layers.<i>.), "
             "grad_out [T][H][D]"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline mix kda in.safetensors --out out.safetensors", .what = "one rule"},
    {.line = "frostline mix '{rule: kda, window: 56, sinks: 8}' in.safetensors --out out.safetensors --form "
             "chunk",
     .what = "a whole mixer, by the chunk form"},
    {0},
};

const fl_command fl_command_mix = {
    .name = "mix",
    .summary =
        "one layer's token mixing on your own tensors, with gradients: to hold a rule against other code",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help = "The result holds out, state and, with grad_out, grad.q, grad.k, grad.v, grad.h, grad.p.NAME. "
            "docs/mix.md has examples.",
    .run = run,
};
