#include "tests/support/compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static double worst;

typedef struct {
    double error, norm;
    fl_difference out;
} fl_tally;

static void tally(fl_tally *t, double x, double r, size_t at) {
    if (!isfinite(x) || !isfinite(r)) {
        int same = (isnan(x) && isnan(r)) || x == r;
        if (!same) t->out.not_finite++;
        return;
    }
    double d = fabs(x - r);
    t->error += d * d;
    t->norm += r * r;
    if (d > t->out.largest) {
        t->out.largest = d;
        t->out.largest_at = at;
    }
}

static fl_difference finish(fl_tally *t) {
    t->out.relative = sqrt(t->error) / fmax(sqrt(t->norm), 1e-300);
    if (t->error == 0.0) t->out.relative = 0.0;
    return t->out;
}

fl_difference fl_compare_floats(const float *x, const double *reference, size_t count) {
    fl_tally t = {0};
    for (size_t i = 0; i < count; i++) tally(&t, (double)x[i], reference[i], i);
    return finish(&t);
}

fl_difference fl_compare_doubles(const double *x, const double *reference, size_t count) {
    fl_tally t = {0};
    for (size_t i = 0; i < count; i++) tally(&t, x[i], reference[i], i);
    return finish(&t);
}

fl_difference fl_compare_float_floats(const float *x, const float *reference, size_t count) {
    fl_tally t = {0};
    for (size_t i = 0; i < count; i++) tally(&t, (double)x[i], (double)reference[i], i);
    return finish(&t);
}

static void judge(fl_difference d, double figure, double bound, const char *what) {
    if (d.not_finite > 0) fail_msg("%s: %zu entries differ in being finite", what, d.not_finite);
    if (!(figure <= bound)) {
        fail_msg("%s: difference %.3g passes %.3g (relative %.3g, largest %.3g at %zu)", what, figure, bound,
                 d.relative, d.largest, d.largest_at);
    }
    if (figure > worst) worst = figure;
}

void fl_assert_close(const float *x, const double *reference, size_t count, double bound, const char *what) {
    fl_difference d = fl_compare_floats(x, reference, count);
    judge(d, d.relative, bound, what);
}

void fl_assert_close_doubles(const double *x, const double *reference, size_t count, double bound,
                             const char *what) {
    fl_difference d = fl_compare_doubles(x, reference, count);
    judge(d, d.relative, bound, what);
}

void fl_assert_near(const float *x, const double *reference, size_t count, double bound, const char *what) {
    fl_difference d = fl_compare_floats(x, reference, count);
    judge(d, d.largest, bound, what);
}

double fl_worst_reset(void) {
    double value = worst;
    worst = 0.0;
    return value;
}
