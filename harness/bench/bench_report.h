/* Bench report: the rows for people (a table) and for programs (JSON).
 *
 * JSON: {"machine": {...}, "settings": {...}, "rows": [{"group", "name", "parameters": {...}, "unit",
 * "value", "median_value", "seconds": [every repeat], "minimum_seconds", "median_seconds", "work", "flops",
 * "fraction_of_peak", "bytes", "fraction_of_bandwidth", "peak_resident_bytes"}, ...]}. What does not apply to
 * a row, or is not known, is left out. A figure computed from other rows has no seconds. */
#ifndef FL_BENCH_REPORT_H
#define FL_BENCH_REPORT_H

#include <stdio.h>

#include "harness/bench/bench_rows.h"

void fl_bench_print_table(const fl_bench *bench, FILE *stream);
/* Write errors are the stream's. */
fl_status fl_bench_print_json(const fl_bench *bench, FILE *stream, fl_error *error);

#endif
