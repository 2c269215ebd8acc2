#include "harness/measure/errors.h"

#include <math.h>

enum { ROWS_AN_ITEM = 32 };

typedef struct {
    size_t rows, columns;
    const float *reference, *other;
    fl_row_error *errors;
    fl_moments *moments;
} fl_row_job;

static fl_row_error row_error(size_t columns, const float *reference, const float *other) {
    double squared = 0.0, dot = 0.0, reference_norm = 0.0, other_norm = 0.0;
    for (size_t i = 0; i < columns; i++) {
        double r = (double)reference[i], x = (double)other[i];
        squared += (x - r) * (x - r);
        dot += x * r;
        reference_norm += r * r;
        other_norm += x * x;
    }
    double norms = sqrt(reference_norm) * sqrt(other_norm);
    return (fl_row_error){.squared = squared, .cosine = norms == 0.0 ? 0.0 : dot / norms};
}

static void run_item(void *context, size_t item, size_t worker) {
    (void)worker;
    const fl_row_job *job = context;
    size_t first = item * ROWS_AN_ITEM;
    size_t last = first + ROWS_AN_ITEM < job->rows ? first + ROWS_AN_ITEM : job->rows;
    for (size_t row = first; row < last; row++) {
        size_t at = row * job->columns;
        if (job->moments != NULL) {
            job->moments[row] = fl_moments_of(job->reference + at, job->columns);
        } else {
            job->errors[row] = row_error(job->columns, job->reference + at, job->other + at);
        }
    }
}

static void run(fl_threads *threads, fl_row_job *job) {
    fl_threads_for(threads, (job->rows + ROWS_AN_ITEM - 1) / ROWS_AN_ITEM, run_item, job);
}

void fl_row_errors(fl_threads *threads, size_t rows, size_t columns, const float *reference,
                   const float *other, fl_row_error *out) {
    run(threads,
        &(fl_row_job){
            .rows = rows, .columns = columns, .reference = reference, .other = other, .errors = out});
}

void fl_row_moments(fl_threads *threads, size_t rows, size_t columns, const float *x, fl_moments *out) {
    run(threads, &(fl_row_job){.rows = rows, .columns = columns, .reference = x, .moments = out});
}

size_t fl_first_not_finite(const float *x, size_t count) {
    size_t i = 0;
    while (i < count && isfinite(x[i])) i++;
    return i;
}
