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
    SAMPLE_PIXELS = 70
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    const char *name, *terminal;
    bool pixels; /* size in pixels, else in inches */
} formats[] = {
    {"png", "pngcairo noenhanced font 'DejaVu Sans,11'", true},
    {"svg", "svg noenhanced font 'DejaVu Sans,13' background '#ffffff'", true},
    {"pdf", "pdfcairo noenhanced font 'DejaVu Sans,11'", false},
};

bool fl_figure_knows_format(const char *format) {
    for (size_t i = 0; i < COUNT(formats); i++) {
        if (strcmp(formats[i].name, format) == 0) return true;
    }
    return false;
}

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
        if (figure->series[s].error != NULL) fputs(",standard error", stream);
    }
    fputc('\n', stream);
    for (size_t p = 0; p < figure->points; p++) {
        if (figure->x_names != NULL)
            fl_output_csv_text(stream, figure->x_names[p]);
        else
            fl_output_csv_number(stream, x_at(figure, p));
        for (size_t s = 0; s < figure->series_count; s++) {
            fputc(',', stream);
            fl_output_csv_number(stream, figure->series[s].y[p]);
            if (figure->series[s].error == NULL) continue;
            fputc(',', stream);
            fl_output_csv_number(stream, figure->series[s].error[p]);
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

static bool is_drawn(const fl_figure *figure, const fl_figure_series *series) {
    for (size_t p = 0; p < figure->points; p++) {
        if (isfinite(series->y[p]) && (!figure->log_y || series->y[p] > 0)) return true;
    }
    return false;
}

/* The CSV column, from 1, of a series' values. */
static size_t column_of(const fl_figure *figure, size_t series) {
    size_t column = 2;
    for (size_t s = 0; s < series; s++) column += figure->series[s].error != NULL ? 2 : 1;
    return column;
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
        fprintf(stream, "'%s.csv' skip 1 using 1:%zu with %s", figure->name, column_of(figure, index), style);
    else
        fprintf(stream, "NaN with %s", style);
    fprintf(stream, " lc rgb '%s' dt %s lw 2", fl_figure_colour(series->colour),
            fl_figure_dash(series->dash));
    if (figure->kind == FL_FIGURE_MARKS)
        fprintf(stream, " pt %d ps %s", fl_figure_point(series->colour, series->dash),
                figure->scattered ? "1.3" : "0.7");
    write_title(stream, series, drawn);
}

static void write_bars(FILE *stream, const fl_figure *figure, size_t index) {
    const fl_figure_series *series = &figure->series[index];
    size_t column = column_of(figure, index);
    fprintf(stream, "'%s.csv' skip 1 using %zu", figure->name, column);
    if (series->error != NULL) fprintf(stream, ":%zu", column + 1);
    fputs(":xtic(1)", stream);
    fprintf(stream, " with histograms fs pattern %zu border lc rgb '%s' lc rgb '%s'", index % 8,
            fl_figure_colour(index), fl_figure_colour(index));
    write_title(stream, series, true);
}

/* As many columns as fit: gnuplot drops what does not. */
static size_t legend_rows(const fl_figure *figure) {
    if (figure->kind == FL_FIGURE_HEAT) return 0;
    size_t longest = 1;
    for (size_t s = 0; s < figure->series_count; s++) {
        size_t length = strlen(figure->series[s].label) + (is_drawn(figure, &figure->series[s]) ? 0 : 7);
        if (length > longest) longest = length;
    }
    size_t columns = WIDTH_PIXELS / (LETTER_PIXELS * longest + SAMPLE_PIXELS);
    if (columns > MAX_LEGEND_COLUMNS) columns = MAX_LEGEND_COLUMNS;
    if (columns == 0) columns = 1;
    return (figure->series_count + columns - 1) / columns;
}

static void write_terminal(FILE *stream, const fl_figure *figure, const char *format) {
    size_t height = PLOT_PIXELS + 30 + LEGEND_ROW_PIXELS * legend_rows(figure);
    for (size_t i = 0; i < COUNT(formats); i++) {
        if (strcmp(formats[i].name, format) != 0) continue;
        if (formats[i].pixels) {
            fprintf(stream, "set terminal %s size %d,%zu", formats[i].terminal, WIDTH_PIXELS, height);
            /* Element names of several pictures in one page must not collide. */
            if (strcmp(format, "svg") == 0) fprintf(stream, " name '%s'", figure->name);
            fputc('\n', stream);
        } else {
            fprintf(stream, "set terminal %s size %.2fin,%.2fin\n", formats[i].terminal, WIDTH_PIXELS / 100.0,
                    (double)height / 100.0);
        }
    }
    fprintf(stream, "set output '%s.%s'\nset datafile separator ','\nset datafile missing 'nan'\n",
            figure->name, format);
    write_command(stream, "title", figure->title);
    write_command(stream, "xlabel", figure->x_label);
    write_command(stream, "ylabel", figure->y_label);
    double legend = (double)(30 + LEGEND_ROW_PIXELS * legend_rows(figure));
    fprintf(stream, "set bmargin at screen %.4f\n", (legend + 60) / (double)height);
    fprintf(stream, "set key at screen 0.5,0.01 center bottom Left reverse maxrows %zu samplen 3\n",
            legend_rows(figure) > 0 ? legend_rows(figure) : 1);
    fputs("set grid ytics lt 1 lc rgb '#d8d8d8' lw 1\nset border 3\nset tics nomirror out\n", stream);
    if (figure->log_y) fputs("set logscale y\nset format y '%g'\n", stream);
    if (figure->log_x) fputs("set logscale x\n", stream);
}

/* Row r of the matrix is series r; the CSV is columns by rows, hence the exchange. */
static void write_heat(FILE *stream, const fl_figure *figure) {
    fputs("unset key\nset border 15\nset view map\n"
          "set palette defined (0 '#f7fbff', 0.5 '#6baed6', 1 '#08306b')\n",
          stream);
    if (figure->log_y) fputs("unset logscale y\nset logscale cb\nset format y '%g'\n", stream);
    fprintf(stream, "set xrange [-0.5:%zu.5]\nset yrange [-0.5:%zu.5]\n", figure->points - 1,
            figure->series_count - 1);
    fprintf(stream, "plot '%s.csv' skip 1 matrix using 2:($1-1):3 every 1:1:1 with image pixels\n",
            figure->name);
}

static fl_status write_script(const fl_figure *figure, const char *path, const char *format,
                              fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    write_terminal(file.stream, figure, format);
    if (figure->kind == FL_FIGURE_HEAT) {
        write_heat(file.stream, figure);
        return fl_output_file_close(&file, error);
    }
    if (figure->kind == FL_FIGURE_BARS) {
        bool errors = figure->series_count > 0 && figure->series[0].error != NULL;
        fprintf(file.stream,
                "set style data histograms\nset style histogram %s\nset boxwidth 0.9\nset yrange [0:*]\n",
                errors ? "errorbars gap 1 lw 1" : "clustered gap 1");
    } else if (figure->scattered) {
        fputs("set offsets graph 0.04, graph 0.04, 0, 0\n", file.stream);
    } else if (figure->points > 1 && !figure->log_x) {
        fprintf(file.stream, "set xrange [%.9g:%.9g]\n", x_at(figure, 0), x_at(figure, figure->points - 1));
    }
    for (size_t s = 0; s < figure->series_count; s++) {
        fputs(s == 0 ? "plot " : ", \\\n     ", file.stream);
        if (figure->kind == FL_FIGURE_BARS)
            write_bars(file.stream, figure, s);
        else
            write_curve(file.stream, figure, s);
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
