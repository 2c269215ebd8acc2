/* Report words: the pieces that a page's sentences are made of. Everything is escaped HTML. */
#ifndef FL_ANALYSIS_REPORT_WORDS_H
#define FL_ANALYSIS_REPORT_WORDS_H

#include <stddef.h>
#include <stdio.h>

#include "analysis/equal_bytes.h"
#include "analysis/report_certainty.h"

/* One model on one text, its runs compared by one score. */
typedef struct fl_report_case {
    const fl_report_certainty *certainty;
    const fl_run_groups *groups;
    const fl_run_score *score;
    fl_contender *contenders; /* by bytes (equal_bytes.h) */
    size_t count;             /* at least one */
    FILE *stream;
} fl_report_case;

void fl_report_number(FILE *stream, double value);
/* "405 KiB", "7.03 MiB" */
void fl_report_bytes(FILE *stream, double bytes);
/* The name of a group of runs, emphasised. */
void fl_report_run(const fl_report_case *c, size_t group);
/* "perplexity", "mmlu, acc" */
void fl_report_score_name(const fl_report_case *c);
/* "kda, 8 + 56: perplexity 36.2 ± 0.1 (3 seeds) with 7.03 MiB a sequence" */
void fl_report_contender(const fl_report_case *c, const fl_contender *contender);
/* "difference 0.5, 95 % interval 0.1 to 0.9, p = 0.01, 16 sequences"; without an interval the reason. */
void fl_report_difference(const fl_report_case *c, const fl_interval *difference);

#endif
