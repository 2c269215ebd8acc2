#include "analysis/plot_nmse.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "analysis/figure_style.h"
#include "analysis/gnuplot.h"
#include "analysis/output_file.h"
#include "harness/base/memory.h"
#include "harness/store/run_file.h"

enum { PATH_BYTES = 4096 };

/* One curve's numbers. */
typedef struct curve_data {
    size_t layers, positions;
    double *by_layer;    /* [L] */
    double *by_position; /* [P] mean over layers */
    double *count;       /* [P] sequences behind a position */
    bool drawn;          /* something finite and positive to draw */
} curve_data;

static void release(curve_data *data, size_t count) {
    for (size_t i = 0; i < count; i++) {
        fl_memory_free(data[i].by_layer);
        fl_memory_free(data[i].by_position);
        fl_memory_free(data[i].count);
    }
    fl_memory_free(data);
}

static fl_status expect(bool condition, const char *path, const char *what, fl_error *error) {
    return condition ? FL_OK
                     : fl_error_set(error, FL_ERROR_FORMAT, "%s: %s has an unexpected shape", path, what);
}

static fl_status average_layers(const double *traces, size_t layers, size_t positions, double **out,
                                fl_error *error) {
    FL_TRY(FL_ALLOCATE(out, positions, error));
    for (size_t p = 0; p < positions; p++) {
        double sum = 0;
        for (size_t l = 0; l < layers; l++) sum += traces[l * positions + p];
        (*out)[p] = sum / (double)layers;
    }
    return FL_OK;
}

static fl_status read_curve(const char *path, curve_data *out, fl_error *error) {
    fl_run_reader *reader = NULL;
    double *traces = NULL;
    size_t rank = 0, shape[4] = {0};
    fl_status status = FL_OK;
    FL_TRY(fl_run_reader_open(path, &reader, error));
    FL_TRY_DONE(status, fl_run_reader_doubles(reader, "/errors/teacher_forced/nmse", &out->by_layer, &rank,
                                              shape, error));
    FL_TRY_DONE(status, expect(rank == 1 && shape[0] > 0, path, "nmse", error));
    out->layers = shape[0];
    FL_TRY_DONE(status, fl_run_reader_doubles(reader, "/errors/teacher_forced/position_nmse", &traces, &rank,
                                              shape, error));
    FL_TRY_DONE(status,
                expect(rank == 2 && shape[0] == out->layers && shape[1] > 0, path, "position_nmse", error));
    out->positions = shape[1];
    FL_TRY_DONE(status, fl_run_reader_doubles(reader, "/errors/teacher_forced/position_count", &out->count,
                                              &rank, shape, error));
    FL_TRY_DONE(status, expect(rank == 1 && shape[0] == out->positions, path, "position_count", error));
    FL_TRY_DONE(status, average_layers(traces, out->layers, out->positions, &out->by_position, error));
    for (size_t l = 0; l < out->layers; l++) {
        out->drawn = out->drawn || (isfinite(out->by_layer[l]) && out->by_layer[l] > 0);
    }
done:
    fl_memory_free(traces);
    fl_run_reader_close(reader);
    return status;
}

static void write_header(FILE *stream, const char *first, const fl_plot_curve *curves, size_t count) {
    fputs(first, stream);
    for (size_t i = 0; i < count; i++) {
        fputc(',', stream);
        fl_output_csv_text(stream, curves[i].label);
    }
    fputc('\n', stream);
}

static fl_status write_layers(const char *path, const fl_plot_curve *curves, const curve_data *data,
                              size_t count, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    write_header(file.stream, "layer", curves, count);
    size_t layers = 0;
    for (size_t i = 0; i < count; i++) layers = data[i].layers > layers ? data[i].layers : layers;
    for (size_t l = 0; l < layers; l++) {
        fprintf(file.stream, "%zu", l);
        for (size_t i = 0; i < count; i++) {
            fputc(',', file.stream);
            fl_output_csv_number(file.stream, l < data[i].layers ? data[i].by_layer[l] : NAN);
        }
        fputc('\n', file.stream);
    }
    return fl_output_file_close(&file, error);
}

/* Mean over positions [first, last) weighted by how many sequences reach them; NaN when none does. */
static double bin_mean(const curve_data *data, size_t first, size_t last) {
    double sum = 0, weight = 0;
    for (size_t p = first; p < last && p < data->positions; p++) {
        if (data->count[p] <= 0) continue;
        sum += data->count[p] * data->by_position[p];
        weight += data->count[p];
    }
    return weight > 0 ? sum / weight : NAN;
}

static fl_status write_positions(const char *path, const fl_plot_curve *curves, const curve_data *data,
                                 size_t count, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    write_header(file.stream, "first_position,last_position", curves, count);
    size_t positions = 0;
    for (size_t i = 0; i < count; i++)
        positions = data[i].positions > positions ? data[i].positions : positions;
    size_t width = (positions + FL_PLOT_POSITION_BINS - 1) / FL_PLOT_POSITION_BINS;
    for (size_t first = 0; first < positions; first += width) {
        size_t last = first + width < positions ? first + width : positions;
        fprintf(file.stream, "%zu,%zu", first, last - 1);
        for (size_t i = 0; i < count; i++) {
            fputc(',', file.stream);
            fl_output_csv_number(file.stream, bin_mean(&data[i], first, last));
        }
        fputc('\n', file.stream);
    }
    return fl_output_file_close(&file, error);
}

static void write_curves(FILE *stream, const char *csv, const char *x, size_t first_column, bool with_points,
                         const fl_plot_curve *curves, const curve_data *data, size_t count) {
    const char *separator = "plot ";
    for (size_t i = 0; i < count; i++) {
        fputs(separator, stream);
        separator = ", \\\n     ";
        if (data[i].drawn) {
            fprintf(stream, "'%s' skip 1 using (%s):%zu with %s", csv, x, first_column + i,
                    with_points ? "linespoints" : "lines");
        } else {
            fprintf(stream, "NaN with %s", with_points ? "linespoints" : "lines");
        }
        fprintf(stream, " lc rgb '%s' dt %s lw 2", fl_figure_colour(curves[i].colour),
                fl_figure_dash(curves[i].dash));
        if (with_points) fprintf(stream, " pt %d ps 0.7", fl_figure_point(curves[i].colour, curves[i].dash));
        fputs(" title ", stream);
        char title[512];
        snprintf(title, sizeof title, "%s%s", curves[i].label, data[i].drawn ? "" : " (zero)");
        fl_figure_quote(stream, title);
    }
    fputc('\n', stream);
}

/* The largest layer or position of any curve. */
static size_t most(const curve_data *data, size_t count, bool layers) {
    size_t largest = 1;
    for (size_t i = 0; i < count; i++) {
        size_t last = (layers ? data[i].layers : data[i].positions) - 1;
        if (last > largest) largest = last;
    }
    return largest;
}

static fl_status write_script(const char *path, const char *title, const fl_plot_curve *curves,
                              const curve_data *data, size_t count, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    FILE *stream = file.stream;
    size_t legend = 26 + 17 * ((count + 2) / 3);
    fprintf(stream, "set terminal pngcairo noenhanced size 1400,%zu font 'DejaVu Sans,11'\n", 560 + legend);
    fputs("set output 'nmse.png'\nset datafile separator ','\nset datafile missing 'nan'\n", stream);
    fputs("set multiplot layout 1,2 title ", stream);
    fl_figure_quote(stream, title);
    fputs("\nset logscale y\nset format y '%g'\nset grid ytics lt 1 lc rgb '#d8d8d8' lw 1\nset border 3\n"
          "set tics nomirror out\nset key off\nset ylabel 'nMSE (teacher forced)'\n",
          stream);
    fprintf(stream, "set tmargin 3\nset bmargin at screen %.4f\n",
            (double)(legend + 60) / (double)(560 + legend));
    fprintf(stream, "set xrange [0:%zu]\n", most(data, count, true));
    fputs("set xlabel 'layer'\nset lmargin at screen 0.06\nset rmargin at screen 0.48\n"
          "set key at screen 0.5,0.01 center bottom Left reverse maxrows ",
          stream);
    fprintf(stream, "%zu samplen 3 width 2\n", (count + 2) / 3);
    write_curves(stream, "nmse_by_layer.csv", "$1", 2, true, curves, data, count);
    fprintf(stream, "set xrange [0:%zu]\n", most(data, count, false));
    fputs("set key off\nset xlabel 'position (mean over layers and over each bin)'\n"
          "set lmargin at screen 0.56\nset rmargin at screen 0.98\n",
          stream);
    write_curves(stream, "nmse_by_position.csv", "($1+$2)/2", 3, false, curves, data, count);
    fputs("unset multiplot\n", stream);
    return fl_output_file_close(&file, error);
}

fl_status fl_plot_nmse(const char *folder, const char *title, const fl_plot_curve *curves, size_t count,
                       fl_error *error) {
    if (count == 0) return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: no runs to plot", folder);
    curve_data *data = NULL;
    char path[PATH_BYTES];
    fl_status status = FL_OK;
    FL_TRY(FL_ALLOCATE(&data, count, error));
    for (size_t i = 0; i < count; i++) FL_TRY_DONE(status, read_curve(curves[i].run_file, &data[i], error));
    snprintf(path, sizeof path, "%s/nmse_by_layer.csv", folder);
    FL_TRY_DONE(status, write_layers(path, curves, data, count, error));
    snprintf(path, sizeof path, "%s/nmse_by_position.csv", folder);
    FL_TRY_DONE(status, write_positions(path, curves, data, count, error));
    bool any = false;
    for (size_t i = 0; i < count; i++) any = any || data[i].drawn;
    if (!any) {
        status = fl_error_set(error, FL_ERROR_UNSUPPORTED,
                              "every error is 0 or not finite; a logarithmic axis has nothing to show");
        goto done;
    }
    snprintf(path, sizeof path, "%s/nmse.gp", folder);
    FL_TRY_DONE(status, write_script(path, title, curves, data, count, error));
    status = fl_gnuplot_run(folder, "nmse.gp", error);
done:
    release(data, count);
    return status;
}
