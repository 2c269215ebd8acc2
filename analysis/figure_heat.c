#include "analysis/figure_heat.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "analysis/figure_style.h"
#include "analysis/gnuplot.h"
#include "analysis/output_file.h"

enum {
    PATH_BYTES = 4096,
    WIDTH_PIXELS = 900,
    PANEL_PIXELS = 206,
    HEAD_PIXELS = 46,
    FOOT_PIXELS = 46,
    WIDE = 3,
    FEW = 12 /* columns or rows that each have room for a number */
};

static fl_status write_numbers(const fl_heat *heat, const char *path, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    fputs("run,", file.stream);
    fl_output_csv_text(file.stream, heat->x_label);
    fputc(',', file.stream);
    fl_output_csv_text(file.stream, heat->y_label);
    fputc(',', file.stream);
    fl_output_csv_text(file.stream, heat->value_label);
    fputc('\n', file.stream);
    for (size_t p = 0; p < heat->panel_count; p++) {
        const fl_heat_panel *panel = &heat->panels[p];
        for (size_t i = 0; i < panel->columns * panel->rows; i++) {
            fl_output_csv_text(file.stream, panel->title);
            fprintf(file.stream, ",%zu,%zu,", i / panel->rows, i % panel->rows);
            fl_output_csv_number(file.stream, panel->values[i]);
            fputc('\n', file.stream);
        }
    }
    return fl_output_file_close(&file, error);
}

/* gnuplot's matrix form: a line a row. */
static void write_block(FILE *stream, const fl_heat_panel *panel, size_t index) {
    fprintf(stream, "$panel%zu << end\n", index);
    for (size_t r = 0; r < panel->rows; r++) {
        for (size_t c = 0; c < panel->columns; c++) {
            double value = panel->values[c * panel->rows + r];
            if (c > 0) fputc(' ', stream);
            fl_output_csv_number(stream, value > 0 && isfinite(value) ? value : (double)NAN);
        }
        fputc('\n', stream);
    }
    fputs("end\n", stream);
}

static void write_panel(FILE *stream, const fl_heat *heat, size_t index, size_t wide, size_t high) {
    const fl_heat_panel *panel = &heat->panels[index];
    bool last_row = index + wide >= heat->panel_count;
    fputs("set title ", stream);
    fl_figure_quote(stream, panel->title);
    fputs("\nset xlabel ", stream);
    fl_figure_quote(stream, last_row ? heat->x_label : "");
    fputs("\nset ylabel ", stream);
    fl_figure_quote(stream, index % wide == 0 ? heat->y_label : "");
    double height = (double)(HEAD_PIXELS + FOOT_PIXELS + PANEL_PIXELS * high);
    double left = 0.06 + 0.83 / (double)wide * (double)(index % wide);
    double top = 1.0 - (HEAD_PIXELS + 22.0 + (double)(PANEL_PIXELS * (index / wide))) / height;
    fprintf(stream, "\nset lmargin at screen %.4f\nset rmargin at screen %.4f\n", left,
            left + 0.83 / (double)wide - 0.03);
    fprintf(stream, "set tmargin at screen %.4f\nset bmargin at screen %.4f\n", top,
            top - (PANEL_PIXELS - 70.0) / height);
    fprintf(stream, "set xrange [-0.5:%zu.5]\nset yrange [-0.5:%zu.5]\n", panel->columns - 1,
            panel->rows - 1);
    fputs(panel->columns < FEW ? "set xtics 1\n" : "set xtics autofreq\n", stream);
    fputs(panel->rows < FEW ? "set ytics 1\n" : "set ytics autofreq\n", stream);
    if (index == 0) {
        fprintf(stream, "set colorbox user origin screen 0.905,%.4f size screen 0.018,%.4f\nset cblabel ",
                FOOT_PIXELS / height, (height - HEAD_PIXELS - FOOT_PIXELS - 22.0) / height);
        fl_figure_quote(stream, heat->value_label);
        fputc('\n', stream);
    }
    fprintf(stream, "plot $panel%zu matrix with image pixels\nunset colorbox\n", index);
}

static fl_status write_script(const fl_heat *heat, const char *path, const char *format, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    FILE *stream = file.stream;
    size_t wide = heat->panel_count < WIDE ? heat->panel_count : WIDE,
           high = (heat->panel_count + wide - 1) / wide;
    fl_figure_start(stream, heat->name, format, WIDTH_PIXELS,
                    HEAD_PIXELS + FOOT_PIXELS + PANEL_PIXELS * high);
    fputs("set datafile separator whitespace\n", stream);
    for (size_t p = 0; p < heat->panel_count; p++) write_block(stream, &heat->panels[p], p);
    fputs("set multiplot title ", stream);
    fl_figure_quote(stream, heat->title);
    fprintf(stream,
            "\nunset key\nset border 15 lw 0.5\nset tics nomirror out scale 0.5\nset logscale cb\nset format "
            "cb '%%g'\n"
            "set cbrange [%.9g:%.9g]\nset palette defined (0 '#f7fbff', 0.5 '#6baed6', 1 '#08306b')\n",
            heat->least, heat->most > heat->least ? heat->most : 2 * heat->least);
    for (size_t p = 0; p < heat->panel_count; p++) write_panel(stream, heat, p, wide, high);
    fputs("unset multiplot\n", stream);
    return fl_output_file_close(&file, error);
}

fl_status fl_heat_write(const fl_heat *heat, const char *folder, const char *format, fl_error *error) {
    assert(heat->panel_count > 0 && heat->panel_count <= FL_HEAT_MOST_PANELS && heat->least > 0);
    char path[PATH_BYTES], script[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.csv", folder, heat->name);
    FL_TRY(write_numbers(heat, path, error));
    snprintf(path, sizeof path, "%s/%s.gp", folder, heat->name);
    FL_TRY(write_script(heat, path, format, error));
    snprintf(script, sizeof script, "%s.gp", heat->name);
    return fl_gnuplot_run(folder, script, error);
}
