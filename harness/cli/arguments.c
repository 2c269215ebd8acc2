#include "harness/cli/arguments.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/data_path.h"
#include "harness/base/memory.h"
#include "harness/cli/help.h"
#include "harness/config/options.h"

enum { MAX_FLAGS = 64, MAX_WORDS = 256, MAX_INPUTS = 64, SHOWN_WORDS = 16 };

/* What is parsed, and into what. */
typedef struct parser {
    const fl_command *command;
    int argc;
    char **argv;
    char *target;
    bool given[MAX_FLAGS];
} parser;

int fl_arguments_refuse(const fl_command *command, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "frostline %s: ", command->name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    fl_help_usage(stderr, "usage: ", command);
    return FL_EXIT_USAGE;
}

static bool is_end(const fl_flag *flag) {
    return flag == NULL || flag->name == NULL;
}

static const fl_flag *find_flag(const fl_flag *flags, const char *name, size_t length) {
    for (const fl_flag *flag = flags; !is_end(flag); flag++) {
        if (strlen(flag->name) == length && memcmp(flag->name, name, length) == 0) return flag;
    }
    return NULL;
}

static int refuse_unknown(const fl_command *command, const char *name) {
    const char *names[MAX_FLAGS];
    size_t count = 0;
    for (const fl_flag *flag = command->flags; !is_end(flag) && count < MAX_FLAGS; flag++)
        names[count++] = flag->name;
    const char *near = fl_suggest(name, names, count);
    if (near != NULL) return fl_arguments_refuse(command, "unknown flag %s; did you mean %s?", name, near);
    return fl_arguments_refuse(command, "unknown flag %s", name);
}

/* "--format is csv, json or npz, not "xls"", or, of many words, the nearest. */
static int refuse_word(const fl_command *command, const char *what, fl_words *words, const char *given) {
    const char *names[MAX_WORDS];
    size_t count = 0;
    while (count < MAX_WORDS && (names[count] = words(count)) != NULL) count++;
    const char *near = fl_suggest(given, names, count);
    if (count > SHOWN_WORDS && near != NULL)
        return fl_arguments_refuse(command, "%s: there is no \"%s\"; did you mean %s?", what, given, near);
    char list[512];
    size_t used = 0;
    for (size_t i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 i == 0           ? ""
                                 : i + 1 == count ? " or "
                                                  : ", ",
                                 names[i]);
    return fl_arguments_refuse(command, "%s is %s, not \"%s\"%s%s%s", what, list, given,
                               near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                               near != NULL ? "?" : "");
}

/* -1 when `value` is one of the words. */
static int check_word(const fl_command *command, const char *what, fl_words *words, const char *value) {
    for (size_t i = 0; words(i) != NULL; i++) {
        if (strcmp(words(i), value) == 0) return -1;
    }
    return refuse_word(command, what, words, value);
}

static int check_range(const fl_command *command, const fl_flag *flag, double number) {
    bool any = !(flag->minimum < flag->maximum);
    if (any || (number >= flag->minimum && number <= flag->maximum)) return -1;
    return fl_arguments_refuse(command, "%s must lie between %g and %g", flag->name, flag->minimum,
                               flag->maximum);
}

static int store_count(const parser *p, const fl_flag *flag, const char *value) {
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0)
        return fl_arguments_refuse(p->command, "%s needs a number, not \"%s\"", flag->name, value);
    size_t count = (size_t)number;
    memcpy(p->target + flag->offset, &count, sizeof count);
    return check_range(p->command, flag, (double)number);
}

static int store_number(const parser *p, const fl_flag *flag, const char *value) {
    char *end = NULL;
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(number))
        return fl_arguments_refuse(p->command, "%s needs a number, not \"%s\"", flag->name, value);
    memcpy(p->target + flag->offset, &number, sizeof number);
    return check_range(p->command, flag, number);
}

const char *fl_arguments_input(const char *path) {
    static char *kept[MAX_INPUTS];
    static size_t count;
    char *found = NULL;
    if (count == MAX_INPUTS || fl_data_path_find(path, &found, NULL) != FL_OK) return path;
    if (strcmp(found, path) != 0) return kept[count++] = found;
    fl_memory_free(found);
    return path;
}

static int store_value(const parser *p, const fl_flag *flag, const char *value) {
    if (flag->kind == FL_VALUE_COUNT) return store_count(p, flag, value);
    if (flag->kind == FL_VALUE_NUMBER) return store_number(p, flag, value);
    if (value[0] == '\0') return fl_arguments_refuse(p->command, "%s needs a value", flag->name);
    if (flag->input) value = fl_arguments_input(value);
    memcpy(p->target + flag->offset, &value, sizeof value);
    return flag->kind == FL_VALUE_CHOICE ? check_word(p->command, flag->name, flag->words, value) : -1;
}

/* Takes the flag at argv[*index] and, when it has one, its value; moves *index to the last argument used. */
static int take_flag(parser *p, int *index) {
    const char *argument = p->argv[*index];
    const char *equals = strchr(argument, '=');
    size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    const fl_flag *flag = find_flag(p->command->flags, argument, length);
    if (flag == NULL) return refuse_unknown(p->command, argument);
    p->given[flag - p->command->flags] = true;
    if (flag->kind == FL_VALUE_NONE) {
        if (equals != NULL) return fl_arguments_refuse(p->command, "%s takes no value", flag->name);
        memcpy(p->target + flag->offset, &(bool){true}, sizeof(bool));
        return -1;
    }
    if (equals != NULL) return store_value(p, flag, equals + 1);
    if (*index + 1 >= p->argc) return fl_arguments_refuse(p->command, "%s needs a value", flag->name);
    return store_value(p, flag, p->argv[++*index]);
}

/* The row that argument number `index` belongs to, or NULL: the last row may be repeated. */
static const fl_positional *positional_at(const fl_positional *rows, size_t index) {
    for (const fl_positional *row = rows; row != NULL && row->name != NULL; row++) {
        if (index == 0 || row->repeated) return row;
        index--;
    }
    return NULL;
}

static int take_positional(const parser *p, const char *argument, fl_positionals *positionals) {
    const fl_positional *row = positional_at(p->command->positionals, positionals->count);
    if (row == NULL) return fl_arguments_refuse(p->command, "one argument too many: \"%s\"", argument);
    const bool path = row->kind == FL_VALUE_FILE || row->kind == FL_VALUE_FOLDER;
    positionals->items[positionals->count++] = path ? fl_arguments_input(argument) : argument;
    return row->kind == FL_VALUE_CHOICE ? check_word(p->command, row->name, row->words, argument) : -1;
}

/* Of the flags of which exactly one is needed. */
static int check_either(const parser *p) {
    size_t count = 0, given = 0, used = 0;
    char list[256] = "";
    for (const fl_flag *flag = p->command->flags; !is_end(flag) && used < sizeof list; flag++) {
        if (flag->need != FL_NEED_EITHER) continue;
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", count++ > 0 ? " and " : "", flag->name);
        given += p->given[flag - p->command->flags];
    }
    if (count == 0 || given == 1) return -1;
    return fl_arguments_refuse(p->command, "exactly one of %s is needed", list);
}

static int check_needs(const parser *p, const fl_positionals *positionals) {
    size_t needed = 0;
    for (const fl_positional *row = p->command->positionals; row != NULL && row->name != NULL; row++)
        needed += !row->optional;
    if (positionals->count < needed) return fl_arguments_refuse(p->command, "an argument is missing");
    int code = check_either(p);
    for (const fl_flag *flag = p->command->flags; code < 0 && !is_end(flag); flag++) {
        if (flag->need == FL_NEED_ALWAYS && !p->given[flag - p->command->flags])
            code = fl_arguments_refuse(p->command, "%s is needed", flag->name);
    }
    return code;
}

int fl_arguments_parse(const fl_command *command, int argc, char **argv, void *flags,
                       fl_positionals *positionals) {
    parser p = {.command = command, .argc = argc, .argv = argv, .target = flags};
    /* Positionals are gathered at the front of argv, over arguments already read. */
    positionals->items = (const char **)(void *)(argv + 1);
    positionals->count = 0;
    bool flags_end = false;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        int code = -1;
        if (!flags_end && strcmp(argument, "--") == 0) {
            flags_end = true;
        } else if (!flags_end && (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0)) {
            fl_help_print(stdout, command);
            return FL_EXIT_OK;
        } else if (!flags_end && argument[0] == '-' && argument[1] != '\0') {
            code = take_flag(&p, &i);
        } else {
            code = take_positional(&p, argument, positionals);
        }
        if (code >= 0) return code;
    }
    return check_needs(&p, positionals);
}
