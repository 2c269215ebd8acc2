#include "harness/cli/arguments.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/config/options.h"

enum { MAX_FLAGS = 16 };

static void print_usage(FILE *stream, const fl_command *command) {
    fprintf(stream, "usage: frostline %s %s\n", command->name, command->arguments);
}

static void print_help(const fl_command *command, const fl_flag *flags, size_t flag_count) {
    print_usage(stdout, command);
    printf("\n%s\n", command->summary);
    if (flag_count > 0) printf("\n");
    for (size_t i = 0; i < flag_count; i++) {
        char left[48];
        snprintf(left, sizeof left, "%s %s", flags[i].name, flags[i].value != NULL ? flags[i].value : "");
        printf("  %-22s %s\n", left, flags[i].help);
    }
    if (command->help != NULL) printf("\n%s\n", command->help);
}

int fl_arguments_refuse(const fl_command *command, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "frostline %s: ", command->name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    print_usage(stderr, command);
    return FL_EXIT_USAGE;
}

static const fl_flag *find_flag(const fl_flag *flags, size_t flag_count, const char *name, size_t length) {
    for (size_t i = 0; i < flag_count; i++) {
        if (strlen(flags[i].name) == length && memcmp(flags[i].name, name, length) == 0) return &flags[i];
    }
    return NULL;
}

static int refuse_unknown(const fl_command *command, const fl_flag *flags, size_t flag_count,
                          const char *name) {
    const char *names[MAX_FLAGS];
    size_t count = 0;
    for (size_t i = 0; i < flag_count && count < MAX_FLAGS; i++) names[count++] = flags[i].name;
    const char *near = fl_suggest(name, names, count);
    if (near != NULL) return fl_arguments_refuse(command, "unknown flag %s; did you mean %s?", name, near);
    return fl_arguments_refuse(command, "unknown flag %s", name);
}

static int store_value(const fl_command *command, const fl_flag *flag, const char *value) {
    if (flag->text != NULL) {
        if (value[0] == '\0') return fl_arguments_refuse(command, "%s needs a value", flag->name);
        *flag->text = value;
        return -1;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0) {
        return fl_arguments_refuse(command, "%s needs a number, not \"%s\"", flag->name, value);
    }
    *flag->number = (size_t)number;
    return -1;
}

/* Takes the flag at argv[*index] and, when it has one, its value; moves *index to the last argument used. */
static int take_flag(const fl_command *command, int argc, char **argv, const fl_flag *flags,
                     size_t flag_count, int *index) {
    const char *argument = argv[*index];
    const char *equals = strchr(argument, '=');
    size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    const fl_flag *flag = find_flag(flags, flag_count, argument, length);
    if (flag == NULL) return refuse_unknown(command, flags, flag_count, argument);
    if (flag->given != NULL) {
        if (equals != NULL) return fl_arguments_refuse(command, "%s takes no value", flag->name);
        *flag->given = true;
        return -1;
    }
    if (equals != NULL) return store_value(command, flag, equals + 1);
    if (*index + 1 >= argc) return fl_arguments_refuse(command, "%s needs a value", flag->name);
    return store_value(command, flag, argv[++*index]);
}

int fl_arguments_parse(const fl_command *command, int argc, char **argv, const fl_flag *flags,
                       size_t flag_count, size_t minimum, size_t maximum, fl_positionals *positionals) {
    /* Positionals are gathered at the front of argv, over arguments already read. */
    positionals->items = (const char **)(void *)(argv + 1);
    positionals->count = 0;
    bool flags_end = false;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (!flags_end && strcmp(argument, "--") == 0) {
            flags_end = true;
        } else if (!flags_end && (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0)) {
            print_help(command, flags, flag_count);
            return FL_EXIT_OK;
        } else if (!flags_end && argument[0] == '-' && argument[1] != '\0') {
            int code = take_flag(command, argc, argv, flags, flag_count, &i);
            if (code >= 0) return code;
        } else {
            if (positionals->count == maximum) {
                return fl_arguments_refuse(command, "one argument too many: \"%s\"", argument);
            }
            positionals->items[positionals->count++] = argument;
        }
    }
    if (positionals->count < minimum) return fl_arguments_refuse(command, "an argument is missing");
    return -1;
}

int fl_arguments_number(const fl_command *command, const char *flag, const char *text, double minimum,
                        double maximum, double *out) {
    if (text == NULL) return -1;
    char *end = NULL;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(number))
        return fl_arguments_refuse(command, "%s needs a number, not \"%s\"", flag, text);
    if (number < minimum || number > maximum)
        return fl_arguments_refuse(command, "%s must lie between %g and %g", flag, minimum, maximum);
    *out = number;
    return -1;
}
