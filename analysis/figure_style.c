#include "analysis/figure_style.h"

static const char *const colours[] = {"#000000", "#0072B2", "#D55E00", "#009E73",
                                      "#CC79A7", "#56B4E9", "#E69F00"};
static const char *const dashes[] = {"1", "(12,6)", "(3,5)", "(14,5,3,5)"};
static const int filled[] = {7, 5, 9, 11, 13, 15, 3}, hollow[] = {6, 4, 8, 10, 12, 14, 2};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

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
