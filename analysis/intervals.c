#include "analysis/intervals.h"

#include <math.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/measure/measurements.h"
#include "harness/store/run_record.h"

struct fl_run_sums {
    fl_text_result own, off; /* their arrays [S] and [S][L] alone */
    size_t units;            /* distinct texts */
    size_t *unit_of;         /* [S] */
    double *hashes;          /* [units] */
};

/* A metric from sums: numerator over denominator, or by layer error over the variance of output. */
typedef struct metric_row {
    fl_interval_metric shown;
    const char *numerator, *full, *denominator; /* members; full: the frozen model's numerator */
    const char *sum, *squares;                  /* by layer: moments of the frozen output; else NULL */
    bool exponential;
} metric_row;

#define OF_TEXT(name, heading, units, lower, numerator, full, denominator, exponential)                      \
    { {name, heading, units, lower}, numerator, full, denominator, NULL, NULL, exponential }
#define BY_LAYER(name, heading, error, output)                                                               \
    {                                                                                                        \
        {name, heading, "1", true}, error, NULL, "sequence_output_count", output "_sum",                     \
            output "_sum_squares", false                                                                     \
    }

static const metric_row rows[] = {
    OF_TEXT("perplexity", "perplexity", "1", true, "sequence_cross_entropy", "sequence_full_cross_entropy",
            "sequence_scored_tokens", true),
    OF_TEXT("cross_entropy", "cross entropy", "nat", true, "sequence_cross_entropy",
            "sequence_full_cross_entropy", "sequence_scored_tokens", false),
    OF_TEXT("kl", "KL", "nat", true, "sequence_kl", NULL, "sequence_tokens", false),
    OF_TEXT("agreement", "agreement", "1", false, "sequence_agreement", NULL, "sequence_tokens", false),
    BY_LAYER("nmse", "nMSE", "sequence_squared_error", "sequence_output"),
    BY_LAYER("propagated_nmse", "nMSE end to end", "sequence_attention_squared_error", "sequence_output"),
    BY_LAYER("residual_nmse", "nMSE of the residual stream", "sequence_residual_squared_error",
             "sequence_residual"),
    OF_TEXT("full_perplexity", "perplexity, full model", "1", true, "sequence_full_cross_entropy", NULL,
            "sequence_scored_tokens", true),
    OF_TEXT("full_cross_entropy", "cross entropy, full model", "nat", true, "sequence_full_cross_entropy",
            NULL, "sequence_scored_tokens", false),
};

enum { ROWS = sizeof rows / sizeof rows[0] };

bool fl_interval_metric_at(size_t index, fl_interval_metric *out) {
    if (index >= ROWS) return false;
    *out = rows[index].shown;
    return true;
}

static fl_status find_row(const char *metric, const metric_row **out, fl_error *error) {
    for (size_t i = 0; i < ROWS; i++) {
        *out = &rows[i];
        if (strcmp(rows[i].shown.name, metric) == 0) return FL_OK;
    }
    return fl_error_set(error, FL_ERROR_ARGUMENT, "%s is no metric that has an interval", metric);
}

static fl_status number_units(fl_run_sums *sums, fl_error *error) {
    const double *hashes = sums->own.sequence_ids_hash;
    const size_t count = hashes != NULL ? sums->own.sequences : 0;
    FL_TRY(FL_ALLOCATE(&sums->unit_of, count, error));
    FL_TRY(FL_ALLOCATE(&sums->hashes, count, error));
    for (size_t s = 0; s < count; s++) {
        size_t unit = 0;
        while (unit < sums->units && sums->hashes[unit] != hashes[s]) unit++;
        if (unit == sums->units) sums->hashes[sums->units++] = hashes[s];
        sums->unit_of[s] = unit;
    }
    return FL_OK;
}

fl_status fl_run_sums_read(const char *path, fl_run_sums **out, fl_error *error) {
    fl_run_reader *reader = NULL;
    fl_run_sums *sums = NULL;
    fl_status status = FL_OK;
    FL_TRY(fl_run_reader_open(path, &reader, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&sums, 1, error));
    FL_TRY_DONE(status, fl_run_record_read_sequences(reader, "", &sums->own, error));
    sums->off.sequences = sums->own.sequences; /* the same text: other sizes are an error */
    sums->off.layers = sums->own.layers;
    FL_TRY_DONE(status, fl_run_record_read_sequences(reader, "/baseline/linear_off", &sums->off, error));
    FL_TRY_DONE(status, number_units(sums, error));
    *out = sums;
done:
    if (status != FL_OK) fl_run_sums_destroy(sums);
    fl_run_reader_close(reader);
    return status;
}

void fl_run_sums_destroy(fl_run_sums *sums) {
    if (sums == NULL) return;
    fl_text_result_release(&sums->own);
    fl_text_result_release(&sums->off);
    fl_memory_free(sums->unit_of);
    fl_memory_free(sums->hashes);
    fl_memory_free(sums);
}

size_t fl_run_sums_layers(const fl_run_sums *sums) {
    return sums->own.layers;
}

size_t fl_run_sums_sequences(const fl_run_sums *sums) {
    return sums->units;
}

/* The unit of `sums` with this text, or its number of units. */
static size_t find_unit(const fl_run_sums *sums, double hash) {
    size_t unit = 0;
    while (unit < sums->units && sums->hashes[unit] != hash) unit++;
    return unit;
}

size_t fl_run_sums_common(const fl_run_sums *a, const fl_run_sums *b) {
    size_t common = 0;
    for (size_t u = 0; u < a->units; u++) common += find_unit(b, a->hashes[u]) < b->units;
    return common;
}

/* One side of a comparison in arrays [S] and, by layer, [S][L]. */
typedef struct side {
    const fl_run_sums *run;
    const double *numerator, *denominator, *sum, *squares;
    const char *why_not; /* NULL: all there */
} side;

static const double *member(const fl_text_result *result, const char *name) {
    return name != NULL ? fl_measurement_values(result, fl_measurement_of_member(name)) : NULL;
}

static side side_of(const fl_run_sums *run, fl_interval_side which, const metric_row *row) {
    side s = {.run = run};
    const char *numerator = which == FL_SIDE_FULL ? row->full : row->numerator;
    s.numerator = member(which == FL_SIDE_LINEAR_OFF ? &run->off : &run->own, numerator);
    s.denominator = member(&run->own, row->denominator);
    s.sum = member(&run->own, row->sum);
    s.squares = member(&run->own, row->squares);
    const bool moments = row->sum == NULL || (s.sum != NULL && s.squares != NULL);
    if (run->units == 0)
        s.why_not = "the run file keeps no sums of its sequences";
    else if (numerator == NULL)
        s.why_not = "the full model has no such figure";
    else if (s.numerator == NULL || s.denominator == NULL || !moments)
        s.why_not = "it was not measured";
    return s;
}

/* Columns of a side: numerator and denominator; or the count, then error, sum and squares of every layer. */
typedef struct column_layout {
    size_t layers;     /* 0: not by layer */
    size_t width;      /* columns of a side */
    size_t statistics; /* 1, or the mean and every layer's */
    size_t sides;
    bool exponential;
} column_layout;

static void add_sequence(const side *s, size_t sequence, const column_layout *layout, double *columns) {
    if (layout->layers == 0) {
        columns[0] += s->numerator[sequence];
        columns[1] += s->denominator[sequence];
        return;
    }
    const size_t first = sequence * layout->layers;
    columns[0] += s->denominator[sequence];
    for (size_t l = 0; l < layout->layers; l++) {
        columns[1 + 3 * l] += s->numerator[first + l];
        columns[2 + 3 * l] += s->sum[first + l];
        columns[3 + 3 * l] += s->squares[first + l];
    }
}

/* The units that all sides have; sums [units][sides * width], zeroed. Returns how many. */
static size_t fill_units(const side *sides, const column_layout *layout, double *sums) {
    const size_t columns = layout->sides * layout->width;
    size_t used = 0;
    for (size_t u = 0; u < sides[0].run->units; u++) {
        const double hash = sides[0].run->hashes[u];
        bool paired = true;
        for (size_t i = 1; i < layout->sides; i++)
            paired = paired && find_unit(sides[i].run, hash) < sides[i].run->units;
        if (!paired) continue;
        for (size_t i = 0; i < layout->sides; i++) {
            const fl_run_sums *run = sides[i].run;
            for (size_t s = 0; s < run->own.sequences; s++) {
                if (run->hashes[run->unit_of[s]] == hash)
                    add_sequence(&sides[i], s, layout, sums + used * columns + i * layout->width);
            }
        }
        used++;
    }
    return used;
}

/* out [statistics]: the value; by layer the mean, then every layer's. */
static void side_values(const column_layout *layout, const double *totals, double sign, double *out) {
    if (layout->layers == 0) {
        const double ratio = totals[0] / totals[1];
        out[0] += sign * (layout->exponential ? exp(ratio) : ratio);
        return;
    }
    double mean = 0.0;
    for (size_t l = 0; l < layout->layers; l++) {
        const double *layer = totals + 1 + 3 * l, centre = layer[1] / totals[0];
        const double nmse = layer[0] / (layer[2] - centre * layer[1]);
        if (layout->statistics > 1) out[1 + l] += sign * nmse;
        mean += nmse / (double)layout->layers;
    }
    out[0] += sign * mean;
}

static void statistic(const void *context, const double *totals, double *out) {
    const column_layout *layout = context;
    for (size_t i = 0; i < layout->statistics; i++) out[i] = 0.0;
    for (size_t i = 0; i < layout->sides; i++)
        side_values(layout, totals + i * layout->width, i == 0 ? 1.0 : -1.0, out);
}

static fl_interval unknown(const char *why_not, size_t sequences) {
    return (fl_interval){(double)NAN, (double)NAN, (double)NAN, FL_BOOTSTRAP_LEVEL,
                         (double)NAN, sequences,   false,       why_not};
}

static fl_interval interval_from(const fl_bootstrap_result *result, size_t units, bool difference) {
    fl_interval out = {.estimate = result->estimate, .low = result->low, .high = result->high};
    out.level = FL_BOOTSTRAP_LEVEL;
    out.p = difference ? result->p : (double)NAN;
    out.sequences = units;
    out.known = isfinite(result->low) && isfinite(result->high);
    out.why_not = out.known                     ? ""
                  : units == 1                  ? "one sequence alone says nothing of its spread"
                  : units < FL_BOOTSTRAP_FEWEST ? "fewer than 5 different sequences"
                                                : "a value that is not finite";
    return out;
}

static fl_status resample(const column_layout *layout, size_t units, double *sums, fl_interval *out,
                          fl_interval *layers, fl_error *error) {
    const fl_bootstrap bootstrap = {.units = units,
                                    .columns = layout->sides * layout->width,
                                    .sums = sums,
                                    .statistics = layout->statistics,
                                    .statistic = statistic,
                                    .context = layout};
    fl_bootstrap_result *results = NULL;
    FL_TRY(FL_ALLOCATE(&results, bootstrap.statistics, error));
    fl_status status = fl_bootstrap_run(&bootstrap, results, error);
    if (status == FL_OK) {
        *out = interval_from(&results[0], units, layout->sides == 2);
        for (size_t l = 0; l + 1 < layout->statistics; l++)
            layers[l] = interval_from(&results[1 + l], units, layout->sides == 2);
    }
    fl_memory_free(results);
    return status;
}

/* One side: its value; two: the first minus the second. */
static fl_status interval_over(const side *sides, size_t count, const metric_row *row, fl_interval *out,
                               fl_interval *layers, fl_error *error) {
    const char *why_not = NULL;
    column_layout layout = {.sides = count, .exponential = row->exponential};
    if (row->sum != NULL) layout.layers = sides[0].run->own.layers;
    layout.statistics = layers != NULL ? 1 + layout.layers : 1;
    layout.width = row->sum != NULL ? 1 + 3 * layout.layers : 2;
    for (size_t i = 0; i < count && why_not == NULL; i++) why_not = sides[i].why_not;
    if (why_not == NULL && row->sum != NULL && sides[count - 1].run->own.layers != layout.layers)
        why_not = "the two have different numbers of layers";
    if (why_not == NULL && fl_run_sums_common(sides[0].run, sides[count - 1].run) == 0)
        why_not = "no sequence in common";
    if (why_not != NULL) {
        *out = unknown(why_not, 0);
        for (size_t l = 0; layers != NULL && l < layout.layers; l++) layers[l] = *out;
        return FL_OK;
    }
    double *sums = NULL;
    FL_TRY(FL_ALLOCATE(&sums, sides[0].run->units * count * layout.width, error));
    const size_t units = fill_units(sides, &layout, sums);
    fl_status status = resample(&layout, units, sums, out, layers, error);
    fl_memory_free(sums);
    return status;
}

fl_status fl_interval_of(const fl_run_sums *run, fl_interval_side which, const char *metric, fl_interval *out,
                         fl_interval *layers, fl_error *error) {
    const metric_row *row = NULL;
    FL_TRY(find_row(metric, &row, error));
    const side only = side_of(run, which, row);
    return interval_over(&only, 1, row, out, layers, error);
}

fl_status fl_interval_against(const fl_run_sums *run, fl_interval_side other, const char *metric,
                              fl_interval *out, fl_interval *layers, fl_error *error) {
    const metric_row *row = NULL;
    FL_TRY(find_row(metric, &row, error));
    const side sides[] = {side_of(run, FL_SIDE_RUN, row), side_of(run, other, row)};
    return interval_over(sides, 2, row, out, layers, error);
}

fl_status fl_interval_between(const fl_run_sums *a, const fl_run_sums *b, const char *metric,
                              fl_interval *out, fl_interval *layers, fl_error *error) {
    const metric_row *row = NULL;
    FL_TRY(find_row(metric, &row, error));
    const side sides[] = {side_of(a, FL_SIDE_RUN, row), side_of(b, FL_SIDE_RUN, row)};
    return interval_over(sides, 2, row, out, layers, error);
}

fl_status fl_interval_of_run(const fl_run_entry *run, const char *metric, fl_interval *out, fl_error *error) {
    static const char off[] = "linear_off/";
    const bool linear_off = strncmp(metric, off, sizeof off - 1) == 0;
    fl_run_sums *sums = NULL;
    FL_TRY(fl_run_sums_read(run->path, &sums, error));
    fl_status status = fl_interval_of(sums, linear_off ? FL_SIDE_LINEAR_OFF : FL_SIDE_RUN,
                                      linear_off ? metric + sizeof off - 1 : metric, out, NULL, error);
    fl_run_sums_destroy(sums);
    return status;
}
