#include "analysis/figure_style.h"

#include <string.h>
#include <utf8proc.h>

static const char *const colours[FL_FIGURE_COLOURS] = {"#0072B2", "#D55E00", "#009E73",
                                                       "#CC79A7", "#E69F00", "#56B4E9"};
static const char *const dashes[FL_FIGURE_DASHES] = {"1",         "(8,4)",         "(2,3)",
                                                     "(9,3,2,3)", "(9,3,2,3,2,3)", "(18,4)"};
static const int filled[FL_FIGURE_COLOURS] = {7, 5, 9, 11, 13, 15},
                 hollow[FL_FIGURE_COLOURS] = {6, 4, 8, 10, 12, 14};

const char *fl_figure_colour(size_t index) {
    return colours[index % FL_FIGURE_COLOURS];
}

const char *fl_figure_dash(size_t index) {
    return dashes[index % FL_FIGURE_DASHES];
}

int fl_figure_point(size_t colour, size_t dash) {
    return dash % 2 == 0 ? filled[colour % FL_FIGURE_COLOURS] : hollow[colour % FL_FIGURE_COLOURS];
}

/* Apostrophes stand in a string of their own: gnuplot reads doubled ones wrongly at a beginning and in a row.
 */
static void put_letter(FILE *stream, const char *at, size_t bytes, utf8proc_int32_t letter) {
    if (letter == '\'')
        fputs("'.\"'\".'", stream);
    else if (letter < 0x20 || (letter >= 0x7F && letter < 0xA0))
        fputc(' ', stream);
    else
        fwrite(at, 1, bytes, stream);
}

void fl_figure_quote(FILE *stream, const char *text, size_t bytes) {
    fputc('\'', stream);
    for (size_t at = 0; at < bytes;) {
        utf8proc_int32_t letter = 0;
        utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(bytes - at), &letter);
        if (length > 0)
            put_letter(stream, text + at, (size_t)length, letter);
        else
            fputc('?', stream);
        at += length > 0 ? (size_t)length : 1;
    }
    fputc('\'', stream);
}

bool fl_figure_knows_format(const char *format) {
    static const char *const formats[] = {"png", "svg", "pdf"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i], format) == 0) return true;
    }
    return false;
}
