#include "attn_variants/unused_keys.h"

#include <stdio.h>
#include <string.h>

#include "attn_variants/attn_variant.h"
#include "harness/base/memory.h"

enum { KEY_BYTES = 256 };

/* Dotted keys: of one cell those that its rule does not take. */
typedef struct untaken {
    char **keys; /* owned */
    size_t count;
} untaken;

static void release(untaken *list) {
    for (size_t i = 0; i < list->count; i++) fl_memory_free(list->keys[i]);
    fl_memory_free(list->keys);
    *list = (untaken){0};
}

static fl_status add(char ***keys, size_t *count, const char *key, fl_error *error) {
    FL_TRY(FL_RESIZE(keys, *count, *count + 1, error));
    FL_TRY(fl_memory_copy_string(&(*keys)[*count], key, error));
    (*count)++;
    return FL_OK;
}

static bool has_option(const fl_rule *rule, const char *key) {
    for (size_t i = 0; i < rule->option_count; i++) {
        if (strcmp(rule->options[i].key, key) == 0) return true;
    }
    return false;
}

static bool is_option_of_another(const fl_rule *rule, const char *key) {
    if (has_option(rule, key)) return false;
    for (size_t i = 0; fl_rule_registry[i] != NULL; i++) {
        if (has_option(fl_rule_registry[i], key)) return true;
    }
    return false;
}

/* The rule's own options; *options = NULL when it has none or they cannot be bound: the cell fails later,
 * with its place. */
static fl_status bind_options(const fl_rule *rule, const fl_node *variant, void **options, fl_error *error) {
    fl_node own = *variant;
    *options = NULL;
    if (rule->options_bytes == 0) return FL_OK;
    FL_TRY(fl_memory_allocate(options, 1, rule->options_bytes, error));
    fl_status status = FL_ALLOCATE(&own.children, variant->count, error);
    own.count = 0;
    for (size_t i = 0; status == FL_OK && i < variant->count; i++) {
        if (has_option(rule, variant->children[i]->key)) own.children[own.count++] = variant->children[i];
    }
    const fl_option_table table = {rule->options, rule->option_count, *options};
    bool bound = status == FL_OK && fl_options_bind(&own, &table, 1, NULL, NULL, NULL) == FL_OK;
    if (status == FL_OK) fl_memory_free(own.children);
    if (bound) return FL_OK;
    fl_memory_free(*options);
    *options = NULL;
    return status;
}

static bool projects_wide(const fl_rule *rule, const void *options) {
    for (size_t i = 0; i < rule->factor_count; i++) {
        if (fl_rule_factor_width(rule, i, 2, options) > 1) return true;
    }
    return false;
}

/* Whether the rule takes each of the keys that not every rule takes. */
static fl_status collect(const fl_rule *rule, const fl_node *variant, const void *options, untaken *out,
                         fl_error *error) {
    const struct {
        const char *key;
        bool taken;
    } rows[] = {
        {"gate", rule->gate != FL_GATE_NONE},
        {"gate.rank", rule->gate == FL_GATE_CHANNEL || rule->gate == FL_GATE_NONE},
        {"gate.form", rule->gate_activation == FL_ACTIVATE_LOG_SIGMOID || rule->gate == FL_GATE_NONE},
        {"beta", fl_rule_takes_beta(rule, options)},
        {"beta.maximum", rule->beta_may_reflect || !fl_rule_takes_beta(rule, options)},
        {"normaliser", rule->normaliser},
        {"factors", projects_wide(rule, options)},
        {"scale", !rule->stateless},
    };
    char key[KEY_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const fl_node *node = fl_node_find(variant, rows[i].key);
        if (rows[i].taken || node == NULL || node->kind == FL_NODE_NULL) continue;
        snprintf(key, sizeof key, "variant.%s", rows[i].key);
        FL_TRY(add(&out->keys, &out->count, key, error));
    }
    for (size_t i = 0; i < variant->count; i++) {
        if (!is_option_of_another(rule, variant->children[i]->key)) continue;
        snprintf(key, sizeof key, "variant.%s", variant->children[i]->key);
        FL_TRY(add(&out->keys, &out->count, key, error));
    }
    return FL_OK;
}

static fl_status find_untaken(const fl_experiment *cell, untaken *out, fl_error *error) {
    const fl_node *variant = cell->variant, *named = fl_node_get(variant, "rule");
    if (variant == NULL || variant->kind != FL_NODE_MAPPING) return FL_OK;
    const bool plain = named != NULL && named->kind == FL_NODE_SCALAR;
    const fl_rule *rule = fl_rule_find(plain ? named->text : "softmax");
    void *options = NULL;
    if (rule == NULL) return FL_OK;
    FL_TRY(bind_options(rule, variant, &options, error));
    fl_status status = FL_OK;
    if (options != NULL || rule->options_bytes == 0) status = collect(rule, variant, options, out, error);
    if (options != NULL) fl_options_release(rule->options, rule->option_count, options);
    fl_memory_free(options);
    return status;
}

static bool is_under(const char *key, const char *prefix) {
    const size_t bytes = strlen(prefix);
    return strncmp(key, prefix, bytes) == 0 && (key[bytes] == '\0' || key[bytes] == '.');
}

static bool is_own(const fl_experiment *cell, const char *key) {
    for (size_t i = 0; i < cell->own_key_count; i++) {
        if (is_under(key, cell->own_keys[i]) || is_under(cell->own_keys[i], key)) return true;
    }
    return false;
}

/* The key, or a mapping that it is in. */
static bool covers(const untaken *list, const char *key) {
    for (size_t i = 0; i < list->count; i++) {
        if (is_under(key, list->keys[i])) return true;
    }
    return false;
}

static bool contains(const untaken *list, const char *key) {
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(key, list->keys[i]) == 0) return true;
    }
    return false;
}

/* Whether a cell of the sweep has the key and takes it. */
static bool is_used(const fl_experiment_list *list, const untaken *all, const char *key) {
    for (size_t i = 0; i < list->count; i++) {
        const fl_node *node = fl_node_find(fl_document_root(list->cells[i]->document), key);
        if (node != NULL && node->kind != FL_NODE_NULL && !covers(&all[i], key)) return true;
    }
    return false;
}

/* Every key asked about, once: those that some cell uses and those that none does. */
typedef struct verdicts {
    untaken used, useless;
} verdicts;

static fl_status judge(const fl_experiment_list *list, const untaken *all, const char *key, verdicts *v,
                       bool *used, fl_error *error) {
    *used = contains(&v->used, key);
    if (*used || contains(&v->useless, key)) return FL_OK;
    *used = is_used(list, all, key);
    untaken *to = *used ? &v->used : &v->useless;
    return add(&to->keys, &to->count, key, error);
}

static fl_status note_unused(const fl_experiment_list *list, const untaken *all, size_t index, verdicts *v,
                             fl_error *error) {
    fl_experiment *cell = list->cells[index];
    for (size_t k = 0; k < all[index].count; k++) {
        const char *key = all[index].keys[k];
        bool used = false;
        if (is_own(cell, key)) continue;
        FL_TRY(judge(list, all, key, v, &used, error));
        if (used) FL_TRY(add(&cell->unused, &cell->unused_count, key, error));
    }
    return FL_OK;
}

/* Only when all are noted: what is used is asked of the documents as they were. */
static fl_status remove_unused(fl_experiment_list *list, fl_error *error) {
    for (size_t i = 0; i < list->count; i++) {
        fl_experiment *cell = list->cells[i];
        for (size_t k = 0; k < cell->unused_count; k++) {
            FL_TRY(fl_document_remove(cell->document, cell->unused[k], error));
            FL_TRY(fl_cell_axes_clear(&cell->axes, cell->unused[k], error));
        }
    }
    FL_TRY(fl_experiment_list_drop_equal(list, error));
    return fl_experiment_list_label(list, error);
}

fl_status fl_unused_keys_drop(fl_experiment_list *list, fl_error *error) {
    untaken *all = NULL;
    verdicts v = {0};
    const size_t cells = list->count;
    FL_TRY(FL_ALLOCATE(&all, cells, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < cells; i++) FL_TRY_DONE(status, find_untaken(list->cells[i], &all[i], error));
    for (size_t i = 0; i < cells; i++) FL_TRY_DONE(status, note_unused(list, all, i, &v, error));
    if (v.used.count > 0) status = remove_unused(list, error);
done:
    for (size_t i = 0; i < cells; i++) release(&all[i]);
    release(&v.used);
    release(&v.useless);
    fl_memory_free(all);
    return status;
}
