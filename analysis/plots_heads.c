#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/figure_heat.h"
#include "analysis/plot_parts.h"
#include "harness/base/memory.h"

enum { NAME_BYTES = 32 };

static const char dataset[] = "/errors/teacher_forced/head_nmse";

/* *values stays NULL for a run without errors by head, or with none above 0: there is no colour to give. */
static fl_status read_panel(const fl_run_entry *run, fl_heat_panel *panel, double **values, fl_error *error) {
    fl_run_reader *reader = NULL;
    size_t rank = 0, shape[4] = {0};
    FL_TRY(fl_run_reader_open(run->path, &reader, error));
    fl_status status = FL_OK;
    if (fl_run_reader_has(reader, dataset)) {
        status = fl_run_reader_doubles(reader, dataset, values, &rank, shape, error);
    }
    fl_run_reader_close(reader);
    if (status != FL_OK || *values == NULL) return status;
    bool positive = false;
    for (size_t i = 0; rank == 2 && i < shape[0] * shape[1]; i++) positive = positive || (*values)[i] > 0;
    if (!positive) {
        fl_memory_free(*values);
        *values = NULL;
        return FL_OK;
    }
    *panel = (fl_heat_panel){.title = run->label, .columns = shape[0], .rows = shape[1], .values = *values};
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
                            fl_error *error) {
    double least = 1, most = 1;
    FL_TRY(choose_ends(panels, count, &least, &most, error));
    for (size_t first = 0, page = 1; first < count; first += FL_HEAT_MOST_PANELS, page++) {
        char name[NAME_BYTES] = "heads";
        if (page > 1) snprintf(name, sizeof name, "heads_%zu", page);
        const fl_heat heat = {
            .name = name,
            .title = "Error of each head on the frozen model's inputs, before the output projection",
            .x_label = "layer",
            .y_label = "query head",
            .value_label = "nMSE (colours end at the quantiles 0.01 and 0.99)",
            .panel_count = count - first < FL_HEAT_MOST_PANELS ? count - first : FL_HEAT_MOST_PANELS,
            .panels = panels + first,
            .least = least,
            .most = most};
        FL_TRY(fl_heat_write(&heat, request->folder, request->format, error));
        fl_plot_report(request, name);
    }
    return FL_OK;
}

fl_status fl_plot_heads(const fl_plot_request *request, fl_error *error) {
    const fl_run_set *set = request->set;
    fl_heat_panel *panels = NULL;
    double **values = NULL;
    size_t count = 0;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&panels, set->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&values, set->count, error));
    for (size_t i = 0; i < set->count; i++) {
        FL_TRY_DONE(status, read_panel(&set->runs[i], &panels[count], &values[count], error));
        count += values[count] != NULL;
    }
    status = count > 0 ? draw_pages(request, panels, count, error)
                       : fl_error_set(error, FL_ERROR_ARGUMENT, "no run has errors by head");
done:
    for (size_t i = 0; values != NULL && i < set->count; i++) fl_memory_free(values[i]);
    fl_memory_free(values);
    fl_memory_free(panels);
    return status;
}
