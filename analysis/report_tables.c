#include "analysis/report_tables.h"

#include <math.h>
#include <string.h>

#include "analysis/html.h"
#include "analysis/report_warnings.h"
#include "analysis/run_scores.h"
#include "harness/base/memory.h"

enum { NAME_BYTES = 512 };

static const struct {
    const char *metric, *heading;
    double scale;
} columns[] = {
    {"nmse", "nMSE", 1},
    {"linear_off/nmse", "nMSE, linear off", 1},
    {"perplexity", "perplexity", 1},
    {"linear_off/perplexity", "perplexity, linear off", 1},
    {"full_perplexity", "perplexity, full model", 1},
    {"kl", "KL, nats", 1},
    {"linear_off/kl", "KL, linear off", 1},
    {"agreement", "agreement, %", 100},
    {"state_bytes", "state, KiB", 1.0 / 1024},
    {"exact_bytes", "exact, KiB", 1.0 / 1024},
    {"linear_share", "reached the state, %", 100},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static bool any_has(const fl_run_set *set, const char *metric) {
    for (size_t i = 0; i < set->count; i++) {
        if (fl_run_has_metric(&set->runs[i], metric)) return true;
    }
    return false;
}

static void write_name(const fl_run_entry *run, FILE *stream) {
    fprintf(stream, fl_run_has_linear_part(run) ? "<tr><td>" : "<tr class=\"base\"><td>");
    fl_html_text(stream, run->label);
    fputs(run->older ? "&nbsp;&dagger;</td>" : "</td>", stream);
}

static void write_cell(double value, bool worse, FILE *stream) {
    char text[FL_HTML_NUMBER_BYTES];
    fprintf(stream, "<td%s>%s</td>", worse ? " class=\"worse\"" : "", fl_html_number(value, text));
}

static void write_with_error(double value, double error, bool worse, FILE *stream) {
    char a[FL_HTML_NUMBER_BYTES], b[FL_HTML_NUMBER_BYTES];
    if (isnan(error)) {
        write_cell(value, worse, stream);
        return;
    }
    fprintf(stream, "<td%s>%s &plusmn; %s</td>", worse ? " class=\"worse\"" : "", fl_html_number(value, a),
            fl_html_number(error, b));
}

static void write_run(const fl_run_set *set, const fl_run_entry *run, FILE *stream) {
    bool linear = fl_run_has_linear_part(run);
    write_name(run, stream);
    fputs("<td>", stream);
    fl_html_text(stream, run->tier);
    fputs("</td>", stream);
    for (size_t c = 0; c < COLUMNS; c++) {
        if (!any_has(set, columns[c].metric)) continue;
        bool is_own_baseline = !linear && (strncmp(columns[c].metric, "linear_off/", 11) == 0 ||
                                           strcmp(columns[c].metric, "linear_share") == 0);
        bool worse = strcmp(columns[c].metric, "perplexity") == 0 && fl_run_no_gain(run);
        double value = columns[c].scale * fl_run_metric_value(run, columns[c].metric);
        write_cell(is_own_baseline ? (double)NAN : value, worse, stream);
    }
    fputs("</tr>\n", stream);
}

void fl_report_runs_write(const fl_run_set *set, FILE *stream) {
    fputs("<h2>Runs</h2>\n<div class=\"wide\"><table>\n<tr><th>run</th><th>tier</th>", stream);
    for (size_t c = 0; c < COLUMNS; c++) {
        if (any_has(set, columns[c].metric)) fprintf(stream, "<th>%s</th>", columns[c].heading);
    }
    fputs("</tr>\n", stream);
    for (size_t i = 0; i < set->count; i++) write_run(set, &set->runs[i], stream);
    fputs("</table></div>\n<p class=\"note\">Names give sinks + window where they differ. nMSE: error of an "
          "attention block on "
          "the frozen model's inputs over that block's variance, after the output projection, mean over "
          "layers. Perplexity, "
          "KL from the full model, agreement with its first choice: end to end. Linear off: the same run "
          "with the exact set "
          "alone. Shaded orange: leaving the linear part out is the same or better. Grey rows have no linear "
          "part. Bytes are "
          "those of one sequence. nMSE and perplexity need not agree: read both.</p>\n",
          stream);
}

static double metric_of(const fl_run_entry *run, const char *prefix, const char *task, const char *metric,
                        const char *suffix) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s/%s/%s%s", prefix, task, metric, suffix);
    return fl_run_metric_value(run, name);
}

static bool any_has_task(const fl_run_set *set, const char *task, const char *metric) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "tasks/%s/%s", task, metric);
    return any_has(set, name);
}

/* One run's scores of one task. */
static void write_task_row(const fl_run_set *set, const fl_run_entry *run, const char *task,
                           const char *const *metrics, size_t count, FILE *stream) {
    static const char *const baselines[] = {"full/tasks", "linear_off/tasks"};
    bool linear = fl_run_has_linear_part(run);
    write_name(run, stream);
    for (size_t m = 0; m < count; m++) {
        if (!any_has_task(set, task, metrics[m])) continue;
        write_with_error(metric_of(run, "tasks", task, metrics[m], ""),
                         metric_of(run, "tasks", task, metrics[m], "_stderr"), false, stream);
        for (size_t b = 0; b < 2; b++)
            write_cell(b == 1 && !linear ? (double)NAN : metric_of(run, baselines[b], task, metrics[m], ""),
                       false, stream);
    }
    for (size_t b = 0; b < 2; b++) {
        double difference = metric_of(run, baselines[b], task, "difference", "");
        if (b == 1 && !linear) difference = (double)NAN;
        write_with_error(difference,
                         isnan(difference) ? difference
                                           : metric_of(run, baselines[b], task, "difference_stderr", ""),
                         b == 1 && difference <= 0, stream);
    }
    write_cell(linear ? metric_of(run, "linear_off/tasks", task, "mcnemar_exact_p", "") : (double)NAN, false,
               stream);
    write_cell(linear ? 100 * metric_of(run, "tasks", task, "linear_share", "") : (double)NAN, false, stream);
    fputs("</tr>\n", stream);
}

static void write_task(const fl_run_set *set, const fl_run_score *score, FILE *stream) {
    static const char *const metrics[] = {"acc", "acc_norm", "perplexity", "word_perplexity",
                                          "byte_perplexity"};
    enum { METRICS = sizeof metrics / sizeof metrics[0] };
    char name[NAME_BYTES], n[FL_HTML_NUMBER_BYTES], chance[FL_HTML_NUMBER_BYTES];
    snprintf(name, sizeof name, "tasks/%s/n", score->task);
    fputs("<h3>", stream);
    fl_html_text(stream, score->task);
    fprintf(stream, "</h3>\n<p class=\"note\">%s items", fl_html_number(fl_run_scores_shared(set, name), n));
    if (score->chance[0] != '\0')
        fprintf(stream, ", chance %s", fl_html_number(fl_run_scores_shared(set, score->chance), chance));
    fputs("</p>\n<div class=\"wide\"><table>\n<tr><th>run</th>", stream);
    for (size_t m = 0; m < METRICS; m++) {
        if (any_has_task(set, score->task, metrics[m]))
            fprintf(stream, "<th>%s</th><th>full model</th><th>linear off</th>", metrics[m]);
    }
    fputs("<th>acc minus full model</th><th>acc minus linear off</th><th>McNemar p</th><th>reached the "
          "state, %</th></tr>\n",
          stream);
    for (size_t i = 0; i < set->count; i++) {
        if (fl_run_has_metric(&set->runs[i], name))
            write_task_row(set, &set->runs[i], score->task, metrics, METRICS, stream);
    }
    fputs("</table></div>\n", stream);
}

fl_status fl_report_tasks_write(const fl_run_set *set, FILE *stream, fl_error *error) {
    fl_run_score *scores = NULL;
    size_t count = 0, written = 0;
    FL_TRY(fl_run_scores_list(set, &scores, &count, error));
    for (size_t i = 0; i < count; i++) {
        if (scores[i].task[0] == '\0') continue;
        if (written++ == 0) fputs("<h2>Tasks</h2>\n", stream);
        write_task(set, &scores[i], stream);
    }
    if (written > 0)
        fputs("<p class=\"note\">&plusmn;: standard error. Differences are paired, over the same items; "
              "McNemar's exact test is "
              "against the run with its linear part off.</p>\n",
              stream);
    fl_memory_free(scores);
    return FL_OK;
}
