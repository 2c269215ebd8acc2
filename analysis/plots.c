#include "analysis/plots.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/figure.h"
#include "analysis/run_summary.h"
#include "harness/base/memory.h"
#include "harness/config/node.h"

enum { MAX_POINTS = 64, TITLE_BYTES = 256, NAME_BYTES = 96, MAX_GROUPS = 64 };

/* Style: which runs look alike. */

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

/* colour and dash [set->count] */
static void choose_styles(const fl_run_set *set, size_t *colour, size_t *dash) {
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

/* Curves: one dataset of every run. */

typedef struct curve_spec {
    const char *name, *path, *title, *x_label, *y_label;
    bool log_y, marks;
    bool over_layers; /* [L][X]: the mean over layers is taken */
    bool binned;      /* averaged so that at most MAX_POINTS remain */
} curve_spec;

typedef struct curves {
    size_t count, points;
    double *x;                /* [points] */
    double **y;               /* [count][points] */
    fl_figure_series *series; /* [count] */
} curves;

static void release_curves(curves *c, size_t runs) {
    for (size_t i = 0; c->y != NULL && i < runs; i++) fl_memory_free(c->y[i]);
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

static fl_status read_curves(const fl_run_set *set, const curve_spec *spec, curves *c, fl_error *error) {
    size_t *styles = NULL, *lengths = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&styles, 2 * set->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&lengths, set->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&c->y, set->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&c->series, set->count, error));
    choose_styles(set, styles, styles + set->count);
    for (size_t i = 0; i < set->count; i++) {
        FL_TRY_DONE(status, read_curve(&set->runs[i], spec, &c->y[c->count], &lengths[c->count], error));
        if (c->y[c->count] == NULL) continue;
        c->series[c->count] = (fl_figure_series){
            .label = set->runs[i].label, .colour = styles[i], .dash = styles[set->count + i]};
        c->count++;
    }
    if (c->count == 0) {
        status = fl_error_set(error, FL_ERROR_ARGUMENT, "no run has %s", spec->path);
        goto done;
    }
    FL_TRY_DONE(status, align_curves(c, lengths, spec->binned, error));
    for (size_t i = 0; i < c->count; i++) c->series[i].y = c->y[i];
done:
    fl_memory_free(styles);
    fl_memory_free(lengths);
    return status;
}

static fl_status draw(const fl_plot_request *request, const fl_figure *figure, fl_error *error) {
    FL_TRY(fl_figure_write(figure, request->folder, request->format, error));
    if (request->drawn != NULL) request->drawn(request->context, figure->name);
    return FL_OK;
}

static fl_status draw_curves(const fl_plot_request *request, const curve_spec *spec, fl_error *error) {
    curves c = {0};
    char title[TITLE_BYTES];
    fl_status status = read_curves(request->set, spec, &c, error);
    if (status == FL_OK) {
        snprintf(title, sizeof title, "%s%s", spec->title, "");
        if (c.count < request->set->count) {
            snprintf(title, sizeof title, "%s (%zu of %zu runs)", spec->title, c.count, request->set->count);
        }
        const fl_figure figure = {.name = spec->name,
                                  .kind = spec->marks ? FL_FIGURE_MARKS : FL_FIGURE_LINES,
                                  .title = title,
                                  .x_label = spec->x_label,
                                  .y_label = spec->y_label,
                                  .log_y = spec->log_y,
                                  .points = c.points,
                                  .x = c.x,
                                  .series_count = c.count,
                                  .series = c.series};
        status = draw(request, &figure, error);
    }
    release_curves(&c, request->set->count);
    return status;
}

static fl_status draw_layers(const fl_plot_request *request, fl_error *error) {
    return draw_curves(request,
                       &(curve_spec){.name = "nmse_layers",
                                     .path = "/errors/teacher_forced/nmse",
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
                      .path = "/errors/propagated/residual_nmse",
                      .title = "Error of the residual stream, linearised layers feeding each other",
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
    return draw_curves(request,
                       &(curve_spec){.name = "training_loss",
                                     .path = "/training/loss",
                                     .title = "Training loss",
                                     .x_label = "step",
                                     .y_label = "loss of the batch",
                                     .binned = true},
                       error);
}

static fl_status draw_trends(const fl_plot_request *request, fl_error *error) {
    static const curve_spec specs[] = {
        {.name = "nmse_by_concentration",
         .path = "/diagnostics/trends/key_concentration/nmse",
         .title = "Error against key concentration C, mean over layers",
         .x_label = "quantile bin of C (0: least concentrated)",
         .y_label = "nMSE (teacher forced, per head)",
         .log_y = true,
         .marks = true,
         .over_layers = true},
        {.name = "nmse_by_residual",
         .path = "/diagnostics/trends/projection_residual/nmse",
         .title = "Error against projection residual R, mean over layers",
         .x_label = "quantile bin of R (0: smallest)",
         .y_label = "nMSE (teacher forced, per head)",
         .log_y = true,
         .marks = true,
         .over_layers = true},
    };
    FL_TRY(draw_curves(request, &specs[0], error));
    return draw_curves(request, &specs[1], error);
}

/* Heads: one heat map a run. */

static fl_status draw_heads_of(const fl_plot_request *request, const fl_run_entry *run, bool *drawn,
                               fl_error *error) {
    fl_run_reader *reader = NULL;
    double *nmse = NULL;
    size_t rank = 0, shape[4] = {0};
    fl_figure_series *rows = NULL;
    static const char path[] = "/errors/teacher_forced/head_nmse";
    FL_TRY(fl_run_reader_open(run->path, &reader, error));
    fl_status status = FL_OK;
    if (!fl_run_reader_has(reader, path)) goto done;
    FL_TRY_DONE(status, fl_run_reader_doubles(reader, path, &nmse, &rank, shape, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&rows, shape[1], error));
    bool positive = false;
    double *by_head = NULL; /* [H][L] */
    FL_TRY_DONE(status, FL_ALLOCATE(&by_head, shape[0] * shape[1], error));
    for (size_t h = 0; h < shape[1]; h++) {
        for (size_t l = 0; l < shape[0]; l++) {
            by_head[h * shape[0] + l] = nmse[l * shape[1] + h];
            positive = positive || nmse[l * shape[1] + h] > 0;
        }
        rows[h] = (fl_figure_series){.label = "head", .y = by_head + h * shape[0]};
    }
    char name[NAME_BYTES], title[TITLE_BYTES];
    snprintf(name, sizeof name, "heads_%s", run->run_id);
    snprintf(title, sizeof title, "nMSE by layer and head: %s", run->label);
    const fl_figure figure = {.name = name,
                              .kind = FL_FIGURE_HEAT,
                              .title = title,
                              .x_label = "layer",
                              .y_label = "query head",
                              .log_y = true,
                              .points = shape[0],
                              .series_count = shape[1],
                              .series = rows};
    /* A frozen model's errors are all zero: no colours to give. */
    if (positive) status = draw(request, &figure, error);
    *drawn = *drawn || (positive && status == FL_OK);
    fl_memory_free(by_head);
done:
    fl_memory_free(rows);
    fl_memory_free(nmse);
    fl_run_reader_close(reader);
    return status;
}

static fl_status draw_heads(const fl_plot_request *request, fl_error *error) {
    bool drawn = false;
    for (size_t i = 0; i < request->set->count; i++) {
        FL_TRY(draw_heads_of(request, &request->set->runs[i], &drawn, error));
    }
    return drawn ? FL_OK : fl_error_set(error, FL_ERROR_ARGUMENT, "no run has errors by head");
}

/* Summaries: tasks, bytes, hybrids. */

typedef struct summaries {
    size_t count;
    fl_run_summary *items; /* [count] */
} summaries;

static void release_summaries(summaries *s) {
    for (size_t i = 0; i < s->count; i++) fl_run_summary_release(&s->items[i]);
    fl_memory_free(s->items);
}

static fl_status read_summaries(const fl_run_set *set, summaries *out, fl_error *error) {
    *out = (summaries){0};
    FL_TRY(FL_ALLOCATE(&out->items, set->count, error));
    for (size_t i = 0; i < set->count; i++) {
        fl_status status = fl_run_summary_read(set->runs[i].path, &out->items[i], error);
        if (status != FL_OK) {
            release_summaries(out);
            return status;
        }
        out->count++;
    }
    return FL_OK;
}

static const fl_task_summary *find_task(const fl_run_summary *summary, const char *label) {
    for (size_t t = 0; t < summary->task_count; t++) {
        if (strcmp(summary->tasks[t].label, label) == 0) return &summary->tasks[t];
    }
    return NULL;
}

/* Names of all tasks that report an accuracy, in order of appearance. */
static size_t collect_tasks(const summaries *s, const char *names[MAX_GROUPS]) {
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++) {
        for (size_t t = 0; t < s->items[i].task_count; t++) {
            const fl_task_summary *task = &s->items[i].tasks[t];
            bool known = isnan(task->acc) || count == MAX_GROUPS;
            for (size_t k = 0; k < count; k++) known = known || strcmp(names[k], task->label) == 0;
            if (!known) names[count++] = task->label;
        }
    }
    return count;
}

static fl_status draw_task_bars(const fl_plot_request *request, const summaries *s, fl_error *error) {
    const char *names[MAX_GROUPS];
    size_t groups = collect_tasks(s, names);
    double *values = NULL;
    fl_figure_series *series = NULL;
    if (groups == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "no run has scored a task");
    FL_TRY(FL_ALLOCATE(&values, 2 * groups * (s->count + 1), error));
    fl_status status = FL_ALLOCATE(&series, s->count + 1, error);
    for (size_t i = 0; status == FL_OK && i < s->count; i++) {
        double *acc = values + 2 * groups * i, *error_bar = acc + groups;
        for (size_t g = 0; g < groups; g++) {
            const fl_task_summary *task = find_task(&s->items[i], names[g]);
            acc[g] = task != NULL ? task->acc : NAN;
            error_bar[g] = task != NULL ? task->acc_stderr : NAN;
        }
        series[i] = (fl_figure_series){.label = request->set->runs[i].label, .y = acc, .error = error_bar};
    }
    if (status == FL_OK) {
        const fl_figure figure = {.name = "tasks",
                                  .kind = FL_FIGURE_BARS,
                                  .title = "Task accuracy with standard errors",
                                  .x_label = "task",
                                  .y_label = "accuracy",
                                  .points = groups,
                                  .x_names = names,
                                  .series_count = s->count,
                                  .series = series};
        status = draw(request, &figure, error);
    }
    fl_memory_free(values);
    fl_memory_free(series);
    return status;
}

static fl_status draw_tasks(const fl_plot_request *request, fl_error *error) {
    summaries s;
    FL_TRY(read_summaries(request->set, &s, error));
    fl_status status = draw_task_bars(request, &s, error);
    release_summaries(&s);
    return status;
}

/* Points (x_i, y_i), one a run, as figure series that share one ascending x: sorted, each run's own place
 * filled. */
typedef struct place {
    double x, y;
    size_t run;
} place;

static int by_x(const void *a, const void *b) {
    const place *p = a, *q = b;
    if (p->x != q->x) return p->x < q->x ? -1 : 1;
    return p->run < q->run ? -1 : p->run > q->run;
}

/* Runs of one colour become one curve when `joined`, else every run is a curve of one point. */
static fl_status draw_places(const fl_plot_request *request, place *places, size_t count, bool joined,
                             const fl_figure *form, fl_error *error) {
    const fl_run_set *set = request->set;
    size_t *styles = NULL;
    double *values = NULL;
    fl_figure_series *series = NULL;
    size_t used = 0;
    if (count == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "no run has the numbers of %s", form->name);
    qsort(places, count, sizeof places[0], by_x);
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&styles, 2 * set->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&values, count * (count + 1), error));
    FL_TRY_DONE(status, FL_ALLOCATE(&series, count, error));
    choose_styles(set, styles, styles + set->count);
    double *x = values + count * count;
    for (size_t i = 0; i < count; i++) x[i] = places[i].x;
    for (size_t i = 0; i < count; i++) {
        size_t run = places[i].run, at = 0;
        while (at < used && !(joined && series[at].colour == styles[run])) at++;
        double *y = values + at * count;
        if (at == used) {
            for (size_t p = 0; p < count; p++) y[p] = NAN;
            const char *rule = fl_run_entry_value(&set->runs[run], "variant.rule");
            series[used++] = (fl_figure_series){.label = joined && rule != NULL ? rule : set->runs[run].label,
                                                .colour = styles[run],
                                                .dash = joined ? 0 : styles[set->count + run],
                                                .y = y};
        }
        y[i] = places[i].y;
    }
    fl_figure figure = *form;
    figure.scattered = true;
    figure.points = count;
    figure.x = x;
    figure.series_count = used;
    figure.series = series;
    status = draw(request, &figure, error);
done:
    fl_memory_free(styles);
    fl_memory_free(values);
    fl_memory_free(series);
    return status;
}

static fl_status draw_bytes(const fl_plot_request *request, fl_error *error) {
    summaries s;
    place *places = NULL;
    size_t count = 0;
    FL_TRY(read_summaries(request->set, &s, error));
    fl_status status = FL_ALLOCATE(&places, s.count, error);
    for (size_t i = 0; status == FL_OK && i < s.count; i++) {
        double bytes = s.items[i].state_bytes + s.items[i].exact_bytes;
        if (!isnan(bytes) && !isnan(s.items[i].perplexity)) {
            places[count++] = (place){.x = bytes / 1024, .y = s.items[i].perplexity, .run = i};
        }
    }
    if (status == FL_OK) {
        status = draw_places(request, places, count, false,
                             &(fl_figure){.name = "bytes",
                                          .kind = FL_FIGURE_MARKS,
                                          .title = "Perplexity against the memory of one sequence",
                                          .x_label = "state and exact keys and values, KiB",
                                          .y_label = "perplexity",
                                          .log_y = true},
                             error);
    }
    fl_memory_free(places);
    release_summaries(&s);
    return status;
}

/* How many layers stay softmax: the length of the list, or every n-th of `layers`, or the n hardest. */
static double softmax_layers(const fl_run_entry *run, size_t layers) {
    const char *text = fl_run_entry_value(run, "variant.softmax_layers");
    const char *every = fl_run_entry_value(run, "variant.softmax_layers.every");
    const char *hardest = fl_run_entry_value(run, "variant.softmax_layers.hardest");
    if (every != NULL) {
        double n = strtod(every, NULL);
        return n >= 1 ? floor((double)layers / n) : NAN;
    }
    if (hardest != NULL) return strtod(hardest, NULL);
    if (text == NULL || text[0] != '[') return NAN;
    if (text[1] == ']') return 0;
    double count = 1;
    for (; *text != '\0'; text++) count += *text == ',';
    return count;
}

static double layers_of(const fl_run_entry *run) {
    fl_run_reader *reader = NULL;
    double *nmse = NULL;
    size_t rank = 0, shape[4] = {0};
    if (fl_run_reader_open(run->path, &reader, NULL) != FL_OK) return 0;
    if (fl_run_reader_doubles(reader, "/errors/teacher_forced/nmse", &nmse, &rank, shape, NULL) != FL_OK)
        shape[0] = 0;
    fl_memory_free(nmse);
    fl_run_reader_close(reader);
    return (double)shape[0];
}

static fl_status draw_hybrid(const fl_plot_request *request, fl_error *error) {
    summaries s;
    place *places = NULL;
    size_t count = 0;
    bool varied = false;
    FL_TRY(read_summaries(request->set, &s, error));
    fl_status status = FL_ALLOCATE(&places, s.count, error);
    for (size_t i = 0; status == FL_OK && i < s.count; i++) {
        double x = softmax_layers(&request->set->runs[i], (size_t)layers_of(&request->set->runs[i]));
        if (isnan(x) || isnan(s.items[i].perplexity)) continue;
        places[count++] = (place){.x = x, .y = s.items[i].perplexity, .run = i};
        varied = varied || x != places[0].x;
    }
    if (status == FL_OK) {
        status = draw_places(request, places, varied ? count : 0, true,
                             &(fl_figure){.name = "hybrid",
                                          .kind = FL_FIGURE_MARKS,
                                          .title = "Perplexity against the number of softmax layers",
                                          .x_label = "layers that stay softmax",
                                          .y_label = "perplexity",
                                          .log_y = true},
                             error);
    }
    fl_memory_free(places);
    release_summaries(&s);
    return status;
}

const fl_plot_kind fl_plot_kinds[] = {
    {"layers", "teacher-forced nMSE by layer", draw_layers},
    {"positions", "teacher-forced nMSE by position, mean over layers", draw_positions},
    {"propagated", "nMSE of the residual stream by layer, end to end", draw_propagated},
    {"kl", "KL from the full model by position", draw_kl},
    {"heads", "nMSE by layer and head, a heat map a run", draw_heads},
    {"trends", "nMSE in quantile bins of key concentration and projection residual", draw_trends},
    {"training", "training loss by step", draw_training},
    {"tasks", "task accuracies with standard errors", draw_tasks},
    {"hybrid", "perplexity against the number of softmax layers", draw_hybrid},
    {"bytes", "perplexity against bytes of state and exact set", draw_bytes},
    {NULL, NULL, NULL},
};

const fl_plot_kind *fl_plot_kind_find(const char *name) {
    for (const fl_plot_kind *kind = fl_plot_kinds; kind->name != NULL; kind++) {
        if (strcmp(kind->name, name) == 0) return kind;
    }
    return NULL;
}
