#include <stdbool.h>
#include <string.h>

#include "harness/cli/arguments.h"
#include "harness/cli/completion.h"

/* Inside '...' in zsh, and inside [...] or before a colon of a specification. */
static void print_escaped(FILE *stream, const char *text) {
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\'')
            fputs("'\\''", stream);
        else if (strchr("[]:\\", *c) != NULL)
            fprintf(stream, "\\%c", *c);
        else
            fputc(*c, stream);
    }
}

/* What follows the message of a specification: the words, or files. */
static void print_action(FILE *stream, fl_value kind, fl_words *words) {
    if (words == NULL) {
        fputs(kind == FL_VALUE_FILE ? "_files" : kind == FL_VALUE_FOLDER ? "_files -/" : " ", stream);
        return;
    }
    bool keys = words(0) != NULL && words(0)[strlen(words(0)) - 1] == '=';
    fputs(keys ? "compadd -S \"\" -- " : "(", stream);
    for (size_t i = 0; words(i) != NULL; i++) {
        if (i > 0) fputc(' ', stream);
        print_escaped(stream, words(i));
    }
    if (!keys) fputc(')', stream);
}

static void print_flag(FILE *stream, const fl_flag *flag) {
    fprintf(stream, "            '%s[", flag->name);
    print_escaped(stream, flag->help);
    fputc(']', stream);
    if (flag->kind != FL_VALUE_NONE) {
        fputc(':', stream);
        print_escaped(stream, flag->value);
        fputc(':', stream);
        print_action(stream, flag->kind, flag->words);
    }
    fputs("' \\\n", stream);
}

static void print_command(FILE *stream, const fl_command *command) {
    fprintf(stream, "        %s)\n            _arguments -s \\\n", command->name);
    for (const fl_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++)
        print_flag(stream, flag);
    for (const fl_positional *p = command->positionals; p != NULL && p->name != NULL; p++) {
        if (p->repeated)
            fputs("            '*:", stream);
        else
            fprintf(stream, "            '%td%s:", p - command->positionals + 1, p->optional ? ":" : "");
        print_escaped(stream, p->name);
        fputc(':', stream);
        print_action(stream, p->kind, p->words);
        fputs("' \\\n", stream);
    }
    fputs("            '--help[what the command takes, with examples]'\n            ;;\n", stream);
}

static void print_names(FILE *stream) {
    for (size_t i = 0; fl_commands[i] != NULL; i++) {
        fprintf(stream, "        '%s:", fl_commands[i]->name);
        print_escaped(stream, fl_commands[i]->summary);
        fputs("'\n", stream);
    }
}

void fl_completion_zsh(FILE *stream) {
    fputs("#compdef frostline\n"
          "# Completion of frostline for zsh, printed by `frostline completion zsh`.\n"
          "_frostline() {\n"
          "    local state line\n"
          "    local -a names\n"
          "    names=(\n",
          stream);
    print_names(stream);
    fputs("        'help:what a command takes'\n"
          "    )\n"
          "    _arguments -C '--help[the commands]' '--version[this build]' '1:command:->command' "
          "'*::argument:->argument'\n"
          "    case $state in\n"
          "    command) _describe command names ;;\n"
          "    argument)\n"
          "        case $words[1] in\n",
          stream);
    for (size_t i = 0; fl_commands[i] != NULL; i++) print_command(stream, fl_commands[i]);
    fputs("        help) _describe command names ;;\n"
          "        esac\n"
          "        ;;\n"
          "    esac\n"
          "}\n"
          "if [[ $funcstack[1] == _frostline ]]; then _frostline \"$@\"; else compdef _frostline frostline; "
          "fi\n",
          stream);
}
