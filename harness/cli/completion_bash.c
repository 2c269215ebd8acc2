#include <stdbool.h>
#include <string.h>

#include "harness/cli/arguments.h"
#include "harness/cli/completion.h"

static void print_words(FILE *stream, fl_words *words) {
    for (size_t i = 0; words(i) != NULL; i++) fprintf(stream, "%s%s", i > 0 ? " " : "", words(i));
}

/* One line that completes $cur with what a value can be. */
static void print_value(FILE *stream, fl_value kind, fl_words *words) {
    if (words != NULL) {
        fprintf(stream, "_frostline_words \"");
        print_words(stream, words);
        fprintf(stream, "\"");
    } else if (kind == FL_VALUE_FILE) {
        fprintf(stream, "_frostline_paths -f");
    } else if (kind == FL_VALUE_FOLDER) {
        fprintf(stream, "_frostline_paths -d");
    } else {
        fprintf(stream, ":");
    }
}

static void print_flag_values(FILE *stream, const fl_flag *flags) {
    bool any = false;
    for (const fl_flag *flag = flags; flag != NULL && flag->name != NULL; flag++) {
        if (flag->kind == FL_VALUE_NONE) continue;
        fprintf(stream, "%s            %s) ", any ? "" : "            case $prev in\n", flag->name);
        print_value(stream, flag->kind, flag->words);
        fprintf(stream, "; return ;;\n");
        any = true;
    }
    if (any) fprintf(stream, "            esac\n");
}

static void print_command(FILE *stream, const fl_command *command) {
    fprintf(stream, "        %s)\n", command->name);
    print_flag_values(stream, command->flags);
    fprintf(stream, "            if [[ $cur == -* ]]; then _frostline_words \"");
    for (const fl_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++)
        fprintf(stream, "%s ", flag->name);
    fprintf(stream, "--help\"; return; fi\n");
    for (const fl_positional *p = command->positionals; p != NULL && p->name != NULL; p++) {
        fprintf(stream, "            ");
        print_value(stream, p->kind, p->words);
        fputc('\n', stream);
    }
    fprintf(stream, "            ;;\n");
}

void fl_completion_bash(FILE *stream) {
    fputs("# Completion of frostline for bash, printed by `frostline completion bash`.\n"
          "_frostline_words() {\n"
          "    COMPREPLY+=($(compgen -W \"$1\" -- \"$cur\"))\n"
          "    if [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace "
          "2>/dev/null; fi\n"
          "    return 0\n"
          "}\n"
          "_frostline_paths() {\n"
          "    local path\n"
          "    while IFS= read -r path; do COMPREPLY+=(\"$path\"); done < <(compgen \"$1\" -- \"$cur\")\n"
          "    compopt -o filenames 2>/dev/null\n"
          "    return 0\n"
          "}\n"
          "_frostline() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    COMPREPLY=()\n"
          "    if [[ $COMP_CWORD -eq 1 ]]; then\n"
          "        _frostline_words \"",
          stream);
    for (size_t i = 0; fl_commands[i] != NULL; i++) fprintf(stream, "%s ", fl_commands[i]->name);
    fputs("help --help --version\"\n"
          "        return\n"
          "    fi\n"
          "    case ${COMP_WORDS[1]} in\n",
          stream);
    for (size_t i = 0; fl_commands[i] != NULL; i++) print_command(stream, fl_commands[i]);
    fputs("        help) _frostline_words \"", stream);
    for (size_t i = 0; fl_commands[i] != NULL; i++) fprintf(stream, "%s ", fl_commands[i]->name);
    fputs("\" ;;\n    esac\n}\ncomplete -F _frostline frostline\n", stream);
}
