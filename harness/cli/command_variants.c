/* variants [NAME]: what the registry of rules holds, printed from its tables. */
#include <stdio.h>
#include <string.h>

#include "attn_variants/attn_variant.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/words.h"
#include "harness/config/options.h"

enum { MAX_RULES = 128 };

static const char *const gate_kinds[] = {"none", "one per head", "one per key channel"};

static void print_option_type(const fl_option *option) {
    static const char *const names[] = {
        [FL_OPTION_BOOL] = "true or false",    [FL_OPTION_SIZE] = "whole number",
        [FL_OPTION_INTEGER] = "integer",       [FL_OPTION_SEED] = "seed",
        [FL_OPTION_NUMBER] = "number",         [FL_OPTION_STRING] = "text",
        [FL_OPTION_SIZES] = "list of numbers", [FL_OPTION_NODE] = "mapping or list",
    };
    if (option->type != FL_OPTION_CHOICE) {
        printf("%s", names[option->type]);
        if (option->minimum != option->maximum) printf(" from %g to %g", option->minimum, option->maximum);
        return;
    }
    for (size_t i = 0; option->choices[i] != NULL; i++)
        printf("%s%s", i > 0 ? " | " : "", option->choices[i]);
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

static void print_parameters(const fl_rule *rule) {
    if (rule->parameter_count == 0) return;
    printf("\ntensors of its own (layers.<i>.NAME)\n");
    for (size_t i = 0; i < rule->parameter_count; i++) {
        const fl_rule_parameter *parameter = &rule->parameters[i];
        printf("  %-18s [", parameter->name);
        for (const char *axis = parameter->axes; *axis != '\0'; axis++)
            printf("%s%c", axis > parameter->axes ? "][" : "", *axis);
        printf("], starts as %s: %s\n", parameter->init, parameter->help != NULL ? parameter->help : "");
    }
}

static void print_rule(const fl_rule *rule) {
    printf("%s: %s\n\n", rule->name, rule->summary);
    printf("equation    %s\n", rule->equation);
    printf("source      %s\n", rule->source);
    printf("gate        %s", gate_kinds[rule->gate]);
    if (rule->gate != FL_GATE_NONE) printf(", bias starts at %g", rule->default_gate_bias);
    printf("\nbeta        %s", rule->beta ? "one per head" : "none");
    if (rule->beta) printf(", bias starts at %g", rule->default_beta_bias);
    printf("\nnormaliser  %s\n", rule->normaliser ? "yes (variant.normaliser)" : "no");
    printf("merges      sum, half%s\n", rule->shared_normaliser ? ", shared_normaliser" : "");
    printf("state       %s\n", rule->stateless         ? "none"
                               : rule->prepare == NULL ? "of its own shape"
                                                       : "matrix [Dv][Dk] per query head");
    print_options(rule);
    print_parameters(rule);
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

static int run(const fl_command *command, int argc, char **argv) {
    fl_positionals names;
    int code = fl_arguments_parse(command, argc, argv, NULL, &names);
    if (code >= 0) return code;
    fl_error error;
    if (fl_rule_registry_check(&error) != FL_OK) return fl_command_fail(command, &error);
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
    .examples = examples,
    .run = run,
};
