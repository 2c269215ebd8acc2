#include "analysis/figure_style.h"

#include <math.h>
#include <string.h>

static const char *const colours[] = {"#000000", "#0072B2", "#D55E00", "#009E73",
                                      "#CC79A7", "#56B4E9", "#E69F00"};
static const char *const dashes[] = {"1", "(12,6)", "(3,5)", "(14,5,3,5)"};
static const int filled[] = {7, 5, 9, 11, 13, 15, 3}, hollow[] = {6, 4, 8, 10, 12, 14, 2};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Up to this ratio a linear axis shows more, with better marks. */
static const double linear_span = 20.0;

const char *fl_figure_colour(size_t index) {
    return colours[index % COUNT(colours)];
}

const char *fl_figure_dash(size_t index) {
    return dashes[index % COUNT(dashes)];
}

int fl_figure_point(size_t colour, size_t dash) {
    return dash % 2 == 0 ? filled[colour % COUNT(filled)] : hollow[colour % COUNT(hollow)];
}

void fl_figure_quote(FILE *stream, const char *text) {
    fputc('\'', stream);
    for (; *text != '\0'; text++) {
        if (*text == '\'') fputc('\'', stream);
        fputc(*text == '\n' || *text == '\r' ? ' ' : *text, stream);
    }
    fputc('\'', stream);
}

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

void fl_figure_start(FILE *stream, const char *name, const char *format, size_t width, size_t height) {
    for (size_t i = 0; i < COUNT(formats); i++) {
        if (strcmp(formats[i].name, format) != 0) continue;
        fprintf(stream, "set terminal %s size ", formats[i].terminal);
        if (formats[i].pixels) {
            fprintf(stream, "%zu,%zu", width, height);
        } else {
            fprintf(stream, "%.2fin,%.2fin", (double)width / 100.0, (double)height / 100.0);
        }
        /* Element names of several pictures in one page must not collide. */
        if (strcmp(format, "svg") == 0) fprintf(stream, " name '%s'", name);
        fputc('\n', stream);
    }
    fprintf(stream, "set output '%s.%s'\nset datafile separator ','\nset datafile missing 'nan'\n", name,
            format);
}

bool fl_figure_spans_decades(const double *values, size_t count, double *least, double *most) {
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]) || values[i] <= 0) continue;
        if (!(*least <= values[i])) *least = values[i];
        if (!(*most >= values[i])) *most = values[i];
    }
    return *most > linear_span * *least;
}
