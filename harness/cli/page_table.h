/* Page table: a table for readers (analysis/run_columns.h) on a terminal. */
#ifndef FL_CLI_PAGE_TABLE_H
#define FL_CLI_PAGE_TABLE_H

#include <stdio.h>

#include "analysis/table.h"
#include "harness/base/status.h"

/* No wider than the terminal that `stream` is; what was left out, and what the errors are, is said below it. */
fl_status fl_page_table_print(FILE *stream, const fl_table *table, fl_error *error);

#endif
