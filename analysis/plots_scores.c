#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/figure_dots.h"
#include "analysis/intervals.h"
#include "analysis/label_parts.h"
#include "analysis/plot_parts.h"
#include "analysis/run_groups.h"
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

/* A score of every run that has it: rows of a dot figure. */
typedef struct score_rows {
    size_t count;
    const char **names;
    double *value, *low, *high, *off; /* in one block */
    const char *bar;
} score_rows;

static fl_status make_rows(score_rows *rows, size_t room, fl_error *error) {
    *rows = (score_rows){.bar = "standard error"};
    FL_TRY(FL_ALLOCATE(&rows->names, room, error));
    FL_TRY(FL_ALLOCATE(&rows->value, 4 * room, error));
    rows->low = rows->value + room;
    rows->high = rows->low + room;
    rows->off = rows->high + room;
    return FL_OK;
}

/* The spread over seeds; else the standard error of a task, the interval over sequences of the text's
 * perplexity. */
static fl_status find_ends(const fl_run_groups *groups, size_t group, const fl_run_score *score,
                           score_rows *rows, fl_error *error) {
    size_t at = rows->count;
    const fl_run_entry *run = fl_run_group_first(groups, group);
    bool seeds = fl_run_groups_any_seeds(groups);
    double half =
        seeds ? fl_run_group_metric(groups, group, score->value).sd : fl_run_metric_value(run, score->error);
    rows->low[at] = rows->value[at] - half;
    rows->high[at] = rows->value[at] + half;
    if (seeds) rows->bar = "mean and standard deviation over seeds";
    if (seeds || score->task[0] != '\0' || run->diverged) return FL_OK;
    fl_interval interval;
    FL_TRY(fl_interval_of_run(run, score->value, &interval, error));
    if (!interval.known) return FL_OK;
    rows->low[at] = interval.low;
    rows->high[at] = interval.high;
    rows->bar = "95 % interval over sequences";
    return FL_OK;
}

static fl_status fill_rows(const fl_run_groups *groups, const fl_run_score *score, score_rows *rows,
                           fl_error *error) {
    for (size_t g = 0; g < groups->count; g++) {
        const fl_run_entry *run = fl_run_group_first(groups, g);
        if (!fl_run_has_metric(run, score->value)) continue;
        rows->names[rows->count] = groups->items[g].label;
        rows->value[rows->count] = fl_run_group_metric(groups, g, score->value).mean;
        rows->off[rows->count] = fl_run_has_linear_part(run)
                                     ? fl_run_group_metric(groups, g, score->linear_off).mean
                                     : (double)NAN;
        FL_TRY(find_ends(groups, g, score, rows, error));
        rows->count++;
    }
    return FL_OK;
}

static fl_status draw_score(const fl_plot_request *request, const fl_run_score *score, fl_error *error) {
    score_rows rows;
    fl_run_groups *groups = NULL;
    char name[NAME_BYTES];
    const fl_figure_look look = fl_plot_look(request);
    fl_status status = FL_OK;
    FL_TRY_DONE(status, make_rows(&rows, request->set->count, error));
    FL_TRY_DONE(status, fl_run_groups_make(request->set, request->each, &groups, error));
    FL_TRY_DONE(status, fill_rows(groups, score, &rows, error));
    make_name("scores", score->task, name);
    const fl_dots dots = {.name = name,
                          .title = fl_plot_title(request, score->title),
                          .bar = rows.bar,
                          .x_label = score->axis,
                          .log_x = score->log,
                          .rows = rows.count,
                          .row_names = rows.names,
                          .value = rows.value,
                          .low = rows.low,
                          .high = rows.high,
                          .linear_off = rows.off,
                          .full = fl_run_scores_shared(request->set, score->full),
                          .chance = fl_run_scores_shared(request->set, score->chance)};
    status = fl_dots_write(&dots, request->folder, &look, error);
    if (status == FL_OK) fl_plot_report(request, name);
done:
    fl_run_groups_destroy(groups);
    fl_memory_free(rows.names);
    fl_memory_free(rows.value);
    return status;
}

fl_status fl_plot_scores(const fl_plot_request *request, fl_error *error) {
    return for_each_score(request, "no run has perplexity or task scores", draw_score, error);
}

/* The point of a run, or of those that differ in seeds only. */
typedef struct place {
    double x, y, spread; /* spread: standard deviation of y over seeds, or NaN */
    size_t group;
} place;

static int by_x(const void *a, const void *b) {
    const place *p = a, *q = b;
    if (p->x != q->x) return p->x < q->x ? -1 : 1;
    return p->group < q->group ? -1 : p->group > q->group;
}

/* Runs that differ in nothing but these keys, or what lies in mappings of these names, are one series. */
typedef struct scatter {
    const char *kind, *x_label;
    const char *along[5]; /* ends with NULL */
    bool log_x, whole_x, joined;
} scatter;

static bool is_along(const scatter *form, const char *key) {
    for (size_t i = 0; form->along[i] != NULL; i++) {
        size_t bytes = strlen(form->along[i]);
        if (strncmp(key, form->along[i], bytes) == 0 && (key[bytes] == '\0' || key[bytes] == '.'))
            return true;
    }
    return false;
}

static bool has_all_of(const scatter *form, const fl_run_entry *a, const fl_run_entry *b) {
    for (size_t i = 0; i < a->key_count; i++) {
        if (is_along(form, a->keys[i]) || strcmp(a->keys[i], "name") == 0) continue;
        const char *other = fl_run_entry_value(b, a->keys[i]);
        if (other == NULL || strcmp(other, a->values[i]) != 0) return false;
    }
    return true;
}

/* The points of a picture, parted into series. */
typedef struct point_set {
    const scatter *form;
    const fl_run_groups *groups;
    size_t count, series_count;
    place *places;             /* [count], sorted by x */
    size_t *series_of;         /* [count] */
    double *x, *y;             /* [count], [series_count][count] */
    double *low, *high;        /* as y */
    char **labels;             /* [series_count] */
    fl_plot_subject *subjects; /* [series_count] */
    fl_figure_series *series;  /* [series_count] */
    fl_plot_facets facets;
} point_set;

static void release_points(point_set *set) {
    for (size_t i = 0; set->labels != NULL && i < set->series_count; i++) fl_memory_free(set->labels[i]);
    fl_memory_free(set->series_of);
    fl_memory_free(set->x);
    fl_memory_free(set->y);
    fl_memory_free(set->low);
    fl_memory_free(set->high);
    fl_memory_free(set->labels);
    fl_memory_free(set->subjects);
    fl_memory_free(set->series);
    fl_plot_facets_release(&set->facets);
}

static void part(point_set *set) {
    for (size_t i = 0; i < set->count; i++) {
        const fl_run_entry *run = fl_run_group_first(set->groups, set->places[i].group);
        set->series_of[i] = set->series_count;
        for (size_t j = 0; j < i; j++) {
            const fl_run_entry *other = fl_run_group_first(set->groups, set->places[j].group);
            if (!has_all_of(set->form, run, other) || !has_all_of(set->form, other, run)) continue;
            set->series_of[i] = set->series_of[j];
            break;
        }
        if (set->series_of[i] == set->series_count) set->subjects[set->series_count++].run = run;
    }
}

/* A series is called by what the labels of its runs have in common. */
static fl_status name_series(point_set *set, fl_error *error) {
    const char **labels = NULL;
    FL_TRY(FL_ALLOCATE(&labels, set->count, error));
    fl_status status = FL_OK;
    for (size_t s = 0; s < set->series_count && status == FL_OK; s++) {
        size_t members = 0;
        for (size_t i = 0; i < set->count; i++) {
            if (set->series_of[i] == s) labels[members++] = set->groups->items[set->places[i].group].label;
        }
        status = fl_label_parts_common(labels, members, &set->labels[s], error);
        set->subjects[s].label = set->labels[s];
    }
    fl_memory_free(labels);
    return status;
}

static fl_status fill_numbers(point_set *set, fl_error *error) {
    size_t room = set->series_count * set->count;
    bool seeds = fl_run_groups_any_seeds(set->groups);
    FL_TRY(FL_ALLOCATE(&set->y, room, error));
    if (seeds) FL_TRY(FL_ALLOCATE(&set->low, room, error));
    if (seeds) FL_TRY(FL_ALLOCATE(&set->high, room, error));
    for (size_t i = 0; i < room; i++) {
        set->y[i] = (double)NAN;
        if (seeds) set->low[i] = set->high[i] = (double)NAN;
    }
    for (size_t i = 0; i < set->count; i++) {
        const place *at = &set->places[i];
        size_t to = set->series_of[i] * set->count + i;
        set->x[i] = at->x;
        set->y[to] = at->y;
        if (seeds) set->low[to] = at->y - at->spread;
        if (seeds) set->high[to] = at->y + at->spread;
    }
    return FL_OK;
}

static fl_status fill_points(const fl_plot_request *request, point_set *set, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&set->series_of, set->count, error));
    FL_TRY(FL_ALLOCATE(&set->subjects, set->count, error));
    FL_TRY(FL_ALLOCATE(&set->labels, set->count, error));
    FL_TRY(FL_ALLOCATE(&set->x, set->count, error));
    part(set);
    FL_TRY(name_series(set, error));
    FL_TRY(fl_plot_facets_make(request->set, set->subjects, set->series_count, request->facet, &set->facets,
                               error));
    FL_TRY(FL_ALLOCATE(&set->series, set->series_count, error));
    FL_TRY(fill_numbers(set, error));
    for (size_t s = 0; s < set->series_count; s++)
        set->series[s] = (fl_figure_series){.name = set->labels[s],
                                            .entry = set->facets.entry_of[s],
                                            .panels = set->facets.in_panel + s * set->facets.panel_count,
                                            .y = set->y + s * set->count,
                                            .low = set->low != NULL ? set->low + s * set->count : NULL,
                                            .high = set->high != NULL ? set->high + s * set->count : NULL,
                                            .length = set->count};
    return FL_OK;
}

static fl_status find_references(const fl_run_set *set, const fl_run_score *score, fl_plot_facets *facets,
                                 fl_figure_reference out[2], size_t *count, fl_error *error) {
    const struct {
        const char *name;
        double value;
        fl_figure_role role;
    } lines[] = {{"full model", fl_run_scores_shared(set, score->full), FL_FIGURE_FULL},
                 {"chance", fl_run_scores_shared(set, score->chance), FL_FIGURE_CHANCE}};
    *count = 0;
    for (size_t i = 0; i < 2; i++) {
        if (!isfinite(lines[i].value)) continue;
        fl_figure_reference *line = &out[(*count)++];
        *line = (fl_figure_reference){.name = lines[i].name, .y = lines[i].value};
        FL_TRY(fl_plot_facets_add(facets, line->name, lines[i].role, &line->entry, error));
    }
    return FL_OK;
}

static fl_status draw_places(const fl_plot_request *request, const fl_run_groups *groups, const scatter *form,
                             const fl_run_score *score, place *places, size_t count, fl_error *error) {
    fl_figure_reference references[2];
    char name[NAME_BYTES];
    size_t lines = 0;
    point_set set = {.form = form, .groups = groups, .count = count, .places = places};
    fl_status status = FL_OK;
    qsort(places, count, sizeof places[0], by_x);
    FL_TRY_DONE(status, fill_points(request, &set, error));
    FL_TRY_DONE(status, find_references(request->set, score, &set.facets, references, &lines, error));
    make_name(form->kind, score->task, name);
    const fl_figure_view view = {.csv = name,
                                 .x_label = form->x_label,
                                 .y_label = score->axis,
                                 .log_x = form->log_x,
                                 .log_y = score->log,
                                 .marks = true,
                                 .scattered = true,
                                 .unjoined = !form->joined,
                                 .whole_x = form->whole_x,
                                 .points = count,
                                 .x = set.x,
                                 .series_count = set.series_count,
                                 .series = set.series,
                                 .reference_count = lines,
                                 .references = references};
    const fl_figure figure = {.name = name,
                              .title = fl_plot_title(request, score->title),
                              .note = set.low != NULL ? "Mean over seeds; bars: standard deviation." : NULL,
                              .panel_count = set.facets.panel_count,
                              .panel_titles =
                                  set.facets.panel_count > 1 ? (const char *const *)set.facets.titles : NULL,
                              .entry_count = set.facets.entry_count,
                              .entries = set.facets.entries,
                              .view_count = 1,
                              .views = &view};
    status = fl_plot_figure(request, &figure, error);
done:
    release_points(&set);
    return status;
}

/* Takes `x_of` of every run that has the score; NaN leaves it out. */
static fl_status draw_scatter(const fl_plot_request *request, const scatter *form, const fl_run_score *score,
                              double (*x_of)(const fl_run_entry *run), fl_error *error) {
    fl_run_groups *groups = NULL;
    place *places = NULL;
    size_t count = 0;
    bool varied = false;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_run_groups_make(request->set, request->each, &groups, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&places, groups->count, error));
    for (size_t g = 0; g < groups->count; g++) {
        double x = x_of(fl_run_group_first(groups, g));
        fl_run_spread y = fl_run_group_metric(groups, g, score->value);
        if (isnan(x) || !isfinite(y.mean)) continue;
        places[count++] = (place){.x = x, .y = y.mean, .spread = y.sd, .group = g};
        varied = varied || x != places[0].x;
    }
    status = varied ? draw_places(request, groups, form, score, places, count, error)
                    : fl_error_set(error, FL_ERROR_ARGUMENT, "%s: all runs are alike", form->kind);
done:
    fl_memory_free(places);
    fl_run_groups_destroy(groups);
    return status;
}

static double kibibytes_of(const fl_run_entry *run) {
    return (fl_run_metric_value(run, "state_bytes") + fl_run_metric_value(run, "exact_bytes")) / 1024;
}

static fl_status draw_bytes(const fl_plot_request *request, const fl_run_score *score, fl_error *error) {
    static const scatter form = {
        .kind = "bytes",
        .x_label = "linear state and exact keys and values of one sequence (KiB)",
        .along = {"variant.window", "variant.sinks", "variant.cache", "variant.softmax_layers", NULL},
        .log_x = true};
    return draw_scatter(request, &form, score, kibibytes_of, error);
}

fl_status fl_plot_bytes(const fl_plot_request *request, fl_error *error) {
    return for_each_score(request, "no two runs differ in bytes and have scores", draw_bytes, error);
}

static double layers_of(const fl_run_entry *run) {
    fl_run_reader *reader = NULL;
    double *nmse = NULL;
    size_t layers = 0;
    if (fl_run_reader_open(run->path, &reader, NULL) != FL_OK) return (double)NAN;
    const bool known =
        fl_run_reader_array(reader, "/errors/teacher_forced/nmse", 1, &layers, &nmse, NULL) == FL_OK;
    fl_memory_free(nmse);
    fl_run_reader_close(reader);
    return known ? (double)layers : (double)NAN;
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
    static const scatter form = {.kind = "hybrid",
                                 .x_label = "layers that stay softmax",
                                 .along = {"variant.softmax_layers", NULL},
                                 .whole_x = true,
                                 .joined = true};
    return draw_scatter(request, &form, score, softmax_layers, error);
}

fl_status fl_plot_hybrid(const fl_plot_request *request, fl_error *error) {
    return for_each_score(request, "no two runs differ in their number of softmax layers and have scores",
                          draw_hybrid, error);
}
