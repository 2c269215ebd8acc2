#include "harness/cli/summary.h"

#include <math.h>
#include <string.h>

#include "analysis/output_file.h"
#include "harness/base/memory.h"
#include "harness/store/run_file.h"

enum { LABEL_WIDTH_LIMIT = 60, CELL_BYTES = 32 };

/* Mean of a dataset's values; NaN when it is absent. */
static double mean_of(fl_run_reader *reader, const char *path) {
    double *data = NULL;
    size_t rank = 0, shape[4] = {0}, count = 1;
    if (!fl_run_reader_has(reader, path)) return NAN;
    if (fl_run_reader_doubles(reader, path, &data, &rank, shape, NULL) != FL_OK) return NAN;
    double sum = 0;
    for (size_t i = 0; i < rank; i++) count *= shape[i];
    for (size_t i = 0; i < count; i++) sum += data[i];
    fl_memory_free(data);
    return count > 0 ? sum / (double)count : NAN;
}

static void read_tier(fl_run_reader *reader, char tier[16]) {
    char *text = NULL;
    tier[0] = '\0';
    if (fl_run_reader_attribute_text(reader, "/", "tier", &text, NULL) == FL_OK)
        snprintf(tier, 16, "%s", text);
    fl_memory_free(text);
}

fl_status fl_summary_read(const char *run_file, fl_summary_row *row, fl_error *error) {
    fl_run_reader *reader = NULL;
    FL_TRY(fl_run_reader_open(run_file, &reader, error));
    read_tier(reader, row->tier);
    row->nmse = mean_of(reader, "/errors/teacher_forced/nmse");
    row->perplexity = mean_of(reader, "/language_model/perplexity");
    row->full_perplexity = mean_of(reader, "/language_model/full_perplexity");
    row->kl = mean_of(reader, "/language_model/kl");
    row->agreement = mean_of(reader, "/language_model/agreement");
    row->off_nmse = mean_of(reader, "/baseline/linear_off/errors/teacher_forced/nmse");
    row->off_perplexity = mean_of(reader, "/baseline/linear_off/language_model/perplexity");
    row->state_bytes = mean_of(reader, "/memory/state_bytes");
    row->exact_bytes = mean_of(reader, "/memory/exact_bytes");
    row->linear_share = mean_of(reader, "/language_model/linear_share");
    double diverged = 0;
    if (fl_run_reader_attribute_number(reader, "/", "diverged", &diverged, NULL) == FL_OK)
        row->diverged = diverged != 0;
    row->measured = true;
    fl_run_reader_close(reader);
    return FL_OK;
}

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

/* The linear part is there and scores no better than leaving it out. */
static bool no_gain(const fl_summary_row *row) {
    return row->state_bytes > 0 && row->off_perplexity <= row->perplexity;
}

static void print_row(FILE *stream, const fl_summary_row *row, int width) {
    char cells[9][CELL_BYTES];
    fprintf(stream, "%-*s  ", width, row->label);
    if (!row->measured) {
        fprintf(stream, "%s\n", row->status);
        return;
    }
    fprintf(stream, "%-10s %9s %9s %9s%c %9s %9s %6s %9s %9s %6s  %s\n", row->tier,
            number(row->nmse, cells[0]), number(row->off_nmse, cells[1]), number(row->perplexity, cells[2]),
            no_gain(row) ? '*' : ' ', number(row->off_perplexity, cells[3]), number(row->kl, cells[4]),
            percent(row->agreement, cells[5]), kibibytes(row->state_bytes, cells[6]),
            kibibytes(row->exact_bytes, cells[7]), percent(row->linear_share, cells[8]),
            row->diverged ? "diverged" : row->status);
}

void fl_summary_print(FILE *stream, const fl_summary_row *rows, size_t count) {
    int width = 4;
    bool starred = false;
    double full = NAN;
    for (size_t i = 0; i < count; i++) {
        int length = (int)strlen(rows[i].label);
        if (length > width) width = length < LABEL_WIDTH_LIMIT ? length : LABEL_WIDTH_LIMIT;
        if (!rows[i].measured) continue;
        starred = starred || no_gain(&rows[i]);
        full = rows[i].full_perplexity;
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
}

fl_status fl_summary_write_csv(const char *path, const fl_summary_row *rows, size_t count, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    fputs("cell,tier,status,nmse,nmse_linear_off,perplexity,perplexity_linear_off,full_perplexity,kl,"
          "agreement,state_bytes,"
          "exact_bytes,linear_share,diverged\n",
          file.stream);
    for (size_t i = 0; i < count; i++) {
        const fl_summary_row *row = &rows[i];
        const double numbers[] = {
            row->nmse, row->off_nmse,  row->perplexity,  row->off_perplexity, row->full_perplexity,
            row->kl,   row->agreement, row->state_bytes, row->exact_bytes,    row->linear_share};
        fl_output_csv_text(file.stream, row->label);
        fprintf(file.stream, ",%s,%s", row->measured ? row->tier : "",
                row->measured ? "complete" : row->status);
        for (size_t j = 0; j < sizeof numbers / sizeof numbers[0]; j++) {
            fputc(',', file.stream);
            fl_output_csv_number(file.stream, row->measured ? numbers[j] : NAN);
        }
        fprintf(file.stream, ",%d\n", row->diverged ? 1 : 0);
    }
    return fl_output_file_close(&file, error);
}
