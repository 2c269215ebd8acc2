/* HTML: the small pieces a page is written with. Text is escaped, numbers have four significant digits. */
#ifndef FL_ANALYSIS_HTML_H
#define FL_ANALYSIS_HTML_H

#include <stdio.h>

enum { FL_HTML_NUMBER_BYTES = 96 };

void fl_html_text(FILE *stream, const char *text);
/* "0.0891", "2.05e3" as 2.05 x 10^3, an infinity sign, a dash for NaN; with a real minus sign. HTML in `out`.
 */
const char *fl_html_number(double value, char out[FL_HTML_NUMBER_BYTES]);
/* Everything from the doctype to the opened body, with the style sheet inside. */
void fl_html_open(FILE *stream, const char *title);
void fl_html_close(FILE *stream);

#endif
