/* HTML: the small pieces a page is written with. Text is escaped, numbers have four significant digits.
 *
 * A page stands alone: style and script are inside, and its content security policy lets it load nothing. It is
 * light or dark as the reader's system is, or as the reader chooses; on paper it is light. Tables of the class
 * "sortable" are sorted by their headings (a button each; aria-sort tells the order): cells compare by `data-v`
 * where they have one, else by their text, and empty values stay last. */
#ifndef FL_ANALYSIS_HTML_H
#define FL_ANALYSIS_HTML_H

#include <stddef.h>
#include <stdio.h>

#include "harness/base/status.h"

enum { FL_HTML_NUMBER_BYTES = 96 };

/* For element content and for attribute values in either kind of quotes. Control characters become U+FFFD. */
void fl_html_text(FILE *stream, const char *text);
/* "0.0891", "2.05e3" as 2.05 x 10^3, an infinity sign, a dash for NaN; with a real minus sign. HTML in `out`.
 */
const char *fl_html_number(double value, char out[FL_HTML_NUMBER_BYTES]);
/* "516.3 &plusmn; 4.8": two digits of the error, as many decimals of the value. Without an error (NaN, or nothing but rounding)
 * the value alone. */
void fl_html_with_error(FILE *stream, double value, double error);
/* A link that saves `bytes` of `csv` as a file called `file`: the numbers are in the page itself. */
void fl_html_download(FILE *stream, const char *file, const char *csv, size_t bytes);

/* Everything from the doctype to the opened body, with the style sheet inside. */
void fl_html_open(FILE *stream, const char *title);
/* The same with more rules behind the style sheet's own. */
void fl_html_open_styled(FILE *stream, const char *title, const char *style);
/* The script, and the end of the page. */
void fl_html_close(FILE *stream);

/* The style sheet and the script (html_page.c). */
extern const char fl_html_style[], fl_html_script[];

#endif
