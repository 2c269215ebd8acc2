#include "analysis/figure_page.h"

#include <math.h>
#include <string.h>

#include "analysis/figure_style.h"
#include "analysis/text_width.h"

static const double points_a_millimetre = 72.0 / 25.4, line_height = 1.3, bold_width = 1.13;

/* Fonts and lines of gnuplot's bitmaps and SVG are made for 96 dots an inch. */
static const double terminal_dots = 96.0, screen_dots = 200.0, print_dots = 300.0;

double fl_page_width(const fl_figure_look *look) {
    return points_a_millimetre * (look->width > 0 ? look->width : FL_FIGURE_DOUBLE_MILLIMETRES);
}

double fl_page_font(const fl_figure_look *look) {
    return look->width > 0 && look->width < 110 ? 7 : 8;
}

static void set_terminal(FILE *stream, const fl_page *page, const char *name, const fl_figure_look *look) {
    if (strcmp(look->format, "pdf") == 0) {
        fprintf(stream,
                "set terminal pdfcairo noenhanced size %.4fin,%.4fin fontscale 0.75 linewidth 1.3 pointscale "
                "0.6 font 'DejaVu "
                "Sans,%g'\n",
                page->width / 72, page->height / 72, page->font);
    } else if (strcmp(look->format, "svg") == 0) {
        /* Element names of several pictures in one page must not collide. */
        fprintf(
            stream,
            "set terminal svg noenhanced size %.0f,%.0f fontscale 1.3333 font 'DejaVu Sans,%g' background "
            "'#ffffff' name '%s'\n",
            page->width * terminal_dots / 72, page->height * terminal_dots / 72, page->font, name);
    } else {
        double dots = look->width > 0 ? print_dots : screen_dots, scale = dots / terminal_dots;
        fprintf(
            stream,
            "set terminal pngcairo noenhanced size %.0f,%.0f fontscale %.4f linewidth %.4f pointscale %.4f "
            "font 'DejaVu Sans,%g'\n",
            page->width * dots / 72, page->height * dots / 72, scale, scale, scale, page->font);
    }
}

void fl_page_open(fl_page *page, FILE *stream, const char *name, const fl_figure_look *look, double height) {
    *page = (fl_page){.stream = stream,
                      .width = fl_page_width(look),
                      .height = height,
                      .font = fl_page_font(look),
                      .has_bold = strcmp(look->format, "svg") != 0};
    fputs("set encoding utf8\n", stream);
    set_terminal(stream, page, name, look);
    fprintf(stream,
            "set output '%s.%s'\nset datafile separator ','\nset datafile missing 'nan'\nset key off\n"
            "set border 3 lw 0.7\nset tics nomirror out scale 0.5\nset multiplot\n",
            name, look->format);
}

void fl_page_close(fl_page *page) {
    fputs("unset multiplot\n", page->stream);
}

static double x_of(const fl_page *page, double x) {
    return x / page->width;
}

static double y_of(const fl_page *page, double y) {
    return 1.0 - y / page->height;
}

static double letters(const fl_page_type *type) {
    return type->size * (type->bold ? bold_width : 1);
}

double fl_page_text_height(const char *text, const fl_page_type *type, double width) {
    if (text == NULL || text[0] == '\0') return 0;
    return line_height * type->size * (double)fl_text_lines(text, letters(type), width, NULL);
}

static void write_line(fl_page *page, double x, double y, const char *text, size_t bytes,
                       const fl_page_type *type) {
    static const char *const aligns[] = {"left", "center", "right"};
    while (bytes > 0 && text[bytes - 1] == ' ') bytes--;
    fputs("set label ", page->stream);
    fl_figure_quote(page->stream, text, bytes);
    fprintf(page->stream, " at screen %.5f,%.5f %s font 'DejaVu Sans%s,%g' tc rgb '%s'%s front\n",
            x_of(page, x), y_of(page, y), aligns[type->align], type->bold && page->has_bold ? ":Bold" : "",
            type->size, type->colour != NULL ? type->colour : "#000000",
            type->upright ? " rotate by 90" : "");
}

double fl_page_text(fl_page *page, double x, double y, double width, const char *text,
                    const fl_page_type *type) {
    double height = fl_page_text_height(text, type, width), step = line_height * type->size, at = 0.5 * step;
    if (height <= 0) return 0;
    for (; *text != '\0'; at += step) {
        size_t bytes = fl_text_line(text, letters(type), width);
        if (type->upright)
            write_line(page, x + at, y, text, bytes, type);
        else
            write_line(page, x, y + at, text, bytes, type);
        text += bytes;
    }
    return height;
}

void fl_page_point(fl_page *page, double x, double y, int shape, double size, const char *colour) {
    fprintf(page->stream, "set label '' at screen %.5f,%.5f point pt %d ps %g lc rgb '%s' front\n",
            x_of(page, x), y_of(page, y), shape, size, colour);
}

void fl_page_place(fl_page *page, double left, double top, double right, double bottom) {
    fprintf(page->stream,
            "set lmargin at screen %.5f\nset rmargin at screen %.5f\nset tmargin at screen %.5f\n"
            "set bmargin at screen %.5f\n",
            x_of(page, left), x_of(page, right), y_of(page, top), y_of(page, bottom));
}

void fl_page_place_whole(fl_page *page) {
    fl_page_place(page, 0, 0, page->width, page->height);
    fprintf(page->stream,
            "unset logscale\nunset border\nunset xtics\nunset ytics\nunset grid\nset xrange [0:%g]\n"
            "set yrange [%g:0]\n",
            page->width, page->height);
}

void fl_page_clear(fl_page *page) {
    fputs("unset label\nunset arrow\n", page->stream);
}
