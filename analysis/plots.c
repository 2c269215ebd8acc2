#include "analysis/plots.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/figure.h"
#include "analysis/plot_parts.h"
#include "harness/base/memory.h"
#include "harness/store/folder.h"

enum { MAX_POINTS = 64, TITLE_BYTES = 256 };

/* Curves: one dataset of every run. */

typedef struct curve_spec {
    const char *name, *path, *title, *x_label, *y_label;
    const char *x_path; /* x is this dataset, or for [L][edges] the middle of its bins; NULL: 0, 1, 2, ... */
    const char *baseline; /* path of the same curve with the linear part off; NULL: none */
    bool log_x, log_y, marks;
    bool over_layers; /* [L][X]: the mean over layers is taken */
    bool binned;      /* averaged so that at most MAX_POINTS remain */
} curve_spec;

typedef struct curves {
    size_t count, points, room, runs;
    bool placed;              /* x comes from the spec's x_path */
    double *x;                /* [points] */
    double **y;               /* [room], the first `count` [points] */
    char **names;             /* [room] labels made for baselines */
    fl_figure_series *series; /* [room] */
} curves;

static void release_curves(curves *c) {
    for (size_t i = 0; c->y != NULL && i < c->room; i++) fl_memory_free(c->y[i]);
    for (size_t i = 0; c->names != NULL && i < c->room; i++) fl_memory_free(c->names[i]);
    fl_memory_free(c->names);
    fl_memory_free(c->x);
    fl_memory_free(c->y);
    fl_memory_free(c->series);
}

/* Mean over the slowest axis of [rows][columns], NaN left out; in place in the first row. */
static void mean_over_rows(double *data, size_t rows, size_t columns) {
    for (size_t c = 0; c < columns; c++) {
        double sum = 0;
        size_t count = 0;
        for (size_t r = 0; r < rows; r++) {
            if (isnan(data[r * columns + c])) continue;
            sum += data[r * columns + c];
            count++;
        }
        data[c] = count > 0 ? sum / (double)count : NAN;
    }
}

/* *out stays NULL when the run has no such dataset. */
static fl_status read_curve(const fl_run_entry *run, const curve_spec *spec, double **out, size_t *count,
                            fl_error *error) {
    fl_run_reader *reader = NULL;
    size_t rank = 0, shape[4] = {0};
    FL_TRY(fl_run_reader_open(run->path, &reader, error));
    fl_status status = FL_OK;
    if (fl_run_reader_has(reader, spec->path)) {
        status = fl_run_reader_doubles(reader, spec->path, out, &rank, shape, error);
    }
    fl_run_reader_close(reader);
    if (status != FL_OK || *out == NULL) return status;
    if (rank != (spec->over_layers ? 2 : 1) || shape[0] == 0) {
        fl_memory_free(*out);
        *out = NULL;
        return fl_error_set(error, FL_ERROR_FORMAT, "%s: %s has an unexpected shape", run->path, spec->path);
    }
    *count = shape[rank - 1];
    if (spec->over_layers) mean_over_rows(*out, shape[0], shape[1]);
    return FL_OK;
}

/* Averages bins of `width` values in place; returns how many there are. */
static size_t average_bins(double *data, size_t count, size_t width) {
    size_t bins = 0;
    for (size_t first = 0; first < count; first += width) {
        size_t last = first + width < count ? first + width : count, used = 0;
        double sum = 0;
        for (size_t i = first; i < last; i++) {
            if (isnan(data[i])) continue;
            sum += data[i];
            used++;
        }
        data[bins++] = used > 0 ? sum / (double)used : NAN;
    }
    return bins;
}

/* Brings all curves to one length: bins, then NaN behind the shorter ones. */
static fl_status align_curves(curves *c, const size_t *lengths, bool binned, fl_error *error) {
    size_t longest = 0;
    for (size_t i = 0; i < c->count; i++) longest = lengths[i] > longest ? lengths[i] : longest;
    size_t width = binned ? (longest + MAX_POINTS - 1) / MAX_POINTS : 1;
    c->points = (longest + width - 1) / width;
    FL_TRY(FL_ALLOCATE(&c->x, c->points, error));
    for (size_t p = 0; p < c->points; p++) c->x[p] = (double)(p * width) + (double)(width - 1) / 2;
    for (size_t i = 0; i < c->count; i++) {
        size_t own = average_bins(c->y[i], lengths[i], width);
        if (lengths[i] < c->points) FL_TRY(FL_RESIZE(&c->y[i], lengths[i], c->points, error));
        for (size_t p = own; p < c->points; p++) c->y[i][p] = NAN;
    }
    return FL_OK;
}

/* Runs of rule `none` are the baseline of all that keep the same tokens; so is a baseline that is drawn
 * already. */
static bool has_baseline(const fl_run_set *set, const curves *c, const size_t *owners, size_t run) {
    for (size_t i = 0; i < set->count; i++) {
        const char *rule = fl_run_entry_value(&set->runs[i], "variant.rule");
        bool is_none = rule != NULL && strcmp(rule, "none") == 0;
        if (is_none && fl_plot_same_exact_set(&set->runs[i], &set->runs[run])) return true;
    }
    for (size_t i = 0; i < c->count; i++) {
        if (c->series[i].is_baseline && fl_plot_same_exact_set(&set->runs[owners[i]], &set->runs[run]))
            return true;
    }
    return false;
}

static fl_status name_baseline(const fl_run_entry *run, char **out, fl_error *error) {
    const char *sinks = fl_run_entry_value(run, "variant.sinks"),
               *window = fl_run_entry_value(run, "variant.window");
    if (sinks != NULL && window != NULL && strcmp(sinks, "0") == 0 && strcmp(window, "0") == 0)
        return fl_memory_copy_string(out, "linear part off, pure", error);
    return fl_folder_format(out, error, "linear part off, %s + %s", sinks != NULL ? sinks : "?",
                            window != NULL ? window : "?");
}

static fl_status read_baselines(const fl_run_set *set, const curve_spec *spec, curves *c, size_t *lengths,
                                size_t *owners, fl_error *error) {
    const curve_spec off = {.path = spec->baseline, .over_layers = spec->over_layers};
    size_t dash = 1;
    for (size_t i = 0; spec->baseline != NULL && i < set->count; i++) {
        if (!fl_run_has_linear_part(&set->runs[i]) || has_baseline(set, c, owners, i)) continue;
        FL_TRY(read_curve(&set->runs[i], &off, &c->y[c->count], &lengths[c->count], error));
        if (c->y[c->count] == NULL) continue;
        FL_TRY(name_baseline(&set->runs[i], &c->names[c->count], error));
        owners[c->count] = i;
        c->series[c->count] =
            (fl_figure_series){.label = c->names[c->count], .is_baseline = true, .dash = dash};
        dash++;
        c->count++;
    }
    return FL_OK;
}

/* x where all runs agree on it (the keys are the frozen model's); else places stay numbered. */
static fl_status read_places(const fl_run_set *set, const curve_spec *spec, curves *c, fl_error *error) {
    bool found = false;
    double *shared = NULL;
    fl_status status = FL_OK;
    for (size_t i = 0; i < set->count && status == FL_OK; i++) {
        double *x = NULL;
        size_t count = 0;
        const curve_spec places = {.path = spec->x_path, .over_layers = spec->over_layers};
        status = read_curve(&set->runs[i], &places, &x, &count, error);
        if (status != FL_OK || x == NULL) continue;
        if (count == c->points + 1) {
            for (size_t p = 0; p < c->points; p++) x[p] = (x[p] + x[p + 1]) / 2;
        }
        bool fits = count == c->points || count == c->points + 1;
        for (size_t p = 0; found && fits && p < c->points; p++)
            fits = fabs(x[p] - shared[p]) <= 1e-5 * fabs(shared[p]);
        if (!fits) {
            fl_memory_free(x);
            fl_memory_free(shared);
            return FL_OK;
        }
        if (found) {
            fl_memory_free(x);
        } else {
            shared = x;
        }
        found = true;
    }
    if (found && status == FL_OK) {
        memcpy(c->x, shared, c->points * sizeof shared[0]);
        c->placed = true;
    }
    fl_memory_free(shared);
    return status;
}

static fl_status read_curves(const fl_run_set *set, const curve_spec *spec, curves *c, fl_error *error) {
    size_t *styles = NULL, *lengths = NULL, *owners = NULL;
    fl_status status = FL_OK;
    c->room = 2 * set->count;
    FL_TRY_DONE(status, FL_ALLOCATE(&styles, 2 * set->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&lengths, c->room, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&owners, c->room, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&c->names, c->room, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&c->y, c->room, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&c->series, c->room, error));
    fl_plot_styles(set, styles, styles + set->count);
    for (size_t i = 0; i < set->count; i++) {
        FL_TRY_DONE(status, read_curve(&set->runs[i], spec, &c->y[c->count], &lengths[c->count], error));
        if (c->y[c->count] == NULL) continue;
        c->series[c->count] = (fl_figure_series){
            .label = set->runs[i].label, .colour = styles[i], .dash = styles[set->count + i]};
        c->count++;
    }
    c->runs = c->count;
    if (c->count == 0) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "no run has %s", spec->path);
        goto done;
    }
    FL_TRY_DONE(status, read_baselines(set, spec, c, lengths, owners, error));
    FL_TRY_DONE(status, align_curves(c, lengths, spec->binned, error));
    if (spec->x_path != NULL) FL_TRY_DONE(status, read_places(set, spec, c, error));
    for (size_t i = 0; i < c->count; i++) c->series[i].y = c->y[i];
done:
    fl_memory_free(styles);
    fl_memory_free(lengths);
    fl_memory_free(owners);
    return status;
}

static fl_status draw_curves(const fl_plot_request *request, const curve_spec *spec, fl_error *error) {
    curves c = {0};
    char title[TITLE_BYTES];
    fl_status status = read_curves(request->set, spec, &c, error);
    if (status == FL_OK) {
        snprintf(title, sizeof title, "%s", spec->title);
        if (c.runs < request->set->count) {
            snprintf(title, sizeof title, "%s (%zu of %zu runs)", spec->title, c.runs, request->set->count);
        }
        const fl_figure figure = {.name = spec->name,
                                  .kind = spec->marks ? FL_FIGURE_MARKS : FL_FIGURE_LINES,
                                  .title = title,
                                  .x_label =
                                      spec->x_path == NULL || c.placed ? spec->x_label : "place in order",
                                  .y_label = spec->y_label,
                                  .log_x = spec->log_x && c.placed,
                                  .log_y = spec->log_y,
                                  .points = c.points,
                                  .x = c.x,
                                  .series_count = c.count,
                                  .series = c.series};
        status = fl_plot_curves(request, &figure, error);
    }
    release_curves(&c);
    return status;
}

static fl_status draw_layers(const fl_plot_request *request, fl_error *error) {
    return draw_curves(request,
                       &(curve_spec){.name = "nmse_layers",
                                     .path = "/errors/teacher_forced/nmse",
                                     .baseline = "/baseline/linear_off/errors/teacher_forced/nmse",
                                     .title = "Error of each attention block on the frozen model's inputs",
                                     .x_label = "layer",
                                     .y_label = "nMSE (teacher forced)",
                                     .log_y = true,
                                     .marks = true},
                       error);
}

static fl_status draw_positions(const fl_plot_request *request, fl_error *error) {
    return draw_curves(request,
                       &(curve_spec){.name = "nmse_positions",
                                     .path = "/errors/teacher_forced/position_nmse",
                                     .baseline = "/baseline/linear_off/errors/teacher_forced/position_nmse",
                                     .title = "Error by position, mean over layers",
                                     .x_label = "position",
                                     .y_label = "nMSE (teacher forced)",
                                     .log_y = true,
                                     .over_layers = true,
                                     .binned = true},
                       error);
}

static fl_status draw_propagated(const fl_plot_request *request, fl_error *error) {
    return draw_curves(
        request,
        &(curve_spec){.name = "nmse_propagated",
                      .path = "/errors/propagated/attention_nmse",
                      .baseline = "/baseline/linear_off/errors/propagated/attention_nmse",
                      .title = "Error of each attention block, linearised layers feeding each other",
                      .x_label = "layer",
                      .y_label = "nMSE (propagated)",
                      .log_y = true,
                      .marks = true},
        error);
}

static fl_status draw_kl(const fl_plot_request *request, fl_error *error) {
    return draw_curves(request,
                       &(curve_spec){.name = "kl_positions",
                                     .path = "/language_model/position_kl",
                                     .title = "KL(full || linearised) of the next token",
                                     .x_label = "position",
                                     .y_label = "KL, nats",
                                     .log_y = true,
                                     .binned = true},
                       error);
}

static fl_status draw_training(const fl_plot_request *request, fl_error *error) {
    static const curve_spec loss = {.name = "training_loss",
                                    .path = "/training/loss",
                                    .title = "Training loss",
                                    .x_label = "step",
                                    .y_label = "loss of the batch, mean of each bin",
                                    .log_y = true,
                                    .binned = true};
    static const curve_spec evaluation = {.name = "training_evaluation",
                                          .path = "/training/evaluation_perplexity",
                                          .x_path = "/training/evaluation_step",
                                          .title = "Perplexity of the evaluation text during training",
                                          .x_label = "steps taken",
                                          .y_label = "perplexity",
                                          .log_y = true,
                                          .marks = true};
    FL_TRY(draw_curves(request, &loss, error));
    fl_status status = draw_curves(request, &evaluation, error);
    return status == FL_ERROR_ARGUMENT ? FL_OK : status; /* evaluations are made on request */
}

static fl_status draw_trends(const fl_plot_request *request, fl_error *error) {
    static const curve_spec specs[] = {
        {.name = "nmse_by_concentration",
         .path = "/diagnostics/trends/key_concentration/nmse",
         .title = "Error against key concentration C, mean over layers",
         .x_path = "/diagnostics/trends/key_concentration/edges",
         .x_label = "key concentration C, middle of each quantile bin",
         .y_label = "nMSE (teacher forced, per head)",
         .log_y = true,
         .marks = true,
         .over_layers = true},
        {.name = "nmse_by_residual",
         .path = "/diagnostics/trends/projection_residual/nmse",
         .title = "Error against projection residual R, mean over layers",
         .x_path = "/diagnostics/trends/projection_residual/edges",
         .x_label = "projection residual R, middle of each quantile bin",
         .y_label = "nMSE (teacher forced, per head)",
         .log_x = true,
         .log_y = true,
         .marks = true,
         .over_layers = true},
    };
    FL_TRY(draw_curves(request, &specs[0], error));
    return draw_curves(request, &specs[1], error);
}

const fl_plot_kind fl_plot_kinds[] = {
    {"layers", "teacher-forced nMSE by layer", draw_layers},
    {"positions", "teacher-forced nMSE by position, mean over layers", draw_positions},
    {"propagated", "nMSE by layer with linearised layers feeding each other", draw_propagated},
    {"kl", "KL from the full model by position", draw_kl},
    {"heads", "nMSE by layer and head, a heat map a run", fl_plot_heads},
    {"trends", "nMSE in quantile bins of key concentration and projection residual", draw_trends},
    {"training", "training loss and evaluations by step", draw_training},
    {"scores", "perplexity and task scores with standard errors and baselines", fl_plot_scores},
    {"hybrid", "scores against the number of softmax layers", fl_plot_hybrid},
    {"bytes", "scores against bytes of state and exact set", fl_plot_bytes},
    {NULL, NULL, NULL},
};

const fl_plot_kind *fl_plot_kind_find(const char *name) {
    for (const fl_plot_kind *kind = fl_plot_kinds; kind->name != NULL; kind++) {
        if (strcmp(kind->name, name) == 0) return kind;
    }
    return NULL;
}
