#include "harness/cli/words.h"

#include "analysis/plots.h"
#include "attn_variants/attn_variant.h"

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
    static const char *const words[] = {"csv", "json", "npz", "latex", NULL};
    return words[index];
}
