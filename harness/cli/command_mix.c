/* mix VARIANT INPUTS.safetensors: one layer's token mixing on tensors from a file, forward and backward. */
#include <stdio.h>
#include <string.h>

#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/compute/compute.h"
#include "harness/config/node.h"
#include "harness/engine/mix.h"

static const char *const forms[] = {"auto", "step", "chunk"}; /* in the order of fl_recurrence_mode */

static int take_form(const fl_command *command, const char *text, fl_recurrence_mode *mode) {
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(text, forms[i]) != 0) continue;
        *mode = (fl_recurrence_mode)i;
        return -1;
    }
    return fl_arguments_refuse(command, "--form is auto, step or chunk, not %s", text);
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

static int run(const fl_command *command, int argc, char **argv) {
    fl_mix_request request = {0};
    const char *form = "auto";
    size_t threads = 0;
    const fl_flag flags[] = {
        {"--out", "FILE", &request.out, NULL, NULL, "where the results go, as safetensors (required)"},
        {"--form", "FORM", &form, NULL, NULL, "of the recurrence: auto (the default), step or chunk"},
        {"--cut", "N", NULL, &request.cut, NULL, "two forward calls, the first of N tokens"},
        {"--threads", "N", NULL, &threads, NULL, "0, the default: all processors"},
    };
    fl_positionals arguments;
    int code =
        fl_arguments_parse(command, argc, argv, flags, sizeof flags / sizeof flags[0], 2, 2, &arguments);
    if (code >= 0) return code;
    if (request.out == NULL) return fl_arguments_refuse(command, "--out FILE is missing");
    code = take_form(command, form, &request.mode);
    if (code >= 0) return code;
    request.inputs = arguments.items[1];
    fl_error error;
    return mix(&request, arguments.items[0], threads, &error) == FL_OK ? FL_EXIT_OK
                                                                       : fl_command_fail(command, &error);
}

const fl_command fl_command_mix = {
    .name = "mix",
    .arguments = "VARIANT INPUTS.safetensors --out OUT.safetensors [--form auto|step|chunk] [--cut N]",
    .summary =
        "one layer's token mixing on your own tensors, with gradients: to hold a rule against other code",
    .help =
        "VARIANT is a rule's name or a variant mapping: '{rule: kda, window: 56, sinks: 8}'.\n"
        "INPUTS: q [T][H][D], k and v [T][Hkv][D], h [T][E] (what gates are projected from); optional: state "
        "[H][Dv][Dk],\n"
        "p.NAME (mechanism parameters, named as in a mechanism file without layers.<i>.), grad_out "
        "[T][H][D].\n"
        "OUT: out, state and, with grad_out, grad.q, grad.k, grad.v, grad.h, grad.p.NAME. docs/mix.md has "
        "examples.",
    .run = run,
};
