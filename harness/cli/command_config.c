/* config [KEY]: the keys of a config, from the tables that read them. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/cli/arguments.h"
#include "harness/cli/command.h"
#include "harness/cli/config_pages.h"
#include "harness/cli/config_schema.h"
#include "harness/cli/option_catalogue.h"
#include "harness/cli/words.h"

enum { MAX_NAMES = 1024 };

/* "tasks.0.shots" -> "tasks.shots": every element of a list has the same keys. */
static void drop_numbers(const char *key, char out[FL_CATALOGUE_PATH_BYTES]) {
    size_t used = 0;
    while (*key != '\0') {
        size_t part = strcspn(key, "."), digits = strspn(key, "0123456789");
        if (part == 0 || digits != part) {
            int written = snprintf(out + used, FL_CATALOGUE_PATH_BYTES - used, "%s%.*s", used > 0 ? "." : "",
                                   (int)part, key);
            used += written > 0 ? (size_t)written : 0;
            if (used >= FL_CATALOGUE_PATH_BYTES) break;
        }
        key += part + (key[part] == '.');
    }
}

static const char *last_part(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot != NULL ? dot + 1 : path;
}

static int refuse_key(const fl_command *command, const char *name) {
    const char *names[MAX_NAMES];
    size_t keys = 0, count = 0;
    const fl_catalogue_key *all = fl_option_catalogue(&keys);
    for (size_t i = 0; i < keys && count + 1 < MAX_NAMES; i++) {
        names[count++] = all[i].path;
        names[count++] = last_part(all[i].path);
    }
    const char *near = fl_suggest(name, names, count);
    fl_error error;
    if (near != NULL)
        fl_error_set(&error, FL_ERROR_ARGUMENT, "there is no key \"%s\"; did you mean %s?", name, near);
    else
        fl_error_set(&error, FL_ERROR_ARGUMENT, "there is no key \"%s\"; `frostline config` lists them",
                     name);
    return fl_command_fail(command, &error);
}

/* The key of that path; when there is none, every key whose last name it is. Returns how many were shown. */
static size_t show(const char *name) {
    char path[FL_CATALOGUE_PATH_BYTES] = "";
    size_t count = 0, shown = 0;
    const fl_catalogue_key *keys = fl_option_catalogue(&count);
    drop_numbers(name, path);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(keys[i].path, path) != 0) continue;
        if (shown++ > 0) printf("\n");
        fl_config_page_key(stdout, &keys[i]);
    }
    for (size_t i = 0, found = shown; found == 0 && i < count; i++) {
        if (strcmp(last_part(keys[i].path), path) != 0) continue;
        if (shown++ > 0) printf("\n");
        fl_config_page_key(stdout, &keys[i]);
    }
    return shown;
}

static int print_schema(const fl_command *command) {
    fl_error error;
    char *text = NULL;
    if (fl_config_schema_make(&text, &error) != FL_OK) return fl_command_fail(command, &error);
    puts(text);
    fl_memory_free(text);
    return FL_EXIT_OK;
}

typedef struct config_flags {
    bool schema, markdown;
} config_flags;

static int run(const fl_command *command, int argc, char **argv) {
    config_flags given = {0};
    fl_positionals names;
    int code = fl_arguments_parse(command, argc, argv, &given, &names);
    if (code >= 0) return code;
    if (given.schema + given.markdown + (names.count > 0) > 1)
        return fl_arguments_refuse(command, "give one of KEY, --schema and --markdown");
    if (given.schema) return print_schema(command);
    if (given.markdown) {
        fl_config_page_markdown(stdout);
    } else if (names.count == 0) {
        fl_config_page_list(stdout);
    } else if (show(names.items[0]) == 0) {
        return refuse_key(command, names.items[0]);
    }
    return FL_EXIT_OK;
}

static const fl_flag flags[] = {
    {.name = "--schema",
     .offset = offsetof(config_flags, schema),
     .help = "a JSON Schema of a config, for editors and validators"},
    {.name = "--markdown",
     .offset = offsetof(config_flags, markdown),
     .help = "every key, as docs/configuration.md"},
    {0},
};

static const fl_positional positionals[] = {
    {.name = "KEY",
     .kind = FL_VALUE_TEXT,
     .optional = true,
     .words = fl_words_keys,
     .help = "a key with its dots (variant.cache.budget), or the last name alone (budget)"},
    {0},
};

static const fl_example examples[] = {
    {.line = "frostline config", .what = "every key in one line"},
    {.line = "frostline config variant.merge", .what = "type, allowed values, default of one"},
    {.line = "frostline config --schema > frostline.schema.json",
     .what = "and in the first line of a config, for editors with a YAML language server: # "
             "yaml-language-server: $schema=frostline.schema.json"},
    {0},
};

const fl_command fl_command_config = {
    .name = "config",
    .summary = "the keys of a config: type, range, unit, default, meaning; as a JSON Schema",
    .positionals = positionals,
    .flags = flags,
    .examples = examples,
    .run = run,
};
