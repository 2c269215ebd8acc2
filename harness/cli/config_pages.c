#include "harness/cli/config_pages.h"

#include <string.h>

#include "harness/cli/help.h"
#include "harness/cli/option_text.h"
#include "harness/eval/task_table.h"

enum { TEXT_BYTES = 2048 };

/* Cut at the buffer's end, which no table's text reaches. */
static const char *type_text(const fl_catalogue_key *key, char text[TEXT_BYTES]) {
    fl_text_builder builder = {0};
    text[0] = '\0';
    if (fl_option_type_text(key->option, fl_catalogue_form(key->path), &builder, NULL) == FL_OK)
        snprintf(text, TEXT_BYTES, "%s", builder.text);
    fl_text_builder_release(&builder);
    return text;
}

static void print_fact(FILE *stream, const char *name, const char *text) {
    int written = fprintf(stream, "  %-10s", name);
    fl_help_wrap(stream, 13, written > 0 ? (size_t)written : 0, text);
}

static void print_form(FILE *stream, const fl_catalogue_key *key) {
    char text[TEXT_BYTES];
    if (key->rule != NULL) print_fact(stream, "rule", key->rule->name);
    if (key->section.when != NULL) {
        snprintf(text, sizeof text, "of the form with %s", key->section.when);
        print_fact(stream, "where", text);
    }
}

void fl_config_page_key(FILE *stream, const fl_catalogue_key *key) {
    char text[TEXT_BYTES];
    fprintf(stream, "%s\n  ", key->path);
    fl_help_wrap(stream, 2, 2, key->option->help);
    print_form(stream, key);
    print_fact(stream, "type", type_text(key, text));
    if (key->option->unit != NULL) print_fact(stream, "unit", key->option->unit);
    print_fact(stream, "default", fl_option_default_text(key->option));
    if (!fl_catalogue_has_inner(key->path)) return;
    size_t count = 0;
    const fl_catalogue_key *keys = fl_option_catalogue(&count);
    fprintf(stream, "  keys\n");
    for (size_t i = 0; i < count; i++) {
        if (strcmp(keys[i].section.prefix, key->path) != 0) continue;
        const fl_rule *rule = keys[i].rule;
        snprintf(text, sizeof text, "%s%s%s%s", keys[i].option->help, rule != NULL ? " (rule " : "",
                 rule != NULL ? rule->name : "", rule != NULL ? ")" : "");
        fl_help_entry(stream, keys[i].option->key, text);
    }
}

void fl_config_page_list(FILE *stream) {
    size_t count = 0;
    const fl_catalogue_key *keys = fl_option_catalogue(&count);
    const fl_rule *rule = NULL;
    for (size_t i = 0; i < count; i++) {
        char text[TEXT_BYTES];
        if (keys[i].rule != rule) fprintf(stream, "\nof the rule %s\n", keys[i].rule->name);
        rule = keys[i].rule;
        snprintf(text, sizeof text, "%s (%s)", keys[i].option->help, fl_option_default_text(keys[i].option));
        fl_help_entry(stream, keys[i].path, text);
    }
    fprintf(stream, "\nIn brackets: the default. frostline config KEY says more.\n");
}

/* A bar would end the cell. */
static void print_cell(FILE *stream, const char *text) {
    fputs(" ", stream);
    for (const char *c = text; *c != '\0'; c++) fprintf(stream, *c == '|' ? "\\|" : "%c", *c);
    fputs(" |", stream);
}

static void print_row(FILE *stream, const fl_catalogue_key *key) {
    char text[TEXT_BYTES];
    const fl_option *option = key->option;
    fprintf(stream, "| `%s` |", option->key);
    print_cell(stream, type_text(key, text));
    print_cell(stream, option->unit != NULL ? option->unit : "");
    print_cell(stream, fl_option_default_text(option));
    snprintf(text, sizeof text, "%s%s", option->help,
             option->type == FL_OPTION_NODE && fl_catalogue_has_inner(key->path) ? "; keys below" : "");
    print_cell(stream, text);
    fputc('\n', stream);
}

static bool same_section(const fl_catalogue_key *a, const fl_catalogue_key *b) {
    return a->section.options == b->section.options && strcmp(a->section.prefix, b->section.prefix) == 0;
}

static void print_section(FILE *stream, const fl_catalogue_key *keys, size_t count, size_t first) {
    const fl_catalogue_key *head = &keys[first];
    if (head->rule != NULL)
        fprintf(stream, "\n### `variant`, of the rule `%s`\n\n", head->rule->name);
    else if (head->section.prefix[0] == '\0')
        fprintf(stream, "\n### The top level\n\n");
    else if (head->section.when != NULL)
        fprintf(stream, "\n### `%s`, with `%s`\n\n", head->section.prefix, head->section.when);
    else
        fprintf(stream, "\n### `%s`\n\n", head->section.prefix);
    fprintf(stream, "| key | value | unit | default | what it does |\n|---|---|---|---|---|\n");
    for (size_t i = first; i < count; i++) {
        if (same_section(head, &keys[i]) && keys[i].rule == head->rule) print_row(stream, &keys[i]);
    }
}

static void print_sections(FILE *stream) {
    size_t count = 0;
    const fl_catalogue_key *keys = fl_option_catalogue(&count);
    for (size_t i = 0; i < count; i++) {
        bool seen = false;
        for (size_t k = 0; k < i && !seen; k++)
            seen = same_section(&keys[i], &keys[k]) && keys[i].rule == keys[k].rule;
        if (!seen) print_section(stream, keys, count, i);
    }
}

void fl_config_page_markdown(FILE *stream) {
    fputs("# Every key of a config\n\n"
          "Made by `frostline config --markdown` from the tables that read configs; a test compares the two. "
          "The same on the terminal:\n"
          "`frostline config KEY`. For editors and validators: `frostline config --schema` (JSON Schema, "
          "draft 7); with a YAML language\n"
          "server, write the schema to a file and begin a config with\n"
          "`# yaml-language-server: $schema=frostline.schema.json`; or check files with `check-jsonschema "
          "--schemafile frostline.schema.json\n"
          "my.yaml` (PyPI).\n\n"
          "An unknown key, a duplicate, a value of another type or out of range is an error that names file, "
          "line and column. `null`\n"
          "means the default. On the command line `key=value` overrides (`variant.window=120`), and "
          "`key=[...]` under `sweep.grid.` is\n"
          "an axis. A key whose default is *none* may be left out; *required*: not.\n\n"
          "## Paths\n\n"
          "A path in a config, or after a flag, is taken against the working directory, not against the "
          "config's folder. If nothing is\n"
          "there, a relative path is looked for among the program's own data: `$FROSTLINE_DATA` if that is "
          "set, else the folder\n"
          "`share/frostline` of the installation. An error names every place that was tried.\n\n"
          "## The keys\n",
          stream);
    print_sections(stream);
}
