#include "harness/config/cell_label.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/config/text_builder.h"

/* Configuration keys added to tell cells apart, at most; experiments that differ in more are told by their
 * names. */
enum { KEYS_MOST = 3, ID_LETTERS = 6 };

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

fl_status fl_cell_axes_add(fl_cell_axes *axes, size_t axis, const char *key, const char *value,
                           const char *name, const char *label, fl_error *error) {
    FL_TRY(FL_RESIZE(&axes->items, axes->count, axes->count + 1, error));
    fl_cell_setting *setting = &axes->items[axes->count++];
    *setting = (fl_cell_setting){.axis = axis};
    FL_TRY(fl_memory_copy_string(&setting->key, key, error));
    FL_TRY(fl_memory_copy_string(&setting->value, value, error));
    FL_TRY(fl_memory_copy_string(&setting->name, name, error));
    return fl_memory_copy_string(&setting->label, label, error);
}

fl_status fl_cell_axes_copy(const fl_cell_axes *axes, fl_cell_axes *out, fl_error *error) {
    *out = (fl_cell_axes){0};
    for (size_t i = 0; i < axes->count; i++) {
        const fl_cell_setting *s = &axes->items[i];
        fl_status status = fl_cell_axes_add(out, s->axis, s->key, s->value, s->name, s->label, error);
        if (status == FL_OK) continue;
        fl_cell_axes_release(out);
        return status;
    }
    return FL_OK;
}

const fl_cell_setting *fl_cell_axes_find(const fl_cell_axes *axes, const char *key) {
    for (size_t i = 0; i < axes->count; i++) {
        if (is(axes->items[i].key, key)) return &axes->items[i];
    }
    return NULL;
}

static fl_status replace_text(char **text, const char *by, fl_error *error) {
    char *copy = NULL;
    FL_TRY(fl_memory_copy_string(&copy, by, error));
    fl_memory_free(*text);
    *text = copy;
    return FL_OK;
}

fl_status fl_cell_axes_clear(fl_cell_axes *axes, const char *key, fl_error *error) {
    for (size_t i = 0; i < axes->count; i++) {
        if (!fl_axis_is_under(axes->items[i].key, key)) continue;
        FL_TRY(replace_text(&axes->items[i].value, "null", error));
        FL_TRY(replace_text(&axes->items[i].name, "", error));
        FL_TRY(replace_text(&axes->items[i].label, "", error));
    }
    return FL_OK;
}

void fl_cell_axes_release(fl_cell_axes *axes) {
    for (size_t i = 0; i < axes->count; i++) {
        fl_memory_free(axes->items[i].key);
        fl_memory_free(axes->items[i].value);
        fl_memory_free(axes->items[i].name);
        fl_memory_free(axes->items[i].label);
    }
    fl_memory_free(axes->items);
    *axes = (fl_cell_axes){0};
}

static const char *rule_of(const fl_cell_label_source *cell) {
    const fl_cell_setting *setting = fl_cell_axes_find(cell->axes, "variant.rule");
    if (setting != NULL) return setting->value;
    return cell->rule != NULL ? cell->rule : "";
}

static bool is_any_under(const char *key, const char *const *prefixes) {
    for (; *prefixes != NULL; prefixes++) {
        if (fl_axis_is_under(key, *prefixes)) return true;
    }
    return false;
}

/* The frozen model has no exact set and no parts; the exact set alone has no parts of a linear branch. */
static bool is_idle(const fl_cell_label_source *cell, const char *key) {
    static const char *const of_softmax[] = {"variant", "train", NULL};
    static const char *const of_none[] = {"variant.short_conv", "variant.gate", "variant.beta",
                                          "variant.seed",       "train",        NULL};
    const char *rule = rule_of(cell);
    if (is(key, "variant.rule")) return false;
    return (is(rule, "softmax") && is_any_under(key, of_softmax)) ||
           (is(rule, "none") && is_any_under(key, of_none));
}

static bool is_seed(const char *key) {
    return is(key, "variant.seed") || is(key, "train.seed");
}

/* How much a label says: what matters to the rule, also what is idle under it, or all of it whole. */
typedef enum detail { SAY_SHORT, SAY_IDLE, SAY_WHOLE } detail;

/* A label under way. */
typedef struct writer {
    const fl_cell_label_source *cell;
    detail detail;
    fl_text_builder text;
} writer;

static fl_status add_part(writer *w, const char *part, fl_error *error) {
    if (part[0] == '\0') return FL_OK;
    return fl_text_builder_format(&w->text, error, "%s%s", w->text.length > 0 ? ", " : "", part);
}

static bool is_said(const writer *w, const fl_cell_setting *setting) {
    if (w->cell->without_seeds && is_seed(setting->key)) return false;
    return w->detail != SAY_SHORT || !is_idle(w->cell, setting->key);
}

static const fl_cell_setting *unlabelled(const writer *w, const char *key) {
    const fl_cell_setting *setting = fl_cell_axes_find(w->cell->axes, key);
    return setting != NULL && setting->label[0] == '\0' && is_said(w, setting) ? setting : NULL;
}

static fl_status add_setting(writer *w, const fl_cell_setting *setting, fl_error *error) {
    if (w->detail != SAY_WHOLE) return add_part(w, setting->name, error);
    fl_axis_value value = {0};
    char *name = NULL;
    /* A value that is no YAML (an old file's) is said as it is. */
    fl_status status = fl_axis_value_parse(setting->key, setting->value, &value, NULL);
    if (status != FL_OK && status != FL_ERROR_MEMORY)
        status = fl_axis_value_add(&value, setting->key, setting->value, error);
    if (status == FL_OK) status = fl_axis_name_whole(setting->key, &value, &name, error);
    if (status == FL_OK) status = add_part(w, name, error);
    fl_memory_free(name);
    fl_axis_value_release(&value);
    return status;
}

/* The rule, or the name of the choice that sets it. */
static fl_status add_rule(writer *w, fl_error *error) {
    const fl_cell_setting *setting = fl_cell_axes_find(w->cell->axes, "variant.rule");
    if (setting == NULL) return FL_OK;
    return add_part(w, setting->label[0] != '\0' ? setting->label : setting->value, error);
}

/* Sinks + window where both vary. */
static fl_status add_exact_set(writer *w, fl_error *error) {
    const fl_cell_setting *window = unlabelled(w, "variant.window"), *sinks = unlabelled(w, "variant.sinks");
    if (window == NULL || sinks == NULL) {
        const fl_cell_setting *one = window != NULL ? window : sinks;
        return one != NULL ? add_setting(w, one, error) : FL_OK;
    }
    if (is(window->value, "0") && is(sinks->value, "0")) return add_part(w, "pure", error);
    return fl_text_builder_format(&w->text, error, "%s%s + %s", w->text.length > 0 ? ", " : "", sinks->value,
                                  window->value);
}

/* One seed of both kinds is said once; two are told apart. */
static fl_status add_seed(writer *w, const fl_cell_setting *setting, fl_error *error) {
    const fl_cell_setting *variant = unlabelled(w, "variant.seed"), *train = unlabelled(w, "train.seed");
    bool both = variant != NULL && train != NULL;
    if (both && is(variant->value, train->value) && setting == train) return FL_OK;
    bool other = both && !is(variant->value, train->value) && setting == train;
    return fl_text_builder_format(&w->text, error, "%s%sseed %s", w->text.length > 0 ? ", " : "",
                                  other ? "train " : "", setting->value);
}

static bool is_first_of_axis(const fl_cell_axes *axes, size_t index) {
    return index == 0 || axes->items[index].axis != axes->items[index - 1].axis;
}

static fl_status add_others(writer *w, fl_error *error) {
    static const char *const first[] = {"variant.rule", "variant.window", "variant.sinks"};
    const fl_cell_axes *axes = w->cell->axes;
    const fl_cell_setting *rule = fl_cell_axes_find(axes, "variant.rule");
    for (size_t i = 0; i < axes->count; i++) {
        const fl_cell_setting *setting = &axes->items[i];
        bool done = false;
        for (size_t k = 0; k < sizeof first / sizeof first[0]; k++) done = done || is(setting->key, first[k]);
        if (setting->label[0] != '\0') {
            bool leads = rule != NULL && rule->axis == setting->axis;
            if (!leads && is_first_of_axis(axes, i)) FL_TRY(add_part(w, setting->label, error));
        } else if (!done && is_said(w, setting)) {
            FL_TRY(is_seed(setting->key) ? add_seed(w, setting, error) : add_setting(w, setting, error));
        }
    }
    return FL_OK;
}

static fl_status write_parts(writer *w, fl_error *error) {
    FL_TRY(fl_text_builder_add(&w->text, "", error));
    FL_TRY(add_rule(w, error));
    FL_TRY(add_exact_set(w, error));
    return add_others(w, error);
}

static fl_status replace(char **label, fl_text_builder *text) {
    fl_memory_free(*label);
    *label = text->text;
    *text = (fl_text_builder){0};
    return FL_OK;
}

static fl_status write_label(const fl_cell_label_source *cell, detail most, char **label, fl_error *error) {
    writer w = {.cell = cell, .detail = most};
    fl_status status = write_parts(&w, error);
    if (status == FL_OK && w.text.length == 0 && most != SAY_WHOLE) {
        w.detail = SAY_WHOLE;
        status = write_parts(&w, error);
    }
    if (status == FL_OK && w.text.length == 0)
        status = fl_text_builder_add(&w.text,
                                     rule_of(cell)[0] != '\0'   ? rule_of(cell)
                                     : cell->experiment != NULL ? cell->experiment
                                                                : "",
                                     error);
    if (status == FL_OK && w.text.length == 0 && cell->id != NULL)
        status = fl_text_builder_add(&w.text, cell->id, error);
    if (status == FL_OK) return replace(label, &w.text);
    fl_text_builder_release(&w.text);
    return status;
}

/* The cells of a set in the order of their labels: equal ones are neighbours. */
typedef struct ranked {
    const char *label;
    size_t index;
} ranked;

static int compare_ranked(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    int order = strcmp(x->label, y->label);
    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

typedef struct labelled_set {
    const fl_cell_label_source *cells;
    char **labels;
    size_t count;
    ranked *order; /* [count] */
} labelled_set;

/* Tells the `count` cells that share one label apart, as far as one means goes. */
typedef fl_status (*means)(labelled_set *set, const ranked *same, size_t count, fl_error *error);

static fl_status say_more(labelled_set *set, const ranked *same, size_t count, detail most, fl_error *error) {
    bool differ = false;
    char **whole = NULL;
    fl_status status = FL_ALLOCATE(&whole, count, error);
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        status = write_label(&set->cells[same[i].index], most, &whole[i], error);
        differ = differ || (status == FL_OK && !is(whole[i], whole[0]));
    }
    for (size_t i = 0; whole != NULL && i < count; i++) {
        char **label = &set->labels[same[i].index];
        bool take = status == FL_OK && differ;
        fl_memory_free(take ? *label : whole[i]);
        if (take) *label = whole[i];
    }
    fl_memory_free(whole);
    return status;
}

static fl_status say_idle(labelled_set *set, const ranked *same, size_t count, fl_error *error) {
    return say_more(set, same, count, SAY_IDLE, error);
}

static fl_status say_whole(labelled_set *set, const ranked *same, size_t count, fl_error *error) {
    return say_more(set, same, count, SAY_WHOLE, error);
}

static const char *config_of(const labelled_set *set, const ranked *cell, const char *key) {
    const fl_axis_value *config = set->cells[cell->index].config;
    for (size_t i = 0; config != NULL && i < config->count; i++) {
        if (is(config->leaves[i].key, key)) return config->leaves[i].text;
    }
    return NULL;
}

static bool differs(const labelled_set *set, const ranked *same, size_t count, const char *key) {
    const char *first = config_of(set, &same[0], key);
    for (size_t i = 1; i < count; i++) {
        const char *other = config_of(set, &same[i], key);
        if (first == NULL || other == NULL ? first != other : !is(first, other)) return true;
    }
    return false;
}

static fl_status append(char **label, const char *part, fl_error *error) {
    fl_text_builder text = {0};
    if (part[0] == '\0') return FL_OK;
    fl_status status = fl_text_builder_format(&text, error, "%s, %s", *label, part);
    if (status == FL_OK) return replace(label, &text);
    fl_text_builder_release(&text);
    return status;
}

static fl_status append_key(labelled_set *set, const ranked *same, size_t count, const char *key,
                            fl_error *error) {
    for (size_t i = 0; i < count; i++) {
        const char *text = config_of(set, &same[i], key);
        fl_axis_value value = {0};
        char *name = NULL;
        fl_status status = text != NULL ? fl_axis_value_add(&value, key, text, error) : FL_OK;
        if (status == FL_OK) status = fl_axis_name(key, &value, 1, 0, &name, error);
        if (status == FL_OK) status = append(&set->labels[same[i].index], name, error);
        fl_memory_free(name);
        fl_axis_value_release(&value);
        FL_TRY(status);
    }
    return FL_OK;
}

/* Up to KEYS_MOST configuration keys; none when more differ: those are different experiments. */
static fl_status say_config(labelled_set *set, const ranked *same, size_t count, fl_error *error) {
    const char *keys[KEYS_MOST];
    size_t found = 0;
    for (size_t c = 0; c < count; c++) {
        const fl_axis_value *config = set->cells[same[c].index].config;
        for (size_t i = 0; config != NULL && i < config->count; i++) {
            const char *key = config->leaves[i].key;
            bool known = is(key, "name");
            for (size_t k = 0; k < found; k++) known = known || is(keys[k], key);
            if (known || !differs(set, same, count, key)) continue;
            if (set->cells[same[c].index].without_seeds && is_seed(key)) continue;
            if (found == KEYS_MOST) return FL_OK;
            keys[found++] = key;
        }
    }
    for (size_t k = 0; k < found; k++) FL_TRY(append_key(set, same, count, keys[k], error));
    return FL_OK;
}

static fl_status say_experiment(labelled_set *set, const ranked *same, size_t count, fl_error *error) {
    bool differ = false;
    for (size_t i = 1; i < count; i++) {
        const char *a = set->cells[same[0].index].experiment, *b = set->cells[same[i].index].experiment;
        differ = differ || (a != NULL && b != NULL && !is(a, b));
    }
    for (size_t i = 0; differ && i < count; i++) {
        const char *name = set->cells[same[i].index].experiment;
        FL_TRY(append(&set->labels[same[i].index], name != NULL ? name : "", error));
    }
    return FL_OK;
}

static fl_status say_id(labelled_set *set, const ranked *same, size_t count, fl_error *error) {
    for (size_t i = 0; i < count; i++) {
        const char *id = set->cells[same[i].index].id;
        fl_text_builder text = {0};
        fl_status status = id != NULL ? fl_text_builder_format(&text, error, "%.*s", ID_LETTERS, id)
                                      : fl_text_builder_format(&text, error, "%zu", i + 1);
        if (status == FL_OK) status = append(&set->labels[same[i].index], text.text, error);
        fl_text_builder_release(&text);
        FL_TRY(status);
    }
    return FL_OK;
}

/* Every group of equal labels, once. */
static fl_status tell_apart(labelled_set *set, means by, fl_error *error) {
    for (size_t i = 0; i < set->count; i++) set->order[i] = (ranked){set->labels[i], i};
    qsort(set->order, set->count, sizeof set->order[0], compare_ranked);
    for (size_t i = 0, end; i < set->count; i = end) {
        for (end = i + 1; end < set->count && is(set->order[i].label, set->order[end].label);) end++;
        if (end - i > 1) FL_TRY(by(set, &set->order[i], end - i, error));
    }
    return FL_OK;
}

fl_status fl_cell_label_make(const fl_cell_label_source *cells, size_t count, char **labels,
                             fl_error *error) {
    static const means all_means[] = {say_idle, say_whole, say_config, say_experiment, say_id};
    labelled_set set = {.cells = cells, .labels = labels, .count = count};
    fl_status status = FL_OK;
    if (count == 0) return FL_OK;
    memset(labels, 0, count * sizeof labels[0]);
    FL_TRY_DONE(status, FL_ALLOCATE(&set.order, count, error));
    for (size_t i = 0; i < count; i++)
        FL_TRY_DONE(status, write_label(&cells[i], SAY_SHORT, &labels[i], error));
    for (size_t m = 0; m < sizeof all_means / sizeof all_means[0]; m++)
        FL_TRY_DONE(status, tell_apart(&set, all_means[m], error));
done:
    for (size_t i = 0; status != FL_OK && i < count; i++) {
        fl_memory_free(labels[i]);
        labels[i] = NULL;
    }
    fl_memory_free(set.order);
    return status;
}
