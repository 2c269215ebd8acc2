#include "analysis/figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/figure_style.h"
#include "analysis/gnuplot.h"
#include "analysis/output_file.h"

enum {
    PATH_BYTES = 4096,
    LEGEND_ROW_PIXELS = 18,
    PLOT_PIXELS = 470,
    WIDTH_PIXELS = 900,
    MAX_LEGEND_COLUMNS = 3,
    LETTER_PIXELS = 8,
    SAMPLE_PIXELS = 70,
    MOST_WHOLE_TICS = 20,
    FEW_POINTS = 12
};

static const char grey[] = "#808080";

static double x_at(const fl_figure *figure, size_t point) {
    return figure->x != NULL ? figure->x[point] : (double)point;
}

static fl_status write_numbers(const fl_figure *figure, const char *path, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    FILE *stream = file.stream;
    fl_output_csv_text(stream, figure->x_label);
    for (size_t s = 0; s < figure->series_count; s++) {
        fputc(',', stream);
        fl_output_csv_text(stream, figure->series[s].label);
    }
    for (size_t i = 0; i < figure->reference_count; i++) {
        fputc(',', stream);
        fl_output_csv_text(stream, figure->references[i].label);
    }
    fputc('\n', stream);
    for (size_t p = 0; p < figure->points; p++) {
        fl_output_csv_number(stream, x_at(figure, p));
        for (size_t s = 0; s < figure->series_count; s++) {
            fputc(',', stream);
            fl_output_csv_number(stream, figure->series[s].y[p]);
        }
        for (size_t i = 0; i < figure->reference_count; i++) {
            fputc(',', stream);
            fl_output_csv_number(stream, figure->references[i].y);
        }
        fputc('\n', stream);
    }
    return fl_output_file_close(&file, error);
}

static void write_command(FILE *stream, const char *command, const char *text) {
    fprintf(stream, "set %s ", command);
    fl_figure_quote(stream, text);
    fputc('\n', stream);
}

static bool is_log_y(const fl_figure *figure) {
    double least = (double)NAN, most = (double)NAN;
    bool wide = false;
    for (size_t i = 0; i < figure->reference_count; i++)
        wide = fl_figure_spans_decades(&figure->references[i].y, 1, &least, &most);
    for (size_t s = 0; s < figure->series_count; s++)
        wide = fl_figure_spans_decades(figure->series[s].y, figure->points, &least, &most);
    return figure->log_y && wide;
}

static bool is_log_x(const fl_figure *figure) {
    double least = (double)NAN, most = (double)NAN;
    return figure->log_x && figure->x != NULL &&
           fl_figure_spans_decades(figure->x, figure->points, &least, &most);
}

static bool is_drawn(const fl_figure *figure, const fl_figure_series *series) {
    for (size_t p = 0; p < figure->points; p++) {
        if (isfinite(series->y[p]) && (!is_log_y(figure) || series->y[p] > 0)) return true;
    }
    return false;
}

static void write_title(FILE *stream, const fl_figure_series *series, bool drawn) {
    char title[512];
    snprintf(title, sizeof title, "%s%s", series->label, drawn ? "" : " (zero)");
    fputs(" title ", stream);
    fl_figure_quote(stream, title);
}

static void write_curve(FILE *stream, const fl_figure *figure, size_t index) {
    const fl_figure_series *series = &figure->series[index];
    const char *style = figure->kind == FL_FIGURE_MARKS ? "linespoints" : "lines";
    bool drawn = is_drawn(figure, series);
    if (drawn)
        fprintf(stream, "'%s.csv' skip 1 using 1:%zu with %s", figure->name, index + 2, style);
    else
        fprintf(stream, "NaN with %s", style);
    fprintf(stream, " lc rgb '%s' dt %s lw 2", series->is_baseline ? grey : fl_figure_colour(series->colour),
            fl_figure_dash(series->dash));
    if (figure->kind == FL_FIGURE_MARKS)
        fprintf(stream, " pt %d ps %s", fl_figure_point(series->colour, series->dash),
                figure->scattered ? "1.3" : "0.7");
    write_title(stream, series, drawn);
}

/* As many columns as fit: gnuplot drops what does not. */
static size_t legend_rows(const fl_figure *figure) {
    size_t longest = 1;
    for (size_t i = 0; i < figure->reference_count; i++) {
        size_t length = strlen(figure->references[i].label);
        if (length > longest) longest = length;
    }
    for (size_t s = 0; s < figure->series_count; s++) {
        size_t length = strlen(figure->series[s].label) + (is_drawn(figure, &figure->series[s]) ? 0 : 7);
        if (length > longest) longest = length;
    }
    size_t columns = WIDTH_PIXELS / (LETTER_PIXELS * longest + SAMPLE_PIXELS);
    if (columns > MAX_LEGEND_COLUMNS) columns = MAX_LEGEND_COLUMNS;
    if (columns == 0) columns = 1;
    return (figure->series_count + figure->reference_count + columns - 1) / columns;
}

static void write_terminal(FILE *stream, const fl_figure *figure, const char *format) {
    size_t height = PLOT_PIXELS + 30 + LEGEND_ROW_PIXELS * legend_rows(figure);
    fl_figure_start(stream, figure->name, format, WIDTH_PIXELS, height);
    write_command(stream, "title", figure->title);
    write_command(stream, "xlabel", figure->x_label);
    write_command(stream, "ylabel", figure->y_label);
    double legend = (double)(30 + LEGEND_ROW_PIXELS * legend_rows(figure));
    fprintf(stream, "set bmargin at screen %.4f\n", (legend + 60) / (double)height);
    fprintf(stream, "set key at screen 0.5,0.01 center bottom Left reverse maxrows %zu samplen 3\n",
            legend_rows(figure) > 0 ? legend_rows(figure) : 1);
    fputs("set grid ytics lt 1 lc rgb '#d8d8d8' lw 1\nset border 3\nset tics nomirror out\n", stream);
    if (is_log_y(figure)) fputs("set logscale y\nset format y '%g'\n", stream);
    if (is_log_x(figure)) fputs("set logscale x\n", stream);
}

/* x is 0, 1, 2, ... */
static bool is_counted(const fl_figure *figure) {
    for (size_t p = 0; p < figure->points; p++) {
        if (x_at(figure, p) != (double)p) return false;
    }
    return true;
}

static fl_status write_script(const fl_figure *figure, const char *path, const char *format,
                              fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    write_terminal(file.stream, figure, format);
    if (figure->scattered) {
        fputs("set offsets graph 0.04, graph 0.04, graph 0.04, graph 0.04\nset autoscale fix\n", file.stream);
        if (figure->whole_x)
            fprintf(file.stream, "set xtics %.0f\n",
                    ceil((x_at(figure, figure->points - 1) + 1) / MOST_WHOLE_TICS));
    } else if (figure->points > 1 && !is_log_x(figure)) {
        fprintf(file.stream, "set xrange [%.9g:%.9g]\n", x_at(figure, 0), x_at(figure, figure->points - 1));
        if (figure->points < FEW_POINTS && is_counted(figure)) fputs("set xtics 1\n", file.stream);
    }
    for (size_t s = 0; s < figure->series_count; s++) {
        fputs(s == 0 ? "plot " : ", \\\n     ", file.stream);
        write_curve(file.stream, figure, s);
    }
    for (size_t i = 0; i < figure->reference_count; i++) {
        fprintf(file.stream, ", \\\n     %.9g with lines lc rgb '%s' dt %s lw 1.5 title ",
                figure->references[i].y, grey, fl_figure_dash(i + 1));
        fl_figure_quote(file.stream, figure->references[i].label);
    }
    fputc('\n', file.stream);
    return fl_output_file_close(&file, error);
}

fl_status fl_figure_write(const fl_figure *figure, const char *folder, const char *format, fl_error *error) {
    if (!fl_figure_knows_format(format)) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "pictures are png, svg or pdf, not \"%s\"", format);
    }
    if (figure->points == 0 || figure->series_count == 0) {
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: nothing to draw", figure->name);
    }
    char path[PATH_BYTES], script[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.csv", folder, figure->name);
    FL_TRY(write_numbers(figure, path, error));
    snprintf(path, sizeof path, "%s/%s.gp", folder, figure->name);
    FL_TRY(write_script(figure, path, format, error));
    snprintf(script, sizeof script, "%s.gp", figure->name);
    return fl_gnuplot_run(folder, script, error);
}
