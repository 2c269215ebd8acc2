#include "analysis/plot_parts.h"

#include <string.h>

static const char *style_axis(const fl_run_set *set) {
    for (size_t i = 0; i < set->axis_count; i++) {
        if (strcmp(set->axes[i], "variant.rule") == 0) return set->axes[i];
    }
    return set->axis_count > 0 ? set->axes[0] : NULL;
}

static bool same_value(const fl_run_entry *a, const fl_run_entry *b, const char *key) {
    const char *x = fl_run_entry_value(a, key), *y = fl_run_entry_value(b, key);
    return x == NULL || y == NULL ? x == y : strcmp(x, y) == 0;
}

static bool same_but(const fl_run_set *set, const fl_run_entry *a, const fl_run_entry *b,
                     const char *except) {
    for (size_t i = 0; i < set->axis_count; i++) {
        if (strcmp(set->axes[i], except) != 0 && !same_value(a, b, set->axes[i])) return false;
    }
    return true;
}

void fl_plot_styles(const fl_run_set *set, size_t *colour, size_t *dash) {
    const char *axis = style_axis(set);
    size_t colours = 0, dashes = 0;
    for (size_t i = 0; i < set->count; i++) {
        colour[i] = colours;
        dash[i] = dashes;
        for (size_t j = 0; axis != NULL && j < i; j++) {
            if (same_value(&set->runs[i], &set->runs[j], axis)) colour[i] = colour[j];
            if (same_but(set, &set->runs[i], &set->runs[j], axis)) dash[i] = dash[j];
        }
        colours += colour[i] == colours;
        dashes += dash[i] == dashes;
    }
}

bool fl_plot_same_exact_set(const fl_run_entry *a, const fl_run_entry *b) {
    static const char *const keys[] = {"model.path",
                                       "text.path",
                                       "text.ids",
                                       "text.sequences",
                                       "text.sequence_length",
                                       "variant.window",
                                       "variant.sinks",
                                       "variant.cache.budget",
                                       "variant.cache.route",
                                       "variant.softmax_layers",
                                       "variant.softmax_layers.every",
                                       "variant.softmax_layers.hardest"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!same_value(a, b, keys[i])) return false;
    }
    return true;
}

void fl_plot_report(const fl_plot_request *request, const char *name) {
    if (request->drawn != NULL) request->drawn(request->context, name);
}

fl_status fl_plot_curves(const fl_plot_request *request, const fl_figure *figure, fl_error *error) {
    FL_TRY(fl_figure_write(figure, request->folder, request->format, error));
    fl_plot_report(request, figure->name);
    return FL_OK;
}
