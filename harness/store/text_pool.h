/* Text pool: the evaluations of one cell on several texts (or with several seeds) as if they were one.
 *
 * Means are weighted by what they were taken over (tokens, scored tokens, sequences at a position), variances
 * are pooled with their means (n (v + (m - M)^2)), and ratios are formed again from the pooled parts; nothing
 * is an average of ratios. */
#ifndef FL_STORE_TEXT_POOL_H
#define FL_STORE_TEXT_POOL_H

#include <stddef.h>

#include "harness/base/status.h"
#include "harness/measure/text_evaluation.h"

/* Every result must have measured the same things on models of one shape; positions may differ (the longest
 * counts). names [count] are for errors. Byte counts are the largest, times the sums. NaN of a diverged part
 * stays NaN. */
fl_status fl_text_pool(const fl_text_result *results, const char *const *names, size_t count,
                       fl_text_result *out, fl_error *error);

#endif
