#include "analysis/report_tables.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/equal_bytes.h"
#include "analysis/html.h"
#include "analysis/run_scores.h"
#include "analysis/run_columns.h"
#include "harness/base/memory.h"

enum { NAME_BYTES = 512 };

/* A column of the runs' table: a metric, or something made for the page. */
typedef struct column {
    const char *metric, *heading; /* metric: also what decides whether any run has the column */
    double scale;
    enum { PLAIN, ALL_BYTES, INTERVAL, GAIN } kind;
} column;

static const column columns[] = {
    {"nmse", "nMSE", 1, PLAIN},
    {"linear_off/nmse", "nMSE, linear off", 1, PLAIN},
    {"perplexity", "perplexity", 1, PLAIN},
    {"perplexity", "95 % interval", 1, INTERVAL},
    {"linear_off/perplexity", "perplexity, linear off", 1, PLAIN},
    {"linear_off/perplexity", "perplexity minus linear off, 95 % interval", 1, GAIN},
    {"full_perplexity", "perplexity, full model", 1, PLAIN},
    {"kl", "KL, nats", 1, PLAIN},
    {"linear_off/kl", "KL, linear off", 1, PLAIN},
    {"agreement", "agreement, %", 100, PLAIN},
    {"state_bytes", "state, KiB", 1.0 / 1024, PLAIN},
    {"exact_bytes", "exact, KiB", 1.0 / 1024, PLAIN},
    {"exact_bytes", "both, KiB", 1.0 / 1024, ALL_BYTES},
    {"linear_share", "reached the state, %", 100, PLAIN},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static bool any_has(const fl_run_set *set, const char *metric) {
    for (size_t i = 0; i < set->count; i++) {
        if (fl_run_has_metric(&set->runs[i], metric)) return true;
    }
    return false;
}

static bool is_shown(const fl_report_certainty *c, const column *shown) {
    const fl_interval *intervals = shown->kind == INTERVAL ? c->perplexity : c->gain;
    if (shown->kind == PLAIN || shown->kind == ALL_BYTES) return any_has(c->set, shown->metric);
    for (size_t i = 0; i < c->groups->count; i++) {
        if (intervals[i].known) return true;
    }
    return false;
}

static void write_tag(const char *text, FILE *stream) {
    fprintf(stream, " <span class=\"tag\">%s</span>", text);
}

/* The name of a row and what should be known of its runs. */
static void write_name(const fl_run_groups *groups, size_t index, FILE *stream) {
    const fl_run_group *group = &groups->items[index];
    bool is_warned = false;
    for (size_t i = 0; i < group->count; i++)
        is_warned = is_warned || groups->set->runs[group->runs[i]].warning_count > 0;
    fputs(fl_run_has_linear_part(fl_run_group_first(groups, index)) ? "<tr><td>" : "<tr class=\"base\"><td>",
          stream);
    fl_html_text(stream, group->label);
    if (group->diverged) write_tag("diverged", stream);
    if (group->older) write_tag("older", stream);
    if (is_warned) write_tag("warned", stream);
    fputs("</td>", stream);
}

static void open_cell(double sorted_by, bool worse, FILE *stream) {
    fprintf(stream, "<td%s data-v=\"", worse ? " class=\"worse\"" : "");
    if (isinf(sorted_by))
        fputs(sorted_by > 0 ? "Infinity" : "-Infinity", stream);
    else if (!isnan(sorted_by))
        fprintf(stream, "%.9g", sorted_by);
    fputs("\">", stream);
}

static void write_number(double value, FILE *stream) {
    char text[FL_HTML_NUMBER_BYTES];
    fputs(fl_html_number(value, text), stream);
}

static void write_cell(double value, bool worse, FILE *stream) {
    open_cell(value, worse, stream);
    write_number(value, stream);
    fputs("</td>", stream);
}

static void write_with_error(double value, double error, bool worse, FILE *stream) {
    open_cell(value, worse, stream);
    fl_html_with_error(stream, value, error);
    fputs("</td>", stream);
}

static void write_bounds(const fl_interval *interval, FILE *stream) {
    fputc('[', stream);
    write_number(interval->low, stream);
    fputs(", ", stream);
    write_number(interval->high, stream);
    fputc(']', stream);
}

static void write_interval(const fl_interval *interval, bool with_estimate, FILE *stream) {
    open_cell(interval->estimate, false, stream);
    if (with_estimate || !interval->known) {
        write_number(interval->estimate, stream);
        fputc(' ', stream);
    }
    if (interval->known) write_bounds(interval, stream);
    fputs("</td>", stream);
}

static bool no_gain(const fl_run_groups *groups, size_t group) {
    return fl_run_has_linear_part(fl_run_group_first(groups, group)) &&
           fl_run_group_metric(groups, group, "linear_off/perplexity").mean <=
               fl_run_group_metric(groups, group, "perplexity").mean;
}

static void write_figure(const fl_report_certainty *c, size_t group, const column *shown, FILE *stream) {
    const fl_run_entry *first = fl_run_group_first(c->groups, group);
    bool is_of_linear_part =
        strncmp(shown->metric, "linear_off/", 11) == 0 || strcmp(shown->metric, "linear_share") == 0;
    bool worse = strcmp(shown->metric, "perplexity") == 0 && no_gain(c->groups, group);
    fl_run_spread spread = fl_run_group_metric(c->groups, group, shown->metric);
    if (is_of_linear_part && !fl_run_has_linear_part(first)) {
        write_cell((double)NAN, false, stream);
    } else if (shown->kind == INTERVAL || shown->kind == GAIN) {
        const fl_interval *intervals = shown->kind == GAIN ? c->gain : c->perplexity;
        write_interval(&intervals[group], shown->kind == GAIN, stream);
    } else if (shown->kind == ALL_BYTES) {
        write_cell(shown->scale * fl_run_bytes(first), false, stream);
    } else {
        write_with_error(shown->scale * spread.mean, shown->scale * spread.sd, worse, stream);
    }
}

static void write_group(const fl_report_certainty *c, size_t group, FILE *stream) {
    write_name(c->groups, group, stream);
    fputs("<td>", stream);
    fl_html_text(stream, fl_run_group_first(c->groups, group)->tier);
    fputs("</td>", stream);
    if (fl_run_groups_any_seeds(c->groups)) write_cell((double)c->groups->items[group].count, false, stream);
    for (size_t k = 0; k < COLUMNS; k++) {
        if (is_shown(c, &columns[k])) write_figure(c, group, &columns[k], stream);
    }
    fputs("</tr>\n", stream);
}

static void open_table(const char *name, FILE *stream) {
    fputs("<div class=\"wide tall\" tabindex=\"0\" role=\"region\" aria-label=\"", stream);
    fl_html_text(stream, name);
    fputs("\"><table class=\"sortable\">\n<thead><tr><th scope=\"col\">run</th>", stream);
}

static void write_heading(const char *heading, FILE *stream) {
    fputs("<th scope=\"col\">", stream);
    fl_html_text(stream, heading);
    fputs("</th>", stream);
}

/* Everything that is a single value, one row a run. */
static fl_status write_tidy_table(const fl_run_set *set, FILE *stream, fl_error *error) {
    fl_table table;
    char *csv = NULL;
    size_t bytes = 0;
    FL_TRY(fl_run_columns_every_run(set, &table, error));
    FILE *text = open_memstream(&csv, &bytes);
    if (text != NULL) fl_table_write_csv(&table, text);
    bool is_written = text != NULL && fclose(text) == 0;
    fl_table_release(&table);
    fl_status status = FL_OK;
    if (is_written) {
        fputs("<p class=\"note numbers\">All figures and settings of all runs: ", stream);
        fl_html_download(stream, "runs.csv", csv, bytes);
        fputs("</p>\n", stream);
    } else {
        status = fl_error_set(error, FL_ERROR_MEMORY, "the table of runs: %s", strerror(errno));
    }
    free(csv);
    return status;
}

fl_status fl_report_runs_write(const fl_report_certainty *certainty, FILE *stream, fl_error *error) {
    fputs("<section class=\"sheet\">\n<h2 id=\"runs\">Runs</h2>\n", stream);
    open_table("Runs", stream);
    write_heading("tier", stream);
    if (fl_run_groups_any_seeds(certainty->groups)) write_heading("seeds", stream);
    for (size_t c = 0; c < COLUMNS; c++) {
        if (is_shown(certainty, &columns[c])) write_heading(columns[c].heading, stream);
    }
    fputs("</tr></thead>\n<tbody>\n", stream);
    for (size_t i = 0; i < certainty->groups->count; i++) write_group(certainty, i, stream);
    fputs(
        "</tbody></table></div>\n<p class=\"note\">A heading sorts the table by its column. Shaded: leaving "
        "the "
        "linear part out is the same or better in the plain figure. Grey rows have no linear part. nMSE and "
        "perplexity need not agree: read both. What the columns mean: <a "
        "href=\"#definitions\">definitions</a>.</p>\n",
        stream);
    FL_TRY(write_tidy_table(certainty->set, stream, error));
    fputs("</section>\n", stream);
    return FL_OK;
}

static fl_run_spread spread_of(const fl_run_groups *groups, size_t group, const char *prefix,
                               const char *task, const char *metric, const char *suffix) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s/%s/%s%s", prefix, task, metric, suffix);
    return fl_run_group_metric(groups, group, name);
}

static bool any_has_task(const fl_run_set *set, const char *task, const char *metric) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "tasks/%s/%s", task, metric);
    return any_has(set, name);
}

static const char *const metrics[] = {"acc", "acc_norm", "perplexity", "word_perplexity", "byte_perplexity"};
enum { METRICS = sizeof metrics / sizeof metrics[0] };

/* A figure with its standard error; of several seeds the mean with their standard deviation. */
static void write_score(const fl_run_groups *groups, size_t group, const char *prefix, const char *task,
                        const char *metric, bool marks_loss, FILE *stream) {
    fl_run_spread spread = spread_of(groups, group, prefix, task, metric, "");
    double error = spread.n > 1 ? spread.sd : spread_of(groups, group, prefix, task, metric, "_stderr").mean;
    write_with_error(spread.mean, isnan(spread.mean) ? spread.mean : error, marks_loss && spread.mean <= 0,
                     stream);
}

/* The scores of one row in one task. */
static void write_task_row(const fl_run_groups *groups, size_t group, const char *task, FILE *stream) {
    const fl_run_set *set = groups->set;
    const char *off = fl_run_has_linear_part(fl_run_group_first(groups, group)) ? "linear_off/tasks" : "none";
    write_name(groups, group, stream);
    for (size_t m = 0; m < METRICS; m++) {
        if (!any_has_task(set, task, metrics[m])) continue;
        write_score(groups, group, "tasks", task, metrics[m], false, stream);
        write_cell(spread_of(groups, group, "full/tasks", task, metrics[m], "").mean, false, stream);
        write_cell(spread_of(groups, group, off, task, metrics[m], "").mean, false, stream);
    }
    if (any_has_task(set, task, "acc")) {
        fl_run_spread p = spread_of(groups, group, off, task, "mcnemar_exact_p", "");
        write_score(groups, group, "full/tasks", task, "difference", false, stream);
        write_score(groups, group, off, task, "difference", true, stream);
        write_cell(p.n == 1 ? p.mean : (double)NAN, false, stream);
    }
    bool is_linear = strcmp(off, "none") != 0;
    write_cell(is_linear ? 100 * spread_of(groups, group, "tasks", task, "linear_share", "").mean
                         : (double)NAN,
               false, stream);
    fputs("</tr>\n", stream);
}

static void write_task_headings(const fl_run_set *set, const char *task, FILE *stream) {
    static const char *const paired[] = {"acc minus full model", "acc minus linear off", "McNemar p"};
    for (size_t m = 0; m < METRICS; m++) {
        if (!any_has_task(set, task, metrics[m])) continue;
        write_heading(metrics[m], stream);
        write_heading("full model", stream);
        write_heading("linear off", stream);
    }
    for (size_t i = 0; i < 3 && any_has_task(set, task, "acc"); i++) write_heading(paired[i], stream);
    write_heading("reached the state, %", stream);
}

static void write_task(const fl_run_groups *groups, const fl_run_score *score, FILE *stream) {
    const fl_run_set *set = groups->set;
    char name[NAME_BYTES], n[FL_HTML_NUMBER_BYTES], chance[FL_HTML_NUMBER_BYTES];
    snprintf(name, sizeof name, "tasks/%s/n", score->task);
    fputs("<h3>", stream);
    fl_html_text(stream, score->task);
    fprintf(stream, "</h3>\n<p class=\"note\">%s items", fl_html_number(fl_run_scores_shared(set, name), n));
    if (score->chance[0] != '\0')
        fprintf(stream, ", chance %s", fl_html_number(fl_run_scores_shared(set, score->chance), chance));
    fputs("</p>\n", stream);
    open_table(score->task, stream);
    write_task_headings(set, score->task, stream);
    fputs("</tr></thead>\n<tbody>\n", stream);
    for (size_t i = 0; i < groups->count; i++) {
        if (fl_run_group_metric(groups, i, name).n > 0) write_task_row(groups, i, score->task, stream);
    }
    fputs("</tbody></table></div>\n", stream);
}

fl_status fl_report_tasks_write(const fl_run_groups *groups, FILE *stream, fl_error *error) {
    fl_run_score *scores = NULL;
    size_t count = 0, written = 0;
    FL_TRY(fl_run_scores_list(groups->set, &scores, &count, error));
    for (size_t i = 0; i < count; i++) {
        if (scores[i].task[0] == '\0') continue;
        if (written++ == 0) fputs("<section class=\"sheet\">\n<h2 id=\"tasks\">Tasks</h2>\n", stream);
        write_task(groups, &scores[i], stream);
    }
    if (written > 0)
        fputs("<p class=\"note\">&plusmn;: standard error; of several seeds their standard deviation. "
              "Differences are paired, over the same items; "
              "McNemar's exact test is against the run with its linear part off.</p>\n</section>\n",
              stream);
    fl_memory_free(scores);
    return FL_OK;
}
