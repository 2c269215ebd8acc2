#include "analysis/figure_dots.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/figure_axis.h"
#include "analysis/figure_legend.h"
#include "analysis/figure_style.h"
#include "analysis/gnuplot.h"
#include "analysis/output_file.h"
#include "analysis/text_width.h"

enum { PATH_BYTES = 4096, MOST_ENTRIES = 4, LABEL_BYTES = 128 };

static const double edge = 6, tick_gap = 9, row_gap = 3, most_names = 0.45;
static const char grey[] = "#a0a0a0", black[] = "#000000";

static fl_status write_numbers(const fl_dots *dots, const char *folder, fl_error *error) {
    fl_output_file file;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.csv", folder, dots->name);
    FL_TRY(fl_output_file_open(path, &file, error));
    fputs("run,value,low,high,linear_off,full_model,chance\n", file.stream);
    for (size_t i = 0; i < dots->rows; i++) {
        const double numbers[] = {dots->value[i],      dots->low[i], dots->high[i],
                                  dots->linear_off[i], dots->full,   dots->chance};
        fl_output_csv_text(file.stream, dots->row_names[i]);
        for (size_t c = 0; c < sizeof numbers / sizeof numbers[0]; c++) {
            fputc(',', file.stream);
            fl_output_csv_number(file.stream, numbers[c]);
        }
        fputc('\n', file.stream);
    }
    return fl_output_file_close(&file, error);
}

static bool any(const double *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (isfinite(values[i])) return true;
    }
    return false;
}

typedef struct layout {
    double width, font, names, left, right, top, bottom, legend, height;
    fl_axis axis;
    char run[LABEL_BYTES];
    fl_legend_entry entries[MOST_ENTRIES];
    size_t entry_count;
} layout;

static void fit_axis(const fl_dots *dots, layout *l) {
    fl_axis_span span = {0};
    fl_axis_span_add(&span, dots->value, dots->rows);
    fl_axis_span_add(&span, dots->linear_off, dots->rows);
    fl_axis_span_add(&span, &dots->full, 1);
    fl_axis_span_add(&span, &dots->chance, 1);
    fl_axis_span_add(&span, dots->high, dots->rows);
    /* On a logarithmic axis a bar may leave the picture. */
    if (!dots->log_x || !fl_axis_span_is_wide(&span)) fl_axis_span_add(&span, dots->low, dots->rows);
    fl_axis_fit(
        &span,
        &(fl_axis_wish){.log = dots->log_x, .numbers = 6, .length = l->right - l->left, .font = l->font},
        &l->axis);
}

static void fill_legend(const fl_dots *dots, layout *l) {
    bool bars = any(dots->low, dots->rows);
    snprintf(l->run, sizeof l->run, "run%s%s", bars ? ", " : "", bars ? dots->bar : "");
    l->entries[l->entry_count++] = (fl_legend_entry){.label = l->run,
                                                     .colour = fl_figure_colour(0),
                                                     .dash = "1",
                                                     .line = bars ? 1.2 : 0,
                                                     .shape = 7,
                                                     .point = 0.8};
    if (any(dots->linear_off, dots->rows))
        l->entries[l->entry_count++] = (fl_legend_entry){.label = "linear part off",
                                                         .colour = fl_figure_colour(1),
                                                         .dash = "1",
                                                         .shape = 12,
                                                         .point = 0.9};
    if (isfinite(dots->full))
        l->entries[l->entry_count++] =
            (fl_legend_entry){.label = "full model", .colour = black, .dash = "1", .line = 1.2};
    if (isfinite(dots->chance))
        l->entries[l->entry_count++] =
            (fl_legend_entry){.label = "chance", .colour = black, .dash = fl_figure_dash(2), .line = 1.2};
}

static double row_height(const fl_dots *dots, const layout *l, size_t row) {
    const fl_page_type type = {.size = l->font};
    return fl_page_text_height(dots->row_names[row], &type, l->names) + row_gap;
}

static fl_legend legend_of(const layout *l) {
    return (fl_legend){l->entry_count, l->entries, l->width - 2 * edge};
}

static void lay_out(const fl_dots *dots, const fl_figure_look *look, layout *l) {
    const fl_page_type title = {.size = fl_page_font(look) + 1, .bold = true},
                       below = {.size = fl_page_font(look)};
    l->width = fl_page_width(look);
    l->font = fl_page_font(look);
    for (size_t i = 0; i < dots->rows; i++) {
        double widest = 0;
        fl_text_lines(dots->row_names[i], l->font, most_names * l->width, &widest);
        if (widest + 1 > l->names) l->names = widest + 1;
    }
    l->left = edge + l->names + 8;
    l->right = l->width - edge - 12;
    fit_axis(dots, l);
    fill_legend(dots, l);
    const fl_legend legend = legend_of(l);
    l->legend = fl_legend_height(&legend, l->font);
    l->top = edge + fl_page_text_height(dots->title, &title, l->width - 2 * edge) + 5;
    l->bottom = l->top;
    for (size_t i = 0; i < dots->rows; i++) l->bottom += row_height(dots, l, i);
    l->height = l->bottom + tick_gap + 1.3 * l->font +
                fl_page_text_height(dots->x_label, &below, l->right - l->left) + 6 + l->legend + edge;
}

static double legend_top(const layout *l) {
    return l->height - edge - l->legend;
}

static void write_texts(fl_page *page, const fl_dots *dots, const layout *l) {
    const fl_page_type title = {.size = l->font + 1, .bold = true},
                       name = {.size = l->font, .align = FL_PAGE_RIGHT},
                       below = {.size = l->font, .align = FL_PAGE_CENTRE},
                       word = {.size = l->font - 1, .align = FL_PAGE_RIGHT};
    const fl_legend legend = legend_of(l);
    fl_page_text(page, edge, edge, l->width - 2 * edge, dots->title, &title);
    fl_page_text(page, (l->left + l->right) / 2, l->bottom + tick_gap + 1.3 * l->font - 2, l->right - l->left,
                 dots->x_label, &below);
    fl_legend_draw(page, &legend, edge, legend_top(l));
    double y = l->top;
    for (size_t i = 0; i < dots->rows; i++) {
        double height = row_height(dots, l, i);
        fl_page_text(page, l->left - 8, y + row_gap / 2, l->names, dots->row_names[i], &name);
        if (!isfinite(dots->value[i])) {
            fl_page_text(page, l->right - 8, y + height / 2 - 0.65 * word.size, l->right - l->left,
                         "diverged", &word);
            fl_page_point(page, l->right - 2, y + height / 2, 5, 0.5, fl_figure_colour(0));
        }
        y += height;
    }
}

/* Rows as y: their middles, counted from the top in points. */
static void write_rows(FILE *stream, const fl_dots *dots, const layout *l) {
    double y = 0;
    fputs("array middle[", stream);
    fprintf(stream, "%zu] = [", dots->rows);
    for (size_t i = 0; i < dots->rows; i++) {
        double height = row_height(dots, l, i);
        fprintf(stream, "%s%.4g", i > 0 ? ", " : "", y + height / 2);
        y += height;
    }
    fprintf(stream, "]\nset yrange [%.6g:0]\nset ytics scale 0 (", l->bottom - l->top);
    y = 0;
    for (size_t i = 0; i < dots->rows; i++) {
        double height = row_height(dots, l, i);
        fprintf(stream, "%s'' %.6g", i > 0 ? ", " : "", y + height / 2);
        y += height;
    }
    fputs(")\n", stream);
}

/* The two ends of an upright line, as data: every terminal knows its dashes then. */
static void write_ends(FILE *stream, const char *name, double at, const layout *l) {
    if (isfinite(at))
        fprintf(stream, "$%s << end\n%.9g,0\n%.9g,%.6g\nend\n", name, at, at, l->bottom - l->top);
}

static void write_upright(FILE *stream, const char *name, double at, const char *dash) {
    if (isfinite(at))
        fprintf(stream, ", \\\n     $%s using 1:2 with lines lc rgb '%s' dt %s lw 1.2", name, black, dash);
}

static void write_plot(FILE *stream, const fl_dots *dots) {
    /* NaN is a plot too: with no value at all the page is drawn. */
    fputs("plot NaN", stream);
    write_upright(stream, "full", dots->full, "1");
    write_upright(stream, "chance", dots->chance, fl_figure_dash(2));
    if (any(dots->linear_off, dots->rows)) {
        fprintf(stream,
                ", \\\n     '%s.csv' skip 1 using 5:(middle[$0+1]):($2-$5):(0) with vectors nohead lc rgb "
                "'%s' lw "
                "1.2, \\\n     '' skip 1 using 5:(middle[$0+1]) with points pt 12 ps 0.9 lw 1.2 lc rgb '%s'",
                dots->name, grey, fl_figure_colour(1));
    }
    if (any(dots->low, dots->rows))
        fprintf(
            stream,
            ", \\\n     '%s.csv' skip 1 using 2:(middle[$0+1]):3:4 with xerrorbars pt 7 ps 0 lw 1.2 lc rgb "
            "'%s'",
            dots->name, fl_figure_colour(0));
    if (any(dots->value, dots->rows))
        fprintf(stream,
                ", \\\n     '%s.csv' skip 1 using 2:(middle[$0+1]) with points pt 7 ps 0.8 lc rgb '%s'",
                dots->name, fl_figure_colour(0));
    fputc('\n', stream);
}

static fl_status write_script(const fl_dots *dots, const layout *l, const char *folder,
                              const fl_figure_look *look, fl_error *error) {
    fl_output_file file;
    fl_page page;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.gp", folder, dots->name);
    FL_TRY(fl_output_file_open(path, &file, error));
    fl_page_open(&page, file.stream, dots->name, look, l->height);
    write_texts(&page, dots, l);
    fl_page_place(&page, l->left, l->top, l->right, l->bottom);
    fputs("set border 1\nset grid ytics lt 1 lc rgb '#e8e8e8' lw 0.7\n", file.stream);
    fl_axis_write(file.stream, &l->axis, 'x', true);
    write_rows(file.stream, dots, l);
    write_ends(file.stream, "full", dots->full, l);
    write_ends(file.stream, "chance", dots->chance, l);
    write_plot(file.stream, dots);
    fl_page_clear(&page);
    const fl_legend legend = legend_of(l);
    fl_legend_plot(&page, &legend, edge, legend_top(l));
    fl_page_close(&page);
    return fl_output_file_close(&file, error);
}

fl_status fl_dots_write(const fl_dots *dots, const char *folder, const fl_figure_look *look,
                        fl_error *error) {
    if (dots->rows == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: nothing to draw", dots->name);
    char script[PATH_BYTES];
    layout l = {0};
    FL_TRY(write_numbers(dots, folder, error));
    lay_out(dots, look, &l);
    FL_TRY(write_script(dots, &l, folder, look, error));
    snprintf(script, sizeof script, "%s.gp", dots->name);
    return fl_gnuplot_run(folder, script, error);
}
