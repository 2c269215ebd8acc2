#include "analysis/report.h"

#include <stdio.h>
#include <string.h>

#include "analysis/html.h"
#include "analysis/output_file.h"
#include "analysis/plots.h"
#include "analysis/report_tables.h"
#include "analysis/report_warnings.h"
#include "harness/base/memory.h"
#include "harness/base/text_file.h"

enum { PATH_BYTES = 4096, MAX_FIGURES = 64, NAME_BYTES = 320 };

typedef struct report {
    const fl_run_set *set;
    const char *figure_folder;
    size_t figure_count;
    char figures[MAX_FIGURES][NAME_BYTES];
    bool without_gnuplot;
    FILE *stream;
} report;

static void note_figure(void *context, const char *name) {
    report *r = context;
    if (r->figure_count < MAX_FIGURES) snprintf(r->figures[r->figure_count++], NAME_BYTES, "%s", name);
}

/* Kinds for which no run has numbers are left out; any other trouble is an error. */
static fl_status draw_figures(report *r, fl_error *error) {
    const fl_plot_request request = {
        .set = r->set, .folder = r->figure_folder, .format = "svg", .drawn = note_figure, .context = r};
    fl_error trouble;
    fl_status status = fl_plot_all(&request, &trouble);
    r->without_gnuplot = status == FL_ERROR_UNSUPPORTED;
    if (status == FL_OK || status == FL_ERROR_ARGUMENT || r->without_gnuplot) return FL_OK;
    if (error != NULL) *error = trouble;
    return status;
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
    fputs("<h2>Provenance</h2>\n<p class=\"note\">Of the first run; every run file carries its "
          "own.</p>\n<dl>\n",
          r->stream);
    FL_TRY(fl_run_reader_open(r->set->runs[0].path, &reader, error));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) write_provenance_row(r, reader, names[i]);
    fputs("</dl>\n", r->stream);
    fl_run_reader_close(reader);
    return FL_OK;
}

static void write_configurations(const report *r) {
    fputs("<h2>Configurations</h2>\n", r->stream);
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

/* What is asked: how much of the full model is left when these things change. */
static void write_question(const report *r) {
    const fl_run_entry *first = &r->set->runs[0];
    static const char *const shared[] = {"model.path", "text.path", "text.ids", "text.sequence_length",
                                         "text.sequences"};
    fputs("<h1>", r->stream);
    fl_html_text(r->stream, first->name[0] != '\0' ? first->name : first->run_id);
    fprintf(r->stream, "</h1>\n<p>%zu run%s of a frozen model with its attention replaced. ", r->set->count,
            r->set->count == 1 ? "" : "s");
    fputs(r->set->axis_count > 0 ? "What changes between them:</p>\n<dl>\n" : "</p>\n<dl>\n", r->stream);
    for (size_t i = 0; i < r->set->axis_count; i++) write_axis(r, r->set->axes[i]);
    fputs("</dl>\n<p>What stays the same:</p>\n<dl>\n", r->stream);
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        const char *value = fl_run_entry_value(first, shared[i]);
        bool varies = value == NULL || strcmp(value, "null") == 0;
        for (size_t k = 0; k < r->set->axis_count; k++)
            varies = varies || strcmp(r->set->axes[k], shared[i]) == 0;
        if (!varies) write_axis(r, shared[i]);
    }
    fputs("</dl>\n", r->stream);
}

static fl_status write_page(const report *r, fl_error *error) {
    fl_html_open(r->stream, r->set->runs[0].name);
    write_question(r);
    FL_TRY(fl_report_warnings_write(r->set, r->stream, error));
    fl_report_runs_write(r->set, r->stream);
    FL_TRY(fl_report_tasks_write(r->set, r->stream, error));
    FL_TRY(write_figures(r, error));
    FL_TRY(write_provenance(r, error));
    write_configurations(r);
    fl_html_close(r->stream);
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
    fl_status status = draw_figures(r, error);
    if (status == FL_OK) status = write_file(r, path, error);
    fl_memory_free(r);
    return status;
}
