/* Row figures: two numbers of each row of an activation, made where it lies and brought to the host. A row is a token ([T][E]) or
 * a head of a token ([T][H] rows of D). Definitions: compute.h, row_errors and row_moments. */
#ifndef FL_MEASURE_ROW_FIGURES_H
#define FL_MEASURE_ROW_FIGURES_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/compute/compute.h"

typedef struct fl_row_figures {
    fl_compute *compute; /* borrowed */
    fl_array made;       /* [2 room] float64 */
    double *brought;     /* [2 room] */
} fl_row_figures;

typedef struct fl_row_errors {
    const double *squared, *cosine; /* [rows] */
} fl_row_errors;

typedef struct fl_row_moments {
    const double *sum, *sum_squares; /* [rows] */
} fl_row_moments;

/* room: the most rows of a call. */
fl_status fl_row_figures_create(fl_compute *compute, size_t room, fl_row_figures *out, fl_error *error);
void fl_row_figures_release(fl_row_figures *figures);

/* Both wait for the result, which lies in `figures` until the next call. */
fl_status fl_row_figures_errors(fl_row_figures *figures, size_t rows, size_t columns, fl_array reference,
                                fl_array other, fl_row_errors *out, fl_error *error);
fl_status fl_row_figures_moments(fl_row_figures *figures, size_t rows, size_t columns, fl_array x,
                                 fl_row_moments *out, fl_error *error);

#endif
