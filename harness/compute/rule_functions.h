/* Rule functions: the small C in which a rule's row functions are written, so that one text is a loop for the cpu and the work of one
 * warp for a device.
 *
 *   FL_RULE_FUNCTION     before every function that a row function is, or calls
 *   FL_EACH(i, n)        a loop whose turns do not look at one another: a lane makes turns i, i + 32, ...
 *   FL_ALL(i, n)         a loop that every lane makes whole: around an FL_EACH, or over a few numbers
 *   FL_ONCE              before a statement that writes a single number
 *   FL_VECTOR(name)      a vector of a head (FL_RULE_MAX_HEAD_DIM numbers) that all lanes share; FL_VECTORS(name, n): n times as long
 *   FL_JOIN()            before an element is read, or written again, that another lane wrote
 *   fl_rule_sum(x, i, n, expression)         declares double x, the sum over i < n; every lane gets it
 *   fl_rule_float_sum(x, i, n, expression)   the same in float32
 *   fl_rule_sum_onto(x, i, n, expression)    adds to a double that is there
 *
 * What is outside FL_EACH and FL_ONCE is worked out by every lane alike: local numbers, conditions, calls. Only FL_EACH, FL_ONCE and
 * the pieces below write to arrays. `for`, memcpy and other functions of the C library than those of <math.h> are not part of it
 * (make lint).
 *
 * A backend that gives a row to a warp defines FL_RULE_WARP and, before it includes a rule's file inside a namespace of the rule's:
 * FL_RULE_FUNCTION, fl_rule_lane(), FL_VECTORS, FL_JOIN and fl_rule_lanes_sum(x) for float and double (a tree; every lane gets it).
 * What a rule's file says of the rule itself lies under #ifndef FL_RULE_WARP. */
#ifndef FL_COMPUTE_RULE_FUNCTIONS_H
#define FL_COMPUTE_RULE_FUNCTIONS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "harness/compute/rule_rows.h"

#define FL_ALL(i, n) for (size_t i = 0; i < (size_t)(n); i++)
#define FL_VECTOR(name) FL_VECTORS(name, 1)

#ifndef FL_RULE_WARP

#include "harness/compute/vector_math.h"

#define FL_RULE_FUNCTION static
#define FL_RULE_PIECE
#define FL_EACH(i, n) FL_ALL(i, n)
#define FL_ONCE if (true)
#define FL_VECTORS(name, n) float name[(n) * FL_RULE_MAX_HEAD_DIM]
#define FL_JOIN() ((void)0)
#define fl_rule_sum(x, i, n, expression)                                                                                       \
    double x = 0.0;                                                                                                            \
    FL_ALL(i, n) x += (expression)
#define fl_rule_float_sum(x, i, n, expression)                                                                                 \
    float x = 0.0f;                                                                                                            \
    FL_ALL(i, n) x += (expression)
#define fl_rule_sum_onto(x, i, n, expression) FL_ALL(i, n) x += (expression)

/* gradient_x = (gradient_y - along x) scale. */
static inline void fl_rule_remove(size_t n, const float *x, double along, double scale, const float *gradient_y,
                                  float *gradient_x) {
    fl_vector_remove(n, x, along, scale, gradient_y, gradient_x);
}
/* Over whole vectors; what they read is joined. On the cpu in vector registers, so that sums differ from fl_rule_sum's by
 * rounding. */
static inline double fl_rule_sum_of_squares(size_t n, const float *x) {
    return fl_vector_sum_of_squares(n, x);
}
static inline double fl_rule_dot(size_t n, const float *x, const float *y) {
    return fl_vector_dot_float64(n, x, y);
}
static inline void fl_rule_exp(size_t n, const float *x, float *y) {
    fl_vector_exp(n, x, y);
}
static inline void fl_rule_softmax_of(size_t n, const float *x, float *y) {
    fl_vector_softmax(n, x, y);
}
/* output [columns] = weight [rows] . matrix [rows][columns]; output [rows] = matrix [rows][columns] . x [columns]. */
static inline void fl_rule_weigh_rows(size_t rows, size_t columns, const float *weight, const float *matrix, float *output) {
    fl_vector_weigh_rows(rows, columns, weight, matrix, output);
}
static inline void fl_rule_times_rows(size_t rows, size_t columns, const float *matrix, const float *x, float *output) {
    fl_vector_times_rows(rows, columns, matrix, x, output);
}

#else

#define FL_RULE_PIECE FL_RULE_FUNCTION
#define FL_EACH(i, n) for (size_t i = (size_t)fl_rule_lane(); i < (size_t)(n); i += 32)
#define FL_ONCE if (fl_rule_lane() == 0)
#define fl_rule_sum(x, i, n, expression)                                                                                       \
    double x = 0.0;                                                                                                            \
    FL_EACH(i, n) x += (expression);                                                                                           \
    x = fl_rule_lanes_sum(x)
#define fl_rule_float_sum(x, i, n, expression)                                                                                 \
    float x = 0.0f;                                                                                                            \
    FL_EACH(i, n) x += (expression);                                                                                           \
    x = fl_rule_lanes_sum(x)
#define fl_rule_sum_onto(x, i, n, expression)                                                                                  \
    do {                                                                                                                       \
        fl_rule_sum(fl_rule_more, i, n, expression);                                                                           \
        x += fl_rule_more;                                                                                                     \
    } while (false)

FL_RULE_FUNCTION void fl_rule_remove(size_t n, const float *x, double along, double scale, const float *gradient_y,
                                     float *gradient_x) {
    FL_EACH(i, n) gradient_x[i] = (float)((gradient_y[i] - along * x[i]) * scale);
}
FL_RULE_FUNCTION double fl_rule_sum_of_squares(size_t n, const float *x) {
    fl_rule_sum(sum, i, n, (double)x[i] * x[i]);
    return sum;
}
FL_RULE_FUNCTION double fl_rule_dot(size_t n, const float *x, const float *y) {
    fl_rule_sum(sum, i, n, (double)x[i] * y[i]);
    return sum;
}
FL_RULE_FUNCTION void fl_rule_exp(size_t n, const float *x, float *y) {
    FL_EACH(i, n) y[i] = expf(x[i]);
}
FL_RULE_FUNCTION void fl_rule_softmax_of(size_t n, const float *x, float *y) {
    float largest = -INFINITY;
    FL_ALL(i, n) largest = x[i] > largest ? x[i] : largest;
    fl_rule_float_sum(sum, i, n, expf(x[i] - largest));
    FL_EACH(i, n) y[i] = expf(x[i] - largest) * (1.0f / sum);
}
FL_RULE_FUNCTION void fl_rule_weigh_rows(size_t rows, size_t columns, const float *weight, const float *matrix, float *output) {
    FL_EACH(i, columns) {
        float sum = 0.0f;
        FL_ALL(row, rows) sum += weight[row] * matrix[row * columns + i];
        output[i] = sum;
    }
}
FL_RULE_FUNCTION void fl_rule_times_rows(size_t rows, size_t columns, const float *matrix, const float *x, float *output) {
    FL_EACH(row, rows) {
        float sum = 0.0f;
        FL_ALL(i, columns) sum += matrix[row * columns + i] * x[i];
        output[row] = sum;
    }
}

#endif

/* Pieces that many rules share (attn_variants/rule_parts.c). What they write is joined before they return.
 *
 * unit: y = x / max(||x||, 1e-12), returns ||x||. unit_backward: gx from gy. */
FL_RULE_PIECE float fl_rule_unit(size_t n, const float *x, float *y);
FL_RULE_PIECE void fl_rule_unit_backward(size_t n, const float *x, const float *gradient_y, float *gradient_x);
/* y = x; y = 0. */
FL_RULE_PIECE void fl_rule_copy(size_t n, const float *x, float *y);
FL_RULE_PIECE void fl_rule_clear(size_t n, float *y);

/* Unit length of query and key, the value copied: what most rules begin with. */
FL_RULE_PIECE void fl_rule_unit_inputs(const fl_rule_input *input, fl_rule_output *output);
FL_RULE_PIECE void fl_rule_unit_inputs_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                                fl_rule_input_gradient *out);
/* All three copied. */
FL_RULE_PIECE void fl_rule_raw_inputs(const fl_rule_input *input, fl_rule_output *output);
FL_RULE_PIECE void fl_rule_raw_inputs_backward(const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                               fl_rule_input_gradient *out);
/* The one or the other. */
FL_RULE_PIECE void fl_rule_inputs(bool unit, const fl_rule_input *input, fl_rule_output *output);
FL_RULE_PIECE void fl_rule_inputs_backward(bool unit, const fl_rule_input *input, const fl_rule_output_gradient *gradient,
                                           fl_rule_input_gradient *out);

/* own.read and own.read_backward of a state [D][D] read as it is: y = S q with the query as given. */
FL_RULE_PIECE void fl_rule_read_matrix(const fl_rule_input *token, const float *state, float *output);
FL_RULE_PIECE void fl_rule_read_matrix_backward(const fl_rule_input *token, const float *state, const float *gradient_output,
                                                float *gradient_state, fl_rule_input_gradient *out);

#endif
