#include "harness/cli/help.h"

#include <stdio.h>
#include <string.h>

#include "harness/cli/arguments.h"

enum { NAME_COLUMN = 26, PIECE_BYTES = 128 };

/* One line of text, wrapped between words. */
static void wrap_line(FILE *stream, size_t indent, size_t column, const char *text, size_t bytes) {
    size_t at = 0;
    while (at < bytes) {
        size_t word = 0;
        while (at + word < bytes && text[at + word] != ' ') word++;
        if (column > indent && column + 1 + word > FL_HELP_WIDTH) {
            fprintf(stream, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', stream);
            column++;
        }
        fwrite(text + at, 1, word, stream);
        column += word;
        at += word;
        while (at < bytes && text[at] == ' ') at++;
    }
    fputc('\n', stream);
}

void fl_help_wrap(FILE *stream, size_t indent, size_t column, const char *text) {
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        size_t bytes = end != NULL ? (size_t)(end - line) : strlen(line);
        if (column < indent) fprintf(stream, "%*s", (int)(indent - column), "");
        if (bytes > 0 && line[0] == ' ')
            fprintf(stream, "%.*s\n", (int)bytes, line);
        else
            wrap_line(stream, indent, column > indent ? column : indent, line, bytes);
        column = 0;
        line = end != NULL ? end + 1 : NULL;
    }
}

void fl_help_entry(FILE *stream, const char *name, const char *text) {
    int written = fprintf(stream, "  %s", name);
    if (written >= NAME_COLUMN) {
        fputc('\n', stream);
        written = 0;
    }
    fl_help_wrap(stream, NAME_COLUMN, written > 0 ? (size_t)written : 0, text);
}

static void flag_piece(char *piece, const fl_flag *flag) {
    snprintf(piece, PIECE_BYTES, "%s%s%s", flag->name, flag->value != NULL ? " " : "",
             flag->value != NULL ? flag->value : "");
}

static void positional_piece(char *piece, const fl_positional *positional) {
    snprintf(piece, PIECE_BYTES, "%s%s%s%s", positional->optional ? "[" : "", positional->name,
             positional->repeated ? " ..." : "", positional->optional ? "]" : "");
}

/* Pieces are not broken. */
static void put_piece(FILE *stream, size_t indent, size_t *column, const char *piece) {
    size_t bytes = strlen(piece);
    if (*column + 1 + bytes > FL_HELP_WIDTH) {
        fprintf(stream, "\n%*s", (int)indent, "");
        *column = indent;
    }
    fprintf(stream, " %s", piece);
    *column += 1 + bytes;
}

static void usage_flags(FILE *stream, size_t indent, size_t *column, const fl_flag *flags) {
    const char *before = "";
    for (const fl_flag *flag = flags; flag != NULL && flag->name != NULL; flag++) {
        char text[PIECE_BYTES], piece[PIECE_BYTES + 4];
        flag_piece(text, flag);
        if (flag->need == FL_NEED_NONE)
            snprintf(piece, sizeof piece, "[%s]", text);
        else if (flag->need == FL_NEED_ALWAYS)
            snprintf(piece, sizeof piece, "%s", text);
        else
            snprintf(piece, sizeof piece, "%s%s", before, text);
        if (flag->need == FL_NEED_EITHER) before = "| ";
        put_piece(stream, indent, column, piece);
    }
}

void fl_help_usage(FILE *stream, const char *lead, const fl_command *command) {
    int start = fprintf(stream, "%sfrostline %s", lead, command->name);
    size_t indent = start > 0 ? (size_t)start : 0, column = indent;
    for (const fl_positional *p = command->positionals; p != NULL && p->name != NULL; p++) {
        char piece[PIECE_BYTES];
        positional_piece(piece, p);
        put_piece(stream, indent, &column, piece);
    }
    usage_flags(stream, indent, &column, command->flags);
    fputc('\n', stream);
}

static void print_flags(FILE *stream, const fl_flag *flags) {
    if (flags != NULL && flags->name != NULL) fputc('\n', stream);
    for (const fl_flag *flag = flags; flag != NULL && flag->name != NULL; flag++) {
        char piece[PIECE_BYTES];
        flag_piece(piece, flag);
        fl_help_entry(stream, piece, flag->help);
    }
}

static void print_examples(FILE *stream, const fl_example *examples) {
    if (examples != NULL) fprintf(stream, "\nexamples:\n");
    for (const fl_example *example = examples; example != NULL && example->line != NULL; example++) {
        fprintf(stream, "  %s\n", example->line);
        if (example->what != NULL) fl_help_wrap(stream, 6, 0, example->what);
    }
}

void fl_help_print(FILE *stream, const fl_command *command) {
    fl_help_usage(stream, "usage: ", command);
    fputc('\n', stream);
    fl_help_wrap(stream, 0, 0, command->summary);
    if (command->positionals != NULL) fputc('\n', stream);
    for (const fl_positional *p = command->positionals; p != NULL && p->name != NULL; p++)
        fl_help_entry(stream, p->name, p->help);
    print_flags(stream, command->flags);
    print_examples(stream, command->examples);
    if (command->help == NULL) return;
    fputc('\n', stream);
    fl_help_wrap(stream, 0, 0, command->help);
}
