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

void fl_report_run(const fl_report_case *c, size_t group) {
    fputs("<b>", c->stream);
    fl_html_text(c->stream, c->groups->items[group].label);
    fputs("</b>", c->stream);
}

void fl_report_score_name(const fl_report_case *c) {
    fl_html_text(c->stream, c->score->task[0] != '\0' ? c->score->title : c->score->axis);
}

/* The mean over seeds, with their number. */
static void write_score(const fl_report_case *c, const fl_contender *contender) {
    fl_run_spread spread = fl_run_group_metric(c->groups, contender->group, c->score->value);
    fl_html_with_error(c->stream, contender->score, spread.sd);
    if (spread.n > 1) fprintf(c->stream, " (%zu&nbsp;seeds)", spread.n);
}

void fl_report_contender(const fl_report_case *c, const fl_contender *contender) {
    fl_report_run(c, contender->group);
    fputs(": ", c->stream);
    fl_report_score_name(c);
    fputs("&nbsp;", c->stream);
    write_score(c, contender);
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
