#include "analysis/report_words.h"

#include <math.h>

#include "analysis/html.h"

void fl_report_number(FILE *stream, double value) {
    char text[FL_HTML_NUMBER_BYTES];
    fputs(fl_html_number(value, text), stream);
}

void fl_report_bytes(FILE *stream, double bytes) {
    const double kibibyte = 1024, mebibyte = 1024 * kibibyte;
    bool is_large = bytes >= mebibyte;
    fprintf(stream, "%.3g&nbsp;%s", bytes / (is_large ? mebibyte : kibibyte), is_large ? "MiB" : "KiB");
}

void fl_report_run(const fl_report_case *c, size_t run) {
    fputs("<b>", c->stream);
    fl_html_text(c->stream, c->set->runs[run].label);
    fputs("</b>", c->stream);
}

void fl_report_score_name(const fl_report_case *c) {
    fl_html_text(c->stream, c->score->task[0] != '\0' ? c->score->title : c->score->axis);
}

void fl_report_contender(const fl_report_case *c, const fl_contender *contender) {
    fl_report_run(c, contender->run);
    fputs(": ", c->stream);
    fl_report_score_name(c);
    fputs("&nbsp;", c->stream);
    fl_report_number(c->stream, contender->score);
    if (isnan(contender->bytes)) return;
    fputs(" with ", c->stream);
    fl_report_bytes(c->stream, contender->bytes);
    fputs(" a sequence", c->stream);
}

void fl_report_difference(const fl_report_case *c, const fl_interval *difference) {
    FILE *stream = c->stream;
    if (!isnan(difference->estimate)) {
        fputs("difference ", stream);
        fl_report_number(stream, difference->estimate);
        fputs(", ", stream);
    }
    if (!difference->known) {
        fl_html_text(stream, difference->why_not);
        return;
    }
    fprintf(stream, "%.0f&nbsp;%% interval ", 100 * difference->level);
    fl_report_number(stream, difference->low);
    fputs(" to ", stream);
    fl_report_number(stream, difference->high);
    if (difference->p < 1e-4)
        fputs(", p &lt; 0.0001", stream);
    else if (!isnan(difference->p))
        fprintf(stream, ", p = %.2g", difference->p);
    if (difference->sequences > 0)
        fprintf(stream, ", %zu %s", difference->sequences, c->score->task[0] != '\0' ? "items" : "sequences");
}
