/* Texts of a picture that gnuplot wrote as SVG: what they say and the room they take. */
#ifndef FL_TESTS_SUPPORT_SVG_TEXTS_H
#define FL_TESTS_SUPPORT_SVG_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

enum { FL_SVG_TEXT_BYTES = 256 };

typedef struct fl_svg_text {
    char text[FL_SVG_TEXT_BYTES];     /* as in the file: &lt; for < */
    double left, top, right, bottom;  /* of its letters, as wide as analysis/text_width.h says */
} fl_svg_text;

/* Texts that are not empty. *texts = fl_memory block. Fails the test when the file is no such picture. */
void fl_svg_texts_read(const char *path, fl_svg_text **texts, size_t *count, double *width, double *height);
/* Fails the test when a text reaches beyond the picture or into another one. */
void fl_svg_texts_check(const char *path);
/* Whether one of the texts is `text`. */
bool fl_svg_texts_have(const char *path, const char *text);

#endif
