/* Approximation errors: rows of a replacement's output against the frozen model's. Sums are float64; a row's figures do not
 * depend on the number of threads. A row is a token ([T][E]) or a head of a token ([T][H] rows of D). */
#ifndef FL_MEASURE_ERRORS_H
#define FL_MEASURE_ERRORS_H

#include <stddef.h>

#include "harness/base/threads.h"
#include "harness/measure/statistics.h"

typedef struct fl_row_error {
    double squared; /* sum of (other - reference)^2 */
    double cosine;  /* of the angle between the two; 0 when either is zero */
} fl_row_error;

/* out [rows] from reference and other [rows][columns]. */
void fl_row_errors(fl_threads *threads, size_t rows, size_t columns, const float *reference, const float *other,
                   fl_row_error *out);

/* out [rows]: moments of each row of x [rows][columns]. */
void fl_row_moments(fl_threads *threads, size_t rows, size_t columns, const float *x, fl_moments *out);

/* Index of the first entry that is NaN or infinite, or `count`. */
size_t fl_first_not_finite(const float *x, size_t count);

#endif
