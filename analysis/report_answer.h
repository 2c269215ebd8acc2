/* Report answer: the first screen of a page, in sentences made from the numbers. Which variant is best at equal bytes, is the
 * linear part worth having, and how certain is it.
 *
 * Nothing is claimed that the data does not carry: of two figures one is called better only when the paired interval of their
 * difference leaves zero out (fl_interval_verdict); otherwise the page says that it cannot be told, and why. */
#ifndef FL_ANALYSIS_REPORT_ANSWER_H
#define FL_ANALYSIS_REPORT_ANSWER_H

#include <stdio.h>

#include "analysis/report_certainty.h"
#include "harness/base/status.h"

/* One answer for every model and text of the set. */
fl_status fl_report_answer_write(const fl_report_certainty *certainty, FILE *stream, fl_error *error);

#endif
