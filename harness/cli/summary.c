#include "harness/cli/summary.h"

#include <math.h>
#include <string.h>

#include "analysis/run_warnings.h"
#include "harness/base/memory.h"

enum { LABEL_WIDTH_LIMIT = 60, CELL_BYTES = 32 };

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

static void print_row(FILE *stream, const fl_summary_row *row, int width) {
    char cells[9][CELL_BYTES];
    const fl_run_entry *run = &row->run;
    fprintf(stream, "%-*s  ", width, row->label);
    if (!row->measured) {
        fprintf(stream, "%s\n", row->status);
        return;
    }
    fprintf(stream, "%-10s %9s %9s %9s%c %9s %9s %6s %9s %9s %6s  %s%s\n", run->tier,
            number(fl_run_metric_value(run, "nmse"), cells[0]),
            number(fl_run_metric_value(run, "linear_off/nmse"), cells[1]),
            number(fl_run_metric_value(run, "perplexity"), cells[2]), fl_run_no_gain(run) ? '*' : ' ',
            number(fl_run_metric_value(run, "linear_off/perplexity"), cells[3]),
            number(fl_run_metric_value(run, "kl"), cells[4]),
            percent(fl_run_metric_value(run, "agreement"), cells[5]),
            kibibytes(fl_run_metric_value(run, "state_bytes"), cells[6]),
            kibibytes(fl_run_metric_value(run, "exact_bytes"), cells[7]),
            percent(fl_run_metric_value(run, "linear_share"), cells[8]),
            run->diverged ? "diverged" : row->status, run->older ? ", older" : "");
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

fl_status fl_summary_print(FILE *stream, const fl_summary_row *rows, size_t count, fl_error *error) {
    int width = 4;
    bool starred = false;
    double full = NAN;
    for (size_t i = 0; i < count; i++) {
        int length = (int)strlen(rows[i].label);
        if (length > width) width = length < LABEL_WIDTH_LIMIT ? length : LABEL_WIDTH_LIMIT;
        if (!rows[i].measured) continue;
        starred = starred || fl_run_no_gain(&rows[i].run);
        full = fl_run_metric_value(&rows[i].run, "full_perplexity");
    }
    fprintf(stream, "%-*s  %-10s %9s %9s %9s  %9s %9s %6s %9s %9s %6s  %s\n", width, "", "", "", "nMSE", "",
            "ppl", "", "agree", "state", "exact", "linear", "");
    fprintf(stream, "%-*s  %-10s %9s %9s %9s  %9s %9s %6s %9s %9s %6s  %s\n", width, "cell", "tier", "nMSE",
            "lin. off", "ppl", "lin. off", "KL", "%", "KiB", "KiB", "%", "status");
    for (size_t i = 0; i < count; i++) print_row(stream, &rows[i], width);
    char text[CELL_BYTES];
    fprintf(stream,
            "\nnMSE: teacher forced, after the output projection, mean over layers. ppl, KL (nats), agree: "
            "the linearised model\n"
            "end to end against the full one, whose perplexity is %s. lin. off: the same run with only the "
            "exact set.\n"
            "state, exact: bytes of one sequence. linear: share of scored tokens whose context had reached "
            "the state.\n",
            number(full, text));
    if (starred) fprintf(stream, "*: no gain: with the linear part off, perplexity is the same or better.\n");
    print_older(stream, rows, count);
    FL_TRY(print_warnings(stream, rows, count, error));
    return print_twins(stream, rows, count, error);
}
