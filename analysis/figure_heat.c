#include "analysis/figure_heat.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "analysis/figure_axis.h"
#include "analysis/figure_style.h"
#include "analysis/gnuplot.h"
#include "analysis/output_file.h"

enum { PATH_BYTES = 4096, WIDE = 3, NARROW = 2 };

static const double edge = 6, tick_gap = 9, gap = 10, bar_width = 8, share = 0.62;

static fl_status write_numbers(const fl_heat *heat, const char *folder, fl_error *error) {
    fl_output_file file;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.csv", folder, heat->name);
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

typedef struct layout {
    size_t wide, high;
    double width, font, left, top, row_top[FL_HEAT_MOST_PANELS], panel_width, panel_height, column_pitch,
        bottom, bar, note, height;
    fl_axis colours;
} layout;

/* Room for the titles of a row of panels. */
static double row_title(const fl_heat *heat, const layout *l, size_t row) {
    const fl_page_type head = {.size = l->font, .bold = true};
    double most = 0;
    for (size_t p = row * l->wide; p < heat->panel_count && p < (row + 1) * l->wide; p++) {
        double own = fl_page_text_height(heat->panels[p].title, &head, l->panel_width);
        if (own > most) most = own;
    }
    return most + 2;
}

static void lay_out(const fl_heat *heat, const fl_figure_look *look, layout *l) {
    l->width = fl_page_width(look);
    l->font = fl_page_font(look);
    const fl_page_type title = {.size = l->font + 1, .bold = true}, small = {.size = l->font - 1};
    size_t most = l->width < 320 ? NARROW : WIDE;
    l->wide = heat->panel_count < most ? heat->panel_count : most;
    if (heat->panel_count == 4) l->wide = 2;
    l->high = (heat->panel_count + l->wide - 1) / l->wide;
    fl_axis_span span = {0};
    fl_axis_span_add(&span, &heat->least, 1);
    fl_axis_span_add(&span, &heat->most, 1);
    /* The colours are logarithmic, however little the values span. */
    fl_axis_fit(&span, &(fl_axis_wish){.log = true, .tight = true, .numbers = 4}, &l->colours);
    double numbers = fl_axis_number_width(&l->colours, l->font);
    l->left = edge + 1.3 * l->font + tick_gap + 2 * l->font;
    l->bar = l->width - edge - 1.3 * l->font - 4 - numbers - tick_gap - bar_width;
    double columns = (double)l->wide;
    l->panel_width = (l->bar - 12 - l->left - gap * (columns - 1)) / columns;
    if (heat->panel_count == 1 && l->panel_width > 300) l->panel_width = 300;
    l->panel_height = share * l->panel_width;
    if (heat->panel_count == 1) l->bar = l->left + l->panel_width + 12;
    l->column_pitch = l->panel_width + gap;
    l->top = edge + fl_page_text_height(heat->title, &title, l->width - 2 * edge) + 5;
    l->bottom = l->top - gap;
    for (size_t r = 0; r < l->high; r++) {
        l->row_top[r] = l->bottom + gap + row_title(heat, l, r);
        l->bottom = l->row_top[r] + l->panel_height;
    }
    l->note = fl_page_text_height(heat->note, &small, l->width - 2 * edge);
    l->height = l->bottom + tick_gap + 2 * 1.3 * l->font + 4 + l->note + edge;
}

/* gnuplot's matrix form: a line a row. */
static void write_block(FILE *stream, const fl_heat *heat, const layout *l, size_t index) {
    const fl_heat_panel *panel = &heat->panels[index];
    double low = l->colours.low, pale = low * pow(l->colours.high / low, 0.002);
    fprintf(stream, "$panel%zu << end\n", index);
    for (size_t r = 0; r < panel->rows; r++) {
        for (size_t c = 0; c < panel->columns; c++) {
            double value = panel->values[c * panel->rows + r];
            if (c > 0) fputc(' ', stream);
            /* White lies below every colour: for zeros alone. */
            if (value <= 0)
                value = low * 1e-3;
            else if (value < pale)
                value = pale;
            fl_output_csv_number(stream, isfinite(value) ? value : (double)NAN);
        }
        fputc('\n', stream);
    }
    fputs("end\n", stream);
}

static void write_texts(fl_page *page, const fl_heat *heat, const layout *l) {
    const fl_page_type title = {.size = l->font + 1, .bold = true},
                       small = {.size = l->font - 1, .colour = "#606060"};
    const fl_page_type beside = {.size = l->font, .align = FL_PAGE_CENTRE, .upright = true};
    double inner = l->width - 2 * edge;
    fl_page_text(page, edge, edge, inner, heat->title, &title);
    fl_page_text(page, edge, l->height - edge - l->note, inner, heat->note, &small);
    double numbers = fl_axis_number_width(&l->colours, l->font);
    fl_page_text(page, l->bar + bar_width + tick_gap + numbers, (l->row_top[0] + l->bottom) / 2, l->height,
                 heat->value_label, &beside);
}

static void fit_counts(size_t count, double length, double font, fl_axis *out) {
    const double ends[] = {0, (double)(count - 1)};
    fl_axis_span span = {0};
    fl_axis_span_add(&span, ends, 2);
    fl_axis_fit(&span,
                &(fl_axis_wish){.tight = true, .whole = true, .numbers = 5, .length = length, .font = font},
                out);
    out->low = -0.5;
    out->high = (double)count - 0.5;
}

static void write_colour_bar(FILE *stream, const layout *l) {
    double bottom = l->bottom, top = l->row_top[0];
    fprintf(stream,
            "set colorbox user origin screen %.5f,%.5f size screen %.5f,%.5f\nset cbtics scale "
            "0.5 (",
            l->bar / l->width, 1 - bottom / l->height, bar_width / l->width, (bottom - top) / l->height);
    for (size_t i = 0; i < l->colours.tick_count; i++)
        fprintf(stream, "%s'%s' %.9g", i > 0 ? ", " : "", l->colours.ticks[i].text, l->colours.ticks[i].at);
    fputs(")\n", stream);
}

static void write_panel(fl_page *page, const fl_heat *heat, const layout *l, size_t index) {
    const fl_heat_panel *panel = &heat->panels[index];
    fl_axis x, y;
    const fl_page_type head = {.size = l->font, .bold = true},
                       below = {.size = l->font, .align = FL_PAGE_CENTRE},
                       beside = {.size = l->font, .align = FL_PAGE_CENTRE, .upright = true};
    size_t column = index % l->wide, row = index / l->wide;
    double left = l->left + (double)column * l->column_pitch, top = l->row_top[row],
           right = left + l->panel_width, bottom = top + l->panel_height;
    bool lowest = index + l->wide >= heat->panel_count;
    fit_counts(panel->columns, l->panel_width, l->font, &x);
    fit_counts(panel->rows, 0, 0, &y);
    double height = fl_page_text_height(panel->title, &head, l->panel_width);
    fl_page_text(page, left, top - 2 - height, l->panel_width, panel->title, &head);
    if (lowest)
        fl_page_text(page, (left + right) / 2, bottom + tick_gap + 1.3 * l->font - 2, l->panel_width,
                     heat->x_label, &below);
    if (column == 0) fl_page_text(page, edge, (top + bottom) / 2, l->height, heat->y_label, &beside);
    fl_page_place(page, left, top, right, bottom);
    fl_axis_write(page->stream, &x, 'x', lowest);
    fl_axis_write(page->stream, &y, 'y', column == 0);
    /* What has no value shows the ground. */
    fputs("set object 1 rectangle from graph 0,0 to graph 1,1 behind fc rgb '#c8c8c8' fs solid noborder\n",
          page->stream);
    if (index == 0)
        write_colour_bar(page->stream, l);
    else
        fputs("unset colorbox\n", page->stream);
    fprintf(page->stream, "plot $panel%zu matrix with image pixels\n", index);
    fl_page_clear(page);
}

static fl_status write_script(const fl_heat *heat, const layout *l, const char *folder,
                              const fl_figure_look *look, fl_error *error) {
    fl_output_file file;
    fl_page page;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.gp", folder, heat->name);
    FL_TRY(fl_output_file_open(path, &file, error));
    for (size_t p = 0; p < heat->panel_count; p++) write_block(file.stream, heat, l, p);
    fl_page_open(&page, file.stream, heat->name, look, l->height);
    fprintf(
        file.stream,
        "set datafile separator whitespace\nset border 15 lw 0.5\nset logscale cb\nset cbrange [%.9g:%.9g]\n"
        "set palette defined (0 '#ffffff', 0.001 '#e3eef9', 0.5 '#6baed6', 1 '#08306b')\n",
        l->colours.low, l->colours.high);
    write_texts(&page, heat, l);
    for (size_t p = 0; p < heat->panel_count; p++) write_panel(&page, heat, l, p);
    fl_page_close(&page);
    return fl_output_file_close(&file, error);
}

fl_status fl_heat_write(const fl_heat *heat, const char *folder, const fl_figure_look *look,
                        fl_error *error) {
    assert(heat->panel_count > 0 && heat->panel_count <= FL_HEAT_MOST_PANELS && heat->least > 0);
    char script[PATH_BYTES];
    layout l = {0};
    FL_TRY(write_numbers(heat, folder, error));
    lay_out(heat, look, &l);
    FL_TRY(write_script(heat, &l, folder, look, error));
    snprintf(script, sizeof script, "%s.gp", heat->name);
    return fl_gnuplot_run(folder, script, error);
}
