/* Comparison tables: a run comparison as a page of text, as Markdown and as CSV. */
#ifndef FL_ANALYSIS_COMPARE_TABLES_H
#define FL_ANALYSIS_COMPARE_TABLES_H

#include <stdio.h>

#include "analysis/run_compare.h"

/* names of the two sides, as the user gave them. Text and Markdown say the same: what differs in the configuration, one row a
 * cell and figure, why an interval is missing, which cells have no partner. Numbers have the digits that a reader needs. */
void fl_compare_tables_text(const fl_run_comparison *comparison, const char *const names[2], FILE *stream);
void fl_compare_tables_markdown(const fl_run_comparison *comparison, const char *const names[2], FILE *stream);

/* RFC 4180, one row a cell and figure, nine digits: run_a, run_b, cell_a, cell_b, figure, units, a, b, difference, low, high,
 * level, p, test, n, why_not. */
void fl_compare_tables_csv(const fl_run_comparison *comparison, FILE *stream);

#endif
