#include "analysis/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/output_file.h"
#include "analysis/plots.h"
#include "analysis/run_summary.h"
#include "harness/base/memory.h"
#include "harness/eval/text_file.h"

enum { PATH_BYTES = 4096, MAX_FIGURES = 64, NUMBER_BYTES = 32, NAME_BYTES = 96 };

typedef struct report {
    const fl_run_set *set;
    fl_run_summary *summaries; /* [set->count] */
    const char *figure_folder;
    size_t figure_count;
    char figures[MAX_FIGURES][NAME_BYTES];
    bool without_gnuplot;
    FILE *stream;
} report;

static const char style[] =
    "body{font:16px/1.5 system-ui,sans-serif;margin:0 "
    "auto;max-width:70rem;padding:1rem;color:#1a1a1a;background:#fff}\n"
    "h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid #ccc}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}\n"
    "th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #e2e2e2;white-space:nowrap}\n"
    "th:first-child,td:first-child{text-align:left}\n"
    ".worse{background:#fbe6dc}figure{margin:1.5rem 0}figure svg{max-width:100%;height:auto}\n"
    "figcaption,.note{color:#555;font-size:.9rem}pre{overflow-x:auto;background:#f6f6f6;padding:.6rem;font-"
    "size:.85rem}\n"
    "code,li,td.text{overflow-wrap:anywhere;white-space:normal}td.text{text-align:left}\n";

static void text(FILE *stream, const char *content) {
    for (; *content != '\0'; content++) {
        switch (*content) {
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
            fputc(*content, stream);
        }
    }
}

static const char *number(double value, char out[NUMBER_BYTES]) {
    if (isnan(value))
        snprintf(out, NUMBER_BYTES, "&ndash;");
    else if (isinf(value))
        snprintf(out, NUMBER_BYTES, "&infin;");
    else if (value != 0 && (fabs(value) >= 1e5 || fabs(value) < 1e-4))
        snprintf(out, NUMBER_BYTES, "%.2e", value);
    else
        snprintf(out, NUMBER_BYTES, "%.4g", value);
    return out;
}

static void cell(FILE *stream, double value, bool worse) {
    char out[NUMBER_BYTES];
    fprintf(stream, "<td%s>%s</td>", worse ? " class=\"worse\"" : "", number(value, out));
}

static void with_error(FILE *stream, double value, double error) {
    char a[NUMBER_BYTES], b[NUMBER_BYTES];
    if (isnan(error))
        fprintf(stream, "<td>%s</td>", number(value, a));
    else
        fprintf(stream, "<td>%s &plusmn; %s</td>", number(value, a), number(error, b));
}

static void write_table(const report *r) {
    FILE *stream = r->stream;
    fputs("<h2>Runs</h2>\n<div class=\"wide\"><table>\n<tr><th>run</th><th>tier</th><th>nMSE</th><th>linear "
          "off</th>"
          "<th>perplexity</th><th>linear off</th><th>full model</th><th>KL</th><th>agreement</th><th>state "
          "KiB</th>"
          "<th>exact KiB</th><th>linear share</th></tr>\n",
          stream);
    for (size_t i = 0; i < r->set->count; i++) {
        const fl_run_summary *s = &r->summaries[i];
        bool worse = fl_run_summary_no_gain(s);
        fputs("<tr><td>", stream);
        text(stream, r->set->runs[i].label);
        fputs("</td><td>", stream);
        text(stream, s->tier);
        fputs("</td>", stream);
        cell(stream, s->nmse, false);
        cell(stream, s->off_nmse, false);
        cell(stream, s->perplexity, worse);
        cell(stream, s->off_perplexity, false);
        cell(stream, s->full_perplexity, false);
        cell(stream, s->kl, false);
        cell(stream, s->agreement, false);
        cell(stream, s->state_bytes / 1024, false);
        cell(stream, s->exact_bytes / 1024, false);
        cell(stream, s->linear_share, false);
        fputs("</tr>\n", stream);
    }
    fputs("</table></div>\n<p class=\"note\">nMSE: teacher forced, after the output projection, mean over "
          "layers. Linear off: "
          "the same run with the exact set alone. Shaded: leaving the linear part out scores the same or "
          "better. Linear "
          "share: scored tokens whose context had reached the state.</p>\n",
          stream);
}

static void write_task_rows(const report *r, size_t run) {
    for (size_t t = 0; t < r->summaries[run].task_count; t++) {
        const fl_task_summary *task = &r->summaries[run].tasks[t];
        fputs("<tr><td>", r->stream);
        text(r->stream, r->set->runs[run].label);
        fputs("</td><td>", r->stream);
        text(r->stream, task->label);
        fputs("</td>", r->stream);
        cell(r->stream, task->n, false);
        with_error(r->stream, task->acc, task->acc_stderr);
        with_error(r->stream, task->acc_norm, task->acc_norm_stderr);
        cell(r->stream, task->perplexity, false);
        cell(r->stream, task->full_acc, false);
        cell(r->stream, task->off_acc, false);
        with_error(r->stream, task->off_difference, task->off_difference_stderr);
        fputs("</tr>\n", r->stream);
    }
}

static void write_tasks(const report *r) {
    size_t tasks = 0;
    for (size_t i = 0; i < r->set->count; i++) tasks += r->summaries[i].task_count;
    if (tasks == 0) return;
    fputs("<h2>Tasks</h2>\n<div "
          "class=\"wide\"><table>\n<tr><th>run</th><th>task</th><th>n</th><th>acc</th><th>acc_norm</th>"
          "<th>perplexity</th><th>full model acc</th><th>linear off acc</th><th>minus linear off, "
          "paired</th></tr>\n",
          r->stream);
    for (size_t i = 0; i < r->set->count; i++) write_task_rows(r, i);
    fputs("</table></div>\n<p class=\"note\">&plusmn;: standard error. The paired difference is over the "
          "same items.</p>\n",
          r->stream);
}

/* 1 / number of choices, from the width of the item table; NaN for tasks without choices. */
static double chance_of(const fl_run_entry *run, const char *task) {
    fl_run_reader *reader = NULL;
    double *data = NULL, chance = NAN;
    size_t rank = 0, shape[4] = {0};
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/tasks/%s/items/log_likelihood", task);
    if (fl_run_reader_open(run->path, &reader, NULL) != FL_OK) return NAN;
    if (fl_run_reader_has(reader, path) &&
        fl_run_reader_doubles(reader, path, &data, &rank, shape, NULL) == FL_OK && rank == 2 &&
        shape[1] > 1) {
        chance = 1.0 / (double)shape[1];
    }
    fl_memory_free(data);
    fl_run_reader_close(reader);
    return chance;
}

static void warn(const report *r, size_t run, size_t *count, const char *message) {
    if ((*count)++ == 0) fputs("<h2>Read this first</h2>\n<ul>\n", r->stream);
    fputs("<li>", r->stream);
    text(r->stream, r->set->runs[run].label);
    fputs(": ", r->stream);
    text(r->stream, message);
    fputs("</li>\n", r->stream);
}

static void warn_about_tasks(const report *r, size_t run, size_t *count) {
    for (size_t t = 0; t < r->summaries[run].task_count; t++) {
        const fl_task_summary *task = &r->summaries[run].tasks[t];
        double chance = chance_of(&r->set->runs[run], task->label);
        char message[256];
        if (!(fabs(task->acc - chance) <= 2 * task->acc_stderr)) continue;
        snprintf(message, sizeof message, "%s is within two standard errors of chance (%.3g against %.3g)",
                 task->label, task->acc, chance);
        warn(r, run, count, message);
    }
}

static void write_warnings(const report *r) {
    size_t count = 0;
    for (size_t i = 0; i < r->set->count; i++) {
        const fl_run_summary *s = &r->summaries[i];
        char message[256];
        if (s->diverged) {
            snprintf(message, sizeof message, "diverged (%s): figures that are not finite are that result",
                     s->diverged_at);
            warn(r, i, &count, message);
        }
        if (s->state_bytes > 0 && s->linear_share == 0) {
            warn(r, i, &count,
                 "no scored token's context ever reached the state: the linear part was not tested");
        } else if (s->state_bytes > 0 && s->linear_share < 0.5) {
            snprintf(message, sizeof message, "only %.0f %% of the scored tokens' contexts reached the state",
                     100 * s->linear_share);
            warn(r, i, &count, message);
        }
        if (fl_run_summary_no_gain(s)) {
            snprintf(message, sizeof message, "no gain: perplexity %.4g, and %.4g with the linear part off",
                     s->perplexity, s->off_perplexity);
            warn(r, i, &count, message);
        }
        warn_about_tasks(r, i, &count);
    }
    if (count > 0) fputs("</ul>\n", r->stream);
}

static void note_figure(void *context, const char *name) {
    report *r = context;
    if (r->figure_count < MAX_FIGURES) snprintf(r->figures[r->figure_count++], NAME_BYTES, "%s", name);
}

/* Kinds for which no run has numbers are left out; any other trouble is an error. */
static fl_status draw_figures(report *r, fl_error *error) {
    const fl_plot_request request = {
        .set = r->set, .folder = r->figure_folder, .format = "svg", .drawn = note_figure, .context = r};
    for (const fl_plot_kind *kind = fl_plot_kinds; kind->name != NULL; kind++) {
        fl_error trouble;
        fl_status status = kind->draw(&request, &trouble);
        if (status == FL_OK || status == FL_ERROR_ARGUMENT) continue;
        if (status == FL_ERROR_UNSUPPORTED) {
            r->without_gnuplot = true;
            return FL_OK;
        }
        if (error != NULL) *error = trouble;
        return status;
    }
    return FL_OK;
}

/* The <svg> element alone, without the XML declaration and document type in front of it. */
static fl_status write_figure(const report *r, const char *name, fl_error *error) {
    char path[PATH_BYTES];
    char *content = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/%s.svg", r->figure_folder, name);
    FL_TRY(fl_text_file_read(path, &content, &bytes, error));
    const char *svg = strstr(content, "<svg");
    if (svg != NULL) {
        fputs("<figure>\n", r->stream);
        fputs(svg, r->stream);
        fprintf(r->stream, "<figcaption>Numbers: %s.csv</figcaption>\n</figure>\n", name);
    }
    fl_memory_free(content);
    return FL_OK;
}

static fl_status write_figures(const report *r, fl_error *error) {
    fputs("<h2>Figures</h2>\n", r->stream);
    if (r->without_gnuplot) fputs("<p>gnuplot is not installed: no figures were drawn.</p>\n", r->stream);
    for (size_t i = 0; i < r->figure_count; i++) FL_TRY(write_figure(r, r->figures[i], error));
    return FL_OK;
}

static void write_provenance_row(const report *r, fl_run_reader *reader, const char *name) {
    char path[PATH_BYTES];
    char *value = NULL;
    snprintf(path, sizeof path, "/provenance/%s", name);
    if (!fl_run_reader_has(reader, path) || fl_run_reader_text(reader, path, &value, NULL) != FL_OK) return;
    fprintf(r->stream, "<tr><td>%s</td><td class=\"text\">", name);
    text(r->stream, value);
    fputs("</td></tr>\n", r->stream);
    fl_memory_free(value);
}

static fl_status write_provenance(const report *r, fl_error *error) {
    static const char *const names[] = {
        "code_revision", "compiler",  "compiler_flags",      "openblas",
        "hdf5",          "host",      "processor",           "operating_system",
        "threads",       "model",     "weights_hash_before", "weights_hash_after",
        "text",          "text_hash", "tokenizer_hash",      "config_file"};
    fl_run_reader *reader = NULL;
    fputs("<h2>Provenance</h2>\n<p class=\"note\">Of the first run; every run file carries its "
          "own.</p>\n<table>\n",
          r->stream);
    FL_TRY(fl_run_reader_open(r->set->runs[0].path, &reader, error));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) write_provenance_row(r, reader, names[i]);
    fputs("</table>\n<h2>Configurations</h2>\n", r->stream);
    fl_run_reader_close(reader);
    for (size_t i = 0; i < r->set->count; i++) {
        const fl_run_entry *run = &r->set->runs[i];
        fputs("<details><summary>", r->stream);
        text(r->stream, run->label);
        fprintf(r->stream, " (%s)</summary><pre>", run->run_id);
        for (size_t k = 0; k < run->key_count; k++) {
            text(r->stream, run->keys[k]);
            fputs(": ", r->stream);
            text(r->stream, run->values[k]);
            fputc('\n', r->stream);
        }
        fputs("</pre></details>\n", r->stream);
    }
    return FL_OK;
}

static fl_status write_page(const report *r, fl_error *error) {
    const char *name = r->set->runs[0].name;
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          r->stream);
    text(r->stream, name);
    fprintf(r->stream, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", style);
    text(r->stream, name);
    fprintf(r->stream, "</h1>\n<p>%zu run%s", r->set->count, r->set->count == 1 ? "" : "s");
    for (size_t i = 0; i < r->set->axis_count; i++) {
        fputs(i == 0 ? ", differing in " : i + 1 < r->set->axis_count ? ", " : " and ", r->stream);
        fputs("<code>", r->stream);
        text(r->stream, r->set->axes[i]);
        fputs("</code>", r->stream);
    }
    fputs(".</p>\n", r->stream);
    write_warnings(r);
    write_table(r);
    write_tasks(r);
    FL_TRY(write_figures(r, error));
    FL_TRY(write_provenance(r, error));
    fputs("</body>\n</html>\n", r->stream);
    return FL_OK;
}

static fl_status write_file(report *r, const char *path, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    r->stream = file.stream;
    fl_status status = write_page(r, error);
    if (status == FL_OK) return fl_output_file_close(&file, error);
    fl_output_file_discard(&file);
    return status;
}

fl_status fl_report_write(const fl_run_set *set, const char *path, const char *figure_folder,
                          fl_error *error) {
    report *r = NULL;
    FL_TRY(FL_ALLOCATE(&r, 1, error));
    r->set = set;
    r->figure_folder = figure_folder;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&r->summaries, set->count, error));
    for (size_t i = 0; i < set->count; i++) {
        FL_TRY_DONE(status, fl_run_summary_read(set->runs[i].path, &r->summaries[i], error));
    }
    FL_TRY_DONE(status, draw_figures(r, error));
    status = write_file(r, path, error);
done:
    for (size_t i = 0; r->summaries != NULL && i < set->count; i++) fl_run_summary_release(&r->summaries[i]);
    fl_memory_free(r->summaries);
    fl_memory_free(r);
    return status;
}
