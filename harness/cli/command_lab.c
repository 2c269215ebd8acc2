/* lab [RULE...]: what a rule's state can hold, without a model. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/output_file.h"
#include "attn_variants/variant.h"
#include "harness/base/memory.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/lab_exact.h"
#include "harness/cli/lab_page.h"
#include "harness/cli/words.h"
#include "harness/config/node.h"
#include "harness/measure/memory_lab.h"

enum { MAX_COUNTS = 32, YAML_BYTES = 512 };

typedef struct lab_request {
    fl_memory_lab_options options;
    size_t threads, seed, count, pairs[MAX_COUNTS];
    const char *list, *gate, *beta, *out; /* list: the pairs as they were written */
    const char *page, *exact;
    fl_exact_strength strength; /* with --exact */
    double overlap;
} lab_request;

static bool has_option(const fl_rule *rule, const char *key) {
    for (size_t i = 0; i < rule->option_count; i++) {
        if (strcmp(rule->options[i].key, key) == 0) return true;
    }
    return false;
}

/* A bare name: constant gate and beta where the rule takes them; without projections where it can do without.
 */
static int spell_out(const lab_request *request, const fl_rule *rule, char yaml[YAML_BYTES]) {
    const bool fixed = has_option(rule, "static"), gate = rule->gate != FL_GATE_NONE, beta = rule->beta;
    return snprintf(yaml, YAML_BYTES, "{rule: %s%s%s%s%s%s%s%s}", rule->name, fixed ? ", static: true" : "",
                    gate ? ", gate: {source: constant, value: " : "", gate ? request->gate : "",
                    gate ? "}" : "", beta ? ", beta: {source: constant, value: " : "",
                    beta ? request->beta : "", beta ? "}" : "");
}

/* A rule's name, or a variant mapping as it stands in a config. */
static fl_status bind_variant(const lab_request *request, const char *argument, fl_variant **out,
                              fl_error *error) {
    char yaml[YAML_BYTES];
    fl_document *document = NULL;
    const fl_rule *rule = fl_rule_find(argument);
    int used = rule != NULL ? spell_out(request, rule, yaml) : snprintf(yaml, sizeof yaml, "%s", argument);
    if (used < 0 || used >= YAML_BYTES)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "argument too long: %s", argument);
    FL_TRY(fl_document_parse_text(yaml, (size_t)used, "command line", &document, error));
    fl_status status = FL_OK;
    if (fl_document_root(document)->kind != FL_NODE_MAPPING) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "no rule \"%s\", and not a variant mapping either",
                              argument);
    } else {
        status = fl_variant_bind(fl_document_root(document), NULL, out, error);
    }
    fl_document_destroy(document);
    return status;
}

static const char csv_head[] =
    "rule,pairs,recall_error,recall_error_stderr,cosine,cosine_old,accuracy,state_norm,"
    "form_difference\n";
static const char table_head[] = "rule                    pairs       recall error           cosine  (old)  "
                                 "accuracy  state norm  step - chunk\n";

static void print_csv(FILE *stream, const char *name, const fl_memory_lab_row *row) {
    const double numbers[] = {
        row->recall_error, row->recall_error_stderr, row->cosine,         row->cosine_old,
        row->accuracy,     row->state_norm,          row->form_difference};
    fl_output_csv_text(stream, name);
    fprintf(stream, ",%zu", row->pairs);
    for (size_t c = 0; c < sizeof numbers / sizeof numbers[0]; c++) {
        fputc(',', stream);
        fl_output_csv_number(stream, numbers[c]);
    }
    fputc('\n', stream);
}

static void print_table(FILE *stream, const char *name, const fl_memory_lab_row *row) {
    char old[16] = "-";
    if (!isnan(row->cosine_old)) snprintf(old, sizeof old, "%.3f", row->cosine_old);
    fprintf(stream, "%-22s %6zu  %10.4g +- %-10.2g %6.3f %6s    %6.3f  %10.4g       %.1e\n", name, row->pairs,
            row->recall_error, row->recall_error_stderr, row->cosine, old, row->accuracy, row->state_norm,
            row->form_difference);
}

/* A rule that was not asked for by name may be one the lab cannot hold: *kept = false. */
static fl_status run_rule(const lab_request *request, fl_compute *compute, const char *rule, bool asked,
                          FILE *stream, bool *head, bool *kept, fl_error *error) {
    fl_variant *variant = NULL;
    fl_memory_lab_row rows[MAX_COUNTS];
    *kept = false;
    FL_TRY(bind_variant(request, rule, &variant, error));
    fl_status status =
        fl_memory_lab_run(compute, variant, &request->options, request->pairs, request->count, rows, error);
    fl_variant_destroy(variant);
    if (status == FL_ERROR_UNSUPPORTED && !asked) return FL_OK;
    FL_TRY(status);
    if (*head) fputs(request->out != NULL ? csv_head : table_head, stream);
    *head = false;
    for (size_t i = 0; i < request->count; i++)
        (request->out != NULL ? print_csv : print_table)(stream, rule, &rows[i]);
    *kept = true;
    return FL_OK;
}

static fl_status run_rules(const lab_request *request, const fl_positionals *rules, FILE *stream,
                           fl_error *error) {
    fl_compute *compute = NULL;
    const fl_compute_options options = {.threads = request->threads};
    FL_TRY(fl_compute_create_cpu(&options, &compute, error));
    fl_status status = FL_OK;
    bool head = true, kept = false;
    for (size_t i = 0; status == FL_OK && i < rules->count; i++)
        status = run_rule(request, compute, rules->items[i], true, stream, &head, &kept, error);
    for (size_t i = 0; status == FL_OK && rules->count == 0 && fl_rule_registry[i] != NULL; i++) {
        const char *name = fl_rule_registry[i]->name;
        status = run_rule(request, compute, name, false, stream, &head, &kept, error);
        if (status == FL_OK && !kept) fprintf(stderr, "%s: left out, %s\n", name, error->message);
    }
    fl_compute_destroy(compute);
    return status;
}

static fl_status write_lab(const lab_request *request, const fl_positionals *rules, fl_error *error) {
    if (request->out == NULL) return run_rules(request, rules, stdout, error);
    fl_output_file file;
    FL_TRY(fl_output_file_open(request->out, &file, error));
    fl_status status = run_rules(request, rules, file.stream, error);
    if (status == FL_OK) return fl_output_file_close(&file, error);
    fl_output_file_discard(&file);
    return status;
}

static fl_status write_page(const char *path, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    fl_lab_page_write(file.stream);
    return fl_output_file_close(&file, error);
}

static bool parse_share(const char *text, double *value) {
    char *end = NULL;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && *value >= 0 && *value <= 1;
}

static fl_status write_exact(const lab_request *request, fl_error *error) {
    fl_lab_exact_request exact = {.options = request->options,
                                  .strength = request->strength,
                                  .overlap = request->overlap,
                                  .pairs = request->pairs,
                                  .count = request->count};
    fl_output_file file;
    FL_TRY(fl_output_file_open(request->exact, &file, error));
    fl_status status = fl_lab_exact_write(file.stream, &exact, error);
    if (status == FL_OK) return fl_output_file_close(&file, error);
    fl_output_file_discard(&file);
    return status;
}

static fl_status write_asked(const lab_request *request, const fl_positionals *rules, fl_error *error) {
    if (request->page != NULL) FL_TRY(write_page(request->page, error));
    if (request->exact != NULL) FL_TRY(write_exact(request, error));
    bool is_table =
        (request->page == NULL && request->exact == NULL) || request->out != NULL || rules->count > 0;
    return is_table ? write_lab(request, rules, error) : FL_OK;
}

/* "4,8,16" */
static bool parse_counts(const char *text, lab_request *request) {
    request->count = 0;
    while (request->count < MAX_COUNTS) {
        char *end = NULL;
        unsigned long value = strtoul(text, &end, 10);
        if (end == text || *text < '0' || *text > '9' || value == 0 || value > 1u << 20) return false;
        request->pairs[request->count++] = value;
        if (*end == '\0') return true;
        if (*end != ',') return false;
        text = end + 1;
    }
    return false;
}

static int run(const fl_command *command, int argc, char **argv) {
    lab_request request = {.options = {.dimension = 32, .trials = 50, .overwrite = false, .seed = 1},
                           .gate = "1",
                           .beta = "1",
                           .list = "1,2,4,8,16,32,64,128",
                           .seed = 1,
                           .strength.gate_rest = 1,
                           .overlap = 0.6};
    fl_positionals rules;
    int code = fl_arguments_parse(command, argc, argv, &request, &rules);
    if (code >= 0) return code;
    if (!parse_counts(request.list, &request))
        return fl_arguments_refuse(command, "--pairs is a list like 4,8,16");
    if (!(request.options.concentration >= 0 && request.options.concentration < 1)) {
        return fl_arguments_refuse(command, "--concentration is a number from 0 to below 1");
    }
    if (request.options.dimension == 0 || request.options.trials == 0) {
        return fl_arguments_refuse(command, "--dimension and --trials are at least 1");
    }
    if (request.exact != NULL && !(parse_share(request.gate, &request.strength.gate) &&
                                   parse_share(request.beta, &request.strength.beta))) {
        return fl_arguments_refuse(command, "with --exact, --gate and --beta are numbers from 0 to 1");
    }
    request.options.seed = request.seed;
    fl_error error;
    return write_asked(&request, &rules, &error) == FL_OK ? FL_EXIT_OK : fl_command_fail(command, &error);
}

static const fl_flag flags[] = {
    {.name = "--pairs",
     .value = "LIST",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(lab_request, list),
     .help = "numbers of key-value pairs (default: 1,2,4,8,16,32,64,128)"},
    {.name = "--dimension",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(lab_request, options.dimension),
     .help = "of keys and values (default: 32)"},
    {.name = "--trials",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(lab_request, options.trials),
     .help = "independent draws (default: 50)"},
    {.name = "--concentration",
     .value = "C",
     .kind = FL_VALUE_NUMBER,
     .offset = offsetof(lab_request, options.concentration),
     .help = "how much keys share a direction, 0 to below 1 (default: 0)"},
    {.name = "--overwrite",
     .offset = offsetof(lab_request, options.overwrite),
     .help = "write a second value under every key"},
    {.name = "--gate",
     .value = "G",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(lab_request, gate),
     .help = "constant gate of rules that take one (default: 1)"},
    {.name = "--beta",
     .value = "B",
     .kind = FL_VALUE_TEXT,
     .offset = offsetof(lab_request, beta),
     .help = "constant beta of rules that take one (default: 1)"},
    {.name = "--seed",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(lab_request, seed),
     .help = "of the draws (default: 1)"},
    {.name = "--out",
     .value = "FILE.csv",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(lab_request, out),
     .help = "as CSV; without it, a table on standard output"},
    {.name = "--page",
     .value = "FILE.html",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(lab_request, page),
     .help = "the lab as a page for a browser: a 4 x 4 state step by step, the three checks, the cost"},
    {.name = "--exact",
     .value = "FILE.json",
     .kind = FL_VALUE_FILE,
     .offset = offsetof(lab_request, exact),
     .help = "the page's numbers, by the rules' definition in float64"},
    {.name = "--gate-rest",
     .value = "G",
     .kind = FL_VALUE_NUMBER,
     .maximum = 1,
     .offset = offsetof(lab_request, strength.gate_rest),
     .help = "with --exact: kda's gate of the second half of the channels (default: 1)"},
    {.name = "--overlap",
     .value = "C",
     .kind = FL_VALUE_NUMBER,
     .maximum = 0.99,
     .offset = offsetof(lab_request, overlap),
     .help = "with --exact: of keys a and c in the 4 x 4 figure (default: 0.6)"},
    {.name = "--threads",
     .value = "N",
     .kind = FL_VALUE_COUNT,
     .offset = offsetof(lab_request, threads),
     .help = "0, the default: all processors"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "RULE",
     .kind = FL_VALUE_TEXT,
     .optional = true,
     .repeated = true,
     .words = fl_words_rules,
     .help = "a name, or a variant mapping; none: every rule whose state is a matrix"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline lab linear delta --overwrite",
     .what = "accumulation blends old and new values, the delta rule does not"},
    {.line = "frostline lab --page lab.html", .what = "the lab as a page: open it in a browser"},
    {.line = "frostline lab '{rule: kda, gate: {source: constant, value: 0.99}, beta: {source: constant, "
             "value: 0.5}}'",
     .what = "one variant, as a config would write it"},
    {0},
};

const fl_command fl_command_lab = {
    .name = "lab",
    .summary = "memory experiments: what a rule's state can hold, without a model",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .help = "Random unit keys and values are written one after another and then read back, with constant "
            "gate and beta.\n"
            "recall error: mean squared distance from the newest value (|v| = 1), with its standard error "
            "over trials; cosine, (old): with the newest and the overwritten value; accuracy: nearest newest "
            "value is the right one.\n"
            "\n"
            "The three classic checks:\n"
            "  regrouped sum   `step - chunk`: attention regrouped into chunks equals the\n"
            "                  recurrence, so the column is rounding only\n"
            "  overwrite       --overwrite: plain accumulation (linear) answers with a blend\n"
            "                  of old and new value, the delta rule with the new one\n"
            "  capacity        --pairs beyond --dimension: no rule with a state of fixed\n"
            "                  size recalls more pairs than its keys have dimensions; the\n"
            "                  error of {rule: linear, feature_map: identity} is\n"
            "                  (pairs - 1) / dimension",
    .run = run,
};
