/* Option tables: every key a user may write is a row (key, type, where it goes, default, range, help). One binder fills a
 * struct from a mapping node, reports unknown, duplicate, mistyped and out-of-range keys with file:line:column and a
 * suggestion, and records the resolved value and whether it was a default. */
#ifndef FL_CONFIG_OPTIONS_H
#define FL_CONFIG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/base/status.h"
#include "harness/config/node.h"

typedef enum fl_option_type {
    FL_OPTION_BOOL,   /* bool: true | false */
    FL_OPTION_SIZE,   /* size_t: decimal, no sign */
    FL_OPTION_INTEGER,/* int64_t */
    FL_OPTION_SEED,   /* uint64_t */
    FL_OPTION_NUMBER, /* double: finite; the whole scalar must be a number */
    FL_OPTION_STRING, /* char *: fl_memory block owned by the struct's owner; default NULL text = NULL pointer */
    FL_OPTION_CHOICE, /* int: index into choices */
    FL_OPTION_SIZES,  /* fl_size_list: a sequence of non-negative integers */
    FL_OPTION_NODE    /* const fl_node *: left as it is (mappings and lists that another table reads) */
} fl_option_type;

typedef struct fl_size_list {
    size_t count;
    size_t *values; /* fl_memory block */
} fl_size_list;

typedef struct fl_option {
    const char *key;
    fl_option_type type;
    size_t offset;             /* offsetof the member */
    const char *default_text;  /* YAML text; NULL = zero / NULL / empty; "!" = required */
    double minimum, maximum;   /* of numbers and of each of SIZES, inclusive; both 0 = no range; maximum < minimum = no maximum */
    const char *const *choices;/* NULL-terminated, for FL_OPTION_CHOICE */
    const char *help;          /* what it does; every option has one */
    const char *unit;          /* of a number: "tokens", "MiB"; NULL = a bare number */
} fl_option;

/* A table with its place in the config: what documentation and the schema are made from. A key of type NODE is described by
 * the sections under it, or by its own help. */
typedef struct fl_option_section {
    const char *prefix; /* "variant.gate"; "" = the top level; "tasks" = every element of that list */
    const char *when;   /* of several forms of one mapping, the key that this one is known by; NULL = there is one form */
    const fl_option *options;
    size_t count;
} fl_option_section;

/* Resolved configuration: a list of dotted keys with canonical value text and a default mark. It is what run files store and
 * what run ids are hashes of: keys sorted, numbers normalised, defaults expanded. `value` is YAML on one line (a string that
 * could be read as something else is in quotes). Adding a key again replaces its value; adding a.b drops a plain value of
 * a, and adding a drops everything below it: the latest wins. Numbers as names are list elements: tasks.0.name. */
typedef struct fl_resolved fl_resolved;
fl_status fl_resolved_create(fl_resolved **out, fl_error *error);
void fl_resolved_destroy(fl_resolved *resolved);
fl_status fl_resolved_add(fl_resolved *resolved, const char *dotted_key, const char *value, bool is_default,
                          fl_error *error);
/* Nothing happens when the key is not there. */
void fl_resolved_remove(fl_resolved *resolved, const char *dotted_key);
size_t fl_resolved_count(const fl_resolved *resolved);
void fl_resolved_at(const fl_resolved *resolved, size_t index, const char **key, const char **value, bool *is_default);
/* The value of a key, or NULL. */
const char *fl_resolved_find(const fl_resolved *resolved, const char *dotted_key);
/* Canonical YAML of all keys, sorted and nested; *text is an fl_memory block. Keys under a prefix in `excluded`
 * (NULL-terminated list, may be NULL) are left out. */
fl_status fl_resolved_text(const fl_resolved *resolved, const char *const *excluded, char **text, fl_error *error);

/* Fills `target` from `mapping` (NULL or null node: all defaults). Keys found in any of the tables are taken; any other is
 * an error with the nearest known key as a suggestion. `prefix` ("variant") heads the dotted keys in `resolved` (may be
 * NULL). A null value means the default. FL_OPTION_NODE members are not recorded in `resolved`: whoever reads the node does
 * that. On failure the strings and lists already bound are released and zeroed. */
typedef struct fl_option_table {
    const fl_option *options;
    size_t count;
    void *target;
} fl_option_table;
fl_status fl_options_bind(const fl_node *mapping, const fl_option_table *tables, size_t table_count, const char *prefix,
                          fl_resolved *resolved, fl_error *error);
/* Releases strings and lists of one bound table. */
void fl_options_release(const fl_option *options, size_t count, void *target);

/* A string as the value text of fl_resolved_add (quoted where needed); NULL gives null. *out is an fl_memory block. */
fl_status fl_resolved_string(const char *text, char **out, fl_error *error);

/* Single values, for code that reads FL_OPTION_NODE itself. */
fl_status fl_node_to_size(const fl_node *node, size_t minimum, size_t maximum, size_t *out, fl_error *error);
fl_status fl_node_to_number(const fl_node *node, double minimum, double maximum, double *out, fl_error *error);
fl_status fl_node_to_bool(const fl_node *node, bool *out, fl_error *error);
fl_status fl_node_to_choice(const fl_node *node, const char *const *choices, int *out, fl_error *error);

/* The nearest of `count` names to `word` by edit distance, or NULL when none is near. */
const char *fl_suggest(const char *word, const char *const *names, size_t count);
/* "<what> "<word>"" is none of the names: an error at `node` that says the nearest, or all there are. `what`: "rule: there is no
 * rule", "unknown task". */
fl_status fl_unknown_name(const fl_node *node, const char *what, const char *word, const char *const *names, size_t count,
                          fl_error *error);

#endif
