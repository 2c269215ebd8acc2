/* Text width: how much room a text takes in a picture, known before anything is drawn.
 *
 * Advance widths of DejaVu Sans, the font of every picture, which is wider than most: where another font has
 * to stand in for it, texts come out narrower. Widths are in the unit of `size`. */
#ifndef FL_ANALYSIS_TEXT_WIDTH_H
#define FL_ANALYSIS_TEXT_WIDTH_H

#include <stddef.h>

/* Of the first `bytes` of UTF-8 text. Letters beyond ASCII count with an upper bound of their kind. */
double fl_text_width(const char *text, size_t bytes, double size);

/* Bytes of the first line when text is broken to `width`: behind a comma, or a space, where there is one, else
 * between letters; at least one letter, unless the text is empty. */
size_t fl_text_line(const char *text, double size, double width);
/* Lines that take `text`, and the width of the widest; at least one line. */
size_t fl_text_lines(const char *text, double size, double width, double *widest);

#endif
