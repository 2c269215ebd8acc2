#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/figure_dots.h"
#include "analysis/plot_parts.h"
#include "analysis/run_scores.h"
#include "harness/base/memory.h"

enum { NAME_BYTES = 320 };

/* "scores_<task>"; labels of tasks are file names but for what a file system or gnuplot might object to. */
static void make_name(const char *kind, const char *task, char out[NAME_BYTES]) {
    snprintf(out, NAME_BYTES, "%s_%s", kind, task[0] != '\0' ? task : "perplexity");
    for (char *c = out; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
                     *c == '_' || *c == '-';
        if (!plain) *c = '_';
    }
}

/* For each score of the set; FL_ERROR_ARGUMENT when none of them could be drawn. */
static fl_status for_each_score(const fl_plot_request *request, const char *what,
                                fl_status (*draw)(const fl_plot_request *request, const fl_run_score *score,
                                                  fl_error *error),
                                fl_error *error) {
    fl_run_score *scores = NULL;
    size_t count = 0, drawn = 0;
    FL_TRY(fl_run_scores_list(request->set, &scores, &count, error));
    fl_status status = FL_OK;
    for (size_t i = 0; i < count && status == FL_OK; i++) {
        status = draw(request, &scores[i], error);
        if (status == FL_OK) drawn++;
        if (status == FL_ERROR_ARGUMENT) status = FL_OK;
    }
    fl_memory_free(scores);
    if (status == FL_OK && drawn == 0) status = fl_error_set(error, FL_ERROR_ARGUMENT, "%s", what);
    return status;
}

static fl_status draw_score(const fl_plot_request *request, const fl_run_score *score, fl_error *error) {
    const fl_run_set *set = request->set;
    const char **names = NULL;
    double *numbers = NULL; /* value, error, linear off [count] each */
    char name[NAME_BYTES];
    size_t rows = 0;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&names, set->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&numbers, 3 * set->count, error));
    double *value = numbers, *error_bar = numbers + set->count, *off = numbers + 2 * set->count;
    for (size_t i = 0; i < set->count; i++) {
        const fl_run_entry *run = &set->runs[i];
        if (!fl_run_has_metric(run, score->value)) continue;
        names[rows] = run->label;
        value[rows] = fl_run_metric_value(run, score->value);
        error_bar[rows] = fl_run_metric_value(run, score->error);
        off[rows++] = fl_run_has_linear_part(run) ? fl_run_metric_value(run, score->linear_off) : (double)NAN;
    }
    make_name("scores", score->task, name);
    const fl_dots dots = {.name = name,
                          .title = score->title,
                          .x_label = score->axis,
                          .log_x = score->log,
                          .rows = rows,
                          .row_names = names,
                          .value = value,
                          .error = error_bar,
                          .linear_off = off,
                          .full = fl_run_scores_shared(set, score->full),
                          .chance = fl_run_scores_shared(set, score->chance)};
    status = fl_dots_write(&dots, request->folder, request->format, error);
    if (status == FL_OK) fl_plot_report(request, name);
done:
    fl_memory_free(names);
    fl_memory_free(numbers);
    return status;
}

fl_status fl_plot_scores(const fl_plot_request *request, fl_error *error) {
    return for_each_score(request, "no run has perplexity or task scores", draw_score, error);
}

/* One run's point. */
typedef struct place {
    double x, y;
    size_t run;
} place;

static int by_x(const void *a, const void *b) {
    const place *p = a, *q = b;
    if (p->x != q->x) return p->x < q->x ? -1 : 1;
    return p->run < q->run ? -1 : p->run > q->run;
}

typedef struct scatter {
    const char *kind, *x_label;
    bool log_x, whole_x;
    bool joined; /* runs of one colour are one curve, called by their rule */
} scatter;

static size_t find_reference(const fl_run_set *set, const fl_run_score *score, fl_figure_reference out[2]) {
    size_t count = 0;
    double full = fl_run_scores_shared(set, score->full), chance = fl_run_scores_shared(set, score->chance);
    if (isfinite(full)) out[count++] = (fl_figure_reference){"full model", full};
    if (isfinite(chance)) out[count++] = (fl_figure_reference){"chance", chance};
    return count;
}

static fl_status draw_places(const fl_plot_request *request, const scatter *form, const fl_run_score *score,
                             place *places, size_t count, fl_error *error) {
    const fl_run_set *set = request->set;
    size_t *styles = NULL, used = 0;
    double *values = NULL;
    fl_figure_series *series = NULL;
    fl_figure_reference references[2];
    char name[NAME_BYTES];
    fl_status status = FL_OK;
    qsort(places, count, sizeof places[0], by_x);
    FL_TRY_DONE(status, FL_ALLOCATE(&styles, 2 * set->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&values, count * (count + 1), error));
    FL_TRY_DONE(status, FL_ALLOCATE(&series, count, error));
    fl_plot_styles(set, styles, styles + set->count);
    double *x = values + count * count;
    for (size_t i = 0; i < count; i++) x[i] = places[i].x;
    for (size_t i = 0; i < count; i++) {
        size_t run = places[i].run, at = 0;
        while (at < used && !(form->joined && series[at].colour == styles[run])) at++;
        double *y = values + at * count;
        if (at == used) {
            const char *rule = fl_run_entry_value(&set->runs[run], "variant.rule");
            for (size_t p = 0; p < count; p++) y[p] = (double)NAN;
            series[used++] =
                (fl_figure_series){.label = form->joined && rule != NULL ? rule : set->runs[run].label,
                                   .colour = styles[run],
                                   .dash = form->joined ? 0 : styles[set->count + run],
                                   .y = y};
        }
        y[i] = places[i].y;
    }
    make_name(form->kind, score->task, name);
    const fl_figure figure = {.name = name,
                              .kind = FL_FIGURE_MARKS,
                              .title = score->title,
                              .x_label = form->x_label,
                              .y_label = score->axis,
                              .log_x = form->log_x,
                              .log_y = score->log,
                              .scattered = true,
                              .whole_x = form->whole_x,
                              .points = count,
                              .x = x,
                              .series_count = used,
                              .series = series,
                              .reference_count = find_reference(set, score, references),
                              .references = references};
    status = fl_plot_curves(request, &figure, error);
done:
    fl_memory_free(styles);
    fl_memory_free(values);
    fl_memory_free(series);
    return status;
}

/* Takes `x_of` of every run that has the score; NaN leaves it out. */
static fl_status draw_scatter(const fl_plot_request *request, const scatter *form, const fl_run_score *score,
                              double (*x_of)(const fl_run_entry *run), fl_error *error) {
    const fl_run_set *set = request->set;
    place *places = NULL;
    size_t count = 0;
    bool varied = false;
    FL_TRY(FL_ALLOCATE(&places, set->count, error));
    for (size_t i = 0; i < set->count; i++) {
        double x = x_of(&set->runs[i]), y = fl_run_metric_value(&set->runs[i], score->value);
        if (isnan(x) || isnan(y)) continue;
        places[count++] = (place){.x = x, .y = y, .run = i};
        varied = varied || x != places[0].x;
    }
    fl_status status = varied ? draw_places(request, form, score, places, count, error)
                              : fl_error_set(error, FL_ERROR_ARGUMENT, "%s: all runs are alike", form->kind);
    fl_memory_free(places);
    return status;
}

static double kibibytes_of(const fl_run_entry *run) {
    return (fl_run_metric_value(run, "state_bytes") + fl_run_metric_value(run, "exact_bytes")) / 1024;
}

static fl_status draw_bytes(const fl_plot_request *request, const fl_run_score *score, fl_error *error) {
    static const scatter form = {.kind = "bytes",
                                 .x_label = "linear state and exact keys and values of one sequence, KiB",
                                 .log_x = true};
    return draw_scatter(request, &form, score, kibibytes_of, error);
}

fl_status fl_plot_bytes(const fl_plot_request *request, fl_error *error) {
    return for_each_score(request, "no two runs differ in bytes and have scores", draw_bytes, error);
}

static double layers_of(const fl_run_entry *run) {
    fl_run_reader *reader = NULL;
    double *nmse = NULL;
    size_t rank = 0, shape[4] = {0};
    if (fl_run_reader_open(run->path, &reader, NULL) != FL_OK) return (double)NAN;
    if (fl_run_reader_doubles(reader, "/errors/teacher_forced/nmse", &nmse, &rank, shape, NULL) != FL_OK)
        rank = 0;
    fl_memory_free(nmse);
    fl_run_reader_close(reader);
    return rank == 1 ? (double)shape[0] : (double)NAN;
}

/* How many layers stay softmax: the length of the list, every n-th, or the n hardest. Of the full model: it
 * is a line. */
static double softmax_layers(const fl_run_entry *run) {
    const char *rule = fl_run_entry_value(run, "variant.rule");
    const char *list = fl_run_entry_value(run, "variant.softmax_layers");
    const char *every = fl_run_entry_value(run, "variant.softmax_layers.every");
    const char *hardest = fl_run_entry_value(run, "variant.softmax_layers.hardest");
    if (rule == NULL || strcmp(rule, "softmax") == 0) return (double)NAN;
    if (hardest != NULL && strtod(hardest, NULL) > 0) return strtod(hardest, NULL);
    if (every != NULL && strtod(every, NULL) >= 1) return floor(layers_of(run) / strtod(every, NULL));
    if (list == NULL || list[0] != '[') return (double)NAN;
    if (list[1] == ']') return 0;
    double count = 1;
    for (; *list != '\0'; list++) count += *list == ',';
    return count;
}

static fl_status draw_hybrid(const fl_plot_request *request, const fl_run_score *score, fl_error *error) {
    static const scatter form = {
        .kind = "hybrid", .x_label = "layers that stay softmax", .whole_x = true, .joined = true};
    return draw_scatter(request, &form, score, softmax_layers, error);
}

fl_status fl_plot_hybrid(const fl_plot_request *request, fl_error *error) {
    return for_each_score(request, "no two runs differ in their number of softmax layers and have scores",
                          draw_hybrid, error);
}
