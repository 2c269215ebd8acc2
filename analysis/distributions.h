/* Distributions: quantiles that intervals and p values need. Within 1e-10 of scipy's. */
#ifndef FL_ANALYSIS_DISTRIBUTIONS_H
#define FL_ANALYSIS_DISTRIBUTIONS_H

#include <stddef.h>

/* Standard normal. */
double fl_normal_cumulative(double z);
double fl_normal_quantile(double probability); /* -inf and inf at 0 and 1 */

/* Student's t, whole degrees of freedom from 1 up. */
double fl_student_cumulative(double t, size_t degrees);
double fl_student_quantile(double probability, size_t degrees);

#endif
