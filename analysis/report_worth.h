/* Report worth: whether the linear part is worth having, against the same runs with it off; and with which certainty. */
#ifndef FL_ANALYSIS_REPORT_WORTH_H
#define FL_ANALYSIS_REPORT_WORTH_H

#include "analysis/report_words.h"
#include "harness/base/status.h"

fl_status fl_report_worth_write(const fl_report_case *c, fl_error *error);
void fl_report_certainty_write(const fl_report_case *c);

#endif
