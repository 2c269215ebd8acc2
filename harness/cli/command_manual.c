/* manual: the page for man(1), made from the tables of commands. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "harness/cli/arguments.h"
#include "harness/base/build_info.h"
#include "harness/cli/command.h"
#include "harness/cli/help.h"

typedef struct entry {
    const char *name, *text;
} entry;

static const entry exit_statuses[] = {
    {"0", "All that was asked for is done."},
    {"1", "Something failed; standard error says what and where."},
    {"2", "Wrong usage: an unknown flag, a missing argument."},
    {"3", "Made (a report, a table, a picture), but without files that cannot be read; they are named."},
    {"75", "Nothing went wrong here, but other processes still work on cells: the same command later has "
           "them all."},
    {"130, 143",
     "Interrupted, or ended by SIGTERM; what was finished is kept, and the same command goes on."},
};

static const entry environment[] = {
    {"FROSTLINE_DATA", "Folder of the program's own data (configs, datasets, models), in place of the "
                       "installed share/frostline."},
    {"FROSTLINE_KERNELS", "Vector kernels: avx512, avx2 or baseline, in place of the best that the processor "
                          "has."},
    {"TMPDIR", "Folder of scratch files, where the config does not say one (default: /tmp)."},
};

/* A backslash and a dash mean something to roff, and so do a dot and a quote at the start of a line. */
static void print_text(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (i == 0 && (text[i] == '.' || text[i] == '\'')) fputs("\\&", stdout);
        if (text[i] == '\\')
            fputs("\\e", stdout);
        else if (text[i] == '-')
            fputs("\\-", stdout);
        else
            fputc(text[i], stdout);
    }
}

static void print_line(const char *macro, const char *text) {
    printf("%s", macro);
    print_text(text, strlen(text));
    fputc('\n', stdout);
}

/* Paragraphs, one a line; lines that begin with a space are shown as they are. */
static void print_prose(const char *text) {
    bool table = false;
    for (const char *line = text; *line != '\0';) {
        size_t bytes = strcspn(line, "\n");
        if ((line[0] == ' ') != table) puts(table ? ".fi" : ".PP\n.nf");
        table = line[0] == ' ';
        if (!table && bytes > 0) puts(".PP");
        if (bytes > 0) print_text(line, bytes);
        if (bytes > 0) fputc('\n', stdout);
        line += bytes + (line[bytes] == '\n');
    }
    if (table) puts(".fi");
}

static void print_entry(const char *name, const char *text) {
    print_line(".TP\n.B ", name);
    print_line("", text);
}

static void print_command(const fl_command *command) {
    print_line(".SS ", command->name);
    print_line("", command->summary);
    puts(".PP\n.nf");
    fl_help_usage(stdout, "", command);
    puts(".fi");
    for (const fl_positional *p = command->positionals; p != NULL && p->name != NULL; p++)
        print_entry(p->name, p->help);
    for (const fl_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++) {
        char name[128];
        snprintf(name, sizeof name, "%s %s", flag->name, flag->value != NULL ? flag->value : "");
        print_entry(name, flag->help);
    }
    if (command->help != NULL) print_prose(command->help);
    for (const fl_example *example = command->examples; example != NULL && example->line != NULL; example++)
        print_entry(example->line, example->what);
}

static void print_entries(const char *title, const entry *entries, size_t count) {
    printf(".SH %s\n", title);
    for (size_t i = 0; i < count; i++) print_entry(entries[i].name, entries[i].text);
}

static int run(const fl_command *command, int argc, char **argv) {
    fl_positionals none;
    int code = fl_arguments_parse(command, argc, argv, NULL, &none);
    if (code >= 0) return code;
    printf(".TH FROSTLINE 1 \"\" \"frostline %s\" \"frostline\"\n", fl_build_revision());
    puts(
        ".SH NAME\nfrostline \\- frozen\\-backbone linearisation of pretrained transformers\n"
        ".SH SYNOPSIS\n.B frostline\n.I COMMAND\n.RI [ ARGUMENT ...]\n"
        ".SH DESCRIPTION\n"
        "Takes a pretrained transformer, freezes every weight, replaces the token mixing of its attention\n"
        "blocks by a linear\\-time rule, and measures what that costs: layer by layer, beside the full\n"
        "model and beside the same run with its linear part off. What to measure is written in a YAML file;\n"
        "every figure goes into HDF5 files.\n"
        ".SH COMMANDS");
    for (size_t i = 0; fl_commands[i] != NULL; i++) print_command(fl_commands[i]);
    print_entries("EXIT STATUS", exit_statuses, sizeof exit_statuses / sizeof exit_statuses[0]);
    print_entries("ENVIRONMENT", environment, sizeof environment / sizeof environment[0]);
    return FL_EXIT_OK;
}

static const fl_example examples[] = {
    {.line = "frostline manual | man -l -", .what = "reads it"},
    {.line = "frostline manual > /usr/local/share/man/man1/frostline.1", .what = "as `make install` does"},
    {0},
};

const fl_command fl_command_manual = {
    .name = "manual",
    .summary = "the manual page, for man",
    .examples = examples,
    .run = run,
};
