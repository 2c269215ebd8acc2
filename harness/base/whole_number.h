/* Whole numbers that come as doubles: from JSON, HDF5, options. A cast of a double outside the integer's range, of NaN or of an
 * infinity is undefined behaviour, so whatever a file says is converted here alone. */
#ifndef FL_BASE_WHOLE_NUMBER_H
#define FL_BASE_WHOLE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Doubles hold every whole number up to here: 2^53. */
#define FL_WHOLE_NUMBER_MOST ((int64_t)1 << 53)

/* False, and *out as it was, unless `value` is whole and at most FL_WHOLE_NUMBER_MOST in size; for a size_t at least 0. */
bool fl_size_of_number(double value, size_t *out);
bool fl_integer_of_number(double value, int64_t *out);

#endif
