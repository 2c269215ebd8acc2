/* Comparing arrays: NaN fails first (unless both are), then the ratio ||x - reference|| / ||reference|| (root mean squares)
 * and the largest absolute difference. */
#ifndef FL_TESTS_SUPPORT_COMPARE_H
#define FL_TESTS_SUPPORT_COMPARE_H

#include <stddef.h>

typedef struct fl_difference {
    double relative;    /* ||x - r|| / max(||r||, tiny) */
    double largest;     /* max |x - r| */
    size_t largest_at;
    size_t not_finite;  /* entries where one side is NaN/inf and the other is not the same */
} fl_difference;

fl_difference fl_compare_floats(const float *x, const double *reference, size_t count);
fl_difference fl_compare_doubles(const double *x, const double *reference, size_t count);
fl_difference fl_compare_float_floats(const float *x, const float *reference, size_t count);

/* Fails the running cmocka test, naming `what`, when the relative difference passes `bound` or something is not finite. */
void fl_assert_close(const float *x, const double *reference, size_t count, double bound, const char *what);
void fl_assert_close_doubles(const double *x, const double *reference, size_t count, double bound, const char *what);
/* Same with the largest absolute difference. */
void fl_assert_near(const float *x, const double *reference, size_t count, double bound, const char *what);

/* The worst relative difference seen by the asserts since the last call, for reports: printed by a test as
 * "worst: <what> <figure>". */
double fl_worst_reset(void);

#endif
