#include "harness/cli/words.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "analysis/plots.h"
#include "attn_variants/attn_variant.h"
#include "harness/cli/option_catalogue.h"
#include "harness/eval/task_table.h"

const char *fl_words_rules(size_t index) {
    return fl_rule_registry[index] != NULL ? fl_rule_registry[index]->name : NULL;
}

const char *fl_words_pictures(size_t index) {
    return fl_plot_kinds[index].name;
}

const char *fl_words_picture_formats(size_t index) {
    static const char *const words[] = {"png", "svg", "pdf", NULL};
    return words[index];
}

const char *fl_words_export_formats(size_t index) {
    static const char *const words[] = {"csv", "json", "markdown", "latex", NULL};
    return words[index];
}

/* Rules may have keys of one name. */
static bool is_first(const fl_catalogue_key *keys, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (strcmp(keys[i].path, keys[index].path) == 0) return false;
    }
    return true;
}

static const fl_catalogue_key *key_at(size_t index) {
    size_t count = 0;
    const fl_catalogue_key *keys = fl_option_catalogue(&count);
    for (size_t i = 0; i < count; i++) {
        if (is_first(keys, i) && index-- == 0) return &keys[i];
    }
    return NULL;
}

const char *fl_words_keys(size_t index) {
    const fl_catalogue_key *key = key_at(index);
    return key != NULL ? key->path : NULL;
}

const char *fl_words_assignments(size_t index) {
    static char text[FL_CATALOGUE_PATH_BYTES + 1];
    const fl_catalogue_key *key = key_at(index);
    if (key == NULL) return NULL;
    snprintf(text, sizeof text, "%s=", key->path);
    return text;
}

const char *fl_words_tasks(size_t index) {
    return index < fl_task_kind_count() ? fl_task_kind_at(index)->name : NULL;
}
