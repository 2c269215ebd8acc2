/* Report terms: what the words of a page mean. */
#ifndef FL_ANALYSIS_REPORT_TERMS_H
#define FL_ANALYSIS_REPORT_TERMS_H

#include <stdio.h>

void fl_report_terms_write(FILE *stream);

#endif
