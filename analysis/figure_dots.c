#include "analysis/figure_dots.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/figure_style.h"
#include "analysis/gnuplot.h"
#include "analysis/output_file.h"

enum {
    PATH_BYTES = 4096,
    WIDTH_PIXELS = 900, /* at least */
    FIELD_PIXELS = 480, /* right of the names, at least */
    ROW_PIXELS = 24,
    HEAD_PIXELS = 40,
    FOOT_PIXELS = 104, /* axis, its name, the legend */
    LETTER_PIXELS = 8
};

static fl_status write_numbers(const fl_dots *dots, const char *path, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    fputs("run,value,standard_error,linear_off,full_model,chance\n", file.stream);
    for (size_t i = 0; i < dots->rows; i++) {
        const double numbers[] = {dots->value[i], dots->error[i], dots->linear_off[i], dots->full,
                                  dots->chance};
        fl_output_csv_text(file.stream, dots->row_names[i]);
        for (size_t c = 0; c < sizeof numbers / sizeof numbers[0]; c++) {
            fputc(',', file.stream);
            fl_output_csv_number(file.stream, numbers[c]);
        }
        fputc('\n', file.stream);
    }
    return fl_output_file_close(&file, error);
}

static bool is_log(const fl_dots *dots) {
    double least = (double)NAN, most = (double)NAN;
    fl_figure_spans_decades(dots->value, dots->rows, &least, &most);
    fl_figure_spans_decades(&dots->full, 1, &least, &most);
    return fl_figure_spans_decades(dots->linear_off, dots->rows, &least, &most) && dots->log_x;
}

static bool any(const double *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (isfinite(values[i])) return true;
    }
    return false;
}

/* Room for the names of the rows. */
static size_t margin_of(const fl_dots *dots) {
    size_t longest = 4;
    for (size_t i = 0; i < dots->rows; i++) {
        size_t length = strlen(dots->row_names[i]);
        if (length > longest) longest = length;
    }
    return LETTER_PIXELS * longest + 24;
}

static void write_frame(FILE *stream, const fl_dots *dots, size_t margin, size_t width, size_t height) {
    fputs("set title ", stream);
    fl_figure_quote(stream, dots->title);
    fputs("\nset xlabel ", stream);
    fl_figure_quote(stream, dots->x_label);
    fprintf(stream, "\nset lmargin at screen %.4f\nset rmargin at screen 0.97\nset tmargin at screen %.4f\n",
            (double)margin / (double)width, 1.0 - (double)HEAD_PIXELS / (double)height);
    fprintf(stream, "set bmargin at screen %.4f\n", (double)FOOT_PIXELS / (double)height);
    fprintf(stream,
            "set key at screen 0.5,%.4f center bottom vertical Left reverse maxrows 1 samplen 2 width 1\n",
            8.0 / (double)height);
    fprintf(stream,
            "set yrange [%zu.5:-0.5]\nset grid ytics lt 1 lc rgb '#e4e4e4' lw 1\nset border 1\n"
            "set tics nomirror out\nset ytics scale 0\nset offsets graph 0.03, graph 0.03, 0, 0\nset "
            "autoscale xfix\n",
            dots->rows - 1);
    if (is_log(dots)) fputs("set logscale x\nset format x '%g'\n", stream);
}

/* The two ends of an upright line, as data: then the axis reaches it, and every terminal knows its dashes. */
static void write_ends(FILE *stream, const char *name, double at, size_t rows) {
    if (isfinite(at)) fprintf(stream, "$%s << end\n%.9g,-0.5\n%.9g,%zu.5\nend\n", name, at, at, rows - 1);
}

static void write_line(FILE *stream, const char *name, double at, const char *dash, const char *title) {
    if (!isfinite(at)) return;
    fprintf(stream, ", \\\n     $%s using 1:2 with lines lc rgb '#606060' lw 1.5 dt %s title '%s'", name,
            dash, title);
}

static fl_status write_script(const fl_dots *dots, const char *path, const char *format, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    FILE *stream = file.stream;
    size_t height = HEAD_PIXELS + FOOT_PIXELS + ROW_PIXELS * dots->rows, margin = margin_of(dots);
    size_t width = margin + FIELD_PIXELS > WIDTH_PIXELS ? margin + FIELD_PIXELS : WIDTH_PIXELS;
    fl_figure_start(stream, dots->name, format, width, height);
    write_frame(stream, dots, margin, width, height);
    write_ends(stream, "full", dots->full, dots->rows);
    write_ends(stream, "chance", dots->chance, dots->rows);
    /* The names of the rows, whether they have a value or not; every later '' is this file. */
    fprintf(stream, "plot '%s.csv' skip 1 using 2:0:ytic(1) with points pt 7 ps 0 notitle", dots->name);
    if (any(dots->linear_off, dots->rows)) {
        fprintf(stream,
                ", \\\n     '' skip 1 using 4:0:($2-$4):(0) with vectors nohead lc rgb '#b0b0b0' lw 2 notitle"
                ", \\\n     '' skip 1 using 4:0 with points pt 12 ps 1.4 lw 2 lc rgb '%s' title 'linear part "
                "off'",
                fl_figure_colour(2));
    }
    if (any(dots->error, dots->rows))
        fprintf(stream, ", \\\n     '' skip 1 using 2:0:3 with xerrorbars pt 7 ps 0 lw 2 lc rgb '%s' notitle",
                fl_figure_colour(1));
    fprintf(stream, ", \\\n     '' skip 1 using 2:0:ytic(1) with points pt 7 ps 1.2 lc rgb '%s' title '%s'",
            fl_figure_colour(1), any(dots->error, dots->rows) ? "run, standard error" : "run");
    write_line(stream, "full", dots->full, "1", "full model");
    write_line(stream, "chance", dots->chance, fl_figure_dash(2), "chance");
    fputc('\n', stream);
    return fl_output_file_close(&file, error);
}

fl_status fl_dots_write(const fl_dots *dots, const char *folder, const char *format, fl_error *error) {
    if (dots->rows == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: nothing to draw", dots->name);
    char path[PATH_BYTES], script[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.csv", folder, dots->name);
    FL_TRY(write_numbers(dots, path, error));
    snprintf(path, sizeof path, "%s/%s.gp", folder, dots->name);
    FL_TRY(write_script(dots, path, format, error));
    snprintf(script, sizeof script, "%s.gp", dots->name);
    return fl_gnuplot_run(folder, script, error);
}
