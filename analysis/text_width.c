#include "analysis/text_width.h"

#include <stdbool.h>
#include <string.h>

/* Thousandths of the font size, from ' ' to '~'. */
static const unsigned short widths[] = {
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361,  318, 337, 636, 636, 636,
    636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632,
    575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635,  611, 732, 684, 989, 685,
    611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352,  635, 634, 278, 278, 579,
    278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592,  525, 636, 337, 636, 838};

/* Of a letter of 2, 3 or 4 bytes: Latin, Greek and Cyrillic; signs and ideographs; what other fonts draw. */
/* A line ends behind a comma rather than a space when it is at least so full. */
static const double least_line = 0.4;

enum { WIDE_2 = 750, WIDE_3 = 1050, WIDE_4 = 1300 };

static size_t letter_bytes(const char *at) {
    size_t bytes = 1;
    while (((unsigned char)at[bytes] & 0xC0U) == 0x80U) bytes++;
    return bytes;
}

static unsigned letter_width(const char *at) {
    unsigned char first = (unsigned char)*at;
    if (first >= ' ' && first <= '~') return widths[first - ' '];
    if (first < 0x80) return widths[0];
    return first < 0xE0 ? WIDE_2 : first < 0xF0 ? WIDE_3 : WIDE_4;
}

double fl_text_width(const char *text, size_t bytes, double size) {
    unsigned long sum = 0;
    for (size_t at = 0; at < bytes; at += letter_bytes(text + at)) sum += letter_width(text + at);
    return (double)sum * size / 1000.0;
}

size_t fl_text_line(const char *text, double size, double width) {
    size_t end = 0, space = 0, comma = 0;
    double used = 0, at_comma = 0;
    while (text[end] != '\0') {
        size_t bytes = letter_bytes(text + end);
        double letter = (double)letter_width(text + end) * size / 1000.0;
        /* A space at the end of a line may stand out. */
        if (used + letter > width && end > 0 && text[end] != ' ') {
            bool good = at_comma > least_line * width || space == 0;
            return comma > 0 && good ? comma : space > 0 ? space : end;
        }
        used += letter;
        end += bytes;
        if (text[end - 1] == ' ') space = end;
        if (text[end - 1] == ',' || (comma == end - 1 && text[end - 1] == ' ')) {
            comma = end;
            at_comma = used;
        }
    }
    return end;
}

size_t fl_text_lines(const char *text, double size, double width, double *widest) {
    size_t lines = 0;
    double most = 0;
    do {
        size_t bytes = fl_text_line(text, size, width);
        double own = fl_text_width(text, bytes, size);
        if (own > most) most = own;
        text += bytes;
        lines++;
    } while (*text != '\0');
    if (widest != NULL) *widest = most;
    return lines;
}
