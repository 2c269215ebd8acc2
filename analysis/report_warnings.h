/* Report warnings: what a reader of a table must know before believing it. */
#ifndef FL_ANALYSIS_REPORT_WARNINGS_H
#define FL_ANALYSIS_REPORT_WARNINGS_H

#include <stdio.h>

#include "analysis/run_set.h"
#include "harness/base/status.h"

/* A list of findings, each with the runs it concerns; nothing at all when there are none. Findings: cells that failed or are
 * not done and files that cannot be read, by name; the warnings of the run files; runs with equal numbers; runs of other code
 * than this program's; runs of different models or texts side by side; divergence; a state that was never, or seldom, reached;
 * no gain over the run with the linear part off; nMSE and perplexity in disagreement; per task: truncated prompts, scores near
 * chance, no gain over linear off on the same items. */
fl_status fl_report_warnings_write(const fl_run_set *set, FILE *stream, fl_error *error);

#endif
