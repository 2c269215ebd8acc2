/* Plot facets: which curves stand in which panel of a picture, what each is called and how it looks.
 *
 * Curves beyond FL_PLOT_MOST_CURVES in one panel are parted by themselves: by rule, by exact set, by model,
 * by text, by the axes of the sweep, whichever is the least to take in with so few curves (panels and lines of
 * the legend), by two of them where one is not enough, and in order where that would be less. Runs of `softmax` and `none` are what
 * others are compared with: they do not count, and stand in every panel that they belong to. Panels share one
 * legend: curves that differ in nothing but what the panels are parted by look alike. */
#ifndef FL_ANALYSIS_PLOT_FACETS_H
#define FL_ANALYSIS_PLOT_FACETS_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/figure.h"
#include "analysis/run_set.h"
#include "harness/base/status.h"

enum { FL_PLOT_MOST_CURVES = 8 };

/* What becomes a curve: a run, or several that stand for one. */
typedef struct fl_plot_subject {
    const char *label;
    const fl_run_entry *run; /* of several: the first */
    bool diverged;           /* one of them has */
} fl_plot_subject;

typedef struct fl_plot_facets {
    size_t count, panel_count; /* of subjects; at least one panel */
    char **titles;             /* [panel_count]; of a single panel NULL */
    char **said;               /* [panel_count] parts of labels that the title says, "" without any */
    bool *in_panel;            /* [count][panel_count] */
    size_t *entry_of;          /* [count] */
    size_t entry_count;
    char **labels;            /* [entry_count] */
    fl_figure_entry *entries; /* [entry_count] */
} fl_plot_facets;

/* facet: NULL: as needed; "none"; "rule", "exact_set", "model", "text"; a configuration key, with or without
 * "variant.", or a mapping ("train"). FL_ERROR_ARGUMENT for a key that no run has. *out may be released
 * whatever happens. */
fl_status fl_plot_facets_make(const fl_run_set *set, const fl_plot_subject *subjects, size_t count,
                              const char *facet, fl_plot_facets *out, fl_error *error);
/* Names that are not keys: "rule", ..., "none"; NULL behind the last. */
const char *fl_plot_facet_name(size_t index);
void fl_plot_facets_release(fl_plot_facets *facets);

/* The line of the legend with this label and role; a new one in a look of its role that is free. `label` is
 * copied. Not for curves: their looks have been chosen. */
fl_status fl_plot_facets_add(fl_plot_facets *facets, const char *label, fl_figure_role role, size_t *index,
                             fl_error *error);

/* The panel when only one of them is marked, else SIZE_MAX. */
size_t fl_plot_facets_only_panel(const bool *in_panel, size_t panel_count);

#endif
