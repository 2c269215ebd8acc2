/* Moments of many numbers: their count, their sum and the sum of their squares, float64. */
#ifndef FL_MEASURE_MOMENTS_H
#define FL_MEASURE_MOMENTS_H

typedef struct fl_moments {
    double count, sum, sum_squares;
} fl_moments;

/* Of `count` numbers more. */
void fl_moments_add(fl_moments *moments, double count, double sum, double sum_squares);
/* Population variance, one mean removed; NaN when empty. */
double fl_moments_variance(const fl_moments *moments);

#endif
