/* Elementwise functions on float32 arrays, within a few units in the last place of the exact value (bounds
 * are tested against libm in float64 over the whole range). In place allowed. NaN gives NaN; limits at +-inf
 * are exact: exp(-inf) = 0, log_sigmoid(-inf) = -inf. Results below the normal range are rounded to
 * subnormals, not dropped (silu below -87 is within 1e-43 instead). The instruction set is chosen at run
 * time. */
#ifndef FL_COMPUTE_VECTOR_MATH_H
#define FL_COMPUTE_VECTOR_MATH_H

#include <stddef.h>

void fl_vector_exp(size_t n, const float *x, float *y);
void fl_vector_sigmoid(size_t n, const float *x, float *y);     /* 1 / (1 + exp(-x)) */
void fl_vector_silu(size_t n, const float *x, float *y);        /* x sigmoid(x) */
void fl_vector_log_sigmoid(size_t n, const float *x, float *y); /* log(sigmoid(x)), never positive */
void fl_vector_softplus(size_t n, const float *x, float *y);    /* log(1 + exp(x)) */

float fl_vector_dot(size_t n, const float *x, const float *y);
double fl_vector_sum_of_squares(size_t n, const float *x); /* summed in float64 */
double fl_vector_dot_float64(size_t n, const float *x,
                             const float *y); /* likewise, and no product is rounded */

/* y = (g - along x) scale, in float64. */
void fl_vector_remove(size_t n, const float *x, double along, double scale, const float *g, float *y);

/* y = exp(x) / sum of exp(x). */
void fl_vector_softmax(size_t n, const float *x, float *y);

/* output [columns] = weight [rows] . matrix [rows][columns]; output [rows] = matrix [rows][columns] . x
 * [columns]. Not in place. */
void fl_vector_weigh_rows(size_t rows, size_t columns, const float *weight, const float *matrix,
                          float *output);
void fl_vector_times_rows(size_t rows, size_t columns, const float *matrix, const float *x, float *output);

#endif
