#include "harness/cli/summary.h"

#include <math.h>
#include <string.h>

#include "analysis/run_warnings.h"
#include "harness/base/memory.h"
#include "harness/cli/columns.h"

enum { LABEL_WIDTH_LIMIT = 60, CELL_BYTES = 32, LEGEND_WIDTH = 110 };

/* Four significant digits in at most nine characters: 0.0891, 21.99, 4464, 2.98e+06. */
static const char *number(double value, char out[CELL_BYTES]) {
    if (isnan(value)) {
        snprintf(out, CELL_BYTES, "-");
    } else if (value == 0) {
        snprintf(out, CELL_BYTES, "0");
    } else if (fabs(value) >= 1e5 || fabs(value) < 1e-4) {
        snprintf(out, CELL_BYTES, "%.2e", value);
    } else {
        snprintf(out, CELL_BYTES, "%.4g", value);
    }
    return out;
}

static const char *kibibytes(double bytes, char out[CELL_BYTES]) {
    if (isnan(bytes))
        snprintf(out, CELL_BYTES, "-");
    else
        snprintf(out, CELL_BYTES, "%.0f", bytes / 1024);
    return out;
}

static const char *percent(double share, char out[CELL_BYTES]) {
    if (isnan(share))
        snprintf(out, CELL_BYTES, "-");
    else
        snprintf(out, CELL_BYTES, "%.1f", 100 * share);
    return out;
}

/* The figures of a row. The label stands before them, the status behind. `rank`: which go first on a narrow
 * terminal. */
typedef struct summary_column {
    const char *first, *second; /* heading, in two lines */
    const char *name;           /* where it is said to be left out */
    int width, rank;
    bool left; /* aligned */
    void (*write)(const fl_run_entry *run, char out[CELL_BYTES]);
} summary_column;

static void write_tier(const fl_run_entry *run, char out[CELL_BYTES]) {
    snprintf(out, CELL_BYTES, "%s", run->tier);
}

static void write_nmse(const fl_run_entry *run, char out[CELL_BYTES]) {
    number(fl_run_metric_value(run, "nmse"), out);
}

static void write_nmse_off(const fl_run_entry *run, char out[CELL_BYTES]) {
    number(fl_run_metric_value(run, "linear_off/nmse"), out);
}

static void write_perplexity(const fl_run_entry *run, char out[CELL_BYTES]) {
    char text[CELL_BYTES];
    snprintf(out, CELL_BYTES, "%.30s%c", number(fl_run_metric_value(run, "perplexity"), text),
             fl_run_no_gain(run) ? '*' : ' ');
}

static void write_perplexity_off(const fl_run_entry *run, char out[CELL_BYTES]) {
    number(fl_run_metric_value(run, "linear_off/perplexity"), out);
}

static void write_divergence(const fl_run_entry *run, char out[CELL_BYTES]) {
    number(fl_run_metric_value(run, "kl"), out);
}

static void write_agreement(const fl_run_entry *run, char out[CELL_BYTES]) {
    percent(fl_run_metric_value(run, "agreement"), out);
}

static void write_state(const fl_run_entry *run, char out[CELL_BYTES]) {
    kibibytes(fl_run_metric_value(run, "state_bytes"), out);
}

static void write_exact(const fl_run_entry *run, char out[CELL_BYTES]) {
    kibibytes(fl_run_metric_value(run, "exact_bytes"), out);
}

static void write_share(const fl_run_entry *run, char out[CELL_BYTES]) {
    percent(fl_run_metric_value(run, "linear_share"), out);
}

static const summary_column columns[] = {
    {"", "tier", "tier", 10, 3, true, write_tier},
    {"", "nMSE", "nMSE", 9, 1, false, write_nmse},
    {"nMSE", "lin. off", "nMSE of linear off", 9, 4, false, write_nmse_off},
    {"", "ppl ", "perplexity", 10, 0, false, write_perplexity},
    {"ppl", "lin. off", "perplexity of linear off", 9, 2, false, write_perplexity_off},
    {"", "KL", "KL", 9, 5, false, write_divergence},
    {"agree", "%", "agreement", 6, 6, false, write_agreement},
    {"state", "KiB", "state", 9, 7, false, write_state},
    {"exact", "KiB", "exact", 9, 8, false, write_exact},
    {"linear", "%", "linear share", 6, 9, false, write_share},
};

enum { COLUMNS = sizeof columns / sizeof columns[0], LABEL_LEAST = 16, STATUS_WIDTH = 9 };

/* What is shown, and in how many columns the labels. */
typedef struct summary_layout {
    bool shown[COLUMNS];
    size_t label;
} summary_layout;

static size_t figures_width(const summary_layout *layout) {
    size_t width = STATUS_WIDTH;
    for (size_t i = 0; i < COLUMNS; i++) width += layout->shown[i] ? (size_t)columns[i].width + 1 : 0;
    return width;
}

/* `room` 0: any width. Columns go by rank while the labels do not fit; the labels are cut last. */
static summary_layout lay_out(const fl_summary_row *rows, size_t count, size_t room) {
    summary_layout layout = {.label = 4};
    for (size_t i = 0; i < COLUMNS; i++) layout.shown[i] = true;
    for (size_t i = 0; i < count; i++) {
        size_t own = fl_columns_of(rows[i].label);
        if (own > layout.label) layout.label = own < LABEL_WIDTH_LIMIT ? own : LABEL_WIDTH_LIMIT;
    }
    for (int rank = COLUMNS - 1; room > 0 && rank > 0 && layout.label + 2 + figures_width(&layout) > room;
         rank--) {
        for (size_t i = 0; i < COLUMNS; i++) layout.shown[i] = layout.shown[i] && columns[i].rank != rank;
    }
    size_t figures = figures_width(&layout) + 2;
    if (room > 0 && layout.label + figures > room)
        layout.label = room > figures + LABEL_LEAST ? room - figures : LABEL_LEAST;
    return layout;
}

static void print_label(FILE *stream, const char *label, size_t width) {
    char cut[LABEL_WIDTH_LIMIT * 4 + 4];
    fl_columns_cut(label, width, cut, sizeof cut);
    fl_columns_print(stream, cut, width);
    fputs("  ", stream);
}

static void print_heading(FILE *stream, const summary_layout *layout, bool second) {
    print_label(stream, second ? "cell" : "", layout->label);
    for (size_t i = 0; i < COLUMNS; i++) {
        const char *text = second ? columns[i].second : columns[i].first;
        if (layout->shown[i]) fprintf(stream, columns[i].left ? "%-*s " : "%*s ", columns[i].width, text);
    }
    fputs(second ? " status\n" : "\n", stream);
}

static void print_row(FILE *stream, const fl_summary_row *row, const summary_layout *layout) {
    const fl_run_entry *run = &row->run;
    print_label(stream, row->label, layout->label);
    if (!row->measured) {
        fprintf(stream, "%s\n", row->status);
        return;
    }
    for (size_t i = 0; i < COLUMNS; i++) {
        char cell[CELL_BYTES];
        columns[i].write(run, cell);
        if (layout->shown[i]) fprintf(stream, columns[i].left ? "%-*s " : "%*s ", columns[i].width, cell);
    }
    fprintf(stream, " %s%s\n", run->diverged ? "diverged" : row->status, run->older ? ", older" : "");
}

static void print_left_out(FILE *stream, const summary_layout *layout) {
    size_t count = 0;
    for (size_t i = 0; i < COLUMNS; i++) {
        if (!layout->shown[i])
            fprintf(stream, "%s%s", count++ == 0 ? "Not shown for lack of width: " : ", ", columns[i].name);
    }
    if (count > 0) fputs(" (table.csv has them).\n", stream);
}

/* What differs, each text once. */
static void print_older(FILE *stream, const fl_summary_row *rows, size_t count) {
    size_t printed = 0;
    for (size_t i = 0; i < count; i++) {
        const char *changed = rows[i].run.changed;
        size_t before = 0;
        if (!rows[i].measured || !rows[i].run.older) continue;
        while (before < i &&
               (rows[before].run.changed == NULL || strcmp(rows[before].run.changed, changed) != 0))
            before++;
        if (before < i) continue;
        fprintf(stream, printed++ == 0 ? "older: measured by other code than this program's (%s" : "; %s",
                changed);
    }
    if (printed > 0) fputs("); without --keep-older it is measured anew.\n", stream);
}

static fl_status print_warnings(FILE *stream, const fl_summary_row *rows, size_t count, fl_error *error) {
    fl_warned *warned = NULL;
    FL_TRY(FL_ALLOCATE(&warned, count, error));
    for (size_t i = 0; i < count; i++) {
        const fl_run_entry *run = &rows[i].run;
        const bool of_file = rows[i].measured && run->warning_count > 0;
        warned[i] = (fl_warned){rows[i].label, of_file ? run->warnings : rows[i].warnings,
                                of_file ? run->warning_count : rows[i].warning_count};
    }
    fl_status status = fl_run_warnings_print(stream, warned, count, error);
    fl_memory_free(warned);
    return status;
}

/* "equal numbers: a = b = c", a line for each such group. */
static fl_status print_twins(FILE *stream, const fl_summary_row *rows, size_t count, fl_error *error) {
    const fl_run_entry **runs = NULL;
    size_t *twin_of = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&runs, count, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&twin_of, count, error));
    for (size_t i = 0; i < count; i++) runs[i] = rows[i].measured ? &rows[i].run : NULL;
    fl_run_twins_find(runs, count, twin_of);
    for (size_t i = 0; i < count; i++) {
        size_t twins = 0;
        for (size_t j = i + 1; j < count && twin_of[i] == i; j++) {
            if (twin_of[j] != i) continue;
            if (twins++ == 0) fprintf(stream, "equal numbers: %s", rows[i].label);
            fprintf(stream, " = %s", rows[j].label);
        }
        if (twins > 0) fputc('\n', stream);
    }
done:
    fl_memory_free(runs);
    fl_memory_free(twin_of);
    return status;
}

/* Lines no longer than the terminal's. */
static void print_legend(FILE *stream, const char *full, size_t room) {
    const char *lines[] = {"nMSE: teacher forced, after the output projection, mean over layers. ",
                           "ppl, KL (nats), agree: the linearised model end to end against the ",
                           "full one, whose perplexity is ",
                           full,
                           ". ",
                           "lin. off: the same run with only the exact set. ",
                           "state, exact: bytes of one sequence. ",
                           "linear: share of scored tokens whose context had reached the state."};
    size_t used = 0;
    fputc('\n', stream);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        for (const char *word = lines[i]; *word != '\0';) {
            size_t bytes = strcspn(word, " ");
            if (used > 0 && used + bytes + 1 > room) {
                fputc('\n', stream);
                used = 0;
            }
            bytes += strspn(word + bytes, " ");
            used += (size_t)fprintf(stream, "%.*s", (int)bytes, word);
            word += bytes;
        }
    }
    fputc('\n', stream);
}

fl_status fl_summary_print(FILE *stream, size_t room, const fl_summary_row *rows, size_t count,
                           fl_error *error) {
    const summary_layout layout = lay_out(rows, count, room);
    bool starred = false;
    double full = NAN;
    char text[CELL_BYTES];
    for (size_t i = 0; i < count; i++) {
        if (!rows[i].measured) continue;
        starred = starred || fl_run_no_gain(&rows[i].run);
        full = fl_run_metric_value(&rows[i].run, "full_perplexity");
    }
    print_heading(stream, &layout, false);
    print_heading(stream, &layout, true);
    for (size_t i = 0; i < count; i++) print_row(stream, &rows[i], &layout);
    print_legend(stream, number(full, text), room > 0 ? room : LEGEND_WIDTH);
    if (starred) fprintf(stream, "*: no gain: with the linear part off, perplexity is the same or better.\n");
    print_left_out(stream, &layout);
    print_older(stream, rows, count);
    FL_TRY(print_warnings(stream, rows, count, error));
    return print_twins(stream, rows, count, error);
}
