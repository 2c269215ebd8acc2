#include "harness/cli/option_catalogue.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "attn_variants/variant.h"
#include "harness/config/expansion.h"
#include "harness/config/experiment.h"
#include "harness/config/self_generated.h"
#include "harness/engine/training.h"
#include "harness/eval/task_config.h"

enum { MAX_KEYS = 512 };

typedef struct catalogue {
    fl_catalogue_key keys[MAX_KEYS];
    size_t count;
} catalogue;

/* A floor that has option tables is a row here. */
static const fl_option_section *(*const providers[])(size_t *count) = {
    fl_experiment_sections, fl_self_generated_sections, fl_variant_sections,
    fl_train_sections,      fl_task_sections,           fl_expansion_sections,
};
enum { PROVIDERS = sizeof providers / sizeof providers[0] };

/* Keys of type NODE that are no mapping with a table of their own, or may be something else as well. */
static const struct {
    const char *path, *text, *schema;
} forms[] = {
    {"variant.scale", "none, sqrt_dim or a number from 1e-6 to 1e6",
     "{\"anyOf\":[{\"enum\":[\"none\",\"sqrt_dim\",null]},{\"type\":\"number\",\"minimum\":1e-6,"
     "\"maximum\":1e6}]}"},
    {"variant.normaliser", "true or false", "{\"type\":[\"boolean\",\"null\"]}"},
    {"variant.softmax_layers", "a list of layers, {every: n} or {hardest: n, by: signal}",
     "{\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"integer\",\"minimum\":0},\"uniqueItems\":true}"},
    {"variant.lora.targets", "a list of q, k, v, o",
     "{\"type\":[\"array\",\"null\"],\"items\":{\"enum\":[\"q\",\"k\",\"v\",\"o\"]},\"minItems\":1,"
     "\"uniqueItems\":true}"},
    {"measure.ablate", "a list of linear, exact, convolution, gate",
     "{\"type\":[\"array\",\"null\"],\"items\":{\"enum\":[\"linear\",\"exact\",\"convolution\",\"gate\"]},"
     "\"uniqueItems\":true}"},
    {"tasks", "a list of mappings", NULL},
    {"sweep.grid", "{dotted.key: [values], ...}", NULL},
    {"sweep.zip", "{dotted.key: [values], ...}", NULL},
    {"sweep.labels", "{dotted.key: [names], ...}", NULL},
    {"sweep.list", "[{dotted.key: value, ...}, ...]", NULL},
    {"sweep.exclude", "[{dotted.key: value, ...}, ...]", NULL},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

static void add_section(catalogue *c, const fl_option_section *section, const fl_rule *rule);

static void add_inner(catalogue *c, const char *path) {
    for (size_t p = 0; p < PROVIDERS; p++) {
        size_t count = 0;
        const fl_option_section *sections = providers[p](&count);
        for (size_t s = 0; s < count; s++) {
            if (strcmp(sections[s].prefix, path) == 0) add_section(c, &sections[s], NULL);
        }
    }
}

static void add_section(catalogue *c, const fl_option_section *section, const fl_rule *rule) {
    for (size_t i = 0; i < section->count; i++) {
        assert(c->count < MAX_KEYS); /* the tables here never get there */
        fl_catalogue_key *key = &c->keys[c->count++];
        *key = (fl_catalogue_key){.section = *section, .option = &section->options[i], .rule = rule};
        snprintf(key->path, sizeof key->path, "%s%s%s", section->prefix,
                 section->prefix[0] != '\0' ? "." : "", section->options[i].key);
        if (key->option->type == FL_OPTION_NODE) add_inner(c, key->path);
    }
}

static void add_rules(catalogue *c) {
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        const fl_rule *rule = fl_rule_registry[i];
        const fl_option_section section = {"variant", NULL, rule->options, rule->option_count};
        add_section(c, &section, rule);
    }
}

const fl_catalogue_key *fl_option_catalogue(size_t *count) {
    static catalogue c;
    if (c.count == 0) {
        add_inner(&c, "");
        add_rules(&c);
    }
    *count = c.count;
    return c.keys;
}

bool fl_catalogue_has_inner(const char *path) {
    size_t count = 0;
    const fl_catalogue_key *keys = fl_option_catalogue(&count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(keys[i].section.prefix, path) == 0) return true;
    }
    return false;
}

static size_t find_form(const char *path) {
    size_t i = 0;
    while (i < FORMS && strcmp(forms[i].path, path) != 0) i++;
    return i;
}

const char *fl_catalogue_form(const char *path) {
    size_t i = find_form(path);
    return i < FORMS ? forms[i].text : NULL;
}

const char *fl_catalogue_form_schema(const char *path) {
    size_t i = find_form(path);
    return i < FORMS ? forms[i].schema : NULL;
}
