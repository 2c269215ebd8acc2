/* variants [NAME]: what the registry of rules holds, printed from its tables. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "attn_variants/variant.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/option_text.h"
#include "harness/cli/words.h"
#include "harness/config/options.h"

enum { MAX_RULES = 128 };

static const char *const gate_kinds[] = {"none", "one per head", "one per key channel"};

static void print_option_type(const fl_option *option) {
    fl_text_builder text = {0};
    if (fl_option_type_text(option, NULL, &text, NULL) == FL_OK) printf("%s", text.text);
    fl_text_builder_release(&text);
}

static void print_options(const fl_rule *rule) {
    if (rule->option_count == 0) return;
    printf("\noptions (under variant:)\n");
    for (size_t i = 0; i < rule->option_count; i++) {
        const fl_option *option = &rule->options[i];
        printf("  %-18s %s\n", option->key, option->help != NULL ? option->help : "");
        printf("  %-18s ", "");
        print_option_type(option);
        const char *text = option->default_text;
        if (text != NULL && strcmp(text, "!") == 0)
            printf("; required");
        else if (text != NULL)
            printf("; default %s", text);
        printf("\n");
    }
}

static void print_axes(const char *axes) {
    for (const char *axis = axes; *axis != '\0'; axis++) printf("%s%c", axis > axes ? "][" : "[", *axis);
    printf("]");
}

static void print_parameters(const fl_rule *rule) {
    if (rule->parameter_count == 0) return;
    printf("\ntensors of its own (layers.<i>.NAME)\n");
    for (size_t i = 0; i < rule->parameter_count; i++) {
        const fl_rule_parameter *parameter = &rule->parameters[i];
        printf("  %-18s ", parameter->name);
        print_axes(parameter->axes);
        printf(", starts as %s%s: %s\n", parameter->init,
               parameter->used != NULL ? ", with some options" : "", parameter->help);
    }
}

static void print_factors(const fl_rule *rule) {
    if (rule->factor_count == 0) return;
    printf("\nprojected from the block's input for every token (layers.<i>.NAME.%s)\n",
           fl_rule_factor_is_wide(&rule->factors[0]) ? "{w1, w2, bias}, rank variant.factors.rank"
                                                     : "{weight, bias}");
    for (size_t i = 0; i < rule->factor_count; i++) {
        const fl_rule_factor *factor = &rule->factors[i];
        printf("  %-22s ", factor->name);
        print_axes(factor->axes);
        printf(" a head, bias starts at %g%s%s: %s\n", factor->bias,
               factor->activation == FL_ACTIVATE_SIGMOID ? ", sigmoid" : "",
               factor->used != NULL ? ", with some options" : "", factor->help);
    }
}

static bool has_forms(const fl_rule *rule) {
    return rule->gate != FL_GATE_NONE && rule->gate_activation == FL_ACTIVATE_LOG_SIGMOID;
}

/* Numbers of state a query head, with the options' defaults. */
static size_t state_numbers(const fl_rule *rule, size_t head_dim) {
    char yaml[96];
    fl_document *document = NULL;
    fl_variant *variant = NULL;
    size_t numbers = 0;
    snprintf(yaml, sizeof yaml, "{rule: %s}", rule->name);
    if (fl_document_parse_text(yaml, strlen(yaml), "variants", &document, NULL) != FL_OK) return 0;
    if (fl_variant_bind(fl_document_root(document), NULL, &variant, NULL) == FL_OK && !rule->stateless)
        numbers = fl_rule_state_floats(rule, head_dim, variant->rule_options) +
                  (variant->normaliser ? fl_rule_key_dim(rule, head_dim, variant->rule_options) : 0);
    fl_variant_destroy(variant);
    fl_document_destroy(document);
    return numbers;
}

static const char *state_kind(const fl_rule *rule) {
    if (rule->stateless) return "none";
    if (rule->own.write == NULL) return "matrix [Dv][Dk] per query head";
    return rule->own.used == NULL
               ? "of its own shape, a token at a time"
               : "matrix [Dv][Dk] per query head; with some options stepped a token at a time";
}

static void print_rule(const fl_rule *rule) {
    printf("%s: %s\n\n", rule->name, rule->summary);
    printf("equation    %s\n", rule->equation);
    printf("source      %s\n", rule->source);
    if (rule->differs != NULL) printf("differs     %s\n", rule->differs);
    printf("gate        %s", gate_kinds[rule->gate]);
    if (rule->gate != FL_GATE_NONE) printf(", bias starts at %g", rule->default_gate_bias);
    if (has_forms(rule))
        printf("; form: sigmoid (log a = log sigmoid(x)) or softplus (-exp(a_log) softplus(x))");
    printf("\nbeta        %s", rule->beta ? "one per head" : "none");
    if (rule->beta) printf(", bias starts at %g", rule->default_beta_bias);
    if (rule->takes_beta != NULL) printf(", with some options");
    if (rule->beta_may_reflect) printf("; maximum: 1, or up to 2");
    if (!rule->stateless)
        printf("\nscale       of every read: %s; libraries multiply by D^-1/2 (scale: sqrt_dim)",
               rule->scaled == NULL ? "none" : "none, D^-1/2 as published with unit: false");
    printf("\nnormaliser  %s\n", rule->normaliser ? "yes (variant.normaliser)" : "no");
    printf("merges      sum, half%s\n", rule->shared_normaliser ? ", shared_normaliser" : "");
    printf("state       %s", state_kind(rule));
    if (!rule->stateless) printf("; %zu bytes a head at D 64", 4 * state_numbers(rule, 64));
    printf("\n");
    print_options(rule);
    print_parameters(rule);
    print_factors(rule);
}

/* docs/rules.md, which a test compares with this. */

static void print_cell(const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '|') putchar('\\');
        putchar(*text);
    }
}

static void print_markdown_rule(const fl_rule *rule) {
    printf("\n## %s\n\n", rule->name);
    print_cell(rule->summary);
    printf(".\n\n    %s\n\n", rule->equation);
    printf("* Source: %s\n", rule->source);
    if (rule->differs != NULL) printf("* Differs from the published code: %s\n", rule->differs);
    if (!rule->stateless)
        printf("* State: %s; %zu bytes a head at D 64, %zu at D 128\n", state_kind(rule),
               4 * state_numbers(rule, 64), 4 * state_numbers(rule, 128));
    if (rule->gate != FL_GATE_NONE)
        printf("* Gate: %s, bias starts at %g%s\n", gate_kinds[rule->gate], rule->default_gate_bias,
               has_forms(rule) ? ", `form: sigmoid` or `softplus`" : "");
    if (rule->beta)
        printf("* Beta: one per head, bias starts at %g%s%s\n", rule->default_beta_bias,
               rule->takes_beta != NULL ? ", with some options" : "",
               rule->beta_may_reflect ? ", `maximum: 1` or up to 2" : "");
    if (rule->scaled != NULL) printf("* Reads are scaled by D^-1/2 with `unit: false`, as published\n");
    if (rule->normaliser) printf("* May divide by a normaliser (`normaliser:`)\n");
    for (size_t i = 0; i < rule->option_count; i++) {
        const fl_option *option = &rule->options[i];
        printf("* Option `%s`, default `%s`: ", option->key,
               option->default_text != NULL ? option->default_text : "");
        print_cell(option->help);
        printf("\n");
    }
    for (size_t i = 0; i < rule->parameter_count; i++) {
        printf("* Tensor `%s` ", rule->parameters[i].name);
        print_axes(rule->parameters[i].axes);
        printf(", starts as %s: ", rule->parameters[i].init);
        print_cell(rule->parameters[i].help);
        printf("\n");
    }
    for (size_t i = 0; i < rule->factor_count; i++) {
        printf("* Projected per token: `%s` ", rule->factors[i].name);
        print_axes(rule->factors[i].axes);
        printf(" a head, bias starts at %g: ", rule->factors[i].bias);
        print_cell(rule->factors[i].help);
        printf("\n");
    }
}

static void print_markdown(void) {
    printf("# Rules\n\n"
           "Made by `frostline variants --markdown`; a test compares. How far each is from published code, "
           "measured:\n"
           "[rules_checked.md](rules_checked.md). What is said of every rule: q and k come from the frozen "
           "projections,\n"
           "after RoPE; gates are projected from the block's input as log a = log sigmoid(h W + b) with the "
           "target paper's\n"
           "initial values (bias 1, beta -1), which is not what GDN, KDA, GDN-2, Comba and DeltaProduct "
           "publish:\n"
           "`gate: {form: softplus}` is, -exp(a_log) softplus(x). No read is scaled unless said; libraries "
           "multiply the\n"
           "query by D^-1/2, eight times less at D 64: `scale: sqrt_dim`. Unit length is x / max(|x|, "
           "1e-12).\n\n"
           "| rule | what | state a head, D 64 |\n|---|---|---:|\n");
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        const fl_rule *rule = fl_rule_registry[i];
        printf("| [%s](#%s) | ", rule->name, rule->name);
        print_cell(rule->summary);
        printf(" | %zu B |\n", 4 * state_numbers(rule, 64));
    }
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) print_markdown_rule(fl_rule_registry[i]);
}

static int refuse_rule(const fl_command *command, const char *name) {
    const char *names[MAX_RULES];
    size_t count = 0;
    for (; count < MAX_RULES && fl_rule_registry[count] != NULL; count++)
        names[count] = fl_rule_registry[count]->name;
    const char *near = fl_suggest(name, names, count);
    fl_error error;
    if (near != NULL) {
        fl_error_set(&error, FL_ERROR_ARGUMENT, "there is no rule \"%s\"; did you mean %s?", name, near);
    } else {
        fl_error_set(&error, FL_ERROR_ARGUMENT, "there is no rule \"%s\"; `frostline variants` lists them",
                     name);
    }
    return fl_command_fail(command, &error);
}

typedef struct variants_flags {
    bool markdown;
} variants_flags;

static int run(const fl_command *command, int argc, char **argv) {
    fl_positionals names;
    variants_flags given = {0};
    int code = fl_arguments_parse(command, argc, argv, &given, &names);
    if (code >= 0) return code;
    fl_error error;
    if (fl_rule_registry_check(&error) != FL_OK) return fl_command_fail(command, &error);
    if (given.markdown) {
        print_markdown();
        return FL_EXIT_OK;
    }
    if (names.count == 1) {
        const fl_rule *rule = fl_rule_find(names.items[0]);
        if (rule == NULL) return refuse_rule(command, names.items[0]);
        print_rule(rule);
        return FL_EXIT_OK;
    }
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        printf("%-14s %s\n", fl_rule_registry[i]->name, fl_rule_registry[i]->summary);
    }
    return FL_EXIT_OK;
}

static const fl_flag flags[] = {
    {.name = "--markdown",
     .offset = offsetof(variants_flags, markdown),
     .help = "all of them as a page, as docs/rules.md is"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "RULE",
     .kind = FL_VALUE_TEXT,
     .optional = true,
     .words = fl_words_rules,
     .help = "everything about this one"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline variants", .what = "the rules there are"},
    {.line = "frostline variants kda", .what = "equation, source, gates, options, tensors of one"},
    {0},
};

const fl_command fl_command_variants = {
    .name = "variants",
    .summary = "the rules there are; with NAME, everything about one",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .run = run,
};
