#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/figure_heat.h"
#include "analysis/plot_parts.h"
#include "analysis/run_groups.h"
#include "harness/base/memory.h"
#include "harness/config/text_builder.h"

enum { NAME_BYTES = 32 };

static const char dataset[] = "/errors/teacher_forced/head_nmse";

typedef enum shown { SHOWN = 0, NOT_THERE, ZERO, DIVERGED } shown;

/* *values stays NULL for a run without errors by head. */
static fl_status read_heads(const fl_run_entry *run, double **values, size_t shape[2], fl_error *error) {
    fl_run_reader *reader = NULL;
    shape[0] = shape[1] = 0;
    FL_TRY(fl_run_reader_open(run->path, &reader, error));
    fl_status status = FL_OK;
    if (fl_run_reader_has(reader, dataset))
        status = fl_run_reader_array(reader, dataset, 2, shape, values, error);
    fl_run_reader_close(reader);
    return status;
}

/* The mean over the runs of a group. */
static fl_status read_group(const fl_run_groups *groups, size_t group, double **values, size_t shape[2],
                            fl_error *error) {
    const fl_run_group *members = &groups->items[group];
    double used = 1;
    FL_TRY(read_heads(fl_run_group_first(groups, group), values, shape, error));
    size_t count = *values != NULL ? shape[0] * shape[1] : 0;
    for (size_t i = 1; i < members->count && *values != NULL; i++) {
        double *other = NULL;
        size_t its[2] = {0};
        fl_status status = read_heads(&groups->set->runs[members->runs[i]], &other, its, error);
        bool fits = status == FL_OK && other != NULL && its[0] == shape[0] && its[1] == shape[1];
        for (size_t k = 0; fits && k < count; k++) (*values)[k] += other[k];
        used += fits;
        fl_memory_free(other);
        FL_TRY(status);
    }
    for (size_t k = 0; k < count; k++) (*values)[k] /= used;
    return FL_OK;
}

/* *values stays NULL where nothing is above 0: there is no colour to give. */
static fl_status read_panel(const fl_run_groups *groups, size_t group, fl_heat_panel *panel, double **values,
                            shown *what, fl_error *error) {
    size_t shape[2] = {0};
    bool positive = false, zero = false;
    *what = NOT_THERE;
    FL_TRY(read_group(groups, group, values, shape, error));
    if (*values == NULL) return FL_OK;
    for (size_t i = 0; i < shape[0] * shape[1]; i++) {
        positive = positive || (isfinite((*values)[i]) && (*values)[i] > 0);
        zero = zero || (*values)[i] == 0;
    }
    *what = positive ? SHOWN : zero ? ZERO : DIVERGED;
    *panel = (fl_heat_panel){
        .title = groups->items[group].label, .columns = shape[0], .rows = shape[1], .values = *values};
    if (positive) return FL_OK;
    fl_memory_free(*values);
    *values = NULL;
    return FL_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Where the colours end: quantiles 0.01 and 0.99 of all positive values, so that one head does not wash out
 * the rest. */
static fl_status choose_ends(const fl_heat_panel *panels, size_t count, double *least, double *most,
                             fl_error *error) {
    size_t room = 0, used = 0;
    double *all = NULL;
    for (size_t i = 0; i < count; i++) room += panels[i].columns * panels[i].rows;
    FL_TRY(FL_ALLOCATE(&all, room, error));
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < panels[i].columns * panels[i].rows; k++) {
            double value = panels[i].values[k];
            if (isfinite(value) && value > 0) all[used++] = value;
        }
    }
    qsort(all, used, sizeof all[0], by_value);
    *least = used > 0 ? all[(used - 1) / 100] : 1;
    *most = used > 0 ? all[used - 1 - (used - 1) / 100] : 1;
    fl_memory_free(all);
    return FL_OK;
}

/* Pages of FL_HEAT_MOST_PANELS, all with the same colours. */
static fl_status draw_pages(const fl_plot_request *request, const fl_heat_panel *panels, size_t count,
                            const char *note, fl_error *error) {
    double least = 1, most = 1;
    const fl_figure_look look = fl_plot_look(request);
    FL_TRY(choose_ends(panels, count, &least, &most, error));
    for (size_t first = 0, page = 1; first < count; first += FL_HEAT_MOST_PANELS, page++) {
        char name[NAME_BYTES] = "heads";
        if (page > 1) snprintf(name, sizeof name, "heads_%zu", page);
        const fl_heat heat = {
            .name = name,
            .title = fl_plot_title(request, "Error of each head on the frozen model's inputs"),
            .note = note,
            .x_label = "layer",
            .y_label = "query head",
            .value_label = "nMSE before the output projection",
            .panel_count = count - first < FL_HEAT_MOST_PANELS ? count - first : FL_HEAT_MOST_PANELS,
            .panels = panels + first,
            .least = least,
            .most = most};
        FL_TRY(fl_heat_write(&heat, request->folder, &look, error));
        fl_plot_report(request, name);
    }
    return FL_OK;
}

/* What colours mean, and "Not drawn: softmax (zero everywhere), ..." */
static fl_status make_note(const fl_run_groups *groups, const shown *what, char **out, fl_error *error) {
    fl_text_builder text = {0};
    bool any = false;
    fl_status status = fl_text_builder_format(
        &text, error, "%sColours end at the quantiles 0.01 and 0.99. White: zero. Grey: not finite.",
        fl_run_groups_any_seeds(groups) ? "Mean over seeds. " : "");
    for (size_t i = 0; i < groups->count && status == FL_OK; i++) {
        if (what[i] != ZERO && what[i] != DIVERGED) continue;
        status = fl_text_builder_format(&text, error, "%s%s (%s)",
                                        any ? "; " : " Not drawn: ", groups->items[i].label,
                                        what[i] == ZERO ? "zero everywhere" : "diverged");
        any = true;
    }
    if (status != FL_OK) {
        fl_text_builder_release(&text);
        return status;
    }
    *out = text.text;
    return FL_OK;
}

fl_status fl_plot_heads(const fl_plot_request *request, fl_error *error) {
    fl_run_groups *groups = NULL;
    fl_heat_panel *panels = NULL;
    double **values = NULL;
    shown *what = NULL;
    char *note = NULL;
    size_t count = 0;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_run_groups_make(request->set, request->each, &groups, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&panels, groups->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&values, groups->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&what, groups->count, error));
    for (size_t i = 0; i < groups->count; i++) {
        FL_TRY_DONE(status, read_panel(groups, i, &panels[count], &values[count], &what[i], error));
        count += values[count] != NULL;
    }
    FL_TRY_DONE(status, make_note(groups, what, &note, error));
    status = count > 0 ? draw_pages(request, panels, count, note, error)
                       : fl_error_set(error, FL_ERROR_ARGUMENT, "no run has finite errors by head above 0");
done:
    for (size_t i = 0; values != NULL && i < groups->count; i++) fl_memory_free(values[i]);
    fl_memory_free(values);
    fl_memory_free(panels);
    fl_memory_free(what);
    fl_memory_free(note);
    fl_run_groups_destroy(groups);
    return status;
}
