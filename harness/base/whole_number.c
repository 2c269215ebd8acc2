#include "harness/base/whole_number.h"

#include <math.h>

bool fl_integer_of_number(double value, int64_t *out) {
    if (!(fabs(value) <= (double)FL_WHOLE_NUMBER_MOST) || value != trunc(value)) return false;
    *out = (int64_t)value;
    return true;
}

bool fl_size_of_number(double value, size_t *out) {
    int64_t whole = 0;
    if (!fl_integer_of_number(value, &whole) || whole < 0) return false;
    *out = (size_t)whole;
    return true;
}
