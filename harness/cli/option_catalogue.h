/* Option catalogue: every key a config may have, gathered from the tables of the floors and the rules. What `frostline config`
 * prints, docs/configuration.md, the schema and the completion of KEY=VALUE are made from it. */
#ifndef FL_CLI_OPTION_CATALOGUE_H
#define FL_CLI_OPTION_CATALOGUE_H

#include <stddef.h>

#include "attn_variants/attn_variant.h"
#include "harness/config/options.h"

enum { FL_CATALOGUE_PATH_BYTES = 64 };

typedef struct fl_catalogue_key {
    char path[FL_CATALOGUE_PATH_BYTES]; /* "variant.cache.budget"; "tasks.shots": of every task */
    fl_option_section section;
    const fl_option *option;
    const fl_rule *rule; /* whose own key it is; NULL: of every rule, or nothing to do with rules */
} fl_catalogue_key;

/* In the order of the tables: a section after the key that holds it. Made on the first call, by one thread. */
const fl_catalogue_key *fl_option_catalogue(size_t *count);

/* Whether a key of type NODE holds a mapping (or list of mappings) whose keys are in the catalogue too. */
bool fl_catalogue_has_inner(const char *path);

/* What a key of type NODE takes when it is no such mapping, or beside it: "a list of layers, or ..."; NULL when unknown. */
const char *fl_catalogue_form(const char *path);
/* The same as a JSON Schema, a literal; NULL when unknown. */
const char *fl_catalogue_form_schema(const char *path);

#endif
