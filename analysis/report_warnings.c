#include "analysis/report_warnings.h"

#include <math.h>
#include <string.h>

#include "analysis/html.h"
#include "analysis/run_scores.h"
#include "analysis/run_warnings.h"
#include "harness/base/memory.h"

enum { DETAIL_BYTES = 256, NAME_BYTES = 512 };

typedef struct page {
    const fl_run_set *set;
    FILE *stream;
    size_t written;
} page;

/* Whether a finding concerns a run; `detail` is what is said in brackets behind its name (HTML). */
typedef bool (*finding)(const fl_run_entry *run, const char *task, char detail[DETAIL_BYTES]);

static void open_item(page *p) {
    if (p->written++ == 0)
        fputs("<h2 id=\"warnings\">Read this first</h2>\n<ul class=\"warnings\">\n", p->stream);
    fputs("<li>", p->stream);
}

/* One item for all runs that it concerns. */
static void check(page *p, finding concerns, const char *task, const char *headline) {
    size_t count = 0;
    for (size_t i = 0; i < p->set->count; i++) {
        char detail[DETAIL_BYTES] = "";
        if (!concerns(&p->set->runs[i], task, detail)) continue;
        if (count++ == 0) {
            open_item(p);
            if (task != NULL) {
                fputs("<b>", p->stream);
                fl_html_text(p->stream, task);
                fputs(":</b> ", p->stream);
            }
            fprintf(p->stream, "%s: ", headline);
        } else {
            fputs("; ", p->stream);
        }
        fl_html_text(p->stream, p->set->runs[i].label);
        if (detail[0] != '\0') fprintf(p->stream, " (%s)", detail);
    }
    if (count > 0) fputs(".</li>\n", p->stream);
}

static double task_metric(const fl_run_entry *run, const char *prefix, const char *task, const char *metric) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s/%s/%s", prefix, task, metric);
    return fl_run_metric_value(run, name);
}

static bool has_diverged(const fl_run_entry *run, const char *task, char detail[DETAIL_BYTES]) {
    (void)task, (void)detail;
    return run->diverged;
}

static bool never_reached(const fl_run_entry *run, const char *task, char detail[DETAIL_BYTES]) {
    (void)detail;
    double share = task != NULL ? task_metric(run, "tasks", task, "linear_share")
                                : fl_run_metric_value(run, "linear_share");
    return fl_run_has_linear_part(run) && share == 0;
}

static bool seldom_reached(const fl_run_entry *run, const char *task, char detail[DETAIL_BYTES]) {
    double share = task != NULL ? task_metric(run, "tasks", task, "linear_share")
                                : fl_run_metric_value(run, "linear_share");
    if (!fl_run_has_linear_part(run) || !(share > 0 && share < 0.5)) return false;
    snprintf(detail, DETAIL_BYTES, "%.0f&nbsp;%%", 100 * share);
    return true;
}

static bool no_gain(const fl_run_entry *run, const char *task, char detail[DETAIL_BYTES]) {
    char own[FL_HTML_NUMBER_BYTES], off[FL_HTML_NUMBER_BYTES];
    (void)task;
    if (!fl_run_no_gain(run)) return false;
    snprintf(detail, DETAIL_BYTES, "%s, without it %s",
             fl_html_number(fl_run_metric_value(run, "perplexity"), own),
             fl_html_number(fl_run_metric_value(run, "linear_off/perplexity"), off));
    return true;
}

static bool disagrees(const fl_run_entry *run, const char *task, char detail[DETAIL_BYTES]) {
    (void)task;
    double error = fl_run_metric_value(run, "nmse") - fl_run_metric_value(run, "linear_off/nmse");
    double perplexity =
        fl_run_metric_value(run, "perplexity") - fl_run_metric_value(run, "linear_off/perplexity");
    if (!fl_run_has_linear_part(run) || !(error * perplexity < 0)) return false;
    snprintf(detail, DETAIL_BYTES, "%s",
             error < 0 ? "lower nMSE, higher perplexity" : "higher nMSE, lower perplexity");
    return true;
}

static bool is_truncated(const fl_run_entry *run, const char *task, char detail[DETAIL_BYTES]) {
    double truncated = task_metric(run, "tasks", task, "truncated"), n = task_metric(run, "tasks", task, "n");
    if (!(truncated > 0)) return false;
    snprintf(detail, DETAIL_BYTES, "%.0f of %.0f items", truncated, n);
    return true;
}

static bool is_near_chance(const fl_run_entry *run, const char *task, char detail[DETAIL_BYTES]) {
    double acc = task_metric(run, "tasks", task, "acc"),
           error = task_metric(run, "tasks", task, "acc_stderr");
    if (!(fabs(acc - task_metric(run, "tasks", task, "chance")) <= 2 * error)) return false;
    snprintf(detail, DETAIL_BYTES, "%.3g &plusmn; %.2g", acc, error);
    return true;
}

static bool task_no_gain(const fl_run_entry *run, const char *task, char detail[DETAIL_BYTES]) {
    double difference = task_metric(run, "linear_off/tasks", task, "difference");
    double error = task_metric(run, "linear_off/tasks", task, "difference_stderr");
    char a[FL_HTML_NUMBER_BYTES], b[FL_HTML_NUMBER_BYTES];
    if (!fl_run_has_linear_part(run) || !(difference <= 0)) return false;
    snprintf(detail, DETAIL_BYTES, "%s &plusmn; %s", fl_html_number(difference, a), fl_html_number(error, b));
    return true;
}

/* All of one kind, by name. */
static void check_absent(page *p, fl_absence absence, const char *headline) {
    size_t count = 0;
    for (size_t i = 0; i < p->set->absent.count; i++) {
        const fl_absent_run *run = &p->set->absent.items[i];
        if (run->absence != absence) continue;
        if (count++ == 0) {
            open_item(p);
            fprintf(p->stream, "%zu %s:\n<ul>\n", fl_absent_runs_count(&p->set->absent, absence), headline);
        }
        fputs("<li><code>", p->stream);
        fl_html_text(p->stream, run->name);
        fputs("</code>", p->stream);
        if (run->message[0] != '\0') fputs(": ", p->stream);
        fl_html_text(p->stream, run->message);
        fputs("</li>\n", p->stream);
    }
    if (count > 0) fputs("</ul></li>\n", p->stream);
}

static void check_set(page *p) {
    check_absent(p, FL_ABSENT_FAILED, "failed, in no table or figure");
    check_absent(p, FL_ABSENT_UNFINISHED, "begun and not done, in no table or figure");
    check_absent(p, FL_ABSENT_UNREADABLE, "left out: the run file cannot be read");
    for (size_t i = 0; i < p->set->axis_count; i++) {
        const char *axis = p->set->axes[i];
        bool is_text = strcmp(axis, "text") == 0 || strncmp(axis, "text.", 5) == 0;
        bool is_model = strcmp(axis, "model") == 0 || strncmp(axis, "model.", 6) == 0;
        if (!is_text && !is_model) continue;
        open_item(p);
        fputs("The runs differ in <code>", p->stream);
        fl_html_text(p->stream, axis);
        fputs("</code>: errors and perplexities are comparable only where it is the same.</li>\n", p->stream);
    }
}

/* Texts that runs have, each once behind `headline`, with its runs. */
static fl_status check_texts(page *p, const char *headline, const fl_warned *rows, fl_error *error) {
    fl_warning_group *groups = NULL;
    size_t count = 0, all = p->set->count;
    FL_TRY(fl_run_warnings_group(rows, all, &groups, &count, error));
    for (size_t g = 0; g < count; g++) {
        open_item(p);
        fputs(headline, p->stream);
        fl_html_text(p->stream, groups[g].text);
        for (size_t i = 0; i < groups[g].count && groups[g].count < all; i++) {
            fputs(i == 0 ? " (" : "; ", p->stream);
            fl_html_text(p->stream, rows[groups[g].cells[i]].label);
        }
        fputs(groups[g].count < all ? ").</li>\n" : " (all runs).</li>\n", p->stream);
    }
    fl_run_warnings_release(groups, count);
    return FL_OK;
}

/* The warnings in the run files. */
static fl_status check_recorded(page *p, fl_error *error) {
    fl_warned *rows = NULL;
    FL_TRY(FL_ALLOCATE(&rows, p->set->count, error));
    for (size_t i = 0; i < p->set->count; i++) {
        const fl_run_entry *run = &p->set->runs[i];
        rows[i] = (fl_warned){run->label, run->warnings, run->warning_count};
    }
    fl_status status = check_texts(p, "", rows, error);
    fl_memory_free(rows);
    return status;
}

static fl_status check_older(page *p, fl_error *error) {
    fl_warned *rows = NULL;
    FL_TRY(FL_ALLOCATE(&rows, p->set->count, error));
    for (size_t i = 0; i < p->set->count; i++) {
        const fl_run_entry *run = &p->set->runs[i];
        rows[i] = (fl_warned){run->label, &run->changed, run->older ? 1 : 0};
    }
    fl_status status = check_texts(
        p,
        "Older: measured by other code than that of the program which made this page; what differs: ", rows,
        error);
    fl_memory_free(rows);
    return status;
}

static void write_twins(page *p, const size_t *twin_of, size_t first) {
    size_t twins = 0;
    for (size_t i = first + 1; i < p->set->count; i++) {
        if (twin_of[i] != first) continue;
        if (twins++ == 0) {
            open_item(p);
            fputs("Equal numbers: ", p->stream);
            fl_html_text(p->stream, p->set->runs[first].label);
        }
        fputs("; ", p->stream);
        fl_html_text(p->stream, p->set->runs[i].label);
    }
    if (twins > 0) fputs(". They measure one thing, or a setting has no effect.</li>\n", p->stream);
}

static fl_status check_twins(page *p, fl_error *error) {
    const fl_run_entry **runs = NULL;
    size_t *twin_of = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&runs, p->set->count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&twin_of, p->set->count, error));
    for (size_t i = 0; i < p->set->count; i++) runs[i] = &p->set->runs[i];
    fl_run_twins_find(runs, p->set->count, twin_of);
    for (size_t i = 0; i < p->set->count; i++) write_twins(p, twin_of, i);
done:
    fl_memory_free(runs);
    fl_memory_free(twin_of);
    return status;
}

static void check_task(page *p, const char *task) {
    check(p, never_reached, task,
          "no prompt was long enough to reach the linear state, which was not tested here");
    check(p, seldom_reached, task, "the linear state was reached for less than half of the scored tokens");
    check(p, is_truncated, task, "prompts were cut off on the left");
    check(p, is_near_chance, task, "within two standard errors of chance");
    check(p, task_no_gain, task,
          "no gain over the run with the linear part off, on the same items (paired difference)");
}

fl_status fl_report_warnings_write(const fl_run_set *set, FILE *stream, fl_error *error) {
    page p = {.set = set, .stream = stream};
    fl_run_score *scores = NULL;
    size_t count = 0;
    fl_status status = FL_OK;
    FL_TRY(fl_run_scores_list(set, &scores, &count, error));
    check_set(&p);
    status = check_recorded(&p, error);
    if (status == FL_OK) status = check_twins(&p, error);
    if (status == FL_OK) status = check_older(&p, error);
    check(&p, has_diverged, NULL, "Diverged (figures that are not finite are the result)");
    check(&p, never_reached, NULL,
          "No scored token of the evaluation text had a context that reached the linear state, which was not "
          "tested");
    check(&p, seldom_reached, NULL,
          "The linear state was reached for less than half of the text's scored tokens");
    check(&p, no_gain, NULL, "No gain: perplexity is the same or better with the linear part off");
    check(&p, disagrees, NULL,
          "nMSE and perplexity disagree about the linear part (against the same run without it)");
    for (size_t i = 0; i < count; i++) {
        if (scores[i].task[0] != '\0') check_task(&p, scores[i].task);
    }
    if (p.written > 0) fputs("</ul>\n", stream);
    fl_memory_free(scores);
    return status;
}
