#include "harness/cli/config_schema.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <cjson/cJSON.h>

#include "attn_variants/attn_variant.h"
#include "harness/base/memory.h"
#include "harness/cli/option_catalogue.h"
#include "harness/cli/option_text.h"
#include "harness/eval/retrieval.h"
#include "harness/eval/task_table.h"

/* cJSON returns NULL where memory is short, and takes NULL: what is missing shows when the whole is written,
 * by its size. */

static cJSON *strings(const char *const *words, bool null) {
    cJSON *list = cJSON_CreateArray();
    for (; *words != NULL; words++) cJSON_AddItemToArray(list, cJSON_CreateString(*words));
    if (null) cJSON_AddItemToArray(list, cJSON_CreateNull());
    return list;
}

static cJSON *types(const char *const *words, bool null) {
    cJSON *list = strings(words, false);
    if (null) cJSON_AddItemToArray(list, cJSON_CreateString("null"));
    return list;
}

static cJSON *object_with(const char *name, cJSON *item) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToObject(object, name, item);
    return object;
}

static cJSON *required_list(const char *key) {
    const char *const words[] = {key, NULL};
    return strings(words, false);
}

/* {"type": "object", "additionalProperties": false, "properties": {}} */
static cJSON *closed_object(cJSON **properties) {
    static const char *const words[] = {"object", NULL};
    cJSON *object = object_with("type", types(words, true));
    cJSON_AddBoolToObject(object, "additionalProperties", false);
    *properties = cJSON_AddObjectToObject(object, "properties");
    return object;
}

static void add_range(cJSON *schema, const fl_option *option) {
    if (option->minimum == 0.0 && option->maximum == 0.0) return;
    cJSON_AddNumberToObject(schema, "minimum", option->minimum);
    if (option->maximum >= option->minimum) cJSON_AddNumberToObject(schema, "maximum", option->maximum);
}

static bool is_required(const fl_option *option) {
    return option->default_text != NULL && strcmp(option->default_text, "!") == 0;
}

static cJSON *number_schema(const fl_option *option, bool whole, bool null) {
    const char *const words[] = {whole ? "integer" : "number", NULL};
    cJSON *schema = object_with("type", types(words, null));
    add_range(schema, option);
    const bool natural = option->type == FL_OPTION_SIZE || option->type == FL_OPTION_SEED;
    if (natural && cJSON_GetObjectItem(schema, "minimum") == NULL)
        cJSON_AddNumberToObject(schema, "minimum", 0);
    return schema;
}

static cJSON *inner_schema(const char *path);

/* A value that is not described by a table: by its form, by the keys inside it, or by either. */
static cJSON *node_schema(const fl_catalogue_key *key) {
    const char *form = fl_catalogue_form_schema(key->path);
    const bool inner = fl_catalogue_has_inner(key->path);
    if (form == NULL && !inner) return cJSON_CreateObject();
    if (form == NULL) return inner_schema(key->path);
    if (!inner) return cJSON_Parse(form);
    cJSON *choices = inner_schema(key->path), *list = cJSON_GetObjectItem(choices, "anyOf");
    cJSON_AddItemToArray(list, cJSON_Parse(form));
    return choices;
}

static cJSON *sizes_schema(const fl_option *option) {
    static const char *const words[] = {"array", NULL};
    fl_option element = *option;
    element.type = FL_OPTION_SIZE;
    cJSON *schema = object_with("type", types(words, true));
    cJSON_AddItemToObject(schema, "items", number_schema(&element, true, false));
    return schema;
}

static cJSON *value_schema(const fl_catalogue_key *key) {
    static const char *const text[] = {"string", "number", "boolean", NULL}, *const truth[] = {"boolean",
                                                                                               NULL};
    const fl_option *option = key->option;
    const bool null = !is_required(option);
    /* `train.objective: null` could mean two things and is refused. */
    const bool choice_null = strcmp(key->path, "train.objective") != 0;
    switch (option->type) {
    case FL_OPTION_BOOL:
        return object_with("type", types(truth, null));
    case FL_OPTION_SIZE:
    case FL_OPTION_INTEGER:
    case FL_OPTION_SEED:
        return number_schema(option, true, null);
    case FL_OPTION_NUMBER:
        return number_schema(option, false, null);
    case FL_OPTION_STRING:
        return object_with("type", types(text, null));
    case FL_OPTION_CHOICE:
        return object_with("enum", strings(option->choices, choice_null));
    case FL_OPTION_SIZES:
        return sizes_schema(option);
    case FL_OPTION_NODE:
        return node_schema(key);
    }
    return cJSON_CreateObject();
}

static void describe(cJSON *schema, const fl_catalogue_key *key) {
    char text[2048];
    const char *unit = key->option->unit;
    snprintf(text, sizeof text, "%s%s%s%s; default: %s", key->option->help, unit != NULL ? " [" : "",
             unit != NULL ? unit : "", unit != NULL ? "]" : "", fl_option_default_text(key->option));
    cJSON_AddStringToObject(schema, "description", text);
}

/* A key that several rules have: any of their values. */
static void add_property(cJSON *properties, const fl_catalogue_key *key) {
    cJSON *schema = value_schema(key), *before = cJSON_GetObjectItem(properties, key->option->key);
    describe(schema, key);
    if (before == NULL) {
        cJSON_AddItemToObject(properties, key->option->key, schema);
    } else if (cJSON_GetObjectItem(before, "anyOf") != NULL) {
        cJSON_AddItemToArray(cJSON_GetObjectItem(before, "anyOf"), schema);
    } else {
        cJSON *both = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(both, "anyOf");
        cJSON_AddItemToArray(list, cJSON_DetachItemFromObject(properties, key->option->key));
        cJSON_AddItemToArray(list, schema);
        cJSON_AddItemToObject(properties, key->option->key, both);
    }
}

/* All keys under `path` of one form of the mapping. */
static cJSON *form_schema(const char *path, const char *when) {
    size_t count = 0;
    const fl_catalogue_key *keys = fl_option_catalogue(&count);
    cJSON *properties = NULL, *object = closed_object(&properties);
    for (size_t i = 0; i < count; i++) {
        const fl_option_section *section = &keys[i].section;
        const bool same =
            when == NULL ? section->when == NULL : section->when != NULL && strcmp(section->when, when) == 0;
        if (same && strcmp(section->prefix, path) == 0) add_property(properties, &keys[i]);
    }
    if (when != NULL) cJSON_AddItemToObject(object, "required", required_list(when));
    return object;
}

static cJSON *inner_schema(const char *path) {
    size_t count = 0;
    const fl_catalogue_key *keys = fl_option_catalogue(&count);
    cJSON *choices = cJSON_CreateArray();
    const char *last = NULL;
    for (size_t i = 0; i < count; i++) {
        const fl_option_section *section = &keys[i].section;
        if (strcmp(section->prefix, path) != 0) continue;
        if (section->when == NULL) {
            cJSON_Delete(choices);
            return form_schema(path, NULL);
        }
        if (last == NULL || strcmp(last, section->when) != 0)
            cJSON_AddItemToArray(choices, form_schema(path, section->when));
        last = section->when;
    }
    return object_with("anyOf", choices);
}

/* What the tables do not say: conditions between keys. */

static cJSON *parse(const char *text) {
    return cJSON_Parse(text);
}

/* Names of the rules that `holds` of, or of those that it does not. */
static cJSON *rule_names(bool (*holds)(const fl_rule *rule, const char *key), const char *key) {
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        if (holds(fl_rule_registry[i], key))
            cJSON_AddItemToArray(list, cJSON_CreateString(fl_rule_registry[i]->name));
    }
    return list;
}

/* If the mapping has `path` ("gate" or "gate.rank") and it is not null, its rule is one of the list. */
static cJSON *only_with_rules(const char *key, const char *inner, cJSON *rules) {
    cJSON *given = parse("{\"not\":{\"type\":\"null\"}}");
    if (inner != NULL) {
        cJSON_AddItemToObject(given, "required", required_list(inner));
        cJSON_AddItemToObject(given, "type", cJSON_CreateString("object"));
    }
    cJSON *condition = object_with("properties", object_with(key, given));
    cJSON_AddItemToObject(condition, "required", required_list(key));
    cJSON *result = object_with("properties", object_with("rule", object_with("enum", rules)));
    cJSON_AddItemToObject(result, "required", required_list("rule"));
    cJSON *whole = object_with("if", condition);
    cJSON_AddItemToObject(whole, "then", result);
    return whole;
}

static bool has_option(const fl_rule *rule, const char *key) {
    for (size_t i = 0; i < rule->option_count; i++) {
        if (strcmp(rule->options[i].key, key) == 0) return true;
    }
    return false;
}

static bool takes_part(const fl_rule *rule, const char *part) {
    if (strcmp(part, "gate") == 0) return rule->gate != FL_GATE_NONE;
    if (strcmp(part, "gate.rank") == 0) return rule->gate == FL_GATE_CHANNEL;
    if (strcmp(part, "gate.form") == 0)
        return rule->gate != FL_GATE_NONE && rule->gate_activation == FL_ACTIVATE_LOG_SIGMOID;
    if (strcmp(part, "beta") == 0) return rule->beta;
    if (strcmp(part, "beta.maximum") == 0) return rule->beta && rule->beta_may_reflect;
    if (strcmp(part, "factors") == 0) return rule->factor_count > 0;
    return !rule->stateless; /* scale */
}

static void add_rule_conditions(cJSON *list) {
    static const char *const parts[][2] = {{"gate", NULL}, {"gate", "rank"},    {"gate", "form"},
                                           {"beta", NULL}, {"beta", "maximum"}, {"factors", NULL},
                                           {"scale", NULL}};
    size_t count = 0;
    const fl_catalogue_key *keys = fl_option_catalogue(&count);
    for (size_t i = 0; i < count; i++) {
        if (keys[i].rule == NULL) continue;
        const char *key = keys[i].option->key;
        cJSON_AddItemToArray(list, only_with_rules(key, NULL, rule_names(has_option, key)));
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s%s", parts[i][0], parts[i][1] != NULL ? "." : "",
                 parts[i][1] != NULL ? parts[i][1] : "");
        cJSON_AddItemToArray(list, only_with_rules(parts[i][0], parts[i][1], rule_names(takes_part, name)));
    }
}

/* Keys that must be there, section by section; of mappings in lists they are in the list's own schema. */
static cJSON *required_of(const char *prefix) {
    size_t count = 0;
    const fl_catalogue_key *keys = fl_option_catalogue(&count);
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < count; i++) {
        const bool here = strcmp(keys[i].section.prefix, prefix) == 0 && keys[i].section.when == NULL;
        if (here && is_required(keys[i].option))
            cJSON_AddItemToArray(list, cJSON_CreateString(keys[i].option->key));
    }
    return list;
}

static const char one_source[] = "{\"oneOf\":[{\"required\":[\"path\"]},{\"required\":[\"ids\"]},"
                                 "{\"required\":[\"self_generated\"]}]}";
static const char objects_only[] = "{\"type\":\"object\",\"minProperties\":1}";

/* {"if": is a mapping with keys, "then": rule} */
static cJSON *when_given(cJSON *rule) {
    cJSON *whole = object_with("if", parse(objects_only));
    cJSON_AddItemToObject(whole, "then", rule);
    return whole;
}

static cJSON *trained_source(void) {
    cJSON *whole = object_with(
        "if", parse("{\"properties\":{\"objective\":{\"const\":\"none\"}},\"required\":[\"objective\"]}"));
    cJSON_AddItemToObject(whole, "then", cJSON_CreateObject());
    cJSON_AddItemToObject(whole, "else", parse(one_source));
    return when_given(whole);
}

static cJSON *with_sampled_tokens(cJSON *source, const char *path) {
    cJSON *both = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(both, "allOf");
    cJSON *inner = object_with("required", required_of(path));
    cJSON_AddItemToArray(list, source);
    cJSON_AddItemToArray(list, object_with("properties", object_with("self_generated", when_given(inner))));
    return both;
}

/* What holds of a config without a sweep. */
static cJSON *alone_schema(void) {
    cJSON *properties = cJSON_CreateObject();
    cJSON_AddItemToObject(properties, "model", when_given(object_with("required", required_of("model"))));
    cJSON_AddItemToObject(properties, "text",
                          with_sampled_tokens(when_given(parse(one_source)), "text.self_generated"));
    cJSON_AddItemToObject(properties, "train", with_sampled_tokens(trained_source(), "train.self_generated"));
    cJSON *conditions = cJSON_CreateArray();
    add_rule_conditions(conditions);
    cJSON_AddItemToObject(properties, "variant", when_given(object_with("allOf", conditions)));
    return object_with("properties", properties);
}

/* A constant gate has a value and nothing else; a projected one everything but a value. */
static void add_gate_forms(cJSON *gate) {
    cJSON_AddItemToObject(
        gate, "if",
        parse("{\"properties\":{\"source\":{\"const\":\"constant\"}},\"required\":[\"source\"]}"));
    cJSON_AddItemToObject(gate, "then",
                          parse("{\"required\":[\"value\"],\"properties\":{\"bias\":false,\"rank\":false,"
                                "\"form\":false,\"maximum\":false}}"));
    cJSON_AddItemToObject(gate, "else", parse("{\"properties\":{\"value\":false}}"));
    /* Rules with an activation of their own take any number. */
    cJSON *value = cJSON_GetObjectItem(cJSON_GetObjectItem(gate, "properties"), "value");
    cJSON_DeleteItemFromObject(value, "minimum");
    cJSON_DeleteItemFromObject(value, "maximum");
}

static bool task_needs_path(const fl_task_kind *kind) {
    return kind->reader != NULL || fl_retrieval_needs_prose(kind->retrieval);
}

static bool task_without_shots(const fl_task_kind *kind) {
    return kind->shot_rule == FL_SHOTS_NONE;
}

static cJSON *task_condition(bool (*holds)(const fl_task_kind *kind), cJSON *result) {
    cJSON *names = cJSON_CreateArray();
    for (size_t i = 0; i < fl_task_kind_count(); i++) {
        if (holds(fl_task_kind_at(i)))
            cJSON_AddItemToArray(names, cJSON_CreateString(fl_task_kind_at(i)->name));
    }
    cJSON *whole =
        object_with("if", object_with("properties", object_with("name", object_with("enum", names))));
    cJSON_AddItemToObject(whole, "then", result);
    return whole;
}

static cJSON *task_schema(void) {
    cJSON *task = inner_schema("tasks"), *names = cJSON_CreateArray();
    for (size_t i = 0; i < fl_task_kind_count(); i++)
        cJSON_AddItemToArray(names, cJSON_CreateString(fl_task_kind_at(i)->name));
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(task, "properties"), "name", object_with("enum", names));
    cJSON_ReplaceItemInObject(task, "type", cJSON_CreateString("object"));
    cJSON_AddItemToObject(task, "required", required_of("tasks"));
    cJSON *conditions = cJSON_AddArrayToObject(task, "allOf");
    cJSON_AddItemToArray(conditions,
                         task_condition(task_needs_path, object_with("required", required_list("path"))));
    cJSON_AddItemToArray(
        conditions,
        task_condition(task_without_shots, parse("{\"properties\":{\"shots\":{\"enum\":[0,null]}}}")));
    return task;
}

/* "variant.cache.budget" -> "#/properties/variant/properties/cache/properties/budget". */
static cJSON *reference(const char *path) {
    char text[512] = "#";
    size_t used = 1;
    while (*path != '\0') {
        size_t part = strcspn(path, ".");
        used += (size_t)snprintf(text + used, sizeof text - used, "/properties/%.*s", (int)part, path);
        path += part + (path[part] == '.');
    }
    return object_with("$ref", cJSON_CreateString(text));
}

/* What a dotted key is given in a part of a sweep. */
typedef enum setting_form { VALUE, LIST_OF_VALUES, LIST_OF_NAMES } setting_form;

static cJSON *setting_schema(const fl_catalogue_key *key, setting_form form) {
    if (form == LIST_OF_NAMES)
        return parse("{\"type\":\"array\",\"items\":{\"type\":[\"string\",\"number\",\"null\"]}}");
    /* Of a key that only one form of its mapping has, anything. */
    cJSON *value = key->section.when != NULL ? cJSON_CreateObject() : reference(key->path);
    if (form == VALUE) return value;
    cJSON *list = parse("{\"type\":\"array\",\"minItems\":1}");
    cJSON_AddItemToObject(list, "items", value);
    return list;
}

/* A mapping of dotted keys. Of keys of tasks, which are counted, the value is anything. */
static cJSON *settings_schema(setting_form form) {
    size_t count = 0;
    const fl_catalogue_key *keys = fl_option_catalogue(&count);
    cJSON *properties = NULL, *object = closed_object(&properties);
    for (size_t i = 0; i < count; i++) {
        const bool swept = strncmp(keys[i].path, "sweep", 5) == 0 || strncmp(keys[i].path, "tasks.", 6) == 0;
        if (swept || cJSON_GetObjectItem(properties, keys[i].path) != NULL) continue;
        cJSON_AddItemToObject(properties, keys[i].path, setting_schema(&keys[i], form));
    }
    cJSON *of_task = form == VALUE ? cJSON_CreateObject() : parse("{\"type\":\"array\",\"minItems\":1}");
    cJSON_AddItemToObject(object, "patternProperties", object_with("^tasks\\.[0-9]+(\\.[a-z_]+)?$", of_task));
    return object;
}

static cJSON *list_of(cJSON *items) {
    cJSON *list = parse("{\"type\":[\"array\",\"null\"]}");
    cJSON_AddItemToObject(list, "items", items);
    return list;
}

static void fill_sweep(cJSON *sweep) {
    cJSON *properties = cJSON_GetObjectItem(sweep, "properties"), *entry = settings_schema(VALUE);
    cJSON_AddItemToObject(cJSON_GetObjectItem(entry, "properties"), "label",
                          parse("{\"type\":[\"string\",\"number\",\"null\"]}"));
    cJSON_ReplaceItemInObject(properties, "grid", settings_schema(LIST_OF_VALUES));
    cJSON_ReplaceItemInObject(properties, "zip", settings_schema(LIST_OF_VALUES));
    cJSON_ReplaceItemInObject(properties, "labels", settings_schema(LIST_OF_NAMES));
    cJSON_ReplaceItemInObject(properties, "list", list_of(entry));
    cJSON_ReplaceItemInObject(properties, "exclude", list_of(settings_schema(VALUE)));
}

static cJSON *rule_name_schema(void) {
    cJSON *names = cJSON_CreateArray();
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++)
        cJSON_AddItemToArray(names, cJSON_CreateString(fl_rule_registry[i]->name));
    cJSON_AddItemToArray(names, cJSON_CreateNull());
    return object_with("enum", names);
}

static cJSON *property(cJSON *object, const char *key) {
    return cJSON_GetObjectItem(cJSON_GetObjectItem(object, "properties"), key);
}

static cJSON *make(void) {
    cJSON *root = inner_schema("");
    cJSON_ReplaceItemInObject(root, "type", cJSON_CreateString("object"));
    cJSON_AddStringToObject(root, "$schema", "http://json-schema.org/draft-07/schema#");
    cJSON_AddStringToObject(root, "title", "A config of frostline");
    cJSON *variant = property(root, "variant");
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(variant, "properties"), "rule", rule_name_schema());
    add_gate_forms(property(variant, "gate"));
    add_gate_forms(property(variant, "beta"));
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(root, "properties"), "tasks", list_of(task_schema()));
    fill_sweep(property(root, "sweep"));
    cJSON_AddItemToObject(root, "if", parse("{\"required\":[\"sweep\"]}"));
    cJSON_AddItemToObject(root, "then", cJSON_CreateObject());
    cJSON_AddItemToObject(root, "else", alone_schema());
    return root;
}

fl_status fl_config_schema_make(char **text, fl_error *error) {
    *text = NULL;
    cJSON *schema = make();
    char *printed = cJSON_Print(schema);
    cJSON_Delete(schema);
    if (printed == NULL) return fl_error_set(error, FL_ERROR_MEMORY, "no memory for the schema");
    fl_status status = fl_memory_copy_string(text, printed, error);
    cJSON_free(printed);
    return status;
}
