#include "analysis/bootstrap.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "analysis/distributions.h"
#include "harness/base/memory.h"
#include "harness/base/random.h"

enum { SEED = 20151 };

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fl_sorted_quantile(const double *sorted, size_t count, double probability) {
    const double place = probability * (double)(count - 1);
    const size_t below = (size_t)floor(place);
    if (below + 1 >= count) return sorted[count - 1];
    return sorted[below] + (place - (double)below) * (sorted[below + 1] - sorted[below]);
}

/* totals [columns] of units drawn with replacement. */
static void draw(const fl_bootstrap *b, fl_random *random, double *totals) {
    for (size_t c = 0; c < b->columns; c++) totals[c] = 0.0;
    for (size_t i = 0; i < b->units; i++) {
        const double *unit = b->sums + (size_t)fl_random_below(random, b->units) * b->columns;
        for (size_t c = 0; c < b->columns; c++) totals[c] += unit[c];
    }
}

static void total_all(const fl_bootstrap *b, double *totals) {
    for (size_t c = 0; c < b->columns; c++) {
        totals[c] = 0.0;
        for (size_t i = 0; i < b->units; i++) totals[c] += b->sums[i * b->columns + c];
    }
}

/* P of the header, from sorted values. */
static double p_of(const double *sorted, size_t units) {
    const double count = FL_BOOTSTRAP_RESAMPLES;
    double below = 0.0;
    for (size_t i = 0; i < FL_BOOTSTRAP_RESAMPLES && sorted[i] <= 0.0; i++)
        below += sorted[i] < 0.0 ? 1.0 : 0.5;
    const double share = fmin(fmax(below, 0.5), count - 0.5) / count, n = (double)units;
    const double t = fabs(fl_normal_quantile(share)) * sqrt((n - 1.0) / n);
    return fmin(1.0, 2.0 * fl_student_cumulative(-t, units - 1));
}

/* values [FL_BOOTSTRAP_RESAMPLES] of one statistic; sorts them. */
static void summarise(double *values, size_t units, fl_bootstrap_result *out) {
    const double n = (double)units;
    for (size_t i = 0; i < FL_BOOTSTRAP_RESAMPLES; i++) {
        if (!isfinite(values[i])) return;
    }
    const double t = fl_student_quantile(0.5 * (1.0 - FL_BOOTSTRAP_LEVEL), units - 1);
    const double tail = fl_normal_cumulative(sqrt(n / (n - 1.0)) * t);
    qsort(values, FL_BOOTSTRAP_RESAMPLES, sizeof *values, compare_doubles);
    out->low = fl_sorted_quantile(values, FL_BOOTSTRAP_RESAMPLES, tail);
    out->high = fl_sorted_quantile(values, FL_BOOTSTRAP_RESAMPLES, 1.0 - tail);
    out->p = p_of(values, units);
}

static void resample(const fl_bootstrap *b, double *totals, double *row, double *values) {
    fl_random random;
    fl_random_seed(&random, SEED, 0);
    for (size_t r = 0; r < FL_BOOTSTRAP_RESAMPLES; r++) {
        draw(b, &random, totals);
        b->statistic(b->context, totals, row);
        for (size_t s = 0; s < b->statistics; s++) values[s * FL_BOOTSTRAP_RESAMPLES + r] = row[s];
    }
}

fl_status fl_bootstrap_run(const fl_bootstrap *b, fl_bootstrap_result *out, fl_error *error) {
    const bool enough = b->units >= FL_BOOTSTRAP_FEWEST;
    double *totals = NULL, *row = NULL, *values = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, FL_ALLOCATE(&totals, b->columns, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&row, b->statistics, error));
    FL_TRY_DONE(status, FL_ALLOCATE(&values, enough ? b->statistics * FL_BOOTSTRAP_RESAMPLES : 0, error));
    total_all(b, totals);
    b->statistic(b->context, totals, row);
    for (size_t s = 0; s < b->statistics; s++)
        out[s] = (fl_bootstrap_result){row[s], (double)NAN, (double)NAN, (double)NAN};
    if (enough) resample(b, totals, row, values);
    for (size_t s = 0; enough && s < b->statistics; s++)
        summarise(values + s * FL_BOOTSTRAP_RESAMPLES, b->units, &out[s]);
done:
    fl_memory_free(values);
    fl_memory_free(row);
    fl_memory_free(totals);
    return status;
}
