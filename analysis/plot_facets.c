#include "analysis/plot_facets.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "analysis/figure_style.h"
#include "analysis/label_parts.h"
#include "harness/base/memory.h"
#include "harness/config/options.h"
#include "harness/store/folder.h"

enum { MOST_PREFIXES = 4, MOST_CANDIDATES = 64, KEY_BYTES = 256, MOST_COMPARED = 5 };

/* What runs are parted by: all keys that are one of these or lie in a mapping of that name. */
typedef struct candidate {
    const char *name;
    const char *prefixes[MOST_PREFIXES];
} candidate;

static const candidate named[] = {
    {"rule", {"variant.rule"}},
    {"exact_set", {"variant.window", "variant.sinks", "variant.cache", "variant.softmax_layers"}},
    {"model", {"model.path"}},
    {"text", {"text.path", "text.ids"}},
};

enum { NAMED = sizeof named / sizeof named[0] };

const char *fl_plot_facet_name(size_t index) {
    return index < NAMED ? named[index].name : index == NAMED ? "none" : NULL;
}

static bool is_below(const char *key, const char *prefix) {
    size_t bytes = strlen(prefix);
    return strncmp(key, prefix, bytes) == 0 && (key[bytes] == '\0' || key[bytes] == '.');
}

static bool concerns(const candidate *by, const char *key) {
    for (size_t i = 0; i < MOST_PREFIXES && by->prefixes[i] != NULL; i++) {
        if (is_below(key, by->prefixes[i])) return true;
    }
    return false;
}

static bool has_all_of(const candidate *by, const fl_run_entry *a, const fl_run_entry *b) {
    for (size_t i = 0; i < a->key_count; i++) {
        if (!concerns(by, a->keys[i])) continue;
        const char *other = fl_run_entry_value(b, a->keys[i]);
        if (other == NULL || strcmp(other, a->values[i]) != 0) return false;
    }
    return true;
}

static bool agree(const candidate *by, const fl_run_entry *a, const fl_run_entry *b) {
    return has_all_of(by, a, b) && has_all_of(by, b, a);
}

/* Whether runs are alike along all axes of the set but those that `by` concerns. */
static bool differ_only_in(const fl_run_set *set, const candidate *by, const fl_run_entry *a,
                           const fl_run_entry *b) {
    for (size_t i = 0; i < set->axis_count; i++) {
        const candidate axis = {set->axes[i], {set->axes[i]}};
        if (!concerns(by, set->axes[i]) && !agree(&axis, a, b)) return false;
    }
    return true;
}

static bool is_rule(const fl_run_entry *run, const char *name) {
    const char *rule = fl_run_entry_value(run, "variant.rule");
    return rule != NULL && strcmp(rule, name) == 0;
}

static fl_figure_role role_of(const fl_run_entry *run) {
    return is_rule(run, "softmax") ? FL_FIGURE_FULL
           : is_rule(run, "none")  ? FL_FIGURE_BASELINE
                                   : FL_FIGURE_CURVE;
}

/* A division of subjects into panels. Not for what stands in several of them. */

typedef struct division {
    const fl_plot_subject *subjects;
    size_t count, panels;
    size_t *panel;        /* [count] */
    fl_figure_role *role; /* [count] */
    candidate by[MOST_CANDIDATES];
    size_t by_count;
} division;

/* Panels when `by` is asked too: their number, and the most curves in one. Panels are numbered by their first
 * curve. */
static size_t divide(const division *d, const candidate *by, size_t *panel, size_t *most) {
    size_t panels = 0;
    *most = 0;
    for (size_t i = 0; i < d->count; i++) {
        if (d->role[i] != FL_FIGURE_CURVE) continue;
        size_t members = 1;
        panel[i] = panels;
        for (size_t j = 0; j < i; j++) {
            if (d->role[j] != FL_FIGURE_CURVE || d->panel[j] != d->panel[i]) continue;
            if (!agree(by, d->subjects[i].run, d->subjects[j].run)) continue;
            panel[i] = panel[j];
            members++;
        }
        panels += panel[i] == panels;
        if (members > *most) *most = members;
    }
    return panels;
}

/* So many that they could not be told apart as what others are compared with are curves themselves. */
static void choose_roles(division *d) {
    size_t of_role[FL_FIGURE_CHANCE + 1] = {0};
    for (size_t i = 0; i < d->count; i++) {
        d->role[i] = role_of(d->subjects[i].run);
        of_role[d->role[i]]++;
    }
    for (size_t i = 0; i < d->count; i++) {
        if (of_role[d->role[i]] > MOST_COMPARED) d->role[i] = FL_FIGURE_CURVE;
    }
}

static size_t count_curves(const division *d) {
    size_t curves = 0;
    for (size_t i = 0; i < d->count; i++) curves += d->role[i] == FL_FIGURE_CURVE;
    return curves;
}

/* Lines that the curves need in the legend: those that differ in nothing that `by` concerns share one. */
static size_t count_lines(const fl_run_set *set, const division *d, const candidate *by) {
    size_t lines = 0;
    for (size_t i = 0; i < d->count; i++) {
        if (d->role[i] != FL_FIGURE_CURVE) continue;
        bool known = false;
        for (size_t j = 0; j < i && !known; j++)
            known = d->role[j] == FL_FIGURE_CURVE &&
                    differ_only_in(set, by, d->subjects[i].run, d->subjects[j].run);
        lines += !known;
    }
    return lines;
}

/* What a reader has to take in: a panel is as much as three lines of the legend. */
static size_t effort(size_t panels, size_t lines) {
    return 3 * panels + lines;
}

static void list_candidates(const fl_run_set *set, candidate *out, size_t *count) {
    memcpy(out, named, sizeof named);
    *count = NAMED;
    for (size_t i = 0; i < set->axis_count && *count < MOST_CANDIDATES; i++) {
        bool part_of_named = false;
        for (size_t k = 0; k < NAMED; k++) part_of_named = part_of_named || concerns(&named[k], set->axes[i]);
        if (!part_of_named) out[(*count)++] = (candidate){set->axes[i], {set->axes[i]}};
    }
}

typedef struct choice {
    const candidate *by;
    size_t most, panels, effort;
} choice;

/* The least effort with few enough curves in each panel; before that: the fewest curves. */
static bool is_better(const choice *a, const choice *b) {
    bool few = a->most <= FL_PLOT_MOST_CURVES, other_few = b->most <= FL_PLOT_MOST_CURVES;
    if (few != other_few) return few;
    return few ? a->effort < b->effort : a->most < b->most;
}

static void divide_as_needed(const fl_run_set *set, division *d, size_t *scratch) {
    candidate all[MOST_CANDIDATES];
    size_t candidates = 0, curves = count_curves(d);
    choice now = {.most = curves, .panels = 1};
    list_candidates(set, all, &candidates);
    d->panels = 1;
    while (now.most > FL_PLOT_MOST_CURVES) {
        choice best = now;
        for (size_t i = 0; i < candidates; i++) {
            choice next = {.by = &all[i]};
            next.panels = divide(d, &all[i], scratch, &next.most);
            next.effort = effort(next.panels, count_lines(set, d, &all[i]));
            if (next.panels > now.panels && is_better(&next, &best)) best = next;
        }
        /* Parted in order there would be so many panels and a line a curve. */
        size_t in_order = (curves + FL_PLOT_MOST_CURVES - 1) / FL_PLOT_MOST_CURVES;
        if (best.by == NULL || best.effort > effort(in_order, curves)) return;
        divide(d, best.by, scratch, &best.most);
        memcpy(d->panel, scratch, d->count * sizeof d->panel[0]);
        d->panels = best.panels;
        d->by[d->by_count++] = *best.by;
        now = best;
    }
}

/* Panels that still hold too many curves become several, in order. */
static void divide_by_number(division *d) {
    for (size_t p = 0; p < d->panels; p++) {
        size_t members = 0;
        for (size_t i = 0; i < d->count; i++) {
            if (d->role[i] != FL_FIGURE_CURVE || d->panel[i] != p) continue;
            if (members++ >= FL_PLOT_MOST_CURVES) d->panel[i] = d->panels;
        }
        d->panels += members > FL_PLOT_MOST_CURVES;
    }
}

static bool some_run_has(const division *d, const candidate *by) {
    for (size_t i = 0; i < d->count; i++) {
        for (size_t k = 0; k < d->subjects[i].run->key_count; k++) {
            if (concerns(by, d->subjects[i].run->keys[k])) return true;
        }
    }
    return false;
}

static fl_status refuse_facet(const fl_run_set *set, const char *facet, fl_error *error) {
    const char *names[MOST_CANDIDATES];
    candidate all[MOST_CANDIDATES];
    size_t count = 0;
    list_candidates(set, all, &count);
    for (size_t i = 0; i < count; i++) names[i] = all[i].name;
    const char *near = fl_suggest(facet, names, count);
    if (near != NULL)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "facet: no run has a key \"%s\"; did you mean %s?",
                            facet, near);
    return fl_error_set(error, FL_ERROR_ARGUMENT,
                        "facet: no run has a key \"%s\"; it is rule, exact_set, model, text, none, or a key "
                        "of the configuration",
                        facet);
}

static fl_status divide_as_asked(const fl_run_set *set, division *d, const char *facet, char key[KEY_BYTES],
                                 size_t *scratch, fl_error *error) {
    size_t most = 0;
    d->panels = 1;
    if (strcmp(facet, "none") == 0) return FL_OK;
    candidate by = {facet, {facet}};
    for (size_t i = 0; i < NAMED; i++) {
        if (strcmp(named[i].name, facet) == 0) by = named[i];
    }
    if (!some_run_has(d, &by)) {
        snprintf(key, KEY_BYTES, "variant.%.200s", facet);
        by.prefixes[0] = key;
        by.prefixes[1] = NULL;
    }
    if (!some_run_has(d, &by)) return refuse_facet(set, facet, error);
    d->panels = divide(d, &by, scratch, &most);
    memcpy(d->panel, scratch, d->count * sizeof d->panel[0]);
    d->by[d->by_count++] = by;
    return FL_OK;
}

/* Whether a run that others are compared with belongs to a panel: it agrees with the panel's curves in what
 * the panels are parted by, as far as that means anything for it. */
static bool belongs(const division *d, const fl_run_entry *run, const fl_run_entry *curve) {
    for (size_t i = 0; i < d->by_count; i++) {
        const char *key = d->by[i].prefixes[0];
        bool source = is_below(key, "model") || is_below(key, "text");
        bool exact_set = strcmp(d->by[i].name, "exact_set") == 0 || is_below(key, "variant.window") ||
                         is_below(key, "variant.sinks");
        bool asked = source || (exact_set && is_rule(run, "none"));
        if (asked && !agree(&d->by[i], run, curve)) return false;
    }
    return true;
}

static void place(const division *d, fl_plot_facets *out) {
    for (size_t i = 0; i < d->count; i++) {
        bool curve = d->role[i] == FL_FIGURE_CURVE;
        bool *in = out->in_panel + i * out->panel_count;
        if (curve) in[d->panel[i]] = true;
        for (size_t j = 0; !curve && j < d->count; j++) {
            if (d->role[j] == FL_FIGURE_CURVE && belongs(d, d->subjects[i].run, d->subjects[j].run))
                in[d->panel[j]] = true;
        }
        bool any = false;
        for (size_t p = 0; p < out->panel_count; p++) any = any || in[p];
        for (size_t p = 0; !any && p < out->panel_count; p++) in[p] = true;
    }
}

/* Titles. */

/* "window = 8, sinks = 2" */
static fl_status title_by_values(const division *d, const fl_run_entry *run, char **out, fl_error *error) {
    FL_TRY(fl_memory_copy_string(out, "", error));
    for (size_t k = 0; k < run->key_count; k++) {
        bool named_by = false;
        for (size_t i = 0; i < d->by_count; i++) named_by = named_by || concerns(&d->by[i], run->keys[k]);
        if (!named_by) continue;
        char *longer = NULL;
        FL_TRY(fl_folder_format(&longer, error, "%s%s%s = %s", *out, (*out)[0] != '\0' ? ", " : "",
                                fl_run_set_short_key(run->keys[k]), run->values[k]));
        fl_memory_free(*out);
        *out = longer;
    }
    return FL_OK;
}

/* Labels of the curves of a panel; of all panels: SIZE_MAX. */
static size_t collect(const division *d, size_t panel, const char **labels, const fl_run_entry **first) {
    size_t count = 0;
    for (size_t i = 0; i < d->count; i++) {
        if (d->role[i] != FL_FIGURE_CURVE) continue;
        if (panel != SIZE_MAX && d->panel[i] != panel) continue;
        if (count == 0 && first != NULL) *first = d->subjects[i].run;
        labels[count++] = d->subjects[i].label;
    }
    return count;
}

/* What the labels of its curves share and those of others do not; "" when they share nothing. */
static fl_status find_shared(const division *d, const char *everywhere, size_t panel, const char **labels,
                             char **out, fl_error *error) {
    char *common = NULL;
    size_t count = collect(d, panel, labels, NULL);
    FL_TRY(fl_label_parts_common(labels, count, &common, error));
    fl_status status = fl_label_parts_without(common, everywhere, out, error);
    fl_memory_free(common);
    return status;
}

/* Panels of the same title are told apart by a number. */
static fl_status number_titles(char **titles, size_t count, fl_error *error) {
    for (size_t p = count; p-- > 0;) {
        size_t before = 0;
        for (size_t q = 0; q < p; q++) before += strcmp(titles[q], titles[p]) == 0;
        if (before == 0) continue;
        char *numbered = NULL;
        FL_TRY(fl_folder_format(&numbered, error, "%s (%zu)", titles[p], before + 1));
        fl_memory_free(titles[p]);
        titles[p] = numbered;
    }
    return FL_OK;
}

static fl_status name_panel(const division *d, const char *everywhere, size_t panel, const char **labels,
                            fl_plot_facets *out, fl_error *error) {
    const fl_run_entry *first = NULL;
    size_t own = collect(d, panel, labels, &first);
    if (d->by_count == 0) {
        FL_TRY(fl_memory_copy_string(&out->said[panel], "", error));
        return fl_folder_format(&out->titles[panel], error, own > 1 ? "%s to %s" : "%s", labels[0],
                                labels[own - 1]);
    }
    FL_TRY(find_shared(d, everywhere, panel, labels, &out->said[panel], error));
    if (out->said[panel][0] != '\0')
        return fl_memory_copy_string(&out->titles[panel], out->said[panel], error);
    return title_by_values(d, first, &out->titles[panel], error);
}

static fl_status name_panels(const division *d, const char **labels, fl_plot_facets *out, fl_error *error) {
    char *everywhere = NULL;
    FL_TRY(fl_label_parts_common(labels, collect(d, SIZE_MAX, labels, NULL), &everywhere, error));
    fl_status status = FL_OK;
    for (size_t p = 0; p < out->panel_count && status == FL_OK; p++)
        status = name_panel(d, everywhere, p, labels, out, error);
    if (status == FL_OK) status = number_titles(out->titles, out->panel_count, error);
    fl_memory_free(everywhere);
    return status;
}

/* Entries. */

static size_t find_entry(const fl_plot_facets *f, const char *label, fl_figure_role role) {
    for (size_t i = 0; i < f->entry_count; i++) {
        if (f->entries[i].role == role && strcmp(f->labels[i], label) == 0) return i;
    }
    return f->entry_count;
}

fl_status fl_plot_facets_add(fl_plot_facets *facets, const char *label, fl_figure_role role, size_t *index,
                             fl_error *error) {
    size_t before = 0, at = find_entry(facets, label, role);
    *index = at;
    if (at < facets->entry_count) return FL_OK;
    for (size_t i = 0; i < at; i++) before += facets->entries[i].role == role;
    FL_TRY(FL_RESIZE(&facets->labels, at, at + 1, error));
    FL_TRY(FL_RESIZE(&facets->entries, at, at + 1, error));
    FL_TRY(fl_memory_copy_string(&facets->labels[at], label, error));
    fl_figure_entry entry = {.label = facets->labels[at], .role = role, .dash = before};
    if (role == FL_FIGURE_BASELINE || role == FL_FIGURE_CHANCE) {
        /* A grey solid line reads as an axis: dashes alone, then other greys. */
        entry.dash = 1 + before % (FL_FIGURE_DASHES - 1);
        entry.colour = before / (FL_FIGURE_DASHES - 1);
    }
    facets->entries[at] = entry;
    facets->entry_count++;
    return FL_OK;
}

size_t fl_plot_facets_only_panel(const bool *in_panel, size_t panel_count) {
    size_t only = SIZE_MAX;
    for (size_t p = 0; p < panel_count; p++) {
        if (!in_panel[p]) continue;
        if (only != SIZE_MAX) return SIZE_MAX;
        only = p;
    }
    return only;
}

/* What stands in one panel is called by what its title does not say. */
static fl_status name_subject(const fl_plot_facets *f, const fl_plot_subject *subject, const bool *in_panel,
                              char **out, fl_error *error) {
    size_t panel = fl_plot_facets_only_panel(in_panel, f->panel_count);
    const char *said = panel == SIZE_MAX ? "" : f->said[panel];
    FL_TRY(fl_label_parts_without(subject->label, said, out, error));
    if ((*out)[0] != '\0') return FL_OK;
    fl_memory_free(*out);
    *out = NULL;
    return fl_memory_copy_string(out, said[0] != '\0' ? "plain" : subject->label, error);
}

static fl_status make_entries(const division *d, fl_plot_facets *out, fl_error *error) {
    for (size_t i = 0; i < d->count; i++) {
        char *label = NULL;
        FL_TRY(name_subject(out, &d->subjects[i], out->in_panel + i * out->panel_count, &label, error));
        fl_status status = fl_plot_facets_add(out, label, d->role[i], &out->entry_of[i], error);
        fl_memory_free(label);
        FL_TRY(status);
    }
    return FL_OK;
}

/* Looks: what comes first in the labels chooses the colour, the rest of them the dash, where there are few
 * enough of both; else colours and dashes are taken in turn. */

typedef struct looks {
    char **keys; /* [entries] labels without what all of them say */
    size_t colours, dashes;
} looks;

static bool same_head(const char *a, const char *b) {
    size_t bytes = fl_label_part_bytes(a);
    return bytes == fl_label_part_bytes(b) && memcmp(a, b, bytes) == 0;
}

static bool same_tail(const char *a, const char *b) {
    return strcmp(a + fl_label_part_bytes(a), b + fl_label_part_bytes(b)) == 0;
}

static void look_by_parts(fl_plot_facets *f, looks *l) {
    for (size_t i = 0; i < f->entry_count; i++) {
        fl_figure_entry *entry = &f->entries[i];
        if (entry->role != FL_FIGURE_CURVE) continue;
        entry->colour = l->colours;
        entry->dash = l->dashes;
        for (size_t j = 0; j < i; j++) {
            if (f->entries[j].role != FL_FIGURE_CURVE) continue;
            if (same_head(l->keys[i], l->keys[j])) entry->colour = f->entries[j].colour;
            if (same_tail(l->keys[i], l->keys[j])) entry->dash = f->entries[j].dash;
        }
        l->colours += entry->colour == l->colours;
        l->dashes += entry->dash == l->dashes;
    }
}

static void look_in_turn(fl_plot_facets *f) {
    size_t next = 0;
    for (size_t i = 0; i < f->entry_count; i++) {
        if (f->entries[i].role != FL_FIGURE_CURVE) continue;
        f->entries[i].colour = next % FL_FIGURE_COLOURS;
        f->entries[i].dash = next / FL_FIGURE_COLOURS;
        next++;
    }
}

static fl_status choose_looks(fl_plot_facets *f, const char **labels, fl_error *error) {
    looks l = {0};
    char *common = NULL;
    size_t curves = 0;
    fl_status status = FL_OK;
    for (size_t i = 0; i < f->entry_count; i++) {
        if (f->entries[i].role == FL_FIGURE_CURVE) labels[curves++] = f->labels[i];
    }
    FL_TRY_DONE(status, fl_label_parts_common(labels, curves, &common, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&l.keys, f->entry_count + 1, error));
    for (size_t i = 0; i < f->entry_count; i++)
        FL_TRY_DONE(status, fl_label_parts_without(f->labels[i], common, &l.keys[i], error));
    look_by_parts(f, &l);
    if (l.colours > FL_FIGURE_COLOURS || l.dashes > FL_FIGURE_DASHES) look_in_turn(f);
done:
    for (size_t i = 0; l.keys != NULL && i < f->entry_count; i++) fl_memory_free(l.keys[i]);
    fl_memory_free(l.keys);
    fl_memory_free(common);
    return status;
}

static fl_status fill(const fl_run_set *set, division *d, const char *facet, const char **labels,
                      fl_plot_facets *out, fl_error *error) {
    char key[KEY_BYTES];
    size_t *scratch = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&scratch, d->count, error));
    if (facet == NULL) {
        divide_as_needed(set, d, scratch);
        divide_by_number(d);
    } else {
        FL_TRY_DONE(status, divide_as_asked(set, d, facet, key, scratch, error));
    }
    out->count = d->count;
    out->panel_count = d->panels > 0 ? d->panels : 1;
    FL_TRY_DONE(status, FL_ALLOCATE(&out->in_panel, d->count * out->panel_count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->entry_of, d->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->titles, out->panel_count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->said, out->panel_count, error));
    place(d, out);
    if (out->panel_count > 1)
        FL_TRY_DONE(status, name_panels(d, labels, out, error));
    else
        FL_TRY_DONE(status, fl_memory_copy_string(&out->said[0], "", error));
    FL_TRY_DONE(status, make_entries(d, out, error));
    FL_TRY_DONE(status, choose_looks(out, labels, error));
done:
    fl_memory_free(scratch);
    return status;
}

fl_status fl_plot_facets_make(const fl_run_set *set, const fl_plot_subject *subjects, size_t count,
                              const char *facet, fl_plot_facets *out, fl_error *error) {
    const char **labels = NULL;
    division *d = NULL;
    fl_status status = FL_OK;
    *out = (fl_plot_facets){0};
    FL_TRY_DONE(status, FL_ALLOCATE(&d, 1, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&labels, 2 * count + 1, error));
    d->subjects = subjects;
    d->count = count;
    FL_TRY_DONE(status, FL_ALLOCATE(&d->panel, count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&d->role, count, error));
    choose_roles(d);
    status = fill(set, d, facet, labels, out, error);
done:
    if (d != NULL) fl_memory_free(d->panel);
    if (d != NULL) fl_memory_free(d->role);
    fl_memory_free(d);
    fl_memory_free(labels);
    return status;
}

void fl_plot_facets_release(fl_plot_facets *facets) {
    for (size_t p = 0; facets->titles != NULL && p < facets->panel_count; p++)
        fl_memory_free(facets->titles[p]);
    for (size_t p = 0; facets->said != NULL && p < facets->panel_count; p++) fl_memory_free(facets->said[p]);
    for (size_t i = 0; i < facets->entry_count; i++) fl_memory_free(facets->labels[i]);
    fl_memory_free(facets->titles);
    fl_memory_free(facets->said);
    fl_memory_free(facets->in_panel);
    fl_memory_free(facets->entry_of);
    fl_memory_free(facets->labels);
    fl_memory_free(facets->entries);
    *facets = (fl_plot_facets){0};
}
