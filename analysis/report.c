#include "analysis/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/html.h"
#include "analysis/output_file.h"
#include "analysis/plots.h"
#include "analysis/report_answer.h"
#include "analysis/report_certainty.h"
#include "analysis/report_tables.h"
#include "analysis/report_terms.h"
#include "analysis/report_warnings.h"
#include "harness/base/memory.h"
#include "harness/base/text_file.h"

enum { PATH_BYTES = 4096, MAX_FIGURES = 64, NAME_BYTES = 320 };

typedef struct report {
    const fl_run_set *set;
    fl_run_groups *groups;
    const char *figure_folder;
    fl_report_certainty *certainty;
    size_t figure_count;
    char figures[MAX_FIGURES][NAME_BYTES];
    bool without_gnuplot;
    fl_error trouble; /* of the first picture that failed; status FL_OK: none */
    FILE *stream;
} report;

static void note_figure(void *context, const char *name) {
    report *r = context;
    if (r->figure_count < MAX_FIGURES) snprintf(r->figures[r->figure_count++], NAME_BYTES, "%s", name);
}

/* A picture that cannot be drawn is said on the page: its tables are worth having without. */
static void draw_figures(report *r) {
    const fl_plot_request request = {
        .set = r->set, .folder = r->figure_folder, .format = "svg", .drawn = note_figure, .context = r};
    fl_status status = fl_plot_all(&request, &r->trouble);
    r->without_gnuplot = status == FL_ERROR_UNSUPPORTED;
    bool is_failure = status != FL_OK && status != FL_ERROR_ARGUMENT && !r->without_gnuplot;
    if (!is_failure) r->trouble.status = FL_OK;
}

static fl_status read_beside(const report *r, const char *name, const char *ending, char **content,
                             size_t *bytes, fl_error *error) {
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s.%s", r->figure_folder, name, ending);
    if (length < 0 || length >= PATH_BYTES)
        return fl_error_set(error, FL_ERROR_ARGUMENT, "%s: the path is too long", r->figure_folder);
    return fl_text_file_read(path, content, bytes, error);
}

static fl_status write_numbers(const report *r, const char *name, fl_error *error) {
    char file[NAME_BYTES + 8], *content = NULL;
    size_t bytes = 0;
    FL_TRY(read_beside(r, name, "csv", &content, &bytes, error));
    snprintf(file, sizeof file, "%s.csv", name);
    fputs("<figcaption>Numbers: ", r->stream);
    fl_html_download(r->stream, file, content, bytes);
    fputs("</figcaption>\n", r->stream);
    fl_memory_free(content);
    return FL_OK;
}

/* Names of elements, made unique to the picture: all pictures of gnuplot use the same for their marks. */
static void write_svg(const char *svg, const char *picture, FILE *stream) {
    static const char *const before_name[] = {" id='", " id=\"", "href='#", "href=\"#", "url(#"};
    bool in_tag = true; /* of the element itself */
    while (*svg != '\0') {
        size_t bytes = 1;
        in_tag = (in_tag || *svg == '<') && *svg != '>';
        for (size_t i = 0; in_tag && bytes == 1 && i < sizeof before_name / sizeof before_name[0]; i++) {
            if (strncmp(svg, before_name[i], strlen(before_name[i])) == 0) bytes = strlen(before_name[i]);
        }
        fwrite(svg, 1, bytes, stream);
        if (bytes > 1) fprintf(stream, "%s-", picture);
        svg += bytes;
    }
}

/* The <svg> element alone, without the XML declaration and document type in front of it. */
static fl_status write_figure(const report *r, const char *name, fl_error *error) {
    char *content = NULL;
    size_t bytes = 0;
    FL_TRY(read_beside(r, name, "svg", &content, &bytes, error));
    const char *svg = strstr(content, "<svg");
    if (svg != NULL) {
        fprintf(r->stream, "<figure id=\"figure-%s\">\n<div class=\"wide\" tabindex=\"0\" role=\"region\" ",
                name);
        fprintf(r->stream, "aria-label=\"%s\">\n<svg role=\"img\" aria-label=\"%s\"", name, name);
        write_svg(svg + strlen("<svg"), name, r->stream);
        fputs("</div>\n", r->stream);
    }
    fl_memory_free(content);
    FL_TRY(write_numbers(r, name, error));
    fputs("</figure>\n", r->stream);
    return FL_OK;
}

static fl_status write_figures(const report *r, fl_error *error) {
    fputs("<h2 id=\"figures\">Figures</h2>\n", r->stream);
    if (r->without_gnuplot) fputs("<p>gnuplot is not installed: no figures were drawn.</p>\n", r->stream);
    if (r->trouble.status != FL_OK) {
        fputs("<p>Not every figure could be drawn: ", r->stream);
        fl_html_text(r->stream, r->trouble.message);
        fputs("</p>\n", r->stream);
    }
    if (r->figure_count == 0 && !r->without_gnuplot)
        fputs("<p>There is nothing to draw: the runs have no finite figures.</p>\n", r->stream);
    for (size_t i = 0; i < r->figure_count; i++) FL_TRY(write_figure(r, r->figures[i], error));
    return FL_OK;
}

static void write_provenance_row(const report *r, fl_run_reader *reader, const char *name) {
    char path[PATH_BYTES];
    char *value = NULL;
    snprintf(path, sizeof path, "/provenance/%s", name);
    if (!fl_run_reader_has(reader, path) || fl_run_reader_text(reader, path, &value, NULL) != FL_OK) return;
    fprintf(r->stream, "<dt>%s</dt><dd>", name);
    fl_html_text(r->stream, value);
    fputs("</dd>\n", r->stream);
    fl_memory_free(value);
}

static fl_status write_provenance(const report *r, fl_error *error) {
    static const char *const names[] = {"code_revision",
                                        "build_configuration",
                                        "compiler",
                                        "compiler_flags",
                                        "openblas",
                                        "hdf5",
                                        "host",
                                        "processor",
                                        "operating_system",
                                        "vector_kernels",
                                        "threads",
                                        "seeds",
                                        "command_line",
                                        "config_file",
                                        "started",
                                        "finished",
                                        "model",
                                        "weights_hash_before",
                                        "weights_hash_after",
                                        "tokenizer_hash",
                                        "text",
                                        "text_hash",
                                        "train_text",
                                        "train_text_hash",
                                        "tasks_hash"};
    fl_run_reader *reader = NULL;
    fputs("<h2 id=\"provenance\">Provenance</h2>\n<p class=\"note\">Of the first run; every run file carries "
          "its "
          "own.</p>\n<dl>\n",
          r->stream);
    FL_TRY(fl_run_reader_open(r->set->runs[0].path, &reader, error));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) write_provenance_row(r, reader, names[i]);
    fputs("</dl>\n", r->stream);
    fl_run_reader_close(reader);
    return FL_OK;
}

static void write_configurations(const report *r) {
    fputs("<section class=\"configurations\">\n<h2 id=\"configurations\">Configurations</h2>\n", r->stream);
    for (size_t i = 0; i < r->set->count; i++) {
        const fl_run_entry *run = &r->set->runs[i];
        fputs("<details><summary>", r->stream);
        fl_html_text(r->stream, run->label);
        fputs(" <code>", r->stream);
        fl_html_text(r->stream, run->run_id);
        fputs("</code></summary><pre>", r->stream);
        for (size_t k = 0; k < run->key_count; k++) {
            fl_html_text(r->stream, run->keys[k]);
            fputs(": ", r->stream);
            fl_html_text(r->stream, run->values[k]);
            fputc('\n', r->stream);
        }
        fputs("</pre></details>\n", r->stream);
    }
    fputs("</section>\n", r->stream);
}

/* An axis and its values, each once, in the order of the runs. */
static void write_axis(const report *r, const char *axis) {
    fputs("<dt><code>", r->stream);
    fl_html_text(r->stream, axis);
    fputs("</code></dt><dd>", r->stream);
    size_t written = 0;
    for (size_t i = 0; i < r->set->count; i++) {
        const char *value = fl_run_entry_value(&r->set->runs[i], axis);
        bool seen = value == NULL;
        for (size_t j = 0; j < i && !seen; j++) {
            const char *other = fl_run_entry_value(&r->set->runs[j], axis);
            seen = other != NULL && strcmp(other, value) == 0;
        }
        if (seen) continue;
        if (written++ > 0) fputs(", ", r->stream);
        fl_html_text(r->stream, value);
    }
    fputs("</dd>\n", r->stream);
}

static bool is_named_before(const fl_run_set *set, size_t run) {
    for (size_t i = 0; i < run; i++) {
        if (strcmp(set->runs[i].name, set->runs[run].name) == 0) return true;
    }
    return false;
}

/* The names of the experiments, each once. */
static void write_title(const report *r) {
    size_t written = 0;
    for (size_t i = 0; i < r->set->count; i++) {
        const fl_run_entry *run = &r->set->runs[i];
        if (run->name[0] == '\0' || is_named_before(r->set, i)) continue;
        if (written++ > 0) fputs(", ", r->stream);
        fl_html_text(r->stream, run->name);
    }
    if (written == 0) fl_html_text(r->stream, r->set->runs[0].run_id);
}

static bool has_tasks(const fl_run_set *set) {
    for (size_t i = 0; i < set->count; i++) {
        if (set->runs[i].task_count > 0) return true;
    }
    return false;
}

static void write_contents(const report *r, bool has_warnings) {
    static const char *const parts[][2] = {{"answer", "Answer"},
                                           {"warnings", "Read this first"},
                                           {"measured", "What was measured"},
                                           {"runs", "Runs"},
                                           {"tasks", "Tasks"},
                                           {"figures", "Figures"},
                                           {"definitions", "Definitions"},
                                           {"provenance", "Provenance"},
                                           {"configurations", "Configurations"}};
    fputs("<header><h1>", r->stream);
    write_title(r);
    fputs("</h1><button id=\"theme\" type=\"button\" hidden></button></header>\n"
          "<nav aria-label=\"Contents\"><ul>\n",
          r->stream);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(parts[i][0], "tasks") == 0 && !has_tasks(r->set)) continue;
        if (strcmp(parts[i][0], "warnings") == 0 && !has_warnings) continue;
        fprintf(r->stream, "<li><a href=\"#%s\">%s</a></li>\n", parts[i][0], parts[i][1]);
    }
    fputs("</ul></nav>\n<p id=\"said\" class=\"unseen\" aria-live=\"polite\"></p>\n<main>\n", r->stream);
}

static bool varies(const fl_run_set *set, const char *key) {
    for (size_t k = 0; k < set->axis_count; k++) {
        if (strcmp(set->axes[k], key) == 0) return true;
    }
    return false;
}

/* What is asked: how much of the full model is left when these things change. */
static void write_measured(const report *r) {
    const fl_run_entry *first = &r->set->runs[0];
    static const char *const shared[] = {"model.path", "text.path", "text.ids", "text.sequence_length",
                                         "text.sequences"};
    fprintf(r->stream,
            "<h2 id=\"measured\">What was measured</h2>\n<p>%zu run%s of a frozen model with its "
            "attention replaced.",
            r->set->count, r->set->count == 1 ? "" : "s");
    fputs(r->set->axis_count > 0 ? " What changes between them:</p>\n<dl>\n" : "</p>\n<dl>\n", r->stream);
    for (size_t i = 0; i < r->set->axis_count; i++) write_axis(r, r->set->axes[i]);
    fputs("</dl>\n<p>What stays the same:</p>\n<dl>\n", r->stream);
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        const char *value = fl_run_entry_value(first, shared[i]);
        if (value != NULL && strcmp(value, "null") != 0 && strcmp(value, "0") != 0 &&
            !varies(r->set, shared[i]))
            write_axis(r, shared[i]);
    }
    fputs("</dl>\n", r->stream);
}

static fl_status write_body(const report *r, const char *warnings, fl_error *error) {
    fl_html_open(r->stream, r->set->runs[0].name);
    write_contents(r, warnings[0] != '\0');
    FL_TRY(fl_report_answer_write(r->certainty, r->stream, error));
    fputs(warnings, r->stream);
    write_measured(r);
    FL_TRY(fl_report_runs_write(r->certainty, r->stream, error));
    FL_TRY(fl_report_tasks_write(r->groups, r->stream, error));
    FL_TRY(write_figures(r, error));
    fl_report_terms_write(r->stream);
    FL_TRY(write_provenance(r, error));
    write_configurations(r);
    fputs("</main>\n", r->stream);
    fl_html_close(r->stream);
    return FL_OK;
}

/* The warnings are made first: the contents list them when there are any. */
static fl_status write_page(const report *r, fl_error *error) {
    char *warnings = NULL;
    size_t bytes = 0;
    FILE *text = open_memstream(&warnings, &bytes);
    fl_status status = text != NULL ? fl_report_warnings_write(r->set, text, error) : FL_OK;
    if (text == NULL || fclose(text) != 0)
        status = fl_error_set(error, FL_ERROR_MEMORY, "the page's warnings: %s", strerror(errno));
    if (status == FL_OK) status = write_body(r, warnings, error);
    free(warnings);
    return status;
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

fl_status fl_report_write(const fl_run_set *set, bool each, const char *path, const char *figure_folder,
                          fl_error *error) {
    report *r = NULL;
    FL_TRY(FL_ALLOCATE(&r, 1, error));
    r->set = set;
    r->figure_folder = figure_folder;
    fl_status status = fl_run_groups_make(set, each, &r->groups, error);
    if (status == FL_OK) status = fl_report_certainty_create(r->groups, &r->certainty, error);
    if (status == FL_OK) {
        draw_figures(r);
        status = write_file(r, path, error);
    }
    fl_report_certainty_destroy(r->certainty);
    fl_run_groups_destroy(r->groups);
    fl_memory_free(r);
    return status;
}
