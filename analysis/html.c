#include "analysis/html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Wide content scrolls inside its own box, so that the page itself never does, on a phone neither. */
static const char style[] =
    "body{font:16px/1.5 system-ui,sans-serif;margin:0 "
    "auto;max-width:76rem;padding:1rem;color:#1a1a1a;background:#fff}\n"
    "h1{font-size:1.6rem;margin-bottom:.3rem}h2{font-size:1.2rem;margin-top:2.2rem;border-bottom:1px solid "
    "#ccc}\n"
    "h3{font-size:1rem;margin-bottom:.3rem}.wide{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.22rem .5rem;text-align:right;border-bottom:1px solid #e2e2e2;white-space:nowrap}\n"
    "th{vertical-align:bottom;white-space:normal;font-weight:600}th.group{text-align:center;border-bottom:"
    "2px solid #bbb}\n"
    "th:first-child,td:first-child{text-align:left}td:first-child{font-weight:600}\n"
    ".base td{background:#f4f6f8}.worse{background:#fbe6dc}\n"
    ".warnings{background:#fdf3ec;border-left:4px solid #d55e00;padding:.2rem 1rem}.warnings "
    "li{margin:.35rem 0}\n"
    "figure{margin:1.5rem 0;overflow-x:auto}figure "
    "svg{display:block;width:100%;min-width:34rem;max-width:56rem;height:auto}\n"
    "figcaption,.note{color:#555;font-size:.88rem}\n"
    "pre{overflow-x:auto;background:#f6f6f6;padding:.6rem;font-size:.82rem}\n"
    "dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.2rem 1rem;margin:.6rem "
    "0}dt{color:#555}dd{margin:0}\n"
    "code,li,dd,td.text,h1{overflow-wrap:anywhere}td.text{white-space:normal;text-align:left;font-weight:400}"
    "\n"
    "@media print{details{display:none}.wide,figure{overflow:visible}}\n";

void fl_html_text(FILE *stream, const char *text) {
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", stream);
            break;
        case '>':
            fputs("&gt;", stream);
            break;
        case '&':
            fputs("&amp;", stream);
            break;
        case '"':
            fputs("&quot;", stream);
            break;
        default:
            fputc(*text, stream);
        }
    }
}

const char *fl_html_number(double value, char out[FL_HTML_NUMBER_BYTES]) {
    const char *sign = value < 0 ? "&minus;" : "";
    double size = fabs(value);
    if (isnan(value)) {
        snprintf(out, FL_HTML_NUMBER_BYTES, "&ndash;");
    } else if (isinf(value)) {
        snprintf(out, FL_HTML_NUMBER_BYTES, "%s&infin;", sign);
    } else if (size != 0 && (size >= 1e5 || size < 1e-4)) {
        char text[24];
        snprintf(text, sizeof text, "%.2e", size);
        char *exponent = strchr(text, 'e');
        *exponent = '\0';
        snprintf(out, FL_HTML_NUMBER_BYTES, "%s%s&times;10<sup>%ld</sup>", sign, text,
                 strtol(exponent + 1, NULL, 10));
    } else {
        snprintf(out, FL_HTML_NUMBER_BYTES, size >= 1e4 ? "%s%.0f" : "%s%.4g", sign, size);
    }
    return out;
}

void fl_html_open(FILE *stream, const char *title) {
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          stream);
    fl_html_text(stream, title);
    fprintf(stream, "</title>\n<style>\n%s</style>\n</head>\n<body>\n", style);
}

void fl_html_close(FILE *stream) {
    fputs("</body>\n</html>\n", stream);
}
