#include "analysis/distributions.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

double fl_normal_cumulative(double z) {
    return 0.5 * erfc(-z / sqrt(2.0));
}

/* Where an increasing function takes the value p: halved until the ends meet. */
typedef double (*cumulative)(double x, size_t degrees);

static double invert(cumulative f, size_t degrees, double p, double low, double high) {
    for (int step = 0; step < 200 && low < high; step++) {
        const double middle = low + 0.5 * (high - low);
        if (middle == low || middle == high) break;
        if (f(middle, degrees) < p)
            low = middle;
        else
            high = middle;
    }
    return low + 0.5 * (high - low);
}

static double normal(double z, size_t degrees) {
    (void)degrees;
    return fl_normal_cumulative(z);
}

/* Only lower tails are inverted: near 1 a float64 has no digits left. */
double fl_normal_quantile(double probability) {
    if (!(probability > 0.0 && probability < 1.0))
        return probability == 0.0 ? -(double)INFINITY : probability == 1.0 ? (double)INFINITY : (double)NAN;
    if (probability > 0.5) return -fl_normal_quantile(1.0 - probability);
    return invert(normal, 0, probability, -40.0, 0.0);
}

/* P(|T| < t) for n degrees of freedom as a finite sum in cos(theta), tan(theta) = t / sqrt(n): Abramowitz and
 * Stegun 26.7.3 (odd n), 26.7.4 (even n). */
static double student_within(double t, size_t n) {
    const double theta = atan(t / sqrt((double)n)), cosine = cos(theta), sine = sin(theta);
    const int odd = n % 2 == 1;
    double term = odd ? cosine : 1.0, sum = 0.0;
    for (size_t k = odd ? 3 : 2; k <= n; k += 2) {
        sum += term;
        term *= (double)(k - 1) / (double)k * cosine * cosine;
    }
    return odd ? 2.0 / pi * (theta + sine * sum) : sine * sum;
}

double fl_student_cumulative(double t, size_t degrees) {
    const double within = student_within(fabs(t), degrees);
    return t < 0 ? 0.5 * (1.0 - within) : 0.5 * (1.0 + within);
}

double fl_student_quantile(double probability, size_t degrees) {
    double low = -1.0;
    if (!(probability > 0.0 && probability < 1.0)) return fl_normal_quantile(probability);
    if (probability > 0.5) return -fl_student_quantile(1.0 - probability, degrees);
    while (fl_student_cumulative(low, degrees) > probability && low > -1e15) low *= 2.0;
    return invert(fl_student_cumulative, degrees, probability, low, 0.0);
}
