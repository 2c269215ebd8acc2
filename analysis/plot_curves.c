/* Curves: datasets of runs as lines, with the same of the linear part off beside them. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "analysis/intervals.h"
#include "analysis/label_parts.h"
#include "analysis/plot_parts.h"
#include "analysis/run_groups.h"
#include "analysis/run_scores.h"
#include "harness/base/memory.h"
#include "harness/store/folder.h"

enum { MAX_POINTS = 64, TITLE_BYTES = 512, NOTE_BYTES = 512, MOST_BASELINES = 10 };

/* Curves that agree to so much are one: the linear part off is measured in every run of an exact set. */
static const double same_curve = 1e-6;

typedef struct curve {
    double *y, *low, *high; /* the last two: NULL without intervals */
    size_t length;
} curve;

static void release_curve(curve *c) {
    fl_memory_free(c->y);
    fl_memory_free(c->low);
    fl_memory_free(c->high);
    *c = (curve){0};
}

/* Who has curves: first the runs (those that differ in seeds only are one, the mean of them), then what the
 * linear part off of some of them looks like. */
typedef struct curve_set {
    size_t runs, count, views;
    fl_run_groups *groups;
    size_t measured;           /* runs of the set that have curves */
    fl_plot_subject *subjects; /* [room] */
    bool *owners;              /* [room][runs] of a curve without the linear part: which runs it belongs to */
    curve *curves[FL_FIGURE_MOST_VIEWS]; /* [room] */
    double *x[FL_FIGURE_MOST_VIEWS];
    size_t width[FL_FIGURE_MOST_VIEWS], points[FL_FIGURE_MOST_VIEWS]; /* width: of a bin */
    bool placed[FL_FIGURE_MOST_VIEWS];                                /* x comes from the spec's x_path */
    size_t room;
    fl_plot_facets facets;
    bool *panels;        /* [room][panels] */
    size_t *entry_of;    /* [room] */
    char **made;         /* [room] labels of baselines */
    size_t left_out;     /* baselines that would be too many */
    size_t most_seeds;   /* runs that one curve is the mean of */
    size_t fewest, most; /* sequences behind intervals; 0: there are none */
} curve_set;

static void release(curve_set *set) {
    for (size_t v = 0; v < set->views; v++) {
        for (size_t i = 0; set->curves[v] != NULL && i < set->room; i++) release_curve(&set->curves[v][i]);
        fl_memory_free(set->curves[v]);
        fl_memory_free(set->x[v]);
    }
    for (size_t i = 0; set->made != NULL && i < set->room; i++) fl_memory_free(set->made[i]);
    fl_memory_free(set->made);
    fl_run_groups_destroy(set->groups);
    fl_memory_free(set->subjects);
    fl_memory_free(set->owners);
    fl_memory_free(set->panels);
    fl_memory_free(set->entry_of);
    fl_plot_facets_release(&set->facets);
}

static fl_status make_room(curve_set *set, const fl_plot_request *request, size_t views, fl_error *error) {
    *set = (curve_set){.views = views};
    FL_TRY(fl_run_groups_make(request->set, request->each, &set->groups, error));
    size_t runs = set->groups->count;
    set->room = 2 * runs;
    FL_TRY(FL_ALLOCATE(&set->subjects, set->room, error));
    FL_TRY(FL_ALLOCATE(&set->owners, set->room * runs, error));
    FL_TRY(FL_ALLOCATE(&set->made, set->room, error));
    FL_TRY(FL_ALLOCATE(&set->entry_of, set->room, error));
    for (size_t v = 0; v < views; v++) FL_TRY(FL_ALLOCATE(&set->curves[v], set->room, error));
    return FL_OK;
}

/* Mean over the slowest axis of [rows][columns], in place in the first row. NaN is left out, but of a run
 * that diverged it is a value. */
static void mean_over_rows(double *data, size_t rows, size_t columns, bool diverged) {
    for (size_t c = 0; c < columns; c++) {
        double sum = 0;
        size_t count = 0;
        for (size_t r = 0; r < rows; r++) {
            double value = data[r * columns + c];
            if (isnan(value) && !diverged) continue;
            sum += value;
            count++;
        }
        data[c] = count > 0 ? sum / (double)count : (double)NAN;
    }
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
        data[bins++] = used > 0 ? sum / (double)used : (double)NAN;
    }
    return bins;
}

/* out->y stays NULL when the run has no such dataset. width: of the bins that are averaged. */
static fl_status read_curve(const fl_run_entry *run, const char *path, bool over_layers, size_t width,
                            curve *out, fl_error *error) {
    fl_run_reader *reader = NULL;
    const size_t rank = over_layers ? 2 : 1;
    size_t shape[2] = {0};
    *out = (curve){0};
    FL_TRY(fl_run_reader_open(run->path, &reader, error));
    fl_status status = FL_OK;
    if (fl_run_reader_has(reader, path))
        status = fl_run_reader_array(reader, path, rank, shape, &out->y, error);
    fl_run_reader_close(reader);
    if (status != FL_OK || out->y == NULL) return status;
    out->length = shape[rank - 1];
    if (over_layers) mean_over_rows(out->y, shape[0], shape[1], run->diverged);
    if (width > 1) out->length = average_bins(out->y, out->length, width);
    return FL_OK;
}

static fl_status copy_curve(const curve *from, curve *to, fl_error *error) {
    FL_TRY(FL_ALLOCATE(&to->y, from->length, error));
    memcpy(to->y, from->y, from->length * sizeof to->y[0]);
    to->length = from->length;
    return FL_OK;
}

/* Intervals by layer, where the run has sequences enough. */
static fl_status read_band(curve_set *set, const fl_run_entry *run, const char *metric, curve *out,
                           fl_error *error) {
    fl_run_sums *sums = NULL;
    fl_interval whole, *layers = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_run_sums_read(run->path, &sums, error));
    if (fl_run_sums_layers(sums) != out->length) goto done;
    FL_TRY_DONE(status, FL_ALLOCATE(&layers, out->length, error));
    FL_TRY_DONE(status, fl_interval_of(sums, FL_SIDE_RUN, metric, &whole, layers, error));
    if (!whole.known) goto done;
    FL_TRY_DONE(status, FL_ALLOCATE(&out->low, out->length, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->high, out->length, error));
    for (size_t l = 0; l < out->length; l++) {
        out->low[l] = layers[l].low;
        out->high[l] = layers[l].high;
    }
    if (set->most == 0 || whole.sequences < set->fewest) set->fewest = whole.sequences;
    if (whole.sequences > set->most) set->most = whole.sequences;
done:
    fl_memory_free(layers);
    fl_run_sums_destroy(sums);
    return status;
}

static bool same_numbers(const curve *a, const curve *b) {
    if (a->length != b->length) return false;
    for (size_t i = 0; i < a->length; i++) {
        bool same = a->y[i] == b->y[i] || (isnan(a->y[i]) && isnan(b->y[i])) ||
                    fabs(a->y[i] - b->y[i]) <= same_curve * fabs(a->y[i]);
        if (!same) return false;
    }
    return true;
}

static bool is_none(const fl_run_entry *run) {
    const char *rule = fl_run_entry_value(run, "variant.rule");
    return rule != NULL && strcmp(rule, "none") == 0;
}

/* Whether a curve without the linear part is there already: that of a run of rule `none`, or that of another
 * run, which then has one more owner. */
static bool is_known(curve_set *set, size_t run, const curve *off) {
    for (size_t i = 0; i < set->count; i++) {
        bool candidate = i >= set->runs || is_none(set->subjects[i].run);
        if (!candidate || !same_numbers(&set->curves[0][i], off)) continue;
        if (i >= set->runs) set->owners[i * set->runs + run] = true;
        return true;
    }
    return false;
}

static fl_status read_baseline(curve_set *set, size_t run, const fl_curve_spec *specs, fl_error *error) {
    curve off;
    const fl_run_entry *entry = set->subjects[run].run;
    FL_TRY(read_curve(entry, specs[0].baseline, specs[0].over_layers, set->width[0], &off, error));
    if (off.y == NULL || is_known(set, run, &off)) {
        release_curve(&off);
        return FL_OK;
    }
    size_t at = set->count++;
    set->curves[0][at] = off;
    set->subjects[at].run = entry;
    set->owners[at * set->runs + run] = true;
    for (size_t v = 1; v < set->views; v++)
        FL_TRY(read_curve(entry, specs[v].baseline, specs[v].over_layers, set->width[v], &set->curves[v][at],
                          error));
    return FL_OK;
}

/* Mean and spread of the runs of a group, from curves of one length; *out is the first of them at first. */
static fl_status average_curves(curve *curves, size_t count, curve *out, fl_error *error) {
    double *values = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&out->low, out->length, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&out->high, out->length, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&values, count, error));
    for (size_t p = 0; p < out->length; p++) {
        for (size_t i = 0; i < count; i++) values[i] = curves[i].y[p];
        fl_run_spread spread = fl_run_spread_of(values, count);
        out->low[p] = spread.mean - spread.sd;
        out->high[p] = spread.mean + spread.sd;
        out->y[p] = spread.mean;
    }
done:
    fl_memory_free(values);
    return status;
}

/* out->y stays NULL when no run of the group has the dataset. Runs whose curve has another length than the
 * first's (they ended early) are left out. */
static fl_status read_group(curve_set *set, size_t group, const fl_curve_spec *spec, size_t width, curve *out,
                            size_t *used, fl_error *error) {
    const fl_run_group *members = &set->groups->items[group];
    curve *curves = NULL;
    fl_status status = FL_OK;
    *used = 0;
    FL_TRY(FL_ALLOCATE(&curves, members->count, error));
    for (size_t i = 0; i < members->count; i++) {
        const fl_run_entry *run = &set->groups->set->runs[members->runs[i]];
        curve *own = &curves[*used];
        FL_TRY_DONE(status, read_curve(run, spec->path, spec->over_layers, width, own, error));
        if (own->y != NULL && own->length == curves[0].length)
            ++*used;
        else
            release_curve(own);
    }
    if (*used == 0) goto done;
    *out = curves[0];
    if (*used > 1) {
        curves[0] = (curve){0};
        FL_TRY_DONE(status, copy_curve(out, &curves[0], error));
        FL_TRY_DONE(status, average_curves(curves, *used, out, error));
        release_curve(&curves[0]);
    }
    curves[0] = (curve){0};
done:
    for (size_t i = 0; i < members->count; i++) release_curve(&curves[i]);
    fl_memory_free(curves);
    return status;
}

/* The bins with which the longest curve has few enough points: the same for all, and for all runs of a group,
 * whose spread is that of their bins. */
static fl_status find_width(curve_set *set, size_t view, const fl_curve_spec *spec, fl_error *error) {
    size_t longest = 1;
    const fl_run_set *runs = set->groups->set;
    for (size_t i = 0; spec->binned && i < runs->count; i++) {
        curve whole;
        FL_TRY(read_curve(&runs->runs[i], spec->path, spec->over_layers, 1, &whole, error));
        if (whole.length > longest) longest = whole.length;
        release_curve(&whole);
    }
    set->width[view] = (longest + MAX_POINTS - 1) / MAX_POINTS;
    return FL_OK;
}

static fl_status read_all(const fl_curve_spec *specs, curve_set *set, fl_error *error) {
    bool seeds = fl_run_groups_any_seeds(set->groups);
    for (size_t v = 0; v < set->views; v++) FL_TRY(find_width(set, v, &specs[v], error));
    for (size_t g = 0; g < set->groups->count; g++) {
        const fl_run_entry *run = fl_run_group_first(set->groups, g);
        curve *first = &set->curves[0][set->count];
        size_t used = 0, others = 0;
        FL_TRY(read_group(set, g, &specs[0], set->width[0], first, &used, error));
        if (first->y == NULL) continue;
        set->measured += used;
        if (used > set->most_seeds) set->most_seeds = used;
        if (specs[0].interval != NULL && !seeds) FL_TRY(read_band(set, run, specs[0].interval, first, error));
        for (size_t v = 1; v < set->views; v++)
            FL_TRY(read_group(set, g, &specs[v], set->width[v], &set->curves[v][set->count], &others, error));
        set->subjects[set->count++] =
            (fl_plot_subject){set->groups->items[g].label, run, set->groups->items[g].diverged};
    }
    set->runs = set->count;
    if (set->runs == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "no run has %s", specs[0].path);
    for (size_t i = 0; specs[0].baseline != NULL && i < set->runs; i++) {
        if (fl_run_has_linear_part(set->subjects[i].run)) FL_TRY(read_baseline(set, i, specs, error));
    }
    return FL_OK;
}

/* Brings all curves of a view to one length: NaN behind the shorter ones. */
static fl_status align(curve_set *set, size_t view, fl_error *error) {
    size_t points = 1, width = set->width[view];
    for (size_t i = 0; i < set->count; i++) {
        if (set->curves[view][i].length > points) points = set->curves[view][i].length;
    }
    set->points[view] = points;
    FL_TRY(FL_ALLOCATE(&set->x[view], points, error));
    for (size_t p = 0; p < points; p++) set->x[view][p] = (double)(p * width) + (double)(width - 1) / 2;
    for (size_t i = 0; i < set->count; i++) {
        curve *c = &set->curves[view][i];
        double **const parts[] = {&c->y, &c->low, &c->high};
        for (size_t k = 0; k < 3; k++) {
            if ((*parts[k] == NULL && k > 0) || c->length == points) continue;
            FL_TRY(FL_RESIZE(parts[k], c->length, points, error));
            for (size_t p = c->length; p < points; p++) (*parts[k])[p] = (double)NAN;
        }
    }
    return FL_OK;
}

/* x where all runs agree on it (the keys are the frozen model's); else places stay numbered. */
static fl_status find_places(curve_set *set, size_t view, const fl_curve_spec *spec, fl_error *error) {
    double *shared = NULL;
    size_t points = set->points[view];
    bool fits = true;
    fl_status status = FL_OK;
    for (size_t i = 0; i < set->runs && status == FL_OK && fits; i++) {
        curve places;
        status = read_curve(set->subjects[i].run, spec->x_path, spec->over_layers, 1, &places, error);
        if (status != FL_OK || places.y == NULL) continue;
        for (size_t p = 0; places.length == points + 1 && p < points; p++)
            places.y[p] = (places.y[p] + places.y[p + 1]) / 2;
        fits = places.length == points || places.length == points + 1;
        for (size_t p = 0; shared != NULL && fits && p < points; p++)
            fits = fabs(places.y[p] - shared[p]) <= 1e-5 * fabs(shared[p]);
        if (shared == NULL && fits)
            shared = places.y;
        else
            fl_memory_free(places.y);
    }
    set->placed[view] = shared != NULL && fits && status == FL_OK;
    if (set->placed[view]) memcpy(set->x[view], shared, points * sizeof shared[0]);
    fl_memory_free(shared);
    return status;
}

/* Names of the curves without the linear part. */

/* Labels of the runs that a baseline belongs to, all when `at` is SIZE_MAX. */
static size_t collect(const curve_set *set, size_t at, const char **labels) {
    size_t count = 0;
    for (size_t i = 0; i < set->runs; i++) {
        if (at == SIZE_MAX || set->owners[at * set->runs + i]) labels[count++] = set->subjects[i].label;
    }
    return count;
}

/* *text without the parts in `taken`. */
static fl_status strip(char **text, const char *taken, fl_error *error) {
    char *rest = NULL;
    FL_TRY(fl_label_parts_without(*text, taken, &rest, error));
    fl_memory_free(*text);
    *text = rest;
    return FL_OK;
}

/* "linear part off" and what only its runs' labels have in common, but for the rule, which is not in it. */
static fl_status name_baseline(curve_set *set, size_t at, const char **labels, fl_error *error) {
    char *everywhere = NULL, *own = NULL;
    const fl_plot_facets *f = &set->facets;
    size_t panel = fl_plot_facets_only_panel(set->panels + at * f->panel_count, f->panel_count);
    const char *rule = fl_run_entry_value(set->subjects[at].run, "variant.rule");
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_label_parts_common(labels, collect(set, SIZE_MAX, labels), &everywhere, error));
    FL_TRY_DONE(status, fl_label_parts_common(labels, collect(set, at, labels), &own, error));
    FL_TRY_DONE(status, strip(&own, everywhere, error));
    /* Runs that keep the same tokens in different words: by those of the one that it was measured in. */
    if (own[0] == '\0' && set->count > set->runs + 1) {
        fl_memory_free(own);
        own = NULL;
        FL_TRY_DONE(status, fl_label_parts_without(labels[0], everywhere, &own, error));
    }
    if (rule != NULL) FL_TRY_DONE(status, strip(&own, rule, error));
    if (panel != SIZE_MAX) FL_TRY_DONE(status, strip(&own, f->said[panel], error));
    FL_TRY_DONE(status, fl_folder_format(&set->made[at], error, "linear part off%s%s",
                                         own[0] != '\0' ? ", " : "", own));
    set->subjects[at].label = set->made[at];
done:
    fl_memory_free(everywhere);
    fl_memory_free(own);
    return status;
}

/* Two baselines of one panel may not have one name. */
static fl_status distinguish(curve_set *set, size_t at, fl_error *error) {
    size_t panels = set->facets.panel_count, before = 0;
    for (size_t i = set->runs; i < at; i++) {
        if (strcmp(set->made[i], set->made[at]) != 0) continue;
        for (size_t p = 0; p < panels; p++) {
            if (!set->panels[i * panels + p] || !set->panels[at * panels + p]) continue;
            before++;
            break;
        }
    }
    if (before == 0) return FL_OK;
    char *numbered = NULL;
    FL_TRY(fl_folder_format(&numbered, error, "%s (%zu)", set->made[at], before + 1));
    fl_memory_free(set->made[at]);
    set->made[at] = numbered;
    return FL_OK;
}

/* Where the runs stand that a baseline belongs to. */
static void place_baseline(curve_set *set, size_t at) {
    const fl_plot_facets *f = &set->facets;
    for (size_t i = 0; i < set->runs * f->panel_count; i++) {
        size_t run = i / f->panel_count, panel = i % f->panel_count;
        if (set->owners[at * set->runs + run] && f->in_panel[i])
            set->panels[at * f->panel_count + panel] = true;
    }
}

/* Names of baselines, each once. */
static size_t count_names(const curve_set *set) {
    size_t names = 0;
    for (size_t at = set->runs; at < set->count; at++) {
        bool known = false;
        for (size_t i = set->runs; i < at; i++) known = known || strcmp(set->made[i], set->made[at]) == 0;
        names += !known;
    }
    return names;
}

/* So many baselines would hide the curves, and no two of them could be told apart. */
static void leave_out_baselines(curve_set *set) {
    if (count_names(set) <= MOST_BASELINES) return;
    set->left_out = set->count - set->runs;
    for (size_t v = 0; v < set->views; v++) {
        for (size_t at = set->runs; at < set->count; at++) release_curve(&set->curves[v][at]);
    }
    set->count = set->runs;
}

/* Runs first, then the baselines: those stand where they belong to. */
static fl_status make_facets(const fl_plot_request *request, curve_set *set, fl_error *error) {
    const char **labels = NULL;
    fl_plot_facets *f = &set->facets;
    fl_status status = FL_OK;
    FL_TRY(fl_plot_facets_make(request->set, set->subjects, set->runs, request->facet, f, error));
    FL_TRY(FL_ALLOCATE(&set->panels, set->room * f->panel_count, error));
    FL_TRY(FL_ALLOCATE(&labels, set->runs, error));
    memcpy(set->panels, f->in_panel, set->runs * f->panel_count * sizeof set->panels[0]);
    memcpy(set->entry_of, f->entry_of, set->runs * sizeof set->entry_of[0]);
    for (size_t at = set->runs; at < set->count && status == FL_OK; at++) {
        place_baseline(set, at);
        status = name_baseline(set, at, labels, error);
    }
    for (size_t at = set->count; at-- > set->runs && status == FL_OK;) status = distinguish(set, at, error);
    if (status == FL_OK) leave_out_baselines(set);
    for (size_t at = set->runs; at < set->count && status == FL_OK; at++)
        status = fl_plot_facets_add(f, set->made[at], FL_FIGURE_BASELINE, &set->entry_of[at], error);
    fl_memory_free(labels);
    return status;
}

static void fill_series(const curve_set *set, size_t view, fl_figure_series *series) {
    for (size_t i = 0; i < set->count; i++) {
        const curve *c = &set->curves[view][i];
        bool own = i < set->runs;
        series[i] = (fl_figure_series){.name = own ? set->subjects[i].label : set->made[i],
                                       .entry = set->entry_of[i],
                                       .panels = set->panels + i * set->facets.panel_count,
                                       .y = c->y,
                                       .low = c->low,
                                       .high = c->high,
                                       .length = c->length,
                                       .diverged = own && set->subjects[i].diverged};
    }
}

static fl_status find_reference(const fl_plot_request *request, const fl_curve_spec *spec, curve_set *set,
                                fl_figure_reference *out, size_t *count, fl_error *error) {
    *count = 0;
    if (spec->reference == NULL) return FL_OK;
    double value = fl_run_scores_shared(request->set, spec->reference);
    if (!isfinite(value)) return FL_OK;
    *out = (fl_figure_reference){.name = "full model", .y = value};
    *count = 1;
    return fl_plot_facets_add(&set->facets, out->name, FL_FIGURE_FULL, &out->entry, error);
}

/* What bands are, and what is not drawn. */
static void make_note(const curve_set *set, char *note, size_t bytes) {
    int used = 0;
    note[0] = '\0';
    if (set->most_seeds > 1)
        used = snprintf(note, bytes, "Mean over seeds; bands: standard deviation of %s%zu runs. ",
                        set->most_seeds == set->measured / set->runs ? "" : "up to ", set->most_seeds);
    else if (set->most > 0)
        used = snprintf(note, bytes, "Bands: %g %% intervals, bootstrap over %zu%s%.0zu sequences. ",
                        100 * FL_BOOTSTRAP_LEVEL, set->fewest, set->most > set->fewest ? " to " : "",
                        set->most > set->fewest ? set->most : 0);
    if (set->left_out > 0)
        snprintf(note + used, bytes - (size_t)used,
                 "Not drawn: the linear part off, which is another curve for each of %zu exact sets.",
                 set->left_out);
}

static fl_status draw(const fl_plot_request *request, const char *name, const char *title,
                      const fl_curve_spec *specs, curve_set *set, fl_error *error) {
    fl_figure_series *series = NULL;
    fl_figure_reference reference;
    fl_figure_view views[FL_FIGURE_MOST_VIEWS];
    char own[TITLE_BYTES], note[NOTE_BYTES];
    FL_TRY(FL_ALLOCATE(&series, set->views * set->count, error));
    fl_status status = FL_OK;
    for (size_t v = 0; v < set->views; v++) {
        const fl_curve_spec *spec = &specs[v];
        bool numbered = spec->x_path == NULL || set->placed[v];
        fill_series(set, v, series + v * set->count);
        views[v] = (fl_figure_view){.csv = spec->csv,
                                    .x_label = numbered ? spec->x_label : "place in order",
                                    .y_label = spec->y_label,
                                    .log_x = spec->log_x && set->placed[v],
                                    .log_y = spec->log_y,
                                    .marks = spec->marks,
                                    .whole_x = spec->whole_x || !numbered || spec->x_path == NULL,
                                    .points = set->points[v],
                                    .x = set->x[v],
                                    .series_count = set->count,
                                    .series = series + v * set->count,
                                    .references = &reference};
        FL_TRY_DONE(status, find_reference(request, spec, set, &reference, &views[v].reference_count, error));
    }
    snprintf(own, sizeof own, "%s", title);
    if (set->measured < request->set->count)
        snprintf(own, sizeof own, "%s (%zu of %zu runs)", title, set->measured, request->set->count);
    make_note(set, note, sizeof note);
    const fl_figure figure = {
        .name = name,
        .title = fl_plot_title(request, own),
        .note = note,
        .panel_count = set->facets.panel_count,
        .panel_titles = set->facets.panel_count > 1 ? (const char *const *)set->facets.titles : NULL,
        .entry_count = set->facets.entry_count,
        .entries = set->facets.entries,
        .view_count = set->views,
        .views = views};
    status = fl_plot_figure(request, &figure, error);
done:
    fl_memory_free(series);
    return status;
}

fl_status fl_plot_curves(const fl_plot_request *request, const char *name, const char *title,
                         const fl_curve_spec *specs, size_t count, fl_error *error) {
    curve_set set;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, make_room(&set, request, count, error));
    FL_TRY_DONE(status, read_all(specs, &set, error));
    for (size_t v = 0; v < count; v++) {
        FL_TRY_DONE(status, align(&set, v, error));
        if (specs[v].x_path != NULL) FL_TRY_DONE(status, find_places(&set, v, &specs[v], error));
    }
    FL_TRY_DONE(status, make_facets(request, &set, error));
    status = draw(request, name, title, specs, &set, error);
done:
    release(&set);
    return status;
}
