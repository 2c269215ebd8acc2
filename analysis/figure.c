#include "analysis/figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/figure_axis.h"
#include "analysis/figure_legend.h"
#include "analysis/figure_style.h"
#include "analysis/gnuplot.h"
#include "analysis/output_file.h"
#include "analysis/text_width.h"
#include "harness/base/memory.h"

enum { PATH_BYTES = 4096, FAR = 64 };

static const double edge = 6, gap = 12, tick_gap = 9, band_opacity = 0.18, curve_line = 1.5;
static const char dark_grey[] = "#606060", light_grey[] = "#b0b0b0", black[] = "#000000";

/* Looks. */

enum { GREYS = 3 };

static const char *colour_of(const fl_figure_entry *entry) {
    static const char *const greys[GREYS] = {"#707070", "#a0a0a0", "#484848"};
    switch (entry->role) {
    case FL_FIGURE_CURVE:
        return fl_figure_colour(entry->colour);
    case FL_FIGURE_BASELINE:
        return greys[entry->colour % GREYS];
    case FL_FIGURE_CHANCE:
        return light_grey;
    case FL_FIGURE_FULL:
        break;
    }
    return black;
}

static int shape_of(const fl_figure_entry *entry) {
    static const int baselines[FL_FIGURE_DASHES] = {2, 1, 6, 4, 8, 12},
                     full[FL_FIGURE_DASHES] = {3, 7, 5, 9, 11, 13};
    if (entry->role == FL_FIGURE_BASELINE)
        return baselines[(entry->dash + FL_FIGURE_DASHES - 1) % FL_FIGURE_DASHES];
    if (entry->role == FL_FIGURE_FULL) return full[entry->dash % FL_FIGURE_DASHES];
    return fl_figure_point(entry->colour, entry->dash);
}

static double point_size(const fl_figure_view *view) {
    return view->scattered ? 0.9 : 0.55;
}

/* Numbers. */

static void write_columns(FILE *stream, const fl_figure_view *view) {
    fl_output_csv_text(stream, view->x_label);
    for (size_t s = 0; s < view->series_count; s++) {
        fputc(',', stream);
        fl_output_csv_text(stream, view->series[s].name);
        for (int end = 0; end < 2 && view->series[s].low != NULL; end++) {
            char name[1024];
            snprintf(name, sizeof name, "%s: %s", view->series[s].name, end == 0 ? "low" : "high");
            fputc(',', stream);
            fl_output_csv_text(stream, name);
        }
    }
    for (size_t i = 0; i < view->reference_count; i++) {
        fputc(',', stream);
        fl_output_csv_text(stream, view->references[i].name);
    }
    fputc('\n', stream);
}

static void write_cell(FILE *stream, double number) {
    fputc(',', stream);
    fl_output_csv_number(stream, number);
}

static fl_status write_numbers(const fl_figure_view *view, const char *folder, fl_error *error) {
    fl_output_file file;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.csv", folder, view->csv);
    FL_TRY(fl_output_file_open(path, &file, error));
    write_columns(file.stream, view);
    for (size_t p = 0; p < view->points; p++) {
        fl_output_csv_number(file.stream, view->x[p]);
        for (size_t s = 0; s < view->series_count; s++) {
            const fl_figure_series *series = &view->series[s];
            write_cell(file.stream, series->y[p]);
            if (series->low == NULL) continue;
            write_cell(file.stream, series->low[p]);
            write_cell(file.stream, series->high[p]);
        }
        for (size_t i = 0; i < view->reference_count; i++) write_cell(file.stream, view->references[i].y);
        fputc('\n', file.stream);
    }
    return fl_output_file_close(&file, error);
}

/* The CSV's column of a series, counted from 1. */
static size_t column_of(const fl_figure_view *view, size_t index) {
    size_t column = 2;
    for (size_t s = 0; s < index; s++) column += view->series[s].low != NULL ? 3 : 1;
    return column;
}

/* Layout: all panels are equally large. */

typedef struct axes {
    fl_axis x, y;
} axes;

typedef struct layout {
    size_t columns, rows; /* of panels */
    double font, width, title, tick_width[FL_FIGURE_MOST_VIEWS];
    double left, top, panel_width, panel_height, column_pitch, below, x_name, legend, note, height;
    axes axes[FL_FIGURE_MOST_VIEWS];
    fl_legend_entry *entries; /* [entry_count] */
} layout;

static bool is_in_panel(const fl_figure_series *series, size_t panel) {
    return series->panels == NULL || series->panels[panel];
}

static void fit_axes(const fl_figure_view *view, double panel_width, double font, axes *out) {
    fl_axis_span x = {0}, y = {0};
    fl_axis_span_add(&x, view->x, view->points);
    for (size_t s = 0; s < view->series_count; s++) {
        fl_axis_span_add(&y, view->series[s].y, view->points);
        if (view->series[s].low == NULL) continue;
        fl_axis_span_add(&y, view->series[s].low, view->points);
        fl_axis_span_add(&y, view->series[s].high, view->points);
    }
    for (size_t i = 0; i < view->reference_count; i++) fl_axis_span_add(&y, &view->references[i].y, 1);
    fl_axis_fit(&x,
                &(fl_axis_wish){.log = view->log_x,
                                .tight = true,
                                .whole = view->whole_x,
                                .numbers = 6,
                                .length = panel_width,
                                .font = font},
                &out->x);
    fl_axis_fit(&y, &(fl_axis_wish){.log = view->log_y, .numbers = 5}, &out->y);
}

/* Room at the sides, so that no mark lies on the frame. */
static void widen(fl_axis *axis, double share) {
    if (axis->log) {
        double factor = pow(axis->high / axis->low, share);
        axis->low /= factor;
        axis->high *= factor;
    } else {
        double room = share * (axis->high - axis->low);
        axis->low -= room;
        axis->high += room;
    }
}

static void choose_grid(const fl_figure *figure, layout *l) {
    bool narrow = l->width < 320;
    size_t count = figure->panel_count * figure->view_count;
    if (figure->view_count > 1)
        l->columns = narrow ? 1 : figure->view_count;
    else
        l->columns = count == 1 ? 1 : narrow ? (count == 2 ? 1 : 2) : count == 2 || count == 4 ? 2 : 3;
    l->rows = (count + l->columns - 1) / l->columns;
}

/* Whether a panel's y numbers stand at its own axis: views differ in them, panels of one view share them. */
static bool is_numbered(const fl_figure *figure, const layout *l, size_t column) {
    return column == 0 || (figure->view_count > 1 && l->columns > 1);
}

static double numbers_of(const layout *l, size_t view) {
    return l->tick_width[view] + tick_gap + 1.3 * l->font;
}

static void place_columns(const fl_figure *figure, layout *l) {
    double widest = 0;
    for (size_t v = 0; v < figure->view_count; v++) {
        l->tick_width[v] = fl_axis_number_width(&l->axes[v].y, l->font);
        if (numbers_of(l, v) > widest) widest = numbers_of(l, v);
    }
    bool each = figure->view_count > 1 && l->columns > 1;
    double columns = (double)l->columns, between = each ? widest + gap : gap, ends = 0;
    /* The last number of one axis and the first of the next stand between them, each with half its width. */
    for (size_t v = 0; v < figure->view_count; v++)
        ends = fmax(ends, fl_axis_number_width(&l->axes[v].x, l->font));
    if (between < ends + 6) between = ends + 6;
    l->left = edge + widest;
    l->panel_width = (l->width - l->left - edge - fmax(8, ends / 2) - between * (columns - 1)) / columns;
    l->column_pitch = l->panel_width + between;
}

/* At least as high as the names of its y axes are long. */
static double panel_height(const fl_figure *figure, const layout *l) {
    double share = l->columns == 1 ? (l->width < 320 ? 0.62 : 0.45) : 0.68, least = 84;
    if (figure->panel_count == 1) least = 110;
    for (size_t v = 0; v < figure->view_count; v++) {
        const char *name = figure->views[v].y_label;
        least = fmax(least, fmin(fl_text_width(name, strlen(name), l->font) + 4, 200));
    }
    return fmax(least, fmin(share * l->panel_width, 230));
}

/* Room for the names of the x axes, broken to the width of a panel. */
static double x_name_height(const fl_figure *figure, const layout *l) {
    const fl_page_type below = {.size = l->font};
    double most = 0;
    for (size_t v = 0; v < figure->view_count; v++)
        most = fmax(most, fl_page_text_height(figure->views[v].x_label, &below, l->panel_width));
    return most;
}

/* What a reader must know about the series of an entry, over all of them. */
static const char *note_of(const fl_figure *figure, const layout *l, size_t entry) {
    bool shown = false, below = false, zero = false, diverged = false, any = false;
    for (size_t v = 0; v < figure->view_count; v++) {
        const fl_figure_view *view = &figure->views[v];
        for (size_t i = 0; i < view->reference_count; i++) any = any || view->references[i].entry == entry;
        for (size_t s = 0; s < view->series_count; s++) {
            const fl_figure_series *series = &view->series[s];
            for (size_t p = 0; series->entry == entry && p < series->length; p++) {
                double y = series->y[p];
                shown = shown || (isfinite(y) && (y >= l->axes[v].y.low || !l->axes[v].y.log));
                below = below || y > 0;
                zero = zero || y == 0;
                diverged = diverged || (series->diverged && !isfinite(y));
            }
        }
    }
    if (any) return NULL;
    if (diverged) return shown ? "diverged in part" : "diverged";
    if (shown) return NULL;
    if (below) return "rounding: below the axis";
    return zero ? "zero everywhere" : "no values";
}

static void fill_legend(const fl_figure *figure, layout *l) {
    const fl_figure_view *view = &figure->views[0];
    for (size_t i = 0; i < figure->entry_count; i++) {
        const fl_figure_entry *entry = &figure->entries[i];
        bool reference = false;
        for (size_t r = 0; r < view->reference_count; r++)
            reference = reference || view->references[r].entry == i;
        l->entries[i] = (fl_legend_entry){.label = entry->label,
                                          .note = note_of(figure, l, i),
                                          .colour = colour_of(entry),
                                          .dash = fl_figure_dash(entry->dash),
                                          .line = view->unjoined && !reference ? 0 : curve_line,
                                          .shape = view->marks && !reference ? shape_of(entry) : 0,
                                          .point = point_size(view)};
    }
}

static fl_legend legend_of(const fl_figure *figure, const layout *l) {
    return (fl_legend){figure->entry_count, l->entries, l->width - l->left - edge};
}

/* Whether every panel has its own numbers at x: views stand below each other. */
static bool has_own_x(const fl_figure *figure, const layout *l) {
    return figure->view_count > 1 && l->columns == 1;
}

/* Room for the titles of a row of panels. */
static double row_title(const fl_figure *figure, const layout *l, size_t row) {
    const fl_page_type head = {.size = l->font, .bold = true};
    double most = 0;
    for (size_t c = row * l->columns; figure->panel_titles != NULL && c < (row + 1) * l->columns; c++) {
        size_t panel = c / figure->view_count;
        if (panel >= figure->panel_count || c % figure->view_count != 0) continue;
        double own = fl_page_text_height(figure->panel_titles[panel], &head, l->panel_width);
        if (own > most) most = own;
    }
    return most > 0 ? most + 2 : 0;
}

/* Of the axes of a row of panels. */
static double row_top(const fl_figure *figure, const layout *l, size_t row) {
    double y = l->top + row_title(figure, l, 0);
    for (size_t r = 0; r < row; r++)
        y += l->panel_height + (has_own_x(figure, l) ? l->below + l->x_name : 0) + gap +
             row_title(figure, l, r + 1);
    return y;
}

static void choose_heights(const fl_figure *figure, layout *l) {
    double inner = l->width - 2 * edge;
    const fl_page_type title = {.size = l->font + 1, .bold = true}, small = {.size = l->font - 1};
    const fl_legend legend = legend_of(figure, l);
    l->title = fl_page_text_height(figure->title, &title, inner);
    l->panel_height = panel_height(figure, l);
    l->below = tick_gap + 1.3 * l->font; /* numbers */
    l->x_name = x_name_height(figure, l);
    l->top = edge + l->title + (l->title > 0 ? 5 : 2);
    l->legend = fl_legend_height(&legend, l->font);
    l->note = fl_page_text_height(figure->note, &small, inner);
    double last = row_top(figure, l, l->rows - 1) + l->panel_height + l->below + l->x_name;
    l->height = last + 5 + l->legend + (l->note > 0 ? 4 : 0) + l->note + edge;
}

static void lay_out(const fl_figure *figure, const fl_figure_look *look, layout *l) {
    l->width = fl_page_width(look);
    l->font = fl_page_font(look);
    choose_grid(figure, l);
    for (size_t v = 0; v < figure->view_count; v++) {
        fit_axes(&figure->views[v], l->width / (double)l->columns - 50, l->font, &l->axes[v]);
        if (figure->views[v].scattered) widen(&l->axes[v].x, 0.04);
        if (figure->views[v].scattered) widen(&l->axes[v].y, 0.04);
    }
    place_columns(figure, l);
    fill_legend(figure, l);
    choose_heights(figure, l);
}

/* Script. */

typedef struct panel {
    size_t index, view, column, row;
    double left, top, right, bottom;
} panel;

static panel find_panel(const fl_figure *figure, const layout *l, size_t cell) {
    panel p = {.index = cell / figure->view_count,
               .view = cell % figure->view_count,
               .column = cell % l->columns,
               .row = cell / l->columns};
    p.left = l->left + (double)p.column * l->column_pitch;
    p.right = p.left + l->panel_width;
    p.top = row_top(figure, l, p.row);
    p.bottom = p.top + l->panel_height;
    return p;
}

static double legend_top(const layout *l) {
    return l->height - edge - l->note - (l->note > 0 ? 4 : 0) - l->legend;
}

/* Titles, names of axes, legend and note: drawn with the first panel. */
static void write_texts(fl_page *page, const fl_figure *figure, const layout *l) {
    double inner = l->width - 2 * edge, y = l->height - edge - l->note;
    const fl_page_type title = {.size = l->font + 1, .bold = true},
                       small = {.size = l->font - 1, .colour = dark_grey};
    const fl_legend legend = legend_of(figure, l);
    fl_page_text(page, edge, edge, inner, figure->title, &title);
    fl_page_text(page, edge, y, inner, figure->note, &small);
    fl_legend_draw(page, &legend, l->left, legend_top(l));
}

static bool has_panel_below(const fl_figure *figure, const layout *l, size_t cell) {
    return cell + l->columns < figure->panel_count * figure->view_count;
}

static void write_names(fl_page *page, const fl_figure *figure, const layout *l, size_t cell) {
    panel p = find_panel(figure, l, cell);
    const fl_figure_view *view = &figure->views[p.view];
    const fl_page_type head = {.size = l->font, .bold = true},
                       below = {.size = l->font, .align = FL_PAGE_CENTRE},
                       beside = {.size = l->font, .align = FL_PAGE_CENTRE, .upright = true};
    if (figure->panel_titles != NULL && p.view == 0) {
        const char *title = figure->panel_titles[p.index];
        double height = fl_page_text_height(title, &head, l->panel_width);
        fl_page_text(page, p.left, p.top - 2 - height, l->panel_width, title, &head);
    }
    if (has_own_x(figure, l) || !has_panel_below(figure, l, cell))
        fl_page_text(page, (p.left + p.right) / 2, p.bottom + l->below - 2, l->panel_width, view->x_label,
                     &below);
    if (is_numbered(figure, l, p.column))
        fl_page_text(page, p.left - numbers_of(l, p.view), (p.top + p.bottom) / 2, l->height, view->y_label,
                     &beside);
}

/* Values that are not finite, of a series that diverged, as marks at the upper edge. Those that would lie on
 * each other stand side by side; one word says what they are. */
static void write_edge_marks(fl_page *page, const fl_figure *figure, const axes *at, const panel *p) {
    const fl_figure_view *view = &figure->views[p->view];
    double taken[FAR], last = 0;
    size_t count = 0;
    for (size_t s = 0; s < view->series_count && count < FAR; s++) {
        const fl_figure_series *series = &view->series[s];
        size_t first = 0;
        while (first < series->length && isfinite(series->y[first])) first++;
        if (!series->diverged || first == series->length || !is_in_panel(series, p->index)) continue;
        double x = p->left + 4 + fl_axis_place(&at->x, view->x[first]) * (p->right - p->left - 8);
        for (size_t i = 0; i < count; i++) {
            if (fabs(taken[i] - x) < 7) x = taken[i] + 7;
        }
        taken[count++] = x;
        if (x > last) last = x;
        fl_page_point(page, x, p->top + 3, 9, 0.7, colour_of(&figure->entries[series->entry]));
    }
    if (count == 0) return;
    bool right = last + 50 < p->right;
    const fl_page_type word = {.size = page->font - 1, .align = right ? FL_PAGE_LEFT : FL_PAGE_RIGHT};
    fl_page_text(page, right ? last + 6 : taken[0] - 6, p->top - 2, p->right - p->left, "diverged", &word);
}

static bool is_drawn(const fl_figure_view *view, const fl_figure_series *series, const fl_axis *y) {
    for (size_t p = 0; p < view->points; p++) {
        if (isfinite(series->y[p]) && (!y->log || series->y[p] > 0)) return true;
    }
    return false;
}

static void write_band(FILE *stream, const fl_figure *figure, const fl_figure_view *view, const fl_axis *y,
                       size_t index) {
    const fl_figure_series *series = &view->series[index];
    const char *colour = colour_of(&figure->entries[series->entry]);
    size_t column = column_of(view, index);
    fprintf(stream, ", \\\n     '%s.csv' skip 1 using 1:", view->csv);
    if (view->scattered) {
        fprintf(stream, "%zu:%zu:%zu with yerrorbars lc rgb '%s' lw 1 pt 7 ps 0", column, column + 1,
                column + 2, colour);
        return;
    }
    /* On a logarithmic axis what reaches 0 reaches its end, and what is 0 is not there. */
    if (y->log)
        fprintf(stream, "($%zu>0?($%zu>%.9g?$%zu:%.9g):NaN):($%zu>0?$%zu:NaN)", column + 2, column + 1,
                y->low, column + 1, y->low, column + 2, column + 2);
    else
        fprintf(stream, "%zu:%zu", column + 1, column + 2);
    fprintf(stream, " with filledcurves lc rgb '%s' fs transparent solid %g noborder", colour, band_opacity);
}

static void write_curve(FILE *stream, const fl_figure *figure, const fl_figure_view *view, size_t index) {
    const fl_figure_entry *entry = &figure->entries[view->series[index].entry];
    fprintf(stream, ", \\\n     '%s.csv' skip 1 using 1:%zu with %s lc rgb '%s' dt %s lw %g", view->csv,
            column_of(view, index),
            view->unjoined ? "points"
            : view->marks  ? "linespoints"
                           : "lines",
            colour_of(entry), fl_figure_dash(entry->dash), curve_line);
    if (view->marks) fprintf(stream, " pt %d ps %g", shape_of(entry), point_size(view));
}

/* Bands lie below all curves, and baselines below what has to beat them. NaN is a plot too: a panel of which
 * nothing can be drawn keeps its axes. */
static void write_plot(FILE *stream, const fl_figure *figure, const layout *l, const panel *p) {
    const fl_figure_view *view = &figure->views[p->view];
    const fl_axis *y = &l->axes[p->view].y;
    fputs("plot NaN", stream);
    for (size_t i = 0; i < view->reference_count; i++) {
        const fl_figure_entry *entry = &figure->entries[view->references[i].entry];
        fprintf(stream, ", \\\n     %.9g with lines lc rgb '%s' dt %s lw %g", view->references[i].y,
                colour_of(entry), fl_figure_dash(entry->dash), curve_line);
    }
    for (size_t s = 0; s < view->series_count; s++) {
        if (view->series[s].low != NULL && is_in_panel(&view->series[s], p->index))
            write_band(stream, figure, view, y, s);
    }
    for (int curves = 0; curves < 2; curves++) {
        for (size_t s = 0; s < view->series_count; s++) {
            const fl_figure_series *series = &view->series[s];
            bool is_curve = figure->entries[series->entry].role == FL_FIGURE_CURVE;
            if (is_curve == (curves == 1) && is_in_panel(series, p->index) && is_drawn(view, series, y))
                write_curve(stream, figure, view, s);
        }
    }
    fputc('\n', stream);
}

static void write_panel(fl_page *page, const fl_figure *figure, const layout *l, size_t cell) {
    panel p = find_panel(figure, l, cell);
    const axes *at = &l->axes[p.view];
    write_names(page, figure, l, cell);
    write_edge_marks(page, figure, at, &p);
    fl_page_place(page, p.left, p.top, p.right, p.bottom);
    fputs("set grid ytics lt 1 lc rgb '#e0e0e0' lw 0.7\n", page->stream);
    fl_axis_write(page->stream, &at->x, 'x', has_own_x(figure, l) || !has_panel_below(figure, l, cell));
    fl_axis_write(page->stream, &at->y, 'y', is_numbered(figure, l, p.column));
    write_plot(page->stream, figure, l, &p);
    fl_page_clear(page);
}

static fl_status write_script(const fl_figure *figure, const layout *l, const char *folder,
                              const fl_figure_look *look, fl_error *error) {
    fl_output_file file;
    fl_page page;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.gp", folder, figure->name);
    FL_TRY(fl_output_file_open(path, &file, error));
    fl_page_open(&page, file.stream, figure->name, look, l->height);
    write_texts(&page, figure, l);
    for (size_t cell = 0; cell < figure->panel_count * figure->view_count; cell++)
        write_panel(&page, figure, l, cell);
    const fl_legend legend = legend_of(figure, l);
    fl_legend_plot(&page, &legend, l->left, legend_top(l));
    fl_page_close(&page);
    return fl_output_file_close(&file, error);
}

static bool look_alike(const fl_figure_entry *a, const fl_figure_entry *b) {
    return strcmp(colour_of(a), colour_of(b)) == 0 &&
           strcmp(fl_figure_dash(a->dash), fl_figure_dash(b->dash)) == 0;
}

static fl_status check(const fl_figure *figure, const fl_figure_look *look, fl_error *error) {
    if (!fl_figure_knows_format(look->format)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "pictures are png, svg or pdf, not \"%s\"",
                            look->format);
    }
    bool empty = figure->panel_count == 0;
    for (size_t v = 0; v < figure->view_count; v++)
        empty = empty || figure->views[v].points == 0 || figure->views[v].series_count == 0;
    if (empty) return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: nothing to draw", figure->name);
    for (size_t i = 0; i < figure->entry_count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (look_alike(&figure->entries[i], &figure->entries[j]))
                return fl_error_set(error, FL_ERROR_ARGUMENT,
                                    "%s: \"%s\" and \"%s\" would look alike: too many curves in one panel",
                                    figure->name, figure->entries[j].label, figure->entries[i].label);
        }
    }
    return FL_OK;
}

fl_status fl_figure_write(const fl_figure *figure, const char *folder, const fl_figure_look *look,
                          fl_error *error) {
    char script[PATH_BYTES];
    layout l = {0};
    FL_TRY(check(figure, look, error));
    for (size_t v = 0; v < figure->view_count; v++) FL_TRY(write_numbers(&figure->views[v], folder, error));
    FL_TRY(FL_ALLOCATE(&l.entries, figure->entry_count + 1, error));
    lay_out(figure, look, &l);
    fl_status status = write_script(figure, &l, folder, look, error);
    fl_memory_free(l.entries);
    FL_TRY(status);
    snprintf(script, sizeof script, "%s.gp", figure->name);
    return fl_gnuplot_run(folder, script, error);
}
