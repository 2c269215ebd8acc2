#include "analysis/html.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_control(char c) {
    unsigned char byte = (unsigned char)c;
    return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
}

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
        case '\'':
            fputs("&#39;", stream);
            break;
        default:
            if (is_control(*text))
                fputs("\xEF\xBF\xBD", stream);
            else
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

/* Decimals that show two digits of `error`; -1 where powers of ten say it better. */
static int decimals_of(double value, double error) {
    double place = floor(log10(error));
    bool is_plain = isfinite(value) && fabs(value) < 1e5 && place >= -5 && place < 5;
    if (!is_plain) return -1;
    return place >= 1 ? 0 : 1 - (int)place;
}

void fl_html_with_error(FILE *stream, double value, double error) {
    const double rounding = 1e-9;
    char a[FL_HTML_NUMBER_BYTES], b[FL_HTML_NUMBER_BYTES];
    if (!(error > rounding * fabs(value))) {
        fputs(fl_html_number(value, a), stream);
        return;
    }
    int decimals = decimals_of(value, error);
    if (decimals < 0)
        fprintf(stream, "%s &plusmn; %s", fl_html_number(value, a), fl_html_number(error, b));
    else
        fprintf(stream, "%s%.*f &plusmn; %.*f", value < 0 ? "&minus;" : "", decimals, fabs(value), decimals,
                error);
}

/* What a data URL may hold as it is; CSV is mostly that. */
static bool is_plain(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr(",.-_+=:;()/", c) != NULL);
}

void fl_html_download(FILE *stream, const char *file, const char *csv, size_t bytes) {
    fputs("<a class=\"download\" download=\"", stream);
    fl_html_text(stream, file);
    fputs("\" href=\"data:text/csv;charset=utf-8,", stream);
    for (size_t i = 0; i < bytes; i++) {
        if (is_plain(csv[i]))
            fputc(csv[i], stream);
        else
            fprintf(stream, "%%%02X", (unsigned)(unsigned char)csv[i]);
    }
    fputs("\">", stream);
    fl_html_text(stream, file);
    fprintf(stream, " <small>%.3g&nbsp;KB</small></a>", (double)bytes / 1000);
}

void fl_html_open_styled(FILE *stream, const char *title, const char *style) {
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          stream);
    fl_html_text(stream, title);
    fprintf(stream, "</title>\n<style>\n%s%s</style>\n</head>\n<body>\n", fl_html_style, style);
}

void fl_html_open(FILE *stream, const char *title) {
    fl_html_open_styled(stream, title, "");
}

void fl_html_close(FILE *stream) {
    fprintf(stream, "<script>\n%s</script>\n</body>\n</html>\n", fl_html_script);
}
